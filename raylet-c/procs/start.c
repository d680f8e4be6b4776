/* A worker whose runtime env only sets variables starts as a plain worker with these variables (context.h says why that is
 * the same). Everything else that needs a runtime env goes through setup_worker.py by exec, as with stock. */
#include "raylet-c/procs/start.h"

#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/procs/command.h"
#include "raylet-c/procs/context.h"

struct rc__starting {
	rc_procs *procs;
	rc_words argv, env;
	rc_spawn spawn;
	rc_exited_fn exited;
	rc__started_fn fn; /* NULL: cancelled */
	void *arg;
};

static void free_starting(rc__starting *st)
{
	rc_words_free(&st->argv);
	rc_words_free(&st->env);
	free(st);
}

static bool has_group(const rc_dialect *d) /* 2.60.0: a group for each worker; 2.35.0: the launcher's */
{
	return strcmp(rc_dialect_release(d), "2.35.0") != 0;
}

static int build(const rc__start *s, rc__starting *st, rc_error *error)
{
	const rc_pool_options *o = s->options;
	const rc_worker *w = s->worker;
	rc_worker_command c = {
		.dialect = o->dialect,
		.command = o->commands[w->language],
		.native_library_path = o->native_library_path,
		.node_manager_port = o->node_manager_port,
		.node_id = o->node_id,
		.debugger_external = o->debugger_external,
		.spilling_config = o->spilling_config,
		.train_env = o->train_env,
		.preload_modules = o->preload_modules,
		.language = w->language,
		.type = w->type,
		.job_id = w->job_id,
		.job_config = s->job_config,
		.startup_token = w->startup_token,
		.worker_id = s->worker_id,
		.runtime_env_hash = w->runtime_env_hash,
		.runtime_env_context = s->context,
		.dynamic_options = s->dynamic_options,
		.n_dynamic_options = s->n_dynamic_options,
	};
	rc_words template = { 0 }, variables = { 0 };
	rc_words_split(c.command, &template);
	bool plain = w->language == RC_LANG_PYTHON && template.n > 0 && *s->env &&
	             (s->context ? rc_context_is_plain(s->context, template.v[0], &variables) : rc_context_of_env(s->env, &variables));
	rc_words_free(&template);
	if (plain)
		c.runtime_env_context = NULL;
	int rc = rc_worker_command_build(&c, &st->argv, &st->env, error);
	if (rc == 0)
		rc_context_apply(&variables, &st->env);
	rc_words_free(&variables);
	return rc;
}

static void started_here(rc__starting *st)
{
	rc_error error;
	rc_process *p = rc_process_spawn(st->procs, &st->spawn, st->exited, st->arg, &error);
	rc__started_fn fn = st->fn;
	void *arg = st->arg;
	free_starting(st);
	fn(arg, p, false, p ? NULL : &error);
}

static void forked(void *arg, rc_process *p, const rc_error *error)
{
	rc__starting *st = arg;
	if (p && st->fn) {
		st->fn(st->arg, p, true, NULL);
		free_starting(st);
	} else if (p) {
		rc_process_set_exited(p, NULL, NULL);
		rc_process_kill(p);
		free_starting(st);
	} else if (st->fn) {
		rc_warn("prefork of a worker failed, executing it instead: %s", error->text);
		started_here(st);
	} else {
		free_starting(st);
	}
}

rc__starting *rc__start_worker(const rc__start *s, rc_exited_fn exited, rc__started_fn fn, void *arg)
{
	rc_error error;
	rc__starting *st = rc_alloc(sizeof(*st));
	*st = (rc__starting){ .procs = s->options->procs, .exited = exited, .fn = fn, .arg = arg };
	if (build(s, st, &error) != 0) {
		free_starting(st);
		fn(arg, NULL, false, &error);
		return NULL;
	}
	st->spawn = (rc_spawn){
		.name = s->worker->type == RC_WORKER ? "worker" : "IO worker",
		.argv = (const char *const *)st->argv.v,
		.env = (const char *const *)st->env.v,
		.own_group = has_group(s->options->dialect),
		.set_oom_score = s->options->oom_score_adj > 0,
		.oom_score_adj = s->options->oom_score_adj > 1000 ? 1000 : s->options->oom_score_adj,
	};
	for (int warmth = s->is_train ? RC_WARM_TRAIN : RC_WARM_PLAIN; warmth >= RC_WARM_PLAIN; warmth--) {
		if (!rc_prefork_can(s->options->prefork, &st->spawn, warmth))
			continue;
		rc_prefork_spawn(s->options->prefork, &st->spawn, warmth, exited, arg, forked, st);
		return st;
	}
	started_here(st);
	return NULL;
}

void rc__start_cancel(rc__starting *st)
{
	st->fn = NULL;
}
