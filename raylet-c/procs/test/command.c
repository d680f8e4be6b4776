/* Commands and environments of workers are those of the stock node; runtime envs that only set variables are recognised. */
#include "raylet-c/procs/command.h"

#include <stdlib.h>
#include <unistd.h>

#include "raylet-c/base/test.h"
#include "raylet-c/procs/context.h"
#include "raylet-c/procs/pool.h"

static char *joined(const rc_words *w)
{
	rc_buf b = { 0 };
	for (size_t i = 0; i < w->n; i++)
		rc_buf_printf(&b, "%s[%s]", i ? " " : "", w->v[i]);
	char *s = rc_strdup(rc_buf_cstr(&b));
	rc_buf_free(&b);
	return s;
}

static void check_split(const char *want, const char *text)
{
	rc_words w = { 0 };
	rc_words_split(text, &w);
	char *got = joined(&w);
	CHECK_STR(want, got);
	free(got);
	rc_words_free(&w);
}

static void splits(void)
{
	check_split("[a] [b c] [d e] []", "a \"b c\" 'd e' \"\"");
	check_split("[a b] [c\"d] [e\\f] [g\\h]", "a\\ b \"c\\\"d\" \"e\\f\" 'g\\h'");
	check_split("[--x=y z] [q\\]", "  --x=\"y z\"\t\nq\\");
	check_split("[open end]", "\"open end");
	check_split("", "");
	check_split("", NULL);
}

static const rc_dialect *release(const char *name)
{
	rc_error e;
	const rc_dialect *d = rc_dialect_find(name, &e);
	if (!d)
		printf("# %s\n", e.text);
	return d;
}

#define TEMPLATE "/opt/py/bin/python3 /ray/_private/workers/setup_worker.py /ray/_private/workers/default_worker.py --node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER --webui= RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER --last"

/* argv with the launch time cut out */
static void check_command(rc_worker_command *c, const char *want)
{
	rc_words argv = { 0 }, env = { 0 };
	rc_error e;
	CHECK_EQ_INT(0, rc_worker_command_build(c, &argv, &env, &e));
	for (size_t i = 0; i < argv.n; i++)
		if (strncmp(argv.v[i], "--worker-launch-time-ms=1", 25) == 0)
			strcpy(argv.v[i], "--worker-launch-time-ms=*");
	char *got = joined(&argv);
	CHECK_STR(want, got);
	free(got);
	rc_words_free(&argv);
	rc_words_free(&env);
}

static rc_worker_command base(const char *name)
{
	rc_worker_command c = { .dialect = release(name), .command = TEMPLATE, .node_manager_port = 4711, .startup_token = 7 };
	uint8_t node[28] = { 0xab }, worker[28] = { 0xcd }, job[4] = { 1 };
	c.node_id = rc_id_from(node, 28);
	c.worker_id = rc_id_from(worker, 28);
	c.job_id = rc_id_from(job, 4);
	return c;
}

#define ZEROS54 "000000000000000000000000000000000000000000000000000000"

static void plain_worker(void)
{
	rc_worker_command c = base("2.35.0");
	check_command(&c, "[/opt/py/bin/python3] [/ray/_private/workers/default_worker.py] [--node-manager-port=4711] [--webui=] [--last] [--startup-token=7] "
	                  "[--worker-launch-time-ms=*] [--node-id=ab" ZEROS54 "] [--runtime-env-hash=0]");
	c = base("2.60.0");
	c.debugger_external = true;
	c.preload_modules = "a,b";
	check_command(&c, "[/opt/py/bin/python3] [/ray/_private/workers/default_worker.py] [--node-manager-port=4711] [--webui=] [--last] [--worker-id=cd" ZEROS54
	                  "] [--worker-launch-time-ms=*] [--node-id=ab" ZEROS54 "] [--runtime-env-hash=0] [--worker-preload-modules=a,b] [--ray-debugger-external]");
}

