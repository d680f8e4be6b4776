/* Helper processes. A helper that ends is started again after 1, 2, 4, ... 30 s; one that lived for a minute starts afresh
 * in that count. Their imports take seconds of CPU time that nobody waits for, so the prefork server and the first workers come
 * first: a little after the server is ready the runtime-env agent, which a worker may wait for, then the other.
 *
 * 2.60.0's agents write their port files themselves, with the same ports, since those are on their command lines. When the
 * HTTP port of the dashboard agent (52365 unless told otherwise) belongs to the agent of another node on this host, stock's
 * agent goes on without HTTP, and nodes that share a host rely on it; any other holder of a fixed port is an error. */
#define _GNU_SOURCE
#include "raylet-c/procs/agents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "raylet-c/base/log.h"
#include "raylet-c/procs/command.h"
#include "raylet-c/procs/gen/job_agent_py.h"
#include "raylet-c/procs/ports.h"

enum { BUSY_MS = 50, RUNTIME_ENV_DELAY_MS = 500, DASHBOARD_DELAY_MS = 1500, BACKOFF_FIRST_MS = 1000, BACKOFF_MOST_MS = 30000, LONG_LIFE_MS = 60000 };
enum { IDLE_LOOK_MS = 10000, IDLE_MOST_MS = 60000 };
enum { TRIES = 200, LOWEST_PORT = 20000 };

typedef struct helper {
	rc_agents *owner;
	const char *name;
	rc_words argv;
	rc_process *process;
	rc_timer *timer;
	unsigned backoff_ms;
} helper;

struct rc_agents {
	rc_loop *loop;
	rc_procs *procs;
	rc_words env;
	helper dashboard, runtime_env, jobs;
	bool (*busy)(void *arg), (*runtime_env_busy)(void *arg);
	void *busy_arg;
	bool native;            /* the runtime-env agent runs when it is wanted */
	bool port_file_changed; /* by the runtime-env agent */
	uint64_t wanted_ms;     /* last */
	char *port_file;
	int runtime_env_port;
	rc_timer *busy_timer, *stop_timer, *idle_timer;
	rc_task_fn stopped;
	void *stopped_arg;
	bool stopping;
};

static bool is_235(const rc_dialect *d)
{
	return strcmp(rc_dialect_release(d), "2.35.0") == 0;
}

/* ---- ports ---- */

static bool is_free(const char *node_ip, int port)
{
	return rc__port_is_free("0.0.0.0", port) && rc__port_is_free(node_ip, port);
}

static int ephemeral_start(void)
{
	int low = 32768, high;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
	if (f && fscanf(f, "%d %d", &low, &high) != 2)
		low = 32768;
	if (f)
		fclose(f);
	return low > LOWEST_PORT + 1000 ? low : 60000;
}

static int pick(const char *node_ip, const int *taken, int n_taken)
{
	int end = ephemeral_start();
	for (int i = 0; i < TRIES; i++) {
		uint32_t r;
		if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r))
			return -1;
		int port = LOWEST_PORT + (int)(r % (uint32_t)(end - LOWEST_PORT));
		bool used = false;
		for (int j = 0; j < n_taken; j++)
			used = used || taken[j] == port;
		if (!used && is_free(node_ip, port))
			return port;
	}
	return -1;
}

/* The inode of the socket that listens on port, or 0. */
static unsigned long listening_inode(int port)
{
	static const char *const tables[] = { "/proc/net/tcp", "/proc/net/tcp6" };
	unsigned long found = 0;
	for (int i = 0; i < 2 && !found; i++) {
		FILE *f = fopen(tables[i], "re");
		char line[512];
		while (f && !found && fgets(line, sizeof(line), f)) {
			unsigned local, state;
			unsigned long inode;
			if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu", &local, &state, &inode) == 3 && state == 10 &&
			    local == (unsigned)port)
				found = inode;
		}
		if (f)
			fclose(f);
	}
	return found;
}

