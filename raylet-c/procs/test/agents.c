/* Helper processes with fake agents: ports, port files, environment, restarts, end. */
#define _GNU_SOURCE
#include "raylet-c/procs/agents.h"
#include "raylet-c/procs/gen/job_agent_py.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static rc_loop *loop;
static rc_procs *procs;
static char dir[] = "/tmp/rc_agents_test.XXXXXX";

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

static char *slurp(const char *name)
{
	static char text[8192];
	char *path = rc_sprintf("%s/%s", dir, name);
	int fd = open(path, O_RDONLY);
	free(path);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return text;
}

static rc_agents_options options(const char *release, const char *dashboard, const char *runtime_env)
{
	rc_error e;
	rc_agents_options o = {
		.dialect = rc_dialect_find(release, &e),
		.procs = procs,
		.dashboard_agent_command = dashboard,
		.runtime_env_agent_command = runtime_env,
		.session_dir = dir,
		.log_dir = dir,
		.node_ip = "127.0.0.1",
		.node_manager_port = 4711,
	};
	o.node_id = rc_id_from("\xab\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 28);
	return o;
}

static int listener(int *port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)*port), .sin_addr.s_addr = htonl(INADDR_ANY) };
	socklen_t n = sizeof(a);
	CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0);
	getsockname(fd, (struct sockaddr *)&a, &n);
	*port = ntohs(a.sin_port);
	return fd;
}

static void ports_are_chosen(void)
{
	rc_agents_options o = options("2.60.0", "a --metrics-export-port=0 --grpc-port=0 --listen-port=0", "b --runtime-env-agent-port=0");
	rc_agent_ports p;
	rc_error e = { 0 };
	CHECK_EQ_INT(0, rc_agents_choose_ports(&o, &p, &e));
	CHECK(p.metrics_agent_port > 1024 && p.metrics_export_port > 1024 && p.dashboard_agent_listen_port > 1024 && p.runtime_env_agent_port > 1024);
	CHECK(p.metrics_agent_port != p.metrics_export_port && p.metrics_export_port != p.dashboard_agent_listen_port);
	o = options("2.35.0", "a --metrics-export-port=0 --dashboard-agent-port=0 --listen-port=None", "");
	CHECK_EQ_INT(0, rc_agents_choose_ports(&o, &p, &e));
	CHECK(p.metrics_agent_port > 1024 && p.dashboard_agent_listen_port > 1024);
	CHECK_EQ_INT(-1, p.runtime_env_agent_port);
	o = options("2.60.0", "a --metrics-export-port=0 --grpc-port=0 --listen-port=0 --minimal", "b --runtime-env-agent-port=0");
	CHECK_EQ_INT(0, rc_agents_choose_ports(&o, &p, &e));
	CHECK_EQ_INT(-1, p.metrics_agent_port);
	CHECK_EQ_INT(-1, p.dashboard_agent_listen_port);
	o.native = true;
	CHECK_EQ_INT(0, rc_agents_choose_ports(&o, &p, &e));
	CHECK(p.metrics_agent_port > 1024 && p.metrics_export_port > 1024 && p.dashboard_agent_listen_port > 1024);
}

static void taken_port_is_named(void)
{
	int port = 0, fd = listener(&port);
	char *command = rc_sprintf("a --metrics-export-port=%d --grpc-port=0", port), *want = rc_sprintf("port %d is taken by another program (--metrics-export-port)", port);
	rc_agents_options o = options("2.60.0", command, NULL);
	rc_agent_ports p;
	rc_error e = { 0 };
	CHECK_EQ_INT(-1, rc_agents_choose_ports(&o, &p, &e));
	CHECK_STR(want, e.text);
	free(command);
	free(want);
	command = rc_sprintf("a --listen-port=%d", port);
	want = rc_sprintf("port %d is taken by another program (--dashboard-agent-listen-port)", port);
	o = options("2.60.0", command, NULL);
	CHECK_EQ_INT(-1, rc_agents_choose_ports(&o, &p, &e));
	CHECK_STR(want, e.text);
	free(command);
	free(want);
	close(fd);
	o = options("2.60.0", "a --listen-port=99999", NULL);
	CHECK_EQ_INT(-1, rc_agents_choose_ports(&o, &p, &e));
	CHECK_STR("--dashboard-agent-listen-port: '99999' is not a port", e.text);
}

