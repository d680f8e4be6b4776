/* The head (GCS) as seen from a node: connect, register, liveness, node table, jobs, worker deaths, sync stream, key-value
 * and the reports that a node makes. Everything is for the loop thread; every callback comes from the loop, never from
 * inside the function that was called.
 *
 * The life of one rc_gcs: create -> ops.connected (dialect and config are known) -> rc_gcs_register -> its callback. After
 * that the module keeps node table, subscriptions, sync stream and the self check alive by itself. Calls made while the
 * head is away are kept and sent again until it is back or gcs_rpc_server_reconnect_timeout_s (60) has passed; then
 * ops.lost comes once. Facts: 2.35.0 and 2.60.0 on the wire; README.md of this folder. */
#ifndef RC_GCS_GCS_H
#define RC_GCS_GCS_H

#include "raylet-c/base/loop.h"
#include "raylet-c/rpc/rpc.h"
#include "raylet-c/wire/dialect.h"

typedef struct rc_gcs rc_gcs;

typedef struct rc_gcs_label {
	char *key, *value;
} rc_gcs_label;

/* A node of the cluster, our own included. Owned by the table; the pointer stays good while the node is alive and until
 * node_removed has returned; dead ones are kept for their death text, at most 1000, the oldest go first. */
typedef struct rc_gcs_node {
	rc_id id;
	char *ip;
	int node_manager_port, object_manager_port;
	char address[80];        /* "ip:port" of the node manager, for rc_call */
	char object_address[80]; /* "ip:port" of the object manager */
	bool alive;
	int death_reason;        /* the release's number (RC_V_DEATH_...); 0 unspecified */
	char *death_text;        /* never NULL, "" when unknown */
	rc_gcs_label *labels;    /* 2.35.0; in 2.60.0 they are in the view (below), n_labels = 0 */
	size_t n_labels;
	void *user;              /* the caller's: NULL at first */
} rc_gcs_node;

/* All optional but connected, failed, buried and lost. */
typedef struct rc_gcs_ops {
	void (*connected)(void *ctx);
	/* Connecting failed for good (deadline, unknown release, wrong cluster id, refused token): say it and end. */
	void (*failed)(void *ctx, const rc_error *error);
	void (*node_added)(void *ctx, rc_gcs_node *node);   /* once a node, also for our own */
	void (*node_removed)(void *ctx, rc_gcs_node *node); /* once, only for one that was added; alive is false already */
	/* A job that runs (dead false, once) or ended (dead true; may come more than once, and for one never announced: the
	 * head says it twice). data is borrowed. */
	void (*job)(void *ctx, const rc_id *job, bool dead, const Rw__JobTableData *data);
	/* Any worker or driver of the cluster, also our own. A dead driver's id: its 4 job bytes, then 24 bytes 0xff. */
	void (*worker_died)(void *ctx, const rc_id *worker, const rc_id *node);
	/* Another node's resources, from the sync stream. May come before its node_added or after its node_removed. Borrowed. */
	void (*view)(void *ctx, const rc_id *node, const Rw__SyncerResourceViewSyncMessage *view);
	void (*global_gc)(void *ctx); /* another node asks all for a garbage collection in their workers */
	void (*buried)(void *ctx, const char *text); /* the head has declared this node dead: end with this text. Once. */
	void (*lost)(void *ctx, const char *text);   /* the head did not come back: end with this text. Once. */
} rc_gcs_ops;

typedef struct rc_gcs_options {
	const char *address;         /* "ip:port" or "name:port" */
	rc_id node_id;               /* ours */
	const char *cluster_id;      /* hex, from --cluster-id; NULL or "": asked for */
	uint64_t connect_timeout_ms; /* until `connected`; 0: 60 s */
} rc_gcs_options;

/* Starts connecting. Strings are copied. */
rc_gcs *rc_gcs_create(rc_loop *loop, rc_rpc *rpc, const rc_gcs_options *options, const rc_gcs_ops *ops, void *ctx);
/* Ends everything; no callback comes after it, those of open calls neither. NULL is fine. Call it before rc_rpc_destroy. */
void rc_gcs_destroy(rc_gcs *g);

/* ---- what is known after `connected` ---- */

const rc_dialect *rc_gcs_dialect(const rc_gcs *g);
const rc_id *rc_gcs_node_id(const rc_gcs *g);
const char *rc_gcs_cluster_id(const rc_gcs *g);      /* hex */
const char *rc_gcs_python_version(const rc_gcs *g);  /* "3.11.7" of the head; "" when it does not say */
const char *rc_gcs_config_json(const rc_gcs *g);     /* GetInternalConfig verbatim: what GetSystemConfig answers */

/* A Ray config value by its name in ray_config_def: from the head's JSON, else environment RAY_<name>, else fallback. A
 * value of the wrong type is logged once a call and counts as absent. The string is good until the next change of the
 * environment or the end of g. */
