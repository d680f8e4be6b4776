/* The one server's table: method -> handler, put together from the tables of lease_service.c, workers.c, stats.c, drain.c,
 * objects/ and, when it is the native one, agent/. Whatever is not there is answered with UNIMPLEMENTED; README.md lists it with the command that then fails. */

#include "raylet-c/base/log.h"
#include "raylet-c/node/node.h"

void rc_reply_message(rc_daemon *n, rc_request *r, const void *m)
{
	rc_buf out = { 0 };
	rc_pack(n->dialect, m, &out);
	rc_reply(r, rc_view_of(out.p, out.n));
	rc_buf_free(&out);
}

void *rc_take_message(rc_daemon *n, rc_request *r, const ProtobufCMessageDescriptor *type, rc_view bytes)
{
	void *m = rc_unpack(n->dialect, type, bytes);
	if (!m) {
		rc_warn("%s from %s: %zu bytes that are not a message of Ray %s", type->short_name, rc_request_peer(r), bytes.n,
		        rc_dialect_release(n->dialect));
		rc_reply_error(r, RC_RPC_INVALID, "%s: malformed", type->short_name);
	}
	return m;
}

static rc_service_fn find(rc_method method)
{
	static const rc_service *const tables[] = { rc_lease_services, rc_worker_services, rc_stats_services, rc_drain_services };
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (const rc_service *s = tables[t]; s->serve; s++)
			if (s->method == method)
				return s->serve;
	return NULL;
}

void rc_services_serve(void *ctx, rc_request *r, const char *path, size_t path_n, rc_view bytes)
{
	rc_daemon *n = ctx;
	int method = rc_method_find(n->dialect, path, path_n);
	if (rc_daemon_ending(n)) {
		rc_reply_error(r, RC_RPC_UNAVAILABLE, "the node is ending");
		return;
	}
	if (method < 0 && rc_objects_serve_own(n->objects, r, path, path_n, bytes))
		return;
	if (method < 0 && rc_look_serve(n, r, path, path_n))
		return;
	if (method >= 0 && rc_objects_serve(n->objects, r, (rc_method)method, bytes))
		return;
	if (n->agent && rc_agent_serve(n->agent, r, method, path, path_n, bytes))
		return;
	rc_service_fn serve = method >= 0 ? find((rc_method)method) : NULL;
	if (serve) {
		serve(n, r, bytes);
	} else {
		rc_debug("%.*s from %s is not served", (int)path_n, path, rc_request_peer(r));
		rc_reply_error(r, RC_RPC_UNIMPLEMENTED, "%.*s is not served by this node", (int)path_n, path);
	}
}