static void other_node_may_have_the_http_port(void)
{
	int port = 0, fd = listener(&port);
	close(fd);
	char *script = rc_sprintf("mkdir -p %s/dashboard && echo 'import socket,time; s=socket.create_server((\"0.0.0.0\", %d)); open(\"%s/up\",\"w\").close(); "
	                          "time.sleep(60)' >%s/dashboard/agent.py",
	                          dir, port, dir, dir);
	CHECK(system(script) == 0);
	free(script);
	script = rc_sprintf("%s/dashboard/agent.py", dir);
	pid_t pid = fork();
	if (pid == 0) {
		execlp("python3", "python3", script, (char *)NULL);
		_exit(1);
	}
	char *up = rc_sprintf("%s/up", dir);
	for (int i = 0; i < 1000 && access(up, F_OK) != 0; i++)
		usleep(10000);
	char *command = rc_sprintf("a --listen-port=%d", port);
	rc_agents_options o = options("2.35.0", command, NULL);
	rc_agent_ports p = { 0 };
	rc_error e = { 0 };
	CHECK_EQ_INT(0, rc_agents_choose_ports(&o, &p, &e));
	CHECK_EQ_INT(port, p.dashboard_agent_listen_port);
	kill(pid, SIGKILL);
	run_for(20);
	free(command);
	free(script);
	free(up);
}

static void helpers_run(void)
{
	char *dashboard = rc_sprintf("/bin/sh -c 'echo \"$@\" >>%s/dashboard.args; env >%s/dashboard.env; exec cat' sh --grpc-port=0 --listen-port=0 "
	                             "--node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER",
	                             dir, dir);
	char *runtime_env = rc_sprintf("/bin/sh -c 'echo \"$@\" >>%s/env.args; exec cat' sh --runtime-env-agent-port=0", dir);
	rc_agents_options o = options("2.60.0", dashboard, runtime_env);
	rc_agent_ports p;
	rc_error e;
	CHECK_EQ_INT(0, rc_agents_choose_ports(&o, &p, &e));
	setenv("RAY_LD_PRELOAD_ON_WORKERS", "1", 1);
	setenv("LD_PRELOAD", "", 1);
	rc_agents *a = rc_agents_start(loop, &o, &p);
	unsetenv("LD_PRELOAD");
	unsetenv("RAY_LD_PRELOAD_ON_WORKERS");
	char *name = rc_sprintf("runtime_env_agent_port_ab%054d", 0), want[300];
	snprintf(want, sizeof(want), "%d", p.runtime_env_agent_port);
	CHECK_STR(want, slurp(name));
	name[0] = 0;
	free(name);
	for (int i = 0; i < 200 && !strchr(slurp("dashboard.env"), '\n'); i++)
		run_for(20);
	snprintf(want, sizeof(want), "--grpc-port=%d --listen-port=%d --node-manager-port=4711\n", p.metrics_agent_port, p.dashboard_agent_listen_port);
	CHECK_STR(want, slurp("dashboard.args"));
	snprintf(want, sizeof(want), "--runtime-env-agent-port=%d\n", p.runtime_env_agent_port);
	CHECK_STR(want, slurp("env.args"));
	const char *env = slurp("dashboard.env");
	CHECK(strstr(env, "RAY_NODE_ID=ab00") != NULL);
	CHECK(strstr(env, "RAY_enable_pipe_based_agent_to_parent_health_check=1\n") != NULL);
	CHECK(strstr(env, "RAY_RAYLET_PID=") != NULL);
	CHECK(strstr(env, "LD_PRELOAD=\n") == NULL);
	pid_t first = rc_agents_runtime_env_pid(a);
	CHECK(first > 0 && rc_agents_dashboard_pid(a) > 0);
	kill(first, SIGKILL); /* it comes back, with the same ports */
	for (int i = 0; i < 200 && strlen(slurp("env.args")) < 2 * strlen(want); i++)
		run_for(20);
	char twice[700];
	snprintf(twice, sizeof(twice), "%s%s", want, want);
	CHECK_STR(twice, slurp("env.args"));
	CHECK(rc_agents_runtime_env_pid(a) != first);
	rc_agents_stop(a, 5000, stop_loop, NULL);
	uint64_t start = rc_now_ms();
	rc_loop_run(loop);
	CHECK(rc_now_ms() - start < 4000);
	CHECK_EQ_INT(0, rc_agents_dashboard_pid(a));
	rc_agents_destroy(a);
	free(dashboard);
	free(runtime_env);
}

static bool is_busy(void *arg)
{
	return *(bool *)arg;
}

static void helpers_give_way(void)
{
	bool busy = true;
	rc_agents_options o = options("2.35.0", "/bin/sh -c cat", "/bin/sh -c cat"); /* a shell takes further words: --agent-id */
	rc_agent_ports p = { -1, -1, -1, -1, -1, -1 };
	o.busy = is_busy;
	o.busy_arg = &busy;
	rc_agents *a = rc_agents_start(loop, &o, &p);
	run_for(1700);
	CHECK(rc_agents_runtime_env_pid(a) == 0 && rc_agents_dashboard_pid(a) == 0);
	busy = false;
	for (int i = 0; i < 500 && (!rc_agents_runtime_env_pid(a) || !rc_agents_dashboard_pid(a)); i++)
		run_for(20);
	CHECK(rc_agents_runtime_env_pid(a) > 0 && rc_agents_dashboard_pid(a) > 0);
	rc_agents_stop(a, 5000, stop_loop, NULL);
	rc_loop_run(loop);
	rc_agents_destroy(a);
	busy = true;
	a = rc_agents_start(loop, &o, &p); /* stopped before they have started */
	rc_agents_stop(a, 200, stop_loop, NULL);
	run_for(200);
	rc_agents_destroy(a);
}