static bool holds_inode(const char *pid, unsigned long inode)
{
	char *dir = rc_sprintf("/proc/%s/fd", pid), want[64], link[64];
	snprintf(want, sizeof(want), "socket:[%lu]", inode);
	DIR *d = opendir(dir);
	bool found = false;
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1);
		if (n > 0) {
			link[n] = 0;
			found = strcmp(link, want) == 0;
		}
	}
	if (d)
		closedir(d);
	free(dir);
	return found;
}

static bool is_dashboard_agent(const char *pid)
{
	char *path = rc_sprintf("/proc/%s/cmdline", pid), text[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	free(path);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	size_t first = strnlen(text, (size_t)n); /* the program: a daemon may be its node's agent itself */
	return memmem(text, (size_t)n, "dashboard/agent.py", 18) || memmem(text, (size_t)n, "ray::DashboardAgent", 19) ||
	       (first >= 7 && !memcmp(text + first - 7, "/raylet", 7));
}

static bool held_by_other_agent(int port)
{
	unsigned long inode = listening_inode(port);
	DIR *d = inode ? opendir("/proc") : NULL;
	bool found = false;
	for (struct dirent *e; d && !found && (e = readdir(d));)
		found = e->d_name[0] >= '1' && e->d_name[0] <= '9' && is_dashboard_agent(e->d_name) && holds_inode(e->d_name, inode);
	if (d)
		closedir(d);
	return found;
}

static const char *word_value(const rc_words *w, const char *name) /* of "--name=value" */
{
	return rc_env_get(w, name);
}

typedef struct wanted {
	const char *option; /* on the helper's command line */
	const char *flag;   /* of `ray start` */
	int *port;
} wanted;

static int choose(const rc_words *words, const wanted *w, const rc_agents_options *o, int *taken, int *n_taken, rc_error *error)
{
	const char *value = word_value(words, w->option);
	if (!value)
		return 0;
	char *end;
	long port = strcmp(value, "None") == 0 ? 0 : strtol(value, &end, 10);
	if (port == 0) {
		port = pick(o->node_ip, taken, *n_taken);
		if (port < 0)
			return rc_fail(error, RC_E_FULL, "no free port was found for %s", w->flag);
	} else if (port < 0 || port > 65535) {
		return rc_fail(error, RC_E_INVALID, "%s: '%s' is not a port", w->flag, value);
	} else if (!is_free(o->node_ip, (int)port)) {
		if (strcmp(w->option, "--listen-port") != 0 || !held_by_other_agent((int)port))
			return rc_fail(error, RC_E_EXISTS, "port %ld is taken by another program (%s)", port, w->flag);
		rc_warn("port %ld (%s) belongs to the dashboard agent of another node on this host: this node's agent goes without HTTP", port, w->flag);
	}
	*w->port = (int)port;
	taken[(*n_taken)++] = (int)port;
	return 0;
}

static bool has_word(const rc_words *w, const char *word)
{
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->v[i], word) == 0)
			return true;
	return false;
}

