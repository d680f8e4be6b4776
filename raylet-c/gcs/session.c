/* Where the head's session lives. 2.35.0: three keys of the key-value store. 2.60.0: the name in the key-value store, the two
 * folders in the head's node entry. Asked one after another: it is needed once, by a start without the flags. */
#include <stdlib.h>
#include <string.h>

#include "raylet-c/gcs/internal.h"

enum { NAME, DIR, TEMP, N_FACTS };

static const char *const keys[N_FACTS] = { "session_name", "session_dir", "temp_dir" };

typedef struct search {
	rc_gcs *g;
	rc_gcs_session_fn fn;
	void *arg;
	char *facts[N_FACTS];
	int n;
} search;

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

static void finish(search *s, const rc_error *error)
{
	rc_gcs_session session = { or_empty(s->facts[NAME]), or_empty(s->facts[DIR]), or_empty(s->facts[TEMP]) };

	if (!s->g->ended)
		s->fn(s->arg, error, error ? NULL : &session);
	for (int i = 0; i < N_FACTS; i++)
		free(s->facts[i]);
	free(s);
}

static void ask_key(search *s);

static void on_key(void *arg, const rc_error *error, const void *reply)
{
	const Rw__InternalKVGetReply *r = reply;
	search *s = arg;

	if (error && error->code != RC_E_NOT_FOUND) {
		finish(s, error);
		return;
	}
	if (r)
		s->facts[s->n] = rc_strndup(RC_GET_VIEW(r, value).p, RC_GET_VIEW(r, value).n);
	s->n++;
	ask_key(s);
}

static void on_nodes(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GetAllNodeInfoReply *r = reply;
	search *s = arg;

	for (size_t i = 0; r && i < r->n_node_info_list && !s->facts[DIR]; i++) {
		const Rw__GcsNodeInfo *node = r->node_info_list[i];

		if (!RC_GET(node, is_head_node) || RC_GET(node, state) != rc_enum_value(s->g->dialect, RC_V_NODE_ALIVE))
			continue;
		s->facts[DIR] = rc_strdup(RC_GET_STR(node, session_dir));
		s->facts[TEMP] = rc_strdup(RC_GET_STR(node, temp_dir));
	}
	finish(s, error);
}

static void ask_key(search *s)
{
	Rw__InternalKVGetRequest request = RW__INTERNAL_KVGET_REQUEST__INIT;
	rc_gcs *g = s->g;
	bool in_nodes = rc_has_field(g->dialect, &rw__gcs_node_info__descriptor, "session_dir");

	if (s->n > NAME && in_nodes) {
		Rw__GetAllNodeInfoRequest all = RW__GET_ALL_NODE_INFO_REQUEST__INIT;

		rc__gcs_send(g, RC_M_GET_ALL_NODE_INFO, &all, &rw__get_all_node_info_reply__descriptor, RC__GCS_OWN, rc__gcs_timeout(g), on_nodes,
		             s);
		return;
	}
	if (s->n == N_FACTS) {
		finish(s, NULL);
		return;
	}
	RC_SET_BYTES(request, namespace_, "session", strlen("session"));
	RC_SET_BYTES(request, key, keys[s->n], strlen(keys[s->n]));
	rc__gcs_send(g, RC_M_KV_GET, &request, &rw__internal_kvget_reply__descriptor, RC__GCS_OWN, rc__gcs_timeout(g), on_key, s);
}

void rc_gcs_get_session(rc_gcs *g, rc_gcs_session_fn fn, void *arg)
{
	search *s = rc_alloc(sizeof *s);

	*s = (search){ .g = g, .fn = fn, .arg = arg };
	ask_key(s);
}
