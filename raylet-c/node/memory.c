/* The memory watch: when the host (or this container) runs short, one leased worker at a time is ended before the kernel picks
 * a victim of its own. Settings as in stock (2.35.0 and 2.60.0): memory_monitor_refresh_ms 250 (0: off),
 * memory_usage_threshold 0.95, min_memory_free_bytes -1 (off; of the two limits the higher one counts).
 *
 * Who goes: tasks that will be retried before those that will not, of these the one granted last; actors that can restart
 * count as retried. Its owner learns from GetTaskFailureCause / GetWorkerFailureCause that memory was the reason, and that
 * it must fail at once when no retry is left to it. */
#include <stdlib.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/memory.h"
#include "raylet-c/node/node.h"

enum { KILL_PAUSE_MS = 2000 };

static bool will_be_retried(const rc_lease *l)
{
	return l->spec.is_actor ? l->spec.max_actor_restarts != 0 : l->spec.max_retries != 0;
}

static rc_lease *victim(rc_daemon *n)
{
	rc_lease *best = NULL, *l;
	for (size_t i = 0; (l = rc_leases_next(n->leases, &i));) {
		if (l->state != RC_LEASE_GRANTED || l->ending)
			continue;
		bool better = !best || will_be_retried(l) > will_be_retried(best) ||
		              (will_be_retried(l) == will_be_retried(best) && l->granted_ms > best->granted_ms);
		if (better)
			best = l;
	}
	return best;
}

void rc_memory_check(void *arg)
{
	rc_daemon *n = arg;
	int64_t used, total;
	if (rc_daemon_ending(n) || !rc_memory_read(&used, &total))
		return;
	double fraction = rc_gcs_config_double(n->gcs, "memory_usage_threshold", 0.95);
	int64_t least_free = rc_gcs_config_int(n->gcs, "min_memory_free_bytes", -1);
	int64_t limit = (int64_t)(fraction * (double)total);
	if (least_free >= 0 && total - least_free > limit)
		limit = total - least_free;
	uint64_t now = rc_now_ms();
	if (used <= limit || now - n->last_memory_kill_ms < KILL_PAUSE_MS)
		return;
	rc_lease *l = victim(n);
	rc_worker *w = l ? rc_pool_find(n->pool, &l->worker_id) : NULL;
	if (!w)
		return;
	n->last_memory_kill_ms = now;
	char *text = rc_sprintf("The node (IP: %s, ID: %s) is running low on memory: %.2f GB of %.2f GB are used, above the limit of %.2f GB. Worker %s "
	                        "(pid %d) of %s '%s' was ended, the last one granted among those that %s. Set RAY_memory_usage_threshold or "
	                        "RAY_memory_monitor_refresh_ms=0 to change this, or ask for more memory or CPUs per task so that fewer run at once.",
	                        n->options.node_ip_address, rc_id_to_hex(&n->node_id).s, (double)used / 1e9, (double)total / 1e9, (double)limit / 1e9,
	                        rc_id_to_hex(&w->id).s, (int)w->pid, l->spec.is_actor ? "actor" : "task", l->spec.task_name ? l->spec.task_name : "",
	                        will_be_retried(l) ? "are retried" : "are not retried");
	rc_warn("%s", text);
	rc_failure_record(n, &l->spec.lease_id, rc_enum_value(n->dialect, RC_V_ERROR_OUT_OF_MEMORY), !will_be_retried(l), text);
	rc_gcs_report_job_error(n->gcs, &l->spec.job_id, "Out of Memory", text, NULL, NULL);
	rc_worker_end(n, w, true, RC_V_EXIT_NODE_OUT_OF_MEMORY, "%s", text);
	free(text);
}