int64_t rc_gcs_config_int(const rc_gcs *g, const char *name, int64_t fallback);
double rc_gcs_config_double(const rc_gcs *g, const char *name, double fallback);
bool rc_gcs_config_bool(const rc_gcs *g, const char *name, bool fallback);
const char *rc_gcs_config_str(const rc_gcs *g, const char *name, const char *fallback);

/* ---- calls ----
 * error is NULL on success, reply then is the unpacked message (borrowed). Otherwise reply is NULL, and error says
 * "<method>: <why>". A refusal in the head's own status: RC_E_NOT_FOUND or RC_E_INVALID. */
typedef void (*rc_gcs_fn)(void *arg, const rc_error *error, const void *reply);

/* Any method of the head, after `connected`. request is a generated struct, packed before this returns. Sent again while the
 * head is away (so it may reach the head twice). fn may be NULL: a failure is then logged. At most 256 MiB of requests are
 * kept; more fail with RC_E_FULL. A method that the release lacks: RC_E_UNSUPPORTED. */
void rc_gcs_call(rc_gcs *g, rc_method method, const void *request, const ProtobufCMessageDescriptor *reply, rc_gcs_fn fn, void *arg);

/* Registers this node (info: node_id, address, ports, resources, ...; packed before this returns) and on success starts node
 * table, subscriptions, sync stream and self check. Once. reply is an Rw__RegisterNodeReply. */
void rc_gcs_register(rc_gcs *g, const Rw__GcsNodeInfo *info, rc_gcs_fn fn, void *arg);
/* Leaves: reason is RC_V_DEATH_EXPECTED etc. One try, at most 5 s. buried and lost do not come any more. */
void rc_gcs_unregister(rc_gcs *g, rc_enum reason, const char *text, rc_gcs_fn fn, void *arg);
/* For the served NotifyGCSRestart: subscribes again, reads nodes and jobs again, opens a new sync stream. */
void rc_gcs_on_restart(rc_gcs *g);

typedef void (*rc_gcs_kv_fn)(void *arg, const rc_error *error, rc_view value); /* absent key: RC_E_NOT_FOUND */
void rc_gcs_kv_get(rc_gcs *g, const char *space, const char *key, rc_gcs_kv_fn fn, void *arg);
void rc_gcs_kv_put(rc_gcs *g, const char *space, const char *key, rc_view value, bool overwrite, rc_gcs_fn fn, void *arg);

/* Where the head's session lives, for a start without the flags (raylet-c start): 2.35.0 keeps it in key-value, 2.60.0 in
 * the head's node entry. Strings are borrowed; "" when the head has none. */
typedef struct rc_gcs_session {
	const char *session_name, *session_dir, *temp_dir;
} rc_gcs_session;
typedef void (*rc_gcs_session_fn)(void *arg, const rc_error *error, const rc_gcs_session *session);
void rc_gcs_get_session(rc_gcs *g, rc_gcs_session_fn fn, void *arg);

void rc_gcs_report_worker_failure(rc_gcs *g, const Rw__WorkerTableData *worker, rc_gcs_fn fn, void *arg);
void rc_gcs_add_job(rc_gcs *g, const Rw__JobTableData *job, rc_gcs_fn fn, void *arg);
void rc_gcs_mark_job_finished(rc_gcs *g, const rc_id *job, rc_gcs_fn fn, void *arg);
/* Shown to the job's driver (nil job: to all). type: "worker_died", ... */
void rc_gcs_report_job_error(rc_gcs *g, const rc_id *job, const char *type, const char *text, rc_gcs_fn fn, void *arg);
/* Asks the head to drain a node; reason RC_V_DRAIN_PREEMPTION or _IDLE; reply Rw__AutoscalerDrainNodeReply. */
void rc_gcs_drain_node(rc_gcs *g, const rc_id *node, rc_enum reason, const char *text, int64_t deadline_wall_ms, rc_gcs_fn fn, void *arg);

/* ---- nodes ---- */

rc_gcs_node *rc_gcs_node_find(const rc_gcs *g, const rc_id *id); /* dead ones too; NULL: unknown */
size_t rc_gcs_nodes_alive(const rc_gcs *g);
/* for (size_t i = 0; (node = rc_gcs_node_next(g, &i));) ... The live ones, no order. */
rc_gcs_node *rc_gcs_node_next(const rc_gcs *g, size_t *i);

/* ---- sync stream ---- */

/* Our resources now; packed before this returns. The first change goes at once, further ones within 20 ms, the newest only;
 * sent again after every reconnect. May be called before rc_gcs_register. */
void rc_gcs_set_view(rc_gcs *g, const Rw__SyncerResourceViewSyncMessage *view);
void rc_gcs_send_global_gc(rc_gcs *g); /* asks every node; dropped while the stream is down */

#endif
