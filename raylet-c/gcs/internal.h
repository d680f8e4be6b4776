/* What the sources of this folder share: the struct behind rc_gcs and the seams between calls, nodes, jobs, pubsub and sync.
 * Not for other folders.
 *
 * Lifetime: rc_gcs_destroy sets `ended`, cancels what is open and drops its reference. Every open call and stream holds a
 * reference; their callbacks look at `ended` first. After any user callback the code may find g ended, and its tables gone:
 * it checks before it goes on. */
#ifndef RC_GCS_INTERNAL_H
#define RC_GCS_INTERNAL_H

#include <jansson.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/map.h"
#include "raylet-c/gcs/gcs.h"

enum {
	RC__GCS_MAX_KEPT = 256 << 20, /* bytes of requests that are kept */
	RC__GCS_MAX_DEAD = 1000,      /* dead nodes that are remembered; the head remembers as many (2.35.0, 2.60.0) */
	RC__GCS_CHECK_MS = 5000,      /* the default of raylet_liveness_self_check_interval_ms */
	RC__GCS_STREAM_PAUSE_MS = 2000,
	RC__GCS_VIEW_PAUSE_MS = 20
};

typedef struct rc__gcs_sub {
	rc_id subscriber_id;
	rc_buf publisher_id; /* empty until the first answer */
	int64_t done;        /* highest sequence id handled */
	uint64_t polled_at;
	rc_timer *pause;
	bool polling;
} rc__gcs_sub;

typedef struct rc__gcs_sync {
	rc_stream *stream;
	bool ready, sending, dirty, gc_wanted, complained;
	rc_buf view; /* the newest, packed; empty: none yet */
	int64_t version;
	uint64_t sent_at;
	rc_timer *pause;     /* until the next view may go */
	rc_timer *reconnect;
} rc__gcs_sync;

struct rc_gcs {
	rc_loop *loop;
	rc_rpc *rpc;
	rc_gcs_ops ops;
	void *ctx;
	size_t refs;
	bool ended;
	bool connected, registered, leaving, told; /* told: failed, buried or lost was called */

	char *address;
	rc_id node_id;
	char cluster_hex[2 * RC_ID_MAX + 1];
	const rc_dialect *dialect;
	char *python_version, *config_text;
	json_t *config;
	char *own_address; /* "ip:port" of our node manager: what 2.35.0's CheckAlive asks for */
	uint64_t connect_timeout_ms;

	/* calls.c */
	rc_link calls, waiting;
	size_t kept_bytes;
	bool down;
	uint64_t down_since, backoff_ms;
	rc_timer *retry, *deadline, *check;
	char why_down[200];

	/* nodes.c */
	rc_map *nodes;
	rc_link dead_nodes;
	size_t n_alive, n_dead;
	uint64_t news; /* counts pieces of news about nodes */

	/* jobs.c */
	rc_map *running_jobs, *died_meanwhile;
	int job_fetches;

	rc__gcs_sub sub;
	rc__gcs_sync sync;
};

void rc__gcs_hold(rc_gcs *g);
void rc__gcs_release(rc_gcs *g);

/* calls.c. request NULL: a message without fields. timeout_ms 0: none. flags: */
enum {
	RC__GCS_ONCE = 1, /* one try, also while the head is away */
	RC__GCS_OWN = 2   /* fn is this folder's: it is called even after the end (RC_E_CANCELLED), to free its arg */
};
void rc__gcs_send(rc_gcs *g, rc_method method, const void *request, const ProtobufCMessageDescriptor *reply, unsigned flags,
                  uint64_t timeout_ms, rc_gcs_fn fn, void *arg);
uint64_t rc__gcs_timeout(const rc_gcs *g); /* of a usual call */
void rc__gcs_calls_init(rc_gcs *g);
void rc__gcs_calls_end(rc_gcs *g);
/* Ends the story once: failed before `connected`, buried or lost after it. */
void rc__gcs_tell_failed(rc_gcs *g, rc_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void rc__gcs_tell_buried(rc_gcs *g, const char *text);

/* nodes.c */
void rc__gcs_nodes_init(rc_gcs *g);
void rc__gcs_nodes_end(rc_gcs *g);
void rc__gcs_fetch_nodes(rc_gcs *g);
void rc__gcs_node_info(rc_gcs *g, const Rw__GcsNodeInfo *info);
void rc__gcs_node_liveness(rc_gcs *g, const Rw__GcsNodeAddressAndLiveness *info, rc_view key);

/* jobs.c */
void rc__gcs_jobs_init(rc_gcs *g);
void rc__gcs_jobs_end(rc_gcs *g);
void rc__gcs_fetch_jobs(rc_gcs *g);
void rc__gcs_job_news(rc_gcs *g, const Rw__JobTableData *job, bool from_fetch);

/* pubsub.c */
void rc__gcs_subscribe(rc_gcs *g); /* subscribes, then reads nodes and jobs; again after a restart of the head */
void rc__gcs_pubsub_end(rc_gcs *g);

/* sync.c */
void rc__gcs_sync_start(rc_gcs *g);
void rc__gcs_sync_end(rc_gcs *g);

#endif