int rc_agents_choose_ports(const rc_agents_options *o, rc_agent_ports *ret, rc_error *error)
{
	rc_agent_ports ports = { -1, -1, -1, -1, -1, -1 };
	const wanted of_dashboard[] = {
		{ is_235(o->dialect) ? "--dashboard-agent-port" : "--grpc-port", "--dashboard-agent-grpc-port", &ports.metrics_agent_port },
		{ "--metrics-export-port", "--metrics-export-port", &ports.metrics_export_port },
		{ "--listen-port", "--dashboard-agent-listen-port", &ports.dashboard_agent_listen_port },
	};
	const wanted of_runtime_env = { "--runtime-env-agent-port", "--runtime-env-agent-port", &ports.runtime_env_agent_port };
	rc_words dashboard = { 0 }, runtime_env = { 0 };
	int taken[8], n_taken = 0, rc = 0;
	rc_words_split(o->dashboard_agent_command, &dashboard);
	rc_words_split(o->runtime_env_agent_command, &runtime_env);
	/* The fixed ones first, so that no chosen one takes their place. */
	for (int fixed = 1; rc == 0 && fixed >= 0; fixed--) {
		for (size_t i = 0; rc == 0 && i < 3; i++) {
			const char *value = word_value(&dashboard, of_dashboard[i].option);
			if (value && (atoi(value) != 0) == fixed)
				rc = choose(&dashboard, &of_dashboard[i], o, taken, &n_taken, error);
		}
		const char *value = word_value(&runtime_env, of_runtime_env.option);
		if (rc == 0 && value && (atoi(value) != 0) == fixed)
			rc = choose(&runtime_env, &of_runtime_env, o, taken, &n_taken, error);
	}
	ports.runtime_env_helper_port = ports.runtime_env_agent_port;
	int *const own[] = { &ports.runtime_env_helper_port, &ports.job_helper_port };
	for (size_t i = 0; rc == 0 && o->native && i < 2; i++) {
		*own[i] = pick(o->node_ip, taken, n_taken);
		taken[n_taken++] = *own[i];
		if (*own[i] < 0)
			rc = rc_fail(error, RC_E_FULL, "no free port was found for the %s", i ? "job agent" : "runtime-env agent");
	}
	if (has_word(&dashboard, "--minimal") && !is_235(o->dialect) && !o->native) /* a Ray without the agent's packages, which only stock's needs */
		ports.metrics_agent_port = ports.metrics_export_port = ports.dashboard_agent_listen_port = -1;
	rc_words_free(&dashboard);
	rc_words_free(&runtime_env);
	if (rc == 0)
		*ret = ports;
	return rc;
}

static char *port_file_path(const rc_agents_options *o, const char *name)
{
	return rc_sprintf("%s/%s_%s", o->session_dir, name, rc_id_to_hex(&o->node_id).s);
}

static void write_port(const char *path, int port)
{
	char *draft = rc_sprintf("%s.new", path);
	int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	bool ok = fd >= 0 && dprintf(fd, "%d", port) > 0;
	if (fd >= 0)
		ok = close(fd) == 0 && ok;
	if (!ok || rename(draft, path) != 0)
		rc_warn("the port file %s cannot be written: %s", path, strerror(errno));
	free(draft);
}

static void write_port_file(const rc_agents_options *o, const char *name, int port)
{
	char *path = port_file_path(o, name);
	write_port(path, port);
	free(path);
}

/* ---- processes ---- */

static void start_helper(void *arg);

static void start_later(helper *h, unsigned delay_ms)
{
	rc_timer_stop(h->timer);
	h->timer = rc_timer_start(h->owner->loop, delay_ms, 0, start_helper, h);
}

static void check_stopped(rc_agents *a)
{
	if (!a->stopping || !a->stopped || a->dashboard.process || a->runtime_env.process || a->jobs.process)
		return;
	rc_timer_stop(a->stop_timer);
	a->stop_timer = NULL;
	rc_task_fn fn = a->stopped;
	a->stopped = NULL;
	fn(a->stopped_arg);
}

static void again(helper *h, const char *why)
{
	rc_warn("the %s ended (%s), starting it again in %u ms", h->name, why, h->backoff_ms);
	start_later(h, h->backoff_ms);
	h->backoff_ms = h->backoff_ms * 2 < BACKOFF_MOST_MS ? h->backoff_ms * 2 : BACKOFF_MOST_MS;
}

static void helper_exited(void *arg, rc_process *p, int status)
{
	helper *h = arg;
	char text[80];
	if (rc_process_age_ms(p) > LONG_LIFE_MS)
		h->backoff_ms = BACKOFF_FIRST_MS;
	h->process = NULL;
	if (h->owner->stopping)
		check_stopped(h->owner);
	else if (h == &h->owner->jobs || (h->owner->native && !h->owner->runtime_env_busy(h->owner->busy_arg)))
		rc_info("the %s has ended (%s)", h->name, rc_exit_text(status, text));
	else if (!rc_procs_ending(h->owner->procs))
		again(h, rc_exit_text(status, text));
}

