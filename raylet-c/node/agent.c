/* The native agent in the daemon: what it may ask about the node. RAYLET_C_AGENT in the node's environment chooses: native, or
 * stock for Ray's own agent process. */
#include "raylet-c/agent/agent.h"
#include "raylet-c/node/node.h"

static const char *unwell(void *ctx)
{
	const rc_daemon *n = ctx;
	if (n->state < RC_ALIVE)
		return "the node is not registered yet";
	return rc_daemon_ending(n) ? "the node is ending" : NULL;
}

static size_t pids(void *ctx, pid_t *ret, size_t room)
{
	const rc_daemon *n = ctx;
	size_t count = 0;
	if (!n->pool)
		return 0;
	for (const rc_worker *w = NULL; (w = rc_pool_next(n->pool, w));) {
		if (w->pid <= 0)
			continue;
		if (count < room)
			ret[count] = w->pid;
		count++;
	}
	return count;
}

static void runtime_envs(void *ctx, int64_t limit, rc_buf *out)
{
	rc_runtime_envs_pack(((const rc_daemon *)ctx)->runtime_envs, limit, out);
}

static bool want_jobs(void *ctx)
{
	rc_daemon *n = ctx;
	return n->agents && rc_agents_want_jobs(n->agents);
}

static const rc_agent_ops ops = { .want_jobs = want_jobs, .runtime_envs = runtime_envs, .unwell = unwell, .pids = pids, .metrics = rc_metrics_add };

int rc_daemon_agent_create(rc_daemon *n, rc_error *error)
{
	const rc_options *o = &n->options;
	rc_agent_options a = {
		.loop = n->loop,
		.rpc = n->rpc,
		.gcs = n->gcs,
		.procs = n->procs,
		.dialect = n->dialect,
		.node_id = n->node_id,
		.ports = n->ports,
		.node_ip = o->node_ip_address,
		.log_dir = o->log_dir,
		.temp_dir = o->temp_dir,
		.session_name = o->session_name,
		.python_command = o->python_worker_command,
		.token = n->token,
		.ops = &ops,
		.ctx = n,
	};
	n->agent = rc_agent_create(&a, error);
	return n->agent ? 0 : -1;
}
