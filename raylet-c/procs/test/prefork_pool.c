/* The pool with prefork servers that fork fakes of workers: who waits for which server. The fake torch takes as long to import
 * as the test wants: it waits for a file. */
#define _GNU_SOURCE
#include "raylet-c/procs/pool.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static rc_loop *loop;
static rc_procs *procs;
static rc_prefork *prefork;
static rc_pool *pool;
static char dir[] = "/tmp/rc_prefork_pool.XXXXXX";
static char *command;

static void write_file(const char *name, const char *text)
{
	char *path = rc_sprintf("%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	free(path);
}

static bool exists(const char *name)
{
	char *path = rc_sprintf("%s/%s", dir, name);
	bool found = access(path, F_OK) == 0;
	free(path);
	return found;
}

static const char fake_core[] =
	"import ctypes, os, struct\n"
	"text = ctypes.create_string_buffer(struct.pack('<QQQ', 8, 8, 0) + os.environ['RAY_JOB_ID'].encode())\n"
	"class Id:\n"
	"    def __init__(self, b): self.b = b\n"
	"    def binary(self): return self.b\n"
	"    @classmethod\n"
	"    def nil(cls): return cls(bytes(28))\n"
	"    @classmethod\n"
	"    def from_random(cls): return cls(os.urandom(28))\n"
	"WorkerID = ActorClassID = Id\n"
	"def setproctitle(t): pass\n";

/* Tells by the name of a file what was there from its start. */
static const char fake_worker[] =
	"import os, sys, time\n"
	"import ray._raylet\n"
	"import ray._private.utils\n"
	"import ray.actor\n"
	"if __name__ == '__main__':\n"
	"    how = 'torch' if 'torch' in sys.modules else 'packed' if 'pyarrow.json' in sys.modules else 'plain'\n"
	"    open(os.path.join(os.path.dirname(__file__), '%s.%d' % (how, os.getpid())), 'w').close()\n"
	"    time.sleep(100)\n";

static const char slow_torch[] =
	"import os, time\n"
	"here = os.path.dirname(__file__)\n"
	"open(os.path.join(here, 'importing'), 'w').close()\n"
	"while not os.path.exists(os.path.join(here, 'go')):\n"
	"    time.sleep(0.01)\n";

static void exit_worker(void *ctx, rc_worker *w, bool force)
{
	(void)ctx;
	(void)w;
	(void)force;
}

static void died(void *ctx, rc_worker *w, const char *text)
{
	(void)ctx;
	(void)w;
	(void)text;
}

static int cpus(void *ctx)
{
	(void)ctx;
	return 4;
}

static const rc_pool_ops ops = { exit_worker, died, cpus, NULL };

static void stop_loop(void *arg)
{
	(void)arg;
	rc_loop_stop(loop);
}

static void run_for(unsigned ms)
{
	rc_timer *t = rc_timer_start(loop, ms, 0, stop_loop, NULL);
	rc_loop_run(loop);
	rc_timer_stop(t);
}

#define WAIT_UNTIL(condition)                      \
	do {                                           \
		for (int i_ = 0; i_ < 2000 && !(condition); i_++) \
			run_for(10);                           \
		CHECK(condition);                          \
	} while (0)

static void popped(void *arg, rc_worker *w, rc_pop_status status, const char *text)
{
	(void)status;
	(void)text;
	*(rc_worker **)arg = w;
}

static rc_id job_id(void)
{
	uint8_t b[4] = { 1 };
	return rc_id_from(b, RC_JOB_ID);
}

static void begin(int prestart)
{
	rc_error e = { 0 };
	prefork = rc_prefork_create(loop, procs, &(rc_prefork_options){ .worker_command = command }, &e);
	CHECK(prefork != NULL);
	rc_pool_options options = {
		.dialect = rc_dialect_find("2.60.0", &e),
		.procs = procs,
		.prefork = prefork,
		.commands = { command },
		.node_manager_port = 1000,
		.startup_concurrency = 16,
		.prestart = prestart,
		.enable_prestart = true,
		.soft_limit = -1,
		.register_timeout_ms = 60000,
		.idle_threshold_ms = 60000,
		.reap_interval_ms = 1000,
		.kill_grace_ms = 100,
	};
	uint8_t node[28] = { 9 };
	options.node_id = rc_id_from(node, sizeof(node));
	pool = rc_pool_create(loop, &options, &ops, NULL, &e);
	CHECK(pool != NULL);
	rc_id job = job_id();
	rc_pool_job_started(pool, &job, NULL);
}

static void begin_warm(int prestart)
{
	begin(prestart);
	WAIT_UNTIL(!rc_prefork_importing(prefork));
}

static void end(void)
{
	for (rc_worker *w = NULL; (w = rc_pool_next(pool, w));)
		if (w->pid > 0)
			kill(w->pid, SIGKILL);
	rc_pool_destroy(pool);
	rc_prefork_destroy(prefork);
	char *clean = rc_sprintf("cd %s && rm -f go asked importing torch.[0-9]* plain.[0-9]* packed.[0-9]*", dir);
	CHECK(system(clean) == 0);
	free(clean);
}

static unsigned count(const char *how)
{
	unsigned n = 0;
	for (rc_worker *w = NULL; (w = rc_pool_next(pool, w));) {
		char name[64];
		snprintf(name, sizeof(name), "%s.%d", how, (int)w->pid);
		n += w->pid > 0 && exists(name);
	}
	return n;
}

static unsigned without_torch_count(void)
{
	return count("plain") + count("packed");
}

static rc_pool_stats stats(void)
{
	rc_pool_stats s;
	rc_pool_get_stats(pool, &s);
	return s;
}

static void want_train(rc_worker **ret, const char *env)
{
	Rw__RuntimeEnvInfo info = RW__RUNTIME_ENV_INFO__INIT;
	info.serialized_runtime_env = (char *)env;
	rc_pop want = { .job_id = job_id(), .is_actor = true, .is_train = true, .runtime_env = env ? &info : NULL };
	rc_pool_pop(pool, &want, popped, ret);
}

static void first_trainers_wait(void)
{
	rc_worker *got[2] = { 0 };
	write_file("torch.py", slow_torch);
	begin_warm(0);
	want_train(&got[0], NULL);
	want_train(&got[1], NULL);
	WAIT_UNTIL(exists("importing"));
	run_for(50);
	CHECK_EQ_INT(0, stats().started);
	write_file("go", "");
	WAIT_UNTIL(count("torch") + without_torch_count() == 2);
	CHECK_EQ_INT(2, count("torch"));
	CHECK_EQ_INT(2, stats().forked);
	end();
}

static void others_do_not_wait(void)
{
	rc_worker *got[2] = { 0 };
	write_file("torch.py", slow_torch);
	begin_warm(0);
	want_train(&got[0], "{\"env_vars\": {\"OMP_NUM_THREADS\": \"3\"}}"); /* cannot be forked by any server */
	WAIT_UNTIL(without_torch_count() == 1);
	CHECK_EQ_INT(0, stats().forked);
	rc_pop want = { .job_id = job_id(), .is_actor = true };
	rc_pool_pop(pool, &want, popped, &got[1]);
	WAIT_UNTIL(without_torch_count() == 2);
	CHECK_EQ_INT(1, stats().forked);
	CHECK(rc_prefork_starting(prefork, RC_WARM_TRAIN));
	end();
}

static void registered(void *arg, rc_worker *w, int port, const char *failure)
{
	(void)port;
	CHECK(failure == NULL);
	*(rc_worker **)arg = w;
}

/* An idle worker would do, where the trainer server cannot be had. */
static void without_torch(void)
{
	rc_worker *got = NULL, *first = NULL, *known = NULL;
	char *torch = rc_sprintf("%s/torch.py", dir);
	unlink(torch);
	free(torch);
	begin_warm(0);
	rc_pop want = { .job_id = job_id(), .is_actor = true };
	rc_pool_pop(pool, &want, popped, &first);
	WAIT_UNTIL(without_torch_count() == 1);
	rc_worker *w = rc_pool_next(pool, NULL);
	rc_id id = rc_id_random(RC_WORKER_ID);
	rc_register_client m = { .worker_type = w->type, .pid = w->pid, .worker_id = rc_id_view(&id), .job_id = rc_id_view(&w->job_id) };
	m.ip = rc_view_str("127.0.0.1");
	rc_pool_register(pool, &m, w->pid, &m, registered, &known);
	CHECK(known == w);
	rc_pool_announced(pool, w, 5000);
	CHECK(first == w);
	rc_pool_push(pool, w);
	want_train(&got, NULL);
	CHECK(got == NULL); /* whether there is a torch is being found out */
	WAIT_UNTIL(got != NULL);
	CHECK(got == w);
	CHECK_EQ_INT(1, stats().started);
	end();
}

static void started_with_a_job(void)
{
	write_file("torch.py", "");
	begin_warm(9);
	run_for(2500);
	CHECK(!rc_prefork_serves(prefork, RC_WARM_TRAIN));
	end();
	begin_warm(10);
	CHECK(!rc_prefork_serves(prefork, RC_WARM_TRAIN));
	WAIT_UNTIL(rc_prefork_serves(prefork, RC_WARM_TRAIN) && !rc_prefork_starting(prefork, RC_WARM_TRAIN));
	end();
}

static void await_file(const char *module, const char *file)
{
	char *text = rc_sprintf("import os, time\nwhile not os.path.exists('%s/%s'):\n    time.sleep(0.01)\n", dir, file);
	write_file(module, text);
	free(text);
}

/* Four are to be started ahead, and a lease comes, all before the server is ready. */
static void leases_come_first(void)
{
	rc_worker *got = NULL;
	await_file("pyarrow/__init__.py", "asked");
	await_file("pyarrow/json.py", "go");
	begin(4);
	rc_pop want = { .job_id = job_id() };
	rc_pool_pop(pool, &want, popped, &got);
	WAIT_UNTIL(!rc_prefork_starting(prefork, RC_WARM_PLAIN)); /* and the server was asked to fork */
	write_file("asked", "");
	WAIT_UNTIL(count("plain") == 1);
	run_for(100);
	CHECK_EQ_INT(1, stats().started);
	write_file("go", "");
	WAIT_UNTIL(without_torch_count() == 4);
	CHECK_EQ_INT(3, count("packed"));
	run_for(200);
	CHECK_EQ_INT(4, stats().started);
	end();
	write_file("pyarrow/__init__.py", "");
	write_file("pyarrow/json.py", "");
}

int main(void)
{
	rc_error error;
	if (!mkdtemp(dir))
		return 1;
	char *sub = rc_sprintf("mkdir -p %s/ray/_private %s/pyarrow", dir, dir);
	CHECK(system(sub) == 0);
	free(sub);
	write_file("ray/__init__.py", "");
	write_file("ray/_raylet.py", fake_core);
	write_file("ray/actor.py", "from ray._raylet import ActorClassID\n");
	write_file("ray/_private/__init__.py", "");
	write_file("ray/_private/utils.py", "def set_omp_num_threads_if_unset():\n    return False\n");
	write_file("default_worker.py", fake_worker);
	write_file("numpy.py", "");
	write_file("pyarrow/__init__.py", "");
	write_file("pyarrow/json.py", "");
	setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
	const char *python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
	command = rc_sprintf("%s %s/setup_worker.py %s/default_worker.py --node-ip-address=127.0.0.1 RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER", python, dir,
	                     dir);
	loop = rc_loop_create();
	procs = rc_procs_create(loop, &error);
	RUN(first_trainers_wait, "the first workers of a trainer wait for the server that has torch, and are forked by it");
	RUN(others_do_not_wait, "what that server cannot fork, or nobody wants of it, does not wait for it");
	RUN(without_torch, "without torch an idle worker serves the trainer");
	RUN(leases_come_first, "a lease is served before workers are started ahead, which have all imports, and is one of them");
	RUN(started_with_a_job, "with the first job the trainer server is started where prestarted workers make up for its memory");
	rc_procs_destroy(procs, 2000);
	rc_loop_destroy(loop);
	char *clean = rc_sprintf("rm -r %s", dir);
	CHECK(system(clean) == 0);
	free(clean);
	free(command);
	return test_end();
}