static void worker_with_runtime_env(void)
{
	rc_worker_command c = base("2.35.0");
	char *options[] = { (char *)"--one", (char *)"--two" };
	c.runtime_env_hash = 99;
	c.runtime_env_context = "{\"command_prefix\": [\"cd /x &&\"]}";
	c.dynamic_options = options;
	c.n_dynamic_options = 2;
	check_command(&c, "[/opt/py/bin/python3] [/ray/_private/workers/setup_worker.py] [/ray/_private/workers/default_worker.py] [--node-manager-port=4711] "
	                  "[--webui=] [--one] [--two] [--last] [--startup-token=7] [--worker-launch-time-ms=*] [--node-id=ab" ZEROS54
	                  "] [--runtime-env-hash=99] [--language=PYTHON] [--serialized-runtime-env-context={\"command_prefix\": [\"cd /x &&\"]}]");
}

static void io_worker(void)
{
	rc_worker_command c = base("2.35.0");
	rc_words argv = { 0 }, env = { 0 };
	rc_error e;
	c.type = RC_SPILL_WORKER;
	c.spilling_config = "{\"type\":\"x\"}";
	CHECK_EQ_INT(0, rc_worker_command_build(&c, &argv, &env, &e));
	CHECK_STR("--worker-type=SPILL_WORKER", argv.v[5]);
	CHECK_STR("--object-spilling-config=eyJ0eXBlIjoieCJ9", argv.v[6]);
	CHECK(rc_env_get(&env, "RAY_JOB_ID") == NULL);
	rc_words_free(&argv);
	rc_words_free(&env);
	const char *const base64[][2] = { { "", "" }, { "a", "YQ==" }, { "ab", "YWI=" }, { "abc", "YWJj" } };
	for (int i = 0; i < 4; i++) {
		char *got = rc_base64(base64[i][0]);
		CHECK_STR(base64[i][1], got);
		free(got);
	}
}

static void java_and_cpp(void)
{
	rc_worker_command c = base("2.60.0");
	Rw__JobConfig job = RW__JOB_CONFIG__INIT;
	char *paths[] = { (char *)"/a", (char *)"/b" }, *jvm[] = { (char *)"-Xmx1g" };
	job.n_code_search_path = 2;
	job.code_search_path = paths;
	job.n_jvm_options = 1;
	job.jvm_options = jvm;
	c.job_config = &job;
	c.language = RC_LANG_JAVA;
	c.command = "python3 setup_worker.py -Dx RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER io.Main";
	check_command(&c, "[python3] [setup_worker.py] [-Dx] [-Dray.job.code-search-path=/a:/b] [-Xmx1g] [-Dray.worker.id=cd" ZEROS54
	                  "] [-Dray.internal.runtime-env-hash=0] [io.Main] [--language=JAVA]");
	c.language = RC_LANG_CPP;
	c.command = "worker RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER";
	c.native_library_path = "/lib1";
	check_command(&c, "[worker] [--ray_code_search_path=/a:/b] [--ray_worker_id=cd" ZEROS54 "] [--ray_runtime_env_hash=0]");
	setenv("LD_LIBRARY_PATH", "/lib0", 1);
	rc_words argv = { 0 }, env = { 0 };
	rc_error e;
	CHECK_EQ_INT(0, rc_worker_command_build(&c, &argv, &env, &e));
	CHECK_STR("/lib1:/lib0:/a:/b", rc_env_get(&env, "LD_LIBRARY_PATH"));
	CHECK(rc_env_get(&env, "SPT_NOENV") == NULL);
	unsetenv("LD_LIBRARY_PATH");
	rc_words_free(&argv);
	rc_words_free(&env);
	c.command = "";
	CHECK_EQ_INT(-1, rc_worker_command_build(&c, &argv, &env, &e));
}

static void environment(void)
{
	rc_worker_command c = base("2.60.0");
	rc_words argv = { 0 }, env = { 0 };
	rc_error e;
	char pid[16];
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	CHECK_EQ_INT(0, rc_worker_command_build(&c, &argv, &env, &e));
	CHECK_STR("01000000", rc_env_get(&env, "RAY_JOB_ID"));
	CHECK_STR(pid, rc_env_get(&env, "RAY_RAYLET_PID"));
	CHECK_STR("1", rc_env_get(&env, "SPT_NOENV"));
	rc_words_free(&argv);
	rc_words_free(&env);
	c.job_id = rc_id_nil(4);
	CHECK_EQ_INT(0, rc_worker_command_build(&c, &argv, &env, &e));
	CHECK_STR("ffffffff", rc_env_get(&env, "RAY_JOB_ID"));
	rc_words_free(&argv);
	rc_words_free(&env);
}