static void stubborn_helper_is_killed(void)
{
	rc_agents_options o = options("2.35.0", NULL, "/bin/sh -c \"trap '' TERM; while :; do sleep 0.05; done\"");
	rc_agent_ports p = { -1, -1, -1, -1, -1, -1 };
	rc_agents *a = rc_agents_start(loop, &o, &p);
	run_for(700);
	CHECK(rc_agents_runtime_env_pid(a) > 0);
	rc_agents_stop(a, 200, stop_loop, NULL);
	uint64_t start = rc_now_ms();
	rc_loop_run(loop);
	CHECK(rc_now_ms() - start >= 190);
	CHECK_EQ_INT(0, rc_agents_runtime_env_pid(a));
	rc_agents_destroy(a);
	o = options("2.35.0", NULL, NULL);
	a = rc_agents_start(loop, &o, &p); /* none at all */
	rc_agents_stop(a, 200, stop_loop, NULL);
	rc_agents_destroy(a);
}

static void text_is_up_to_date(void)
{
	FILE *f = fopen("python/raylet_c/job_agent.py", "r");
	if (!f) {
		printf("# python/raylet_c/job_agent.py is not here, not compared\n");
		return;
	}
	char *text = rc_alloc(1 << 16);
	size_t n = fread(text, 1, (1 << 16) - 1, f);
	fclose(f);
	CHECK_EQ_INT(sizeof(rc_job_agent_source) - 1, n);
	CHECK_STR(rc_job_agent_source, text);
	free(text);
}

/* With the native agent: the first helper never, the second when it is wanted, and not again when it ended unneeded. */
static bool wanted_still;

static bool still_wanted(void *arg)
{
	(void)arg;
	return wanted_still;
}

static void native_starts_on_demand(void)
{
	rc_error error;
	rc_agents_options o = options("2.60.0", "/bin/true --grpc-port=0 --listen-port=0 --metrics-export-port=0", "/bin/sh -c \"sleep 600\" --runtime-env-agent-port=0");
	rc_agent_ports p;
	o.native = true;
	o.runtime_env_busy = still_wanted;
	CHECK_EQ_INT(0, rc_agents_choose_ports(&o, &p, &error));
	CHECK(p.runtime_env_helper_port > 0 && p.runtime_env_helper_port != p.runtime_env_agent_port && p.job_helper_port > 0);
	rc_agents *a = rc_agents_start(loop, &o, &p);
	run_for(2200);
	CHECK(!rc_agents_runtime_env_pid(a) && !rc_agents_dashboard_pid(a));
	rc_agents_want_runtime_env(a);
	pid_t pid = rc_agents_runtime_env_pid(a);
	CHECK(pid > 0);
	rc_agents_want_runtime_env(a);
	CHECK_EQ_INT(pid, rc_agents_runtime_env_pid(a));
	kill(pid, SIGKILL);
	run_for(1500);
	CHECK_EQ_INT(0, rc_agents_runtime_env_pid(a));
	wanted_still = true;
	rc_agents_want_runtime_env(a);
	pid = rc_agents_runtime_env_pid(a);
	kill(pid, SIGKILL);
	for (int i = 0; i < 50 && (!rc_agents_runtime_env_pid(a) || rc_agents_runtime_env_pid(a) == pid); i++)
		run_for(200);
	CHECK(rc_agents_runtime_env_pid(a) > 0 && rc_agents_runtime_env_pid(a) != pid);
	rc_agents_stop(a, 2000, stop_loop, NULL);
	rc_loop_run(loop);
	rc_agents_destroy(a);
}

int main(void)
{
	rc_error error;
	if (!mkdtemp(dir))
		return 1;
	loop = rc_loop_create();
	procs = rc_procs_create(loop, &error);
	RUN(ports_are_chosen, "open ports are chosen, all different, and services that are off have none");
	RUN(taken_port_is_named, "a fixed port that is taken is named with its option");
	RUN(other_node_may_have_the_http_port, "the agent of another node on this host may have the HTTP port");
	RUN(helpers_run, "helpers get their ports, environment and a pipe, and come back on the same ports");
	RUN(helpers_give_way, "helpers wait while something more urgent starts");
	RUN(stubborn_helper_is_killed, "a helper that does not end is killed after the grace");
	RUN(native_starts_on_demand, "with the native agent the runtime-env agent runs when it is wanted");
	RUN(text_is_up_to_date, "the job agent's text is that of its file");
	rc_procs_destroy(procs, 2000);
	rc_loop_destroy(loop);
	char *clean = rc_sprintf("rm -r %s", dir);
	CHECK(system(clean) == 0);
	free(clean);
	return test_end();
}
