/* The prefork server with a small fake of the ray package: what a forked worker sees is what an executed one would see. */
#define _GNU_SOURCE
#include "raylet-c/procs/prefork.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"
#include "raylet-c/procs/command.h"
#include "raylet-c/procs/gen/prefork_py.h"
#include "raylet-c/procs/lineage.h"

static rc_loop *loop;
static rc_procs *procs;
static char dir[] = "/tmp/rc_prefork_test.XXXXXX";
static char *python, *script, *command;

static void write_file(const char *name, const char *text)
{
	char *path = rc_sprintf("%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	free(path);
}

static char *slurp(const char *path)
{
	static char text[65536];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return text;
}

/* A ray package whose core keeps RAY_JOB_ID in a std::string of its own (by ctypes, laid out like libstdc++'s), read once. */
static const char fake_core[] =
	"import ctypes, os, struct, sys, types\n"
	"seam = sys.modules['raylet_c._seam'] = types.ModuleType('raylet_c._seam')\n"
	"seam.colour = None\n"
	"def activate():\n"
	"    seam.colour = os.environ.get('COLOUR')\n"
	"seam.activate = activate\n"
	"if os.environ.get('FAKE_LOST'):\n"
	"    text = None\n"
	"else:\n"
	"    text = ctypes.create_string_buffer(struct.pack('<QQQ', 8, 8, 0) + os.environ['RAY_JOB_ID'].encode())\n"
	"def job_id():\n"
	"    return text.raw[24:32].decode()\n"
	"title = ''\n"
	"class Id:\n"
	"    def __init__(self, b): self.b = b\n"
	"    def binary(self): return self.b\n"
	"    @classmethod\n"
	"    def nil(cls): return cls(bytes(28))\n"
	"    @classmethod\n"
	"    def from_random(cls): return cls(os.urandom(28) if not os.environ.get('FAKE_DRAWN') else bytes(28))\n"
	"WorkerID = ActorClassID = Id\n"
	"def setproctitle(t):\n"
	"    global title\n"
	"    title = t\n";

static const char fake_worker[] =
	"import os, sys\n"
	"import ray._raylet\n"
	"import ray._private.utils\n"
	"import ray.actor\n"
	"if __name__ == '__main__':\n"
	"    import gc, json, random, resource\n"
	"    def read(path):\n"
	"        with open(path) as f:\n"
	"            return f.read().rstrip('\\0').split('\\0')\n"
	"    facts = dict(argv=sys.argv, orig=sys.orig_argv, env=dict(os.environ), cmdline=read('/proc/self/cmdline'), environ=read('/proc/self/environ'),\n"
	"        job=ray._raylet.job_id(), parent=os.getppid(), group=os.getpgid(0) == os.getpid(), threads=len(os.listdir('/proc/self/task')),\n"
	"        fds=sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1], path0=sys.path[0], file=__file__, cwd=os.getcwd(), mark=resource.getrlimit(15)[0],\n"
	"        comm=read('/proc/self/comm'), oom=read('/proc/self/oom_score_adj'), dice=random.random(), name=__name__, main=sys.modules['__main__'].__file__,\n"
	"        gc=gc.isenabled(), seam=sys.modules['raylet_c._seam'].colour)\n"
	"    with open(sys.argv[1], 'w') as f:\n"
	"        json.dump(facts, f, indent=0)\n"
	"    print('printed by a worker', flush=True)\n"
	"    sys.exit(5)\n";

typedef struct outcome {
	int answers, ends, status;
	rc_process *p;
	char error[400];
} outcome;

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

static void exited(void *arg, rc_process *p, int status)
{
	outcome *o = arg;
	(void)p;
	o->ends++;
	o->status = status;
	rc_loop_stop(loop);
}

static void forked(void *arg, rc_process *p, const rc_error *error)
{
	outcome *o = arg;
	o->answers++;
	o->p = p;
	snprintf(o->error, sizeof(o->error), "%s", error ? error->text : "");
	if (!p)
		rc_loop_stop(loop);
}

static rc_prefork *start(void)
{
	rc_error error = { 0 };
	rc_prefork *f = rc_prefork_create(loop, procs, &(rc_prefork_options){ .worker_command = command }, &error);
	if (!f) {
		printf("# %s\n", error.text);
		return NULL;
	}
	for (int i = 0; i < 1000 && rc_prefork_starting(f, RC_WARM_PLAIN); i++)
		run_for(20);
	return f;
}

typedef struct wanted {
	rc_words argv, env;
	rc_spawn spawn;
} wanted;

static void want(wanted *w, const char *out, const char *extra_variable)
{
	*w = (wanted){ 0 };
	rc_words_add_copy(&w->argv, python);
	rc_words_add_copy(&w->argv, script);
	rc_words_add(&w->argv, rc_sprintf("%s/%s", dir, out));
	rc_env_inherit(&w->env);
	char pid[16];
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	rc_env_set(&w->env, "RAY_RAYLET_PID", pid);
	rc_env_set(&w->env, "SPT_NOENV", "1");
	rc_env_set(&w->env, "RAY_JOB_ID", "01000000");
	if (extra_variable)
		rc_words_add_copy(&w->env, extra_variable);
	w->spawn = (rc_spawn){ .name = "worker", .argv = (const char *const *)w->argv.v, .env = (const char *const *)w->env.v, .own_group = true,
		                   .set_oom_score = true, .oom_score_adj = 1000 };
}

static void unwant(wanted *w)
{
	rc_words_free(&w->argv);
	rc_words_free(&w->env);
}

static bool can(rc_prefork *f, const char *variable)
{
	wanted w;
	want(&w, "never", variable);
	bool ok = rc_prefork_can(f, &w.spawn, RC_WARM_PLAIN);
	unwant(&w);
	return ok;
}

/* The line of the facts that begins with "key":, its first value line for lists. */
static bool says(const char *facts, const char *text)
{
	bool found = strstr(facts, text) != NULL;
	if (!found)
		printf("# no %s in %.3000s\n", text, facts);
	return found;
}

static void forked_like_executed(void)
{
	rc_prefork *f = start();
	CHECK(f != NULL && can(f, NULL));
	if (!f)
		return;
	double dice[2] = { 0 };
	for (int i = 0; i < 2; i++) {
		outcome o = { 0 };
		wanted w;
		want(&w, "facts", "COLOUR=red");
		CHECK(rc_prefork_can(f, &w.spawn, RC_WARM_PLAIN));
		rc_prefork_spawn(f, &w.spawn, RC_WARM_PLAIN, exited, &o, forked, &o);
		unwant(&w);
		CHECK_EQ_INT(0, o.answers);
		rc_loop_run(loop);
		CHECK_EQ_INT(1, o.answers);
		CHECK_EQ_INT(1, o.ends);
		CHECK(WIFEXITED(o.status) && WEXITSTATUS(o.status) == 5);
		char *path = rc_sprintf("%s/facts", dir), *facts = rc_strdup(slurp(path)), text[600];
		unlink(path);
		snprintf(text, sizeof(text), "\"argv\": [\n\"%s\",\n\"%s\"\n]", script, path);
		CHECK(says(facts, text));
		snprintf(text, sizeof(text), "\"cmdline\": [\n\"%s\",\n\"%s\",\n\"%s\"\n]", python, script, path);
		CHECK(says(facts, text));
		snprintf(text, sizeof(text), "\"orig\": [\n\"%s\",\n\"%s\",\n\"%s\"\n]", python, script, path);
		CHECK(says(facts, text));
		snprintf(text, sizeof(text), "\"parent\": %d,\n\"group\": true,\n\"threads\": 1,\n\"fds\": [\n0,\n1,\n2\n],\n\"path0\": \"%s\",\n\"file\": \"%s\"",
		         (int)getpid(), dir, script);
		CHECK(says(facts, text));
		CHECK(says(facts, "\"job\": \"01000000\""));
		CHECK(says(facts, "\"COLOUR\": \"red\""));
		CHECK(says(facts, "\"COLOUR=red\""));
		CHECK(strstr(facts, "RAYLET_C_PAD") == NULL);
		CHECK(says(facts, "\"oom\": [\n\"1000\\n\"\n]"));
		CHECK(says(facts, "\"name\": \"__main__\""));
		CHECK(says(facts, "\"gc\": true"));
		CHECK(says(facts, "\"seam\": \"red\"")); /* the package's seam saw the worker's own environment */
		CHECK(says(facts, "\"comm\": [\n\"python3\\n\"\n]"));
		char *d = strstr(facts, "\"dice\": ");
		dice[i] = d ? atof(d + 8) : 0;
		free(facts);
		free(path);
	}
	CHECK(dice[0] != dice[1]);
	rc_prefork_destroy(f);
}

static void environment_decides(void)
{
	rc_prefork *f = start();
	CHECK(f && can(f, NULL));
	CHECK(can(f, "MY_OWN=1"));
	CHECK(can(f, "RAY_TRAIN_V2_ENABLED=1"));
	CHECK(can(f, "RAYLET_C=fsdp"));
	CHECK(can(f, "RAYLET_C_FSDP=0"));
	CHECK(!can(f, "LD_LIBRARY_PATH=/x"));
	CHECK(!can(f, "PYTHONPATH=/x"));
	CHECK(!can(f, "OMP_NUM_THREADS=7"));
	CHECK(!can(f, "CUDA_VISIBLE_DEVICES=3"));
	CHECK(!can(f, "NCCL_DEBUG=INFO"));
	CHECK(!can(f, "RAY_some_config=1"));
	CHECK(!can(f, "FAKE_LOST=1")); /* the imports looked at it */
	wanted w;
	want(&w, "x", NULL);
	rc_env_unset(&w.env, "RAY_JOB_ID");
	CHECK(!rc_prefork_can(f, &w.spawn, RC_WARM_PLAIN));
	unwant(&w);
	want(&w, "x", NULL);
	free(w.argv.v[0]);
	w.argv.v[0] = rc_strdup("/usr/bin/other-python");
	CHECK(!rc_prefork_can(f, &w.spawn, RC_WARM_PLAIN));
	unwant(&w);
	want(&w, "x", NULL);
	for (int i = 0; i < 200; i++)
		rc_words_add_copy(&w.argv, "--a-long-command-line-has-no-room-to-be-shown");
	w.spawn.argv = (const char *const *)w.argv.v;
	CHECK(!rc_prefork_can(f, &w.spawn, RC_WARM_PLAIN));
	unwant(&w);
	rc_prefork_destroy(f);
}

static void server_that_dies_is_replaced(void)
{
	rc_prefork *f = start();
	pid_t first = rc_prefork_pid(f, RC_WARM_PLAIN);
	outcome o = { 0 };
	wanted w;
	kill(first, SIGSTOP);
	want(&w, "facts2", NULL);
	rc_prefork_spawn(f, &w.spawn, RC_WARM_PLAIN, exited, &o, forked, &o);
	unwant(&w);
	kill(first, SIGKILL);
	rc_loop_run(loop);
	CHECK_EQ_INT(1, o.answers);
	CHECK(o.p == NULL);
	CHECK_STR("the prefork server ended", o.error);
	for (int i = 0; i < 1000 && !can(f, NULL); i++)
		run_for(20);
	CHECK(can(f, NULL));
	CHECK(rc_prefork_pid(f, RC_WARM_PLAIN) != first);
	rc_prefork_destroy(f);
}

static void unfit_turns_it_off(void)
{
	setenv("FAKE_LOST", "1", 1);
	rc_prefork *f = start();
	CHECK(f && !can(f, NULL));
	run_for(100);
	CHECK_EQ_INT(0, rc_prefork_pid(f, RC_WARM_PLAIN));
	unsetenv("FAKE_LOST");
	rc_prefork_destroy(f);

	setenv("FAKE_DRAWN", "1", 1);
	f = start();
	CHECK(f && !can(f, NULL));
	unsetenv("FAKE_DRAWN");
	rc_prefork_destroy(f);

	rc_error error = { 0 };
	setenv("RAYLET_C_PREFORK", "0", 1);
	CHECK(rc_prefork_create(loop, procs, &(rc_prefork_options){ .worker_command = command }, &error) == NULL);
	CHECK_STR("RAYLET_C_PREFORK=0", error.text);
	unsetenv("RAYLET_C_PREFORK");
	CHECK(rc_prefork_create(loop, procs, &(rc_prefork_options){ .worker_command = "python3 other.py" }, &error) == NULL);
	CHECK_STR("the worker command names no default_worker.py", error.text);
}

static void text_is_up_to_date(void)
{
	FILE *f = fopen("python/raylet_c/prefork.py", "r");
	if (!f) {
		printf("# python/raylet_c/prefork.py is not here, not compared\n");
		return;
	}
	char *text = rc_alloc(1 << 20);
	size_t n = fread(text, 1, (1 << 20) - 1, f);
	fclose(f);
	CHECK_EQ_INT(sizeof(rc_prefork_source) - 1, n);
	CHECK(strcmp(rc_prefork_source, text) == 0);
	free(text);
}

int main(void)
{
	rc_error error;
	if (!mkdtemp(dir))
		return 1;
	char *sub = rc_sprintf("mkdir -p %s/ray/_private", dir);
	CHECK(system(sub) == 0);
	free(sub);
	write_file("ray/__init__.py", "");
	write_file("ray/_raylet.py", fake_core);
	write_file("ray/actor.py", "from ray._raylet import ActorClassID\n");
	write_file("ray/_private/__init__.py", "");
	write_file("ray/_private/utils.py", "def set_omp_num_threads_if_unset():\n    return False\n");
	write_file("default_worker.py", fake_worker);
	python = rc_strdup(access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3");
	script = rc_sprintf("%s/default_worker.py", dir);
	command = rc_sprintf("%s %s/setup_worker.py %s --node-ip-address=127.0.0.1 RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER", python, dir, script);
	loop = rc_loop_create();
	procs = rc_procs_create(loop, &error);
	RUN(forked_like_executed, "a forked worker sees the arguments, environment, parent, descriptors and job of an executed one");
	RUN(environment_decides, "a difference in what libraries read while they are loaded means exec");
	RUN(server_that_dies_is_replaced, "a server that dies fails what it owed and is started again");
	RUN(unfit_turns_it_off, "prefork turns itself off where it cannot work");
	RUN(text_is_up_to_date, "the text of the server inside the daemon is that of its source");
	rc_procs_destroy(procs, 2000);
	rc_loop_destroy(loop);
	char *clean = rc_sprintf("rm -r %s", dir);
	CHECK(system(clean) == 0);
	free(clean);
	return test_end();
}