static void check_parts(const char *want, int language, int type, const char *of_daemon)
{
	rc_worker_command c = base("2.60.0");
	rc_words argv = { 0 }, env = { 0 };
	rc_error e;
	c.language = language;
	c.type = type;
	if (of_daemon)
		setenv("RAYLET_C", of_daemon, 1);
	CHECK_EQ_INT(0, rc_worker_command_build(&c, &argv, &env, &e));
	CHECK_STR(want, rc_env_get(&env, "RAYLET_C"));
	unsetenv("RAYLET_C");
	rc_words_free(&argv);
	rc_words_free(&env);
}

static void parts(void)
{
	unsetenv("RAYLET_C");
	check_parts("fsdp", RC_LANG_PYTHON, RC_WORKER, NULL);
	check_parts(NULL, RC_LANG_PYTHON, RC_SPILL_WORKER, NULL);
	check_parts(NULL, RC_LANG_CPP, RC_WORKER, NULL);
	check_parts("worker", RC_LANG_PYTHON, RC_WORKER, "worker");
	check_parts("", RC_LANG_PYTHON, RC_WORKER, "");
}

static const char *train_env(int language, int type, const char *of_node, rc_words *env)
{
	rc_worker_command c = base("2.60.0");
	rc_words argv = { 0 };
	rc_error e;
	c.language = language;
	c.type = type;
	c.train_env = of_node;
	rc_words_free(env);
	CHECK_EQ_INT(0, rc_worker_command_build(&c, &argv, env, &e));
	rc_words_free(&argv);
	return rc_env_get(env, RC_TRAIN_ENV);
}

static void trainers(void)
{
	rc_words env = { 0 };
	unsetenv(RC_TRAIN_ENV);
	CHECK_STR("A=1\n@b=2\n", train_env(RC_LANG_PYTHON, RC_WORKER, "A=1\n@b=2\n", &env));
	CHECK_STR(NULL, train_env(RC_LANG_PYTHON, RC_SPILL_WORKER, "A=1\n", &env));
	CHECK_STR(NULL, train_env(RC_LANG_CPP, RC_WORKER, "A=1\n", &env));
	CHECK_STR(NULL, train_env(RC_LANG_PYTHON, RC_WORKER, "", &env));
	setenv(RC_TRAIN_ENV, "", 1);
	CHECK_STR("", train_env(RC_LANG_PYTHON, RC_WORKER, "A=1\n", &env));
	unsetenv(RC_TRAIN_ENV);
	rc_words_free(&env);
}

static void check_preload(const char *want, const char *ray_235, const char *ray_260)
{
	rc_words env = { 0 };
	setenv("LD_PRELOAD", "", 1);
	if (ray_235)
		setenv("RAY_LD_PRELOAD", ray_235, 1);
	if (ray_260)
		setenv("RAY_LD_PRELOAD_ON_WORKERS", ray_260, 1);
	rc_env_inherit(&env);
	CHECK_STR(want, rc_env_get(&env, "LD_PRELOAD"));
	rc_words_free(&env);
	unsetenv("RAY_LD_PRELOAD");
	unsetenv("RAY_LD_PRELOAD_ON_WORKERS");
	unsetenv("LD_PRELOAD");
}

static void preload(void)
{
	check_preload("", NULL, NULL); /* the user's own */
	check_preload(NULL, "1", NULL);
	check_preload(NULL, NULL, "0");
	check_preload("", NULL, "1");
	rc_words env = { 0 };
	setenv("RAYLET_C_LD_PRELOAD", "/lib/own.so", 1);
	rc_env_inherit(&env);
	CHECK_STR("/lib/own.so", rc_env_get(&env, "LD_PRELOAD"));
	CHECK(rc_env_get(&env, "RAYLET_C_LD_PRELOAD") == NULL);
	rc_words_free(&env);
	unsetenv("RAYLET_C_LD_PRELOAD");
}