static void start_helper(void *arg)
{
	helper *h = arg;
	rc_error error;
	rc_timer_stop(h->timer);
	h->timer = NULL;
	rc_spawn sp = { .name = h->name, .argv = (const char *const *)h->argv.v, .env = (const char *const *)h->owner->env.v, .stdin_pipe = true };
	h->process = rc_process_spawn(h->owner->procs, &sp, helper_exited, h, &error);
	if (h->process && h == &h->owner->runtime_env)
		h->owner->port_file_changed = true;
	if (h->process)
		rc_info("%s started, pid %d", h->name, (int)rc_process_pid(h->process));
	else
		again(h, error.text);
}

static void start_when_idle(void *arg)
{
	rc_agents *a = arg;
	rc_timer_stop(a->busy_timer);
	a->busy_timer = NULL;
	if (a->busy && a->busy(a->busy_arg)) {
		a->busy_timer = rc_timer_start(a->loop, BUSY_MS, 0, start_when_idle, a);
		return;
	}
	if (a->runtime_env.argv.n && !a->native)
		start_later(&a->runtime_env, RUNTIME_ENV_DELAY_MS);
	if (a->dashboard.argv.n)
		start_later(&a->dashboard, DASHBOARD_DELAY_MS);
}

void rc_agents_want_runtime_env(rc_agents *a)
{
	helper *h = &a->runtime_env;
	a->wanted_ms = rc_now_ms();
	if (!h->process && !h->timer && !a->stopping && h->argv.n)
		start_helper(h);
}

bool rc_agents_want_jobs(rc_agents *a)
{
	helper *h = &a->jobs;
	if (!h->process && !h->timer && !a->stopping && h->argv.n)
		start_helper(h);
	return h->argv.n > 0;
}

void rc_agents_runtime_env_answered(rc_agents *a)
{
	if (a->port_file && a->port_file_changed)
		write_port(a->port_file, a->runtime_env_port);
	a->port_file_changed = false;
}

static void end_when_idle(void *arg)
{
	rc_agents *a = arg;
	if (a->runtime_env.process && !a->runtime_env_busy(a->busy_arg) && rc_now_ms() - a->wanted_ms > IDLE_MOST_MS)
		rc_process_signal(a->runtime_env.process, SIGTERM);
}

static void put_word(rc_words *w, const char *option, int port)
{
	if (port <= 0 || !word_value(w, option))
		return;
	char text[16];
	snprintf(text, sizeof(text), "%d", port);
	rc_env_set(w, option, text);
}

static void make_command(helper *h, rc_agents *a, const char *name, const char *command, int node_manager_port)
{
	h->owner = a;
	h->name = name;
	h->backoff_ms = BACKOFF_FIRST_MS;
	rc_words_split(command, &h->argv);
	for (size_t i = 0; i < h->argv.n; i++) {
		char *word = rc_command_put_port(h->argv.v[i], node_manager_port);
		free(h->argv.v[i]);
		h->argv.v[i] = word;
	}
}

/* The interpreter is that of the command for Ray's own dashboard agent. */
static void make_job_command(rc_agents *a, const rc_agents_options *o, int port)
{
	helper *h = &a->jobs;
	char text[16];
	h->owner = a;
	h->name = "job agent";
	h->backoff_ms = BACKOFF_FIRST_MS;
	if (!a->dashboard.argv.n || port <= 0)
		return;
	snprintf(text, sizeof(text), "%d", port);
	const char *const words[] = { a->dashboard.argv.v[0], "-u", "-c", rc_job_agent_source, o->node_ip, text, o->gcs_address, o->log_dir, o->session_name,
		                      o->cluster_id };
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		rc_words_add_copy(&h->argv, words[i] ? words[i] : "");
}

