/* Jobs: one listing and the job channel feed one callback.
 *
 * Trap: the listing is a snapshot that may be older than a message that came before it, so jobs that died while a listing
 * was on its way are remembered until it is there. Job entries of a listing that were dead before we heard of them are
 * nobody's concern here and are left out. */

#include "raylet-c/base/log.h"
#include "raylet-c/gcs/internal.h"

static char mark; /* the value of both sets */

void rc__gcs_job_news(rc_gcs *g, const Rw__JobTableData *job, bool from_fetch)
{
	rc_id id = RC_GET_ID(job, job_id);
	bool dead = RC_GET(job, is_dead), known = rc_map_get_id(g->running_jobs, &id) != NULL;

	if (id.n != RC_JOB_ID) {
		rc_warn("a job with an id of %d bytes from the head is left out", id.n);
		return;
	}
	if (dead) {
		rc_map_del_id(g->running_jobs, &id);
		if (g->job_fetches)
			rc_map_put_id(g->died_meanwhile, &id, &mark);
		if (from_fetch && !known)
			return;
	} else {
		if (known || rc_map_get_id(g->died_meanwhile, &id))
			return;
		rc_map_put_id(g->running_jobs, &id, &mark);
	}
	if (g->ops.job)
		g->ops.job(g->ctx, &id, dead, job);
}

static void on_jobs(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GetAllJobInfoReply *r = reply;
	rc_gcs *g = arg;

	for (size_t i = 0; r && i < r->n_job_info_list && !g->ended; i++)
		rc__gcs_job_news(g, r->job_info_list[i], true);
	if (error && !g->ended)
		rc_error_log("the list of jobs could not be read: %s", error->text);
	if (!g->ended && --g->job_fetches == 0) {
		rc_map_destroy(g->died_meanwhile);
		g->died_meanwhile = rc_map_create();
	}
}

void rc__gcs_fetch_jobs(rc_gcs *g)
{
	Rw__GetAllJobInfoRequest request = RW__GET_ALL_JOB_INFO_REQUEST__INIT;

	/* Both fields make the head ask others (the job store, every driver) before it answers. */
	RC_SET(request, skip_submission_job_info_field, 1);
	RC_SET(request, skip_is_running_tasks_field, 1);
	g->job_fetches++;
	rc_gcs_call(g, RC_M_GET_ALL_JOB_INFO, &request, &rw__get_all_job_info_reply__descriptor, on_jobs, g);
}

void rc__gcs_jobs_init(rc_gcs *g)
{
	g->running_jobs = rc_map_create();
	g->died_meanwhile = rc_map_create();
}

void rc__gcs_jobs_end(rc_gcs *g)
{
	rc_map_destroy(g->running_jobs);
	rc_map_destroy(g->died_meanwhile);
	g->running_jobs = g->died_meanwhile = NULL;
}