static void check_env(bool want, const char *serialized, const char *words)
{
	rc_words v = { 0 };
	CHECK_EQ_INT(want, rc_context_of_env(serialized, &v));
	char *got = joined(&v);
	CHECK_STR(words, got);
	free(got);
	rc_words_free(&v);
}

static void envs_that_only_set_variables(void)
{
	check_env(true, "{\"env_vars\": {\"B\": \"1\", \"A\": \"x y\"}}", "[B=1] [A=x y]");
	check_env(true, "{\"config\": {\"eager_install\": true}, \"env_vars\": {\"A\": \"\\u00e9\"}}", "[A=\xc3\xa9]");
	check_env(false, "{\"env_vars\": {\"A\": \"1\"}, \"working_dir\": \"gcs://x.zip\"}", "");
	check_env(false, "{\"env_vars\": {\"A\": 1}}", "");
	check_env(false, "{\"env_vars\": {\"A=B\": \"1\"}}", "");
	check_env(false, "{\"pip\": [\"x\"]}", "");
	check_env(false, "{}", "");
	check_env(false, "not json", "");
	rc_words v = { 0 };
	const char *plain = "{\"command_prefix\": [], \"env_vars\": {\"A\": \"1\"}, \"py_executable\": \"/py\", \"resources_dir\": null, "
	                    "\"override_worker_entrypoint\": null, \"java_jars\": []}";
	CHECK(rc_context_is_plain(plain, "/py", &v));
	CHECK_EQ_INT(1, v.n);
	rc_words_free(&v);
	CHECK(!rc_context_is_plain(plain, "/other", &v));
	CHECK(!rc_context_is_plain("{\"command_prefix\": [\"cd\"], \"env_vars\": {}}", "/py", &v));
	CHECK(!rc_context_is_plain("{\"something_new\": 1, \"env_vars\": {}}", "/py", &v));
	CHECK_EQ_INT(0, v.n);
}

static void variables_expand(void)
{
	rc_words env = { 0 }, v = { 0 };
	rc_env_set(&env, "HOME", "/h");
	rc_env_set(&env, "PATH", "/bin");
	rc_words_add_copy(&v, "PATH=/mine:${PATH}");
	rc_words_add_copy(&v, "TWICE=$PATH $HOME/x");
	rc_words_add_copy(&v, "GONE=<${NOT_THERE}>");
	rc_words_add_copy(&v, "KEPT=$nope ${lower} $ ${ $$");
	rc_context_apply(&v, &env);
	CHECK_STR("/mine:/bin", rc_env_get(&env, "PATH"));
	CHECK_STR("/mine:/bin /h/x", rc_env_get(&env, "TWICE"));
	CHECK_STR("<>", rc_env_get(&env, "GONE"));
	CHECK_STR("$nope ${lower} $ ${ $$", rc_env_get(&env, "KEPT"));
	rc_words_free(&env);
	rc_words_free(&v);
}

int main(void)
{
	RUN(splits, "command lines are split like a shell does, without expansion");
	RUN(plain_worker, "a worker without runtime env runs default_worker.py itself, with token (2.35.0) or id (2.60.0)");
	RUN(worker_with_runtime_env, "a worker with a runtime env goes through setup_worker.py, and dynamic options stand in their place");
	RUN(io_worker, "an IO worker is told its type and spilling configuration, and no job");
	RUN(java_and_cpp, "Java and C++ workers get their options and library path");
	RUN(environment, "a worker's environment names its job and the daemon");
	RUN(trainers, "Python workers get what the node found for trainers, unless its own environment says otherwise");
	RUN(parts, "Python workers take the native FSDP into use, unless the daemon's environment says otherwise");
	RUN(preload, "the allocator that ray start preloads is not passed on, the user's own is");
	RUN(envs_that_only_set_variables, "a runtime env that only sets variables is told from one that does more");
	RUN(variables_expand, "variables are expanded as Ray does it");
	return test_end();
}