rc_agents *rc_agents_start(rc_loop *loop, const rc_agents_options *o, const rc_agent_ports *ports)
{
	rc_agents *a = rc_alloc(sizeof(*a));
	a->loop = loop;
	a->procs = o->procs;
	make_command(&a->dashboard, a, "dashboard agent", o->dashboard_agent_command, o->node_manager_port);
	make_command(&a->runtime_env, a, "runtime-env agent", o->runtime_env_agent_command, o->node_manager_port);
	put_word(&a->dashboard.argv, is_235(o->dialect) ? "--dashboard-agent-port" : "--grpc-port", ports->metrics_agent_port);
	put_word(&a->dashboard.argv, "--metrics-export-port", ports->metrics_export_port);
	put_word(&a->dashboard.argv, "--listen-port", ports->dashboard_agent_listen_port);
	put_word(&a->runtime_env.argv, "--runtime-env-agent-port", ports->runtime_env_helper_port);
	if (is_235(o->dialect) && a->dashboard.argv.n) {
		rc_words_add_copy(&a->dashboard.argv, "--agent-id");
		rc_words_add_copy(&a->dashboard.argv, "424238335"); /* any number; stock's is this one on every node */
	} else if (!is_235(o->dialect)) {
		write_port_file(o, "metrics_agent_port", ports->metrics_agent_port);
		write_port_file(o, "metrics_export_port", ports->metrics_export_port);
		write_port_file(o, "dashboard_agent_listen_port", ports->dashboard_agent_listen_port);
		write_port_file(o, "runtime_env_agent_port", ports->runtime_env_agent_port);
	}
	rc_env_inherit(&a->env);
	char pid[16];
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	rc_env_unset(&a->env, "LD_PRELOAD");
	rc_env_set(&a->env, "RAY_NODE_ID", rc_id_to_hex(&o->node_id).s);
	rc_env_set(&a->env, "RAY_RAYLET_PID", pid);
	rc_env_set(&a->env, "RAY_enable_pipe_based_agent_to_parent_health_check", "1");
	if (o->native) {
		make_job_command(a, o, ports->job_helper_port);
		rc_words_free(&a->dashboard.argv);
		a->native = true;
		a->runtime_env_busy = o->runtime_env_busy;
		a->runtime_env_port = ports->runtime_env_agent_port;
		a->port_file = is_235(o->dialect) ? NULL : port_file_path(o, "runtime_env_agent_port");
		a->idle_timer = rc_timer_start(loop, IDLE_LOOK_MS, IDLE_LOOK_MS, end_when_idle, a);
	}
	a->busy = o->busy;
	a->busy_arg = o->busy_arg;
	start_when_idle(a);
	return a;
}

static void stop_timed_out(void *arg)
{
	rc_agents *a = arg;
	if (a->dashboard.process)
		rc_process_kill(a->dashboard.process);
	if (a->runtime_env.process)
		rc_process_kill(a->runtime_env.process);
	if (a->jobs.process)
		rc_process_kill(a->jobs.process);
}

void rc_agents_stop(rc_agents *a, unsigned grace_ms, rc_task_fn fn, void *arg)
{
	a->stopping = true;
	a->stopped = fn;
	a->stopped_arg = arg;
	rc_timer_stop(a->busy_timer);
	a->busy_timer = NULL;
	helper *const all[] = { &a->dashboard, &a->runtime_env, &a->jobs };
	for (int i = 0; i < 3; i++) {
		rc_timer_stop(all[i]->timer);
		all[i]->timer = NULL;
		if (all[i]->process)
			rc_process_signal(all[i]->process, SIGTERM);
	}
	a->stop_timer = rc_timer_start(a->loop, grace_ms, 0, stop_timed_out, a);
	check_stopped(a);
}

void rc_agents_destroy(rc_agents *a)
{
	if (!a)
		return;
	helper *const all[] = { &a->dashboard, &a->runtime_env, &a->jobs };
	for (int i = 0; i < 3; i++) {
		rc_timer_stop(all[i]->timer);
		if (all[i]->process)
			rc_process_set_exited(all[i]->process, NULL, NULL);
		rc_words_free(&all[i]->argv);
	}
	rc_timer_stop(a->busy_timer);
	rc_timer_stop(a->stop_timer);
	rc_timer_stop(a->idle_timer);
	free(a->port_file);
	rc_words_free(&a->env);
	free(a);
}

pid_t rc_agents_dashboard_pid(const rc_agents *a)
{
	return a && a->dashboard.process ? rc_process_pid(a->dashboard.process) : 0;
}

pid_t rc_agents_runtime_env_pid(const rc_agents *a)
{
	return a && a->runtime_env.process ? rc_process_pid(a->runtime_env.process) : 0;
}
