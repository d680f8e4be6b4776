/* `raylet-c start`; see start.h. One step follows another on the loop:
 *   connect (release, cluster id) -> session -> web address -> plan -> folders -> daemon -> poll until ALIVE -> log monitor
 * -> leave, or watch (--block). The first failure ends it; a daemon that was started is stopped then.
 * Texts that tools wait for: "Ray runtime started." and "Version mismatch: The cluster was started with:". */
#include "raylet-c/cli/start.h"

#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raylet-c/base/choices.h"
#include "raylet-c/base/log.h"
#include "raylet-c/base/machine.h"
#include "raylet-c/cli/address.h"
#include "raylet-c/cli/children.h"
#include "raylet-c/cli/labels_file.h"
#include "raylet-c/cli/nodes_here.h"
#include "raylet-c/cli/package.h"
#include "raylet-c/cli/plan.h"
#include "raylet-c/cli/session.h"
#include "raylet-c/cli/start_options.h"
#include "raylet-c/cli/versions.h"
#include "raylet-c/gcs/gcs.h"
#include "raylet-c/rpc/security.h"

enum { POLL_MS = 20, SESSION_POLL_MS = 200 };
enum { SESSION_TIMEOUT_MS = 40000, ALIVE_TIMEOUT_MS = 30000, DRAIN_ANSWER_MS = 5000, STOP_GRACE_MS = 5000 };

/* Object store sizes of `ray start`, bytes. */
#define STORE_LEAST (75LL * 1024 * 1024)
#define STORE_SHM_ENOUGH 10000000000LL
#define STORE_MOST 200000000000LL
#define MEMORY_LEAST 100000000LL

typedef struct start {
	rc_start_options options;
	rc_package package;
	rc_security security;
	rc_loop *loop;
	rc_rpc *rpc;
	rc_gcs *gcs;
	rc_plan plan;
	char *head_session_dir;
	rc_id node_id;
	pid_t daemon, monitor; /* 0: not started */
	uint64_t started_ms;
	bool asking, alive, draining, drain_answered, ended;
	rc_timer *timer;
	int exit_status;
} start;

static void finish(start *s, int exit_status)
{
	if (s->ended)
		return;
	s->ended = true;
	s->exit_status = exit_status;
	rc_timer_stop(s->timer);
	s->timer = NULL;
	rc_loop_stop(s->loop);
}

static void stop_children(start *s)
{
	if (s->daemon > 0)
		rc_child_stop(s->daemon, STOP_GRACE_MS);
	if (s->monitor > 0)
		rc_child_stop(s->monitor, STOP_GRACE_MS);
	s->daemon = s->monitor = 0;
}

static void failed(start *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void failed(start *s, const char *format, ...)
{
	va_list args;

	if (s->ended)
		return;
	fputs("raylet-c start: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	stop_children(s);
	finish(s, 1);
}

static int64_t env_number(const char *name, int64_t fallback)
{
	const char *value = getenv(name);
	char *end;
	long long n = value != NULL ? strtoll(value, &end, 10) : 0;

	return value != NULL && end != value && *end == '\0' && n >= 0 ? n : fallback;
}

/* ---- the head's address ---- */

/* The address as all processes of the node get it: a loopback host is replaced by the one that others reach. */
static int set_addresses(start *s, rc_error *error)
{
	char found[256], host[256], ip[64];
	const char *given = s->options.address;
	int port;

	if (strcmp(given, "auto") == 0) {
		if (rc_address_auto(found, error) != 0)
			return -1;
		given = found;
	}
	if (rc_address_split(given, host, &port, error) != 0)
		return -1;
	if (rc_is_localhost(host)) {
		rc_machine_ip_towards("8.8.8.8", 53, ip);
		snprintf(host, sizeof host, "%s", ip);
	}
	s->plan.gcs_address = rc_sprintf(strchr(host, ':') != NULL ? "[%s]:%d" : "%s:%d", host, port);
	if (s->options.node_ip_address == NULL)
		rc_machine_ip_towards(host, port, ip);
	else if (rc_is_localhost(s->options.node_ip_address))
		rc_machine_ip_towards("8.8.8.8", 53, ip);
	else
		snprintf(ip, sizeof ip, "%s", s->options.node_ip_address);
	s->plan.node_ip = rc_strdup(ip);
	/* `ray start` names the node by the address only when that was given */
	s->plan.node_name = rc_strdup(s->options.node_name != NULL ? s->options.node_name : s->options.node_ip_address != NULL ? ip : "");
	return 0;
}

/* ---- release and Python ---- */

static int check_versions(start *s, rc_error *error)
{
	const char *head = rc_dialect_release(rc_gcs_dialect(s->gcs)), *head_python = rc_gcs_python_version(s->gcs);
	const char *level = getenv("RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL");
	char python[32];
	rc_fit fit = rc_versions_fit(&s->package, head, head_python, python);

	if (fit == RC_FIT_SAME)
		return 0;
	if (fit == RC_FIT_PATCH && level != NULL && strcmp(level, "minor") == 0) {
		fprintf(stderr, "raylet-c start: Python patch version mismatch: the cluster has %s, this node %s\n", head_python, python);
		return 0;
	}
	return rc_fail(error, RC_E_INVALID,
	               "Version mismatch: The cluster was started with:\n    Ray: %s\n    Python: %s\nThis node would be started with:\n    Ray: %s\n"
	               "    Python: %s\n(%s; --ray-dir names another)",
	               head, head_python, s->package.release, python, s->package.dir);
}

/* ---- amounts ---- */

static int visible_gpus(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int n = 1;

	if (visible == NULL)
		return -1;
	if (*visible == '\0' || strcmp(visible, "NoDevFiles") == 0)
		return 0;
	for (const char *p = visible; *p != '\0'; p++)
		n += *p == ',';
	return n;
}

static int decide_gpus(start *s, rc_amounts *a, char type[64], rc_error *error)
{
	int visible = visible_gpus();
	rc_gpus found = a->gpus == 0 ? (rc_gpus){ 0 } : rc_machine_gpus();

	type[0] = '\0';
	if (a->gpus < 0)
		a->gpus = visible >= 0 && visible < found.count ? visible : found.count;
	else if (visible >= 0 && a->gpus > visible)
		return rc_fail(error, RC_E_INVALID, "Attempting to start raylet with %lld GPU, but CUDA_VISIBLE_DEVICES contains %d",
		               (long long)a->gpus, visible);
	if (a->gpus > 0 && found.product[0] != '\0')
		rc_gpu_type(found.product, !s->plan.v235, type);
	return 0;
}

static int decide_memory(start *s, rc_amounts *a, rc_error *error)
{
	rc_memory memory;
	uint64_t shm;
	double share = 0.3;
	int64_t most = STORE_MOST, available, cap;

	if (rc_machine_memory("", &memory, error) != 0 || rc_machine_free_bytes("/dev/shm", &shm, error) != 0)
		return -1;
	available = memory.total > memory.used ? (int64_t)(memory.total - memory.used) : 0;
	if (!s->plan.v235) {
		const char *given = getenv("RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION");

		most = env_number("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", most);
		if (given != NULL && atof(given) > 0)
			share = atof(given);
	}
	if (a->object_store_memory < 0) {
		cap = (int64_t)((double)shm * 0.95);
		cap = cap > STORE_SHM_ENOUGH ? cap : STORE_SHM_ENOUGH;
		cap = cap < most ? cap : most;
		a->object_store_memory = (int64_t)((double)available * share);
		if (a->object_store_memory > cap)
			a->object_store_memory = cap;
	}
	if (a->memory < 0) {
		a->memory = available - a->object_store_memory;
		if (a->memory < MEMORY_LEAST && a->memory < (int64_t)(memory.total / 20))
			return rc_fail(error, RC_E_INVALID,
			               "After the object store of %lld bytes, only %lld bytes are left for tasks and actors: --memory and --object-store-memory set them",
			               (long long)a->object_store_memory, (long long)a->memory);
	}
	if (a->object_store_memory < STORE_LEAST)
		return rc_fail(error, RC_E_INVALID, "an object store of %lld bytes is too small: the least is %lld",
		               (long long)a->object_store_memory, STORE_LEAST);
	if (s->options.plasma_directory != NULL) {
		struct stat st;

		if (stat(s->options.plasma_directory, &st) != 0 || !S_ISDIR(st.st_mode))
			return rc_fail(error, RC_E_INVALID, "--plasma-directory=%s is not a folder", s->options.plasma_directory);
		s->plan.plasma_dir = realpath(s->options.plasma_directory, NULL);
		return s->plan.plasma_dir != NULL ? 0 : rc_fail_errno(error, "--plasma-directory=%s", s->options.plasma_directory);
	}
	if ((uint64_t)a->object_store_memory > memory.total)
		return rc_fail(error, RC_E_INVALID, "an object store of %lld bytes is more than the machine's %llu bytes of memory", (long long)a->object_store_memory,
		               (unsigned long long)memory.total);
	if (shm >= (uint64_t)a->object_store_memory) {
		s->plan.plasma_dir = rc_strdup("/dev/shm");
		return 0;
	}
	if (a->object_store_memory > STORE_SHM_ENOUGH && getenv("RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE") == NULL)
		return rc_fail(error, RC_E_INVALID,
		               "an object store of %lld bytes does not fit into /dev/shm, which has %llu bytes free; make it larger (docker: --shm-size), or set "
		               "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE=1",
		               (long long)a->object_store_memory, (unsigned long long)shm);
	const char *top = getenv("RAY_TMPDIR") != NULL ? getenv("RAY_TMPDIR") : getenv("TMPDIR");
	s->plan.plasma_dir = rc_strdup(!s->plan.v235 ? s->plan.temp_dir : top != NULL ? top : "/tmp");
	fprintf(stderr, "raylet-c start: warning: the object store lies in %s and will be slow: /dev/shm has only %llu bytes free\n", s->plan.plasma_dir,
	        (unsigned long long)shm);
	return 0;
}

/* The text of --labels-file, the caller's; NULL when there is none. */
static int read_labels_file(const start *s, char **ret, rc_error *error)
{
	const char *path = s->options.labels_file;

	*ret = NULL;
	if (path == NULL || *path == '\0')
		return 0;
	if (s->plan.v235)
		return rc_fail(error, RC_E_UNSUPPORTED, "--labels-file: Ray 2.35.0 does not have it; --labels takes a JSON object there");
	*ret = rc_labels_file_read(path, error);
	return *ret != NULL ? 0 : -1;
}

static int decide_labels(start *s, const char *gpu_type, rc_error *error)
{
	char *file;
	int rc;

	if (read_labels_file(s, &file, error) != 0)
		return -1;
	rc = rc_labels_text(s->plan.v235, file, s->options.labels, gpu_type, &s->plan.labels, error);
	free(file);
	return rc;
}

static int decide_amounts(start *s, rc_error *error)
{
	const rc_start_options *o = &s->options;
	const char *env = getenv("RAY_OVERRIDE_RESOURCES");
	rc_amounts a = { .cpus = o->num_cpus, .gpus = o->num_gpus, .memory = o->memory, .object_store_memory = o->object_store_memory };
	char type[64];
	long machine = sysconf(_SC_NPROCESSORS_ONLN);

	if (rc_resources_override(env, &a, error) != 0)
		return -1;
	if (a.cpus < 0)
		a.cpus = rc_machine_cpus("");
	if (decide_gpus(s, &a, type, error) != 0 || decide_memory(s, &a, error) != 0 ||
	    rc_resources_text(o->resources, env, &a, s->plan.node_ip, type, &s->plan.resources, error) != 0 || decide_labels(s, type, error) != 0)
		return -1;
	s->plan.num_cpus = a.cpus;
	s->plan.object_store_memory = a.object_store_memory;
	s->plan.maximum_startup_concurrency = a.cpus < machine ? a.cpus : machine;
	if (s->plan.maximum_startup_concurrency < 1)
		s->plan.maximum_startup_concurrency = 1;
	return 0;
}

/* ---- folders and commands ---- */

/* 2.60.0: this node's spill folder if one was given; else the head's, if the head was given one; else the own session. */
static int decide_fallback(start *s, rc_error *error)
{
	const char *own = s->options.object_spilling_directory != NULL ? s->options.object_spilling_directory : getenv("RAY_object_spilling_directory");
	json_t *config = json_loads(rc_gcs_config_str(s->gcs, "object_spilling_config", ""), 0, NULL);
	json_t *folder = json_object_get(json_object_get(config, "params"), "directory_path");
	const char *type = json_string_value(json_object_get(config, "type")), *head;

	if (json_is_array(folder))
		folder = json_array_get(folder, 0);
	head = type != NULL && strcmp(type, "filesystem") == 0 ? json_string_value(folder) : NULL;
	if (own != NULL && *own != '\0')
		s->plan.fallback_dir = rc_strdup(own);
	else if (head != NULL && strcmp(head, s->head_session_dir) != 0)
		s->plan.fallback_dir = rc_strdup(head);
	else
		s->plan.fallback_dir = rc_strdup(s->plan.session_dir);
	json_decref(config);
	if (mkdir(s->plan.fallback_dir, 0777) == 0)
		return chmod(s->plan.fallback_dir, 0777) == 0 ? 0 : rc_fail_errno(error, "cannot open %s to all users", s->plan.fallback_dir);
	struct stat st;
	if (stat(s->plan.fallback_dir, &st) != 0 || !S_ISDIR(st.st_mode))
		return rc_fail(error, RC_E_INVALID, "the spill folder %s cannot be made", s->plan.fallback_dir);
	return 0;
}

static bool beside_ray(const start *s, const char *name)
{
	char *path = rc_sprintf("%s/../%s", s->plan.ray_dir, name);
	bool found = access(path, F_OK) == 0;

	free(path);
	return found;
}

/* Are the packages of the dashboard agent missing? `ray start` imports them to know; here their folders have to do. */
static bool is_minimal(const start *s)
{
	return !(beside_ray(s, "aiohttp") && beside_ray(s, "aiohttp_cors") && beside_ray(s, "grpc") && beside_ray(s, "opencensus") &&
	         beside_ray(s, "prometheus_client") && beside_ray(s, "pydantic") && (s->plan.v235 || beside_ray(s, "opentelemetry")));
}

static bool on_path(const char *program)
{
	char *copy = rc_strdup(getenv("PATH") != NULL ? getenv("PATH") : "/usr/bin:/bin"), *rest = copy, *folder;
	bool found = false;

	while (!found && (folder = strsep(&rest, ":")) != NULL) {
		char *path = rc_sprintf("%s/%s", folder, program);

		found = access(path, X_OK) == 0;
		free(path);
	}
	free(copy);
	return found;
}

static void decide_commands(start *s)
{
	const rc_start_options *o = &s->options;
	rc_plan *p = &s->plan;
	const char *id = getenv("RAY_OVERRIDE_NODE_ID_FOR_TESTING");
	char *jars = rc_sprintf("%s/jars", s->package.dir);

	s->node_id = id != NULL && *id != '\0' ? rc_id_from_hex(id) : rc_id_random(RC_NODE_ID);
	p->node_id = rc_strdup(rc_id_to_hex(&s->node_id).s);
	p->debugger_external = o->debugger_external;
	p->worker_port_list = rc_strdup(o->worker_port_list != NULL ? o->worker_port_list : "");
	p->object_manager_port = o->object_manager_port;
	p->node_manager_port = o->node_manager_port;
	p->min_worker_port = o->min_worker_port;
	p->max_worker_port = o->max_worker_port;
	p->metrics_agent_port = o->dashboard_agent_grpc_port;
	p->metrics_export_port = o->metrics_export_port;
	p->runtime_env_agent_port = o->runtime_env_agent_port;
	p->dashboard_agent_listen_port = o->dashboard_agent_listen_port;
	p->rotate_bytes = env_number("RAY_ROTATION_MAX_BYTES", 512LL * 1024 * 1024);
	p->rotate_backups = env_number("RAY_ROTATION_BACKUP_COUNT", 5);
	p->java = access(jars, F_OK) == 0 && on_path("java");
	free(jars);
}

/* ---- ALIVE and after ---- */

static pid_t start_child(start *s, char **words, const char *out, const char *err, rc_error *error)
{
	char *mark = rc_sprintf(RC_STARTED_VARIABLE "=%s", s->plan.node_id);
	const char *env[7] = { "RAY_CLIENT_MODE=0", mark };
	rc_child_spec spec = { .words = words, .env = env, .out = *out != '\0' ? out : NULL, .err = *err != '\0' ? err : NULL, .die_with_us = s->options.block };
	size_t n = 2;
	pid_t pid;

	if (s->plan.v235)
		env[n++] = "RAY_LD_PRELOAD=1";
	else if (getenv("RAY_LD_PRELOAD_ON_WORKERS") == NULL)
		env[n++] = "RAY_LD_PRELOAD_ON_WORKERS=0";
	if (!s->plan.v235 && !s->plan.redirect)
		env[n++] = "RAY_LOG_TO_STDERR=1";
	if (s->options.log_monitor && rc_choice_native_agent())
		env[n++] = RC_CHOICE_LOG_TAIL;
	pid = rc_child_start(&spec, error);
	rc_words_free(words);
	free(mark);
	return pid;
}

static int start_log_monitor(start *s, rc_error *error)
{
	const rc_plan *p = &s->plan;
	const char *out = !p->redirect ? "" : p->v235 ? p->monitor_err : "/dev/null";
	const char *err = !p->redirect ? "" : p->v235 ? p->monitor_err : "/dev/null";

	if (!s->options.log_monitor || rc_choice_native_agent()) /* the daemon does that too */
		return 0;
	s->monitor = start_child(s, rc_plan_log_monitor_words(p), out, err, error);
	if (s->monitor > 0)
		return 0;
	s->monitor = 0;
	return -1;
}

static int start_daemon(start *s, rc_error *error)
{
	const rc_plan *p = &s->plan;
	const char *out = !p->redirect ? "" : p->v235 ? p->raylet_out : "/dev/null";
	const char *err = !p->redirect ? "" : p->v235 ? p->raylet_err : "/dev/null";

	s->daemon = start_child(s, rc_plan_raylet_words(p), out, err, error);
	if (s->daemon > 0)
		return 0;
	s->daemon = 0;
	return -1;
}

static void describe(int status, char text[64])
{
	if (WIFSIGNALED(status))
		snprintf(text, 64, "was ended by signal %d", WTERMSIG(status));
	else
		snprintf(text, 64, "ended with status %d", WEXITSTATUS(status));
}

static bool is_expected(int status)
{
	return (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) ||
	       (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SIGTERM || WEXITSTATUS(status) == 128 + SIGTERM));
}

/* The last line of the daemon's error log, without time and place; "" when there is none. */
static void last_words(const start *s, char ret[600])
{
	char line[2048];
	FILE *f = s->plan.raylet_err != NULL ? fopen(s->plan.raylet_err, "r") : NULL;

	ret[0] = '\0';
	while (f != NULL && fgets(line, sizeof line, f) != NULL) {
		const char *text = strstr(line, " (raylet) "), *colon = text != NULL ? strstr(text, ": ") : NULL;

		line[strcspn(line, "\n")] = '\0';
		if (*line != '\0')
			snprintf(ret, 600, "%.599s", colon != NULL ? colon + 2 : line);
	}
	if (f != NULL)
		fclose(f);
}

/* A daemon that left in good order ends the command, too: a node that is gone shall not look alive. */
static void on_daemon_ended(start *s, int status)
{
	char text[64], why[600];

	s->daemon = 0;
	describe(status, text);
	if (!s->alive) {
		last_words(s, why);
		failed(s, "the daemon %s before the node was ALIVE%s%s; its log is %s", text, *why ? ": " : "", why, s->plan.raylet_out);
	} else if (!is_expected(status)) {
		failed(s, "Some Ray subprocesses exited unexpectedly: raylet %s (%s). Remaining processes will be killed.", text, s->plan.raylet_out);
	} else {
		printf("The node has left: raylet %s.\n", text);
		stop_children(s);
		finish(s, 0);
	}
}

static void on_monitor_ended(start *s, int status)
{
	char text[64];

	s->monitor = 0;
	describe(status, text);
	if (!is_expected(status))
		failed(s, "Some Ray subprocesses exited unexpectedly: log_monitor %s (%s). Remaining processes will be killed.", text,
		       s->plan.monitor_err);
}

/* As process 1 of a container this one gets all orphans, so whatever has ended is reaped, our own children or not. */
static void on_child(void *arg, int signum)
{
	start *s = arg;
	pid_t pid;
	int status;

	(void)signum;
	while (!s->ended && (pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == s->daemon)
			on_daemon_ended(s, status);
		else if (pid == s->monitor)
			on_monitor_ended(s, status);
	}
}

static void on_drain_deadline(void *arg)
{
	start *s = arg;

	if (s->ended)
		return;
	fputs("raylet-c start: the node is stopped\n", stderr);
	stop_children(s);
	finish(s, 0);
}

/* A head that is gone, as when a whole cluster is taken down, is not waited for. */
static void on_no_drain_answer(void *arg)
{
	start *s = arg;

	if (s->ended || s->drain_answered)
		return;
	fprintf(stderr, "raylet-c start: the head does not answer; the node leaves without draining\n");
	on_drain_deadline(s);
}

static void on_drain_answer(void *arg, const rc_error *error, const void *reply)
{
	const Rw__AutoscalerDrainNodeReply *r = reply;
	start *s = arg;

	s->drain_answered = true;
	if (error != NULL)
		fprintf(stderr, "raylet-c start: the head does not drain this node: %s\n", error->text);
	if (error != NULL || !RC_GET(r, is_accepted))
		on_drain_deadline(s);
}

/* SIGTERM: the node takes no new work, what runs may end, and at the deadline it is stopped. A node that is not ALIVE yet is
 * stopped at once. SIGINT: stopped at once. */
static void on_signal(void *arg, int signum)
{
	start *s = arg;
	int64_t seconds = env_number("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", 30);

	if (s->ended || (s->draining && signum == SIGTERM))
		return;
	if (signum == SIGINT) {
		fputs("Aborted!\n", stderr);
		stop_children(s);
		finish(s, 1);
		return;
	}
	if (!s->alive || s->daemon == 0 || seconds == 0) {
		on_drain_deadline(s);
		return;
	}
	s->draining = true;
	printf("SIGTERM: the node drains for at most %lld s.\n", (long long)seconds);
	fflush(stdout);
	rc_gcs_drain_node(s->gcs, &s->node_id, RC_V_DRAIN_PREEMPTION, "Node received SIGTERM; draining before shutdown.",
	                  (int64_t)rc_wall_ms() + seconds * 1000, on_drain_answer, s);
	rc_loop_after(s->loop, DRAIN_ANSWER_MS, on_no_drain_answer, s);
	rc_loop_after(s->loop, (uint64_t)seconds * 1000, on_drain_deadline, s);
}

static void on_alive(start *s)
{
	rc_error error;

	if (start_log_monitor(s, &error) != 0 || rc_session_remember(&s->plan, &error) != 0) {
		failed(s, "%s", error.text);
		return;
	}
	s->alive = true;
	printf("\n--------------------\nRay runtime started.\n--------------------\n\nTo terminate the Ray runtime, run\n  raylet-c stop\n");
	rc_timer_stop(s->timer);
	s->timer = NULL;
	if (!s->options.block) {
		if (getpid() == 1)
			fputs("raylet-c start: warning: as process 1 of a container this command needs --block; the node ends with it now\n", stderr);
		s->daemon = s->monitor = 0; /* theirs is their own life now */
		finish(s, 0);
		return;
	}
	printf("\n--block\n  This command will now block until the node is ended.\n");
	fflush(stdout);
}

static void on_nodes(void *arg, const rc_error *error, const void *reply)
{
	const Rw__GetAllNodeInfoReply *r = reply;
	start *s = arg;

	s->asking = false;
	if (s->ended)
		return;
	if (error != NULL) {
		failed(s, "%s", error->text);
		return;
	}
	for (size_t i = 0; i < r->n_node_info_list; i++) {
		rc_id id = RC_GET_ID(r->node_info_list[i], node_id);

		if (!rc_id_eq(&id, &s->node_id))
			continue;
		if (RC_GET(r->node_info_list[i], state) == rc_enum_value(rc_gcs_dialect(s->gcs), RC_V_NODE_ALIVE))
			on_alive(s);
		else
			failed(s, "the head has declared the node dead while it started; %s has the reason", s->plan.raylet_out);
		return;
	}
}

static void on_poll(void *arg)
{
	start *s = arg;

	if (rc_now_ms() - s->started_ms > ALIVE_TIMEOUT_MS) {
		failed(s, "The current node timed out during startup: not ALIVE after %d s; see %s", ALIVE_TIMEOUT_MS / 1000, s->plan.raylet_out);
		return;
	}
	if (!s->asking) {
		Rw__GetAllNodeInfoRequest request = RW__GET_ALL_NODE_INFO_REQUEST__INIT;
		Rw__GetAllNodeInfoRequestNodeSelector selector = RW__GET_ALL_NODE_INFO_REQUEST__NODE_SELECTOR__INIT, *selectors[] = { &selector };

		RC_SET_ID(selector, node_id, &s->node_id);
		request.node_selectors = selectors;
		request.n_node_selectors = s->plan.v235 ? 0 : 1;
		s->asking = true;
		rc_gcs_call(s->gcs, RC_M_GET_ALL_NODE_INFO, &request, &rw__get_all_node_info_reply__descriptor, on_nodes, s);
	}
}

/* ---- the steps ---- */

static int make_node(start *s, rc_error *error)
{
	rc_plan *p = &s->plan;
	const char *to_stderr = getenv("RAY_LOG_TO_STDERR");

	p->minimal = is_minimal(s); /* here, since it needs the release */
	p->redirect = !s->options.no_redirect_output && (to_stderr == NULL || strcmp(to_stderr, "1") != 0);
	if (decide_amounts(s, error) != 0 || rc_session_make(p, error) != 0)
		return -1;
	if (!p->v235 && decide_fallback(s, error) != 0)
		return -1;
	if (p->fallback_dir == NULL)
		p->fallback_dir = rc_strdup("");
	if (p->v235 && rc_session_ports_2_35(p, error) != 0)
		return -1;
	return start_daemon(s, error);
}

static void on_webui(void *arg, const rc_error *error, rc_view value)
{
	start *s = arg;
	rc_error why;

	if (error != NULL && error->code != RC_E_NOT_FOUND) {
		failed(s, "%s", error->text);
		return;
	}
	s->plan.webui = error != NULL ? rc_strdup("") : rc_strndup(value.p, value.n);
	if (make_node(s, &why) != 0) {
		failed(s, "%s", why.text);
		return;
	}
	s->started_ms = rc_now_ms();
	s->timer = rc_timer_start(s->loop, POLL_MS, POLL_MS, on_poll, s);
}

static void ask_session(void *arg);

static void on_session(void *arg, const rc_error *error, const rc_gcs_session *session)
{
	start *s = arg;
	const char *temp;

	if (error != NULL) {
		failed(s, "%s", error->text);
		return;
	}
	if (session->session_name[0] == '\0' || session->temp_dir[0] == '\0') { /* it answers before it has registered itself */
		if (rc_now_ms() - s->started_ms > SESSION_TIMEOUT_MS)
			failed(s, "the head answers, but has not told its session's name and folder within %d s", SESSION_TIMEOUT_MS / 1000);
		else
			rc_loop_after(s->loop, SESSION_POLL_MS, ask_session, s);
		return;
	}
	temp = session->temp_dir;
	if (s->options.temp_dir != NULL && s->plan.v235)
		fprintf(stderr, "raylet-c start: warning: --temp-dir is ignored: under a head of 2.35.0 all nodes use the head's, %s\n", temp);
	else if (s->options.temp_dir != NULL)
		temp = s->options.temp_dir;
	s->plan.session_name = rc_strdup(session->session_name);
	s->plan.temp_dir = rc_strdup(temp);
	s->head_session_dir = rc_strdup(session->session_dir);
	rc_gcs_kv_get(s->gcs, "dashboard", "webui:url", on_webui, s);
}

static void ask_session(void *arg)
{
	start *s = arg;

	if (!s->ended)
		rc_gcs_get_session(s->gcs, on_session, s);
}

static void on_connected(void *arg)
{
	start *s = arg;
	rc_error error;

	if (check_versions(s, &error) != 0) {
		failed(s, "%s", error.text);
		return;
	}
	s->plan.v235 = strcmp(rc_dialect_release(rc_gcs_dialect(s->gcs)), "2.35.0") == 0;
	s->plan.cluster_id = rc_strdup(rc_gcs_cluster_id(s->gcs));
	s->started_ms = rc_now_ms();
	ask_session(s);
}

static void on_failed(void *arg, const rc_error *error)
{
	failed(arg, "%s", error->text);
}

static void on_gone(void *arg, const char *text)
{
	failed(arg, "%s", text);
}

static int prepare(start *s, rc_error *error)
{
	rc_rpc_options options = { 0 };
	static const rc_gcs_ops ops = { .connected = on_connected, .failed = on_failed, .buried = on_gone, .lost = on_gone };
	char daemon[PATH_MAX];

	if (rc_package_find(s->options.ray_dir, &s->package, error) != 0)
		return -1;
	if (s->options.python != NULL && access(s->options.python, X_OK) != 0)
		return rc_fail_errno(error, "--python=%s", s->options.python);
	if (s->options.python == NULL && s->package.python[0] == '\0')
		return rc_fail(error, RC_E_NOT_FOUND, "no interpreter found for %s: name it with --python FILE", s->package.dir);
	if (s->options.daemon == NULL && rc_daemon_find(daemon, error) != 0)
		return -1;
	s->plan.python = rc_strdup(s->options.python != NULL ? s->options.python : s->package.python);
	s->plan.ray_dir = rc_strdup(s->package.dir);
	s->plan.daemon = rc_strdup(s->options.daemon != NULL ? s->options.daemon : daemon);
	if (set_addresses(s, error) != 0 || rc_security_from_env(&s->security, error) != 0)
		return -1;
	decide_commands(s);
	printf("Local node IP: %s\n", s->plan.node_ip);
	fflush(stdout);
	rc_security_apply(&s->security, &options);
	s->loop = rc_loop_create();
	s->rpc = rc_rpc_create(s->loop, &options, error);
	if (s->rpc == NULL)
		return -1;
	rc_signal_start(s->loop, SIGTERM, on_signal, s);
	rc_signal_start(s->loop, SIGINT, on_signal, s);
	rc_signal_start(s->loop, SIGCHLD, on_child, s);
	s->gcs = rc_gcs_create(s->loop, s->rpc, &(rc_gcs_options){ .address = s->plan.gcs_address, .node_id = s->node_id }, &ops, s);
	return 0;
}

int rc_start_command(int argc, char **argv)
{
	start s = { 0 };
	rc_error error;

	if (rc_start_options_parse(argc, argv, &s.options, &error) != 0) {
		fprintf(stderr, "raylet-c start: %s\n", error.text);
		return error.code == RC_E_UNSUPPORTED ? 1 : 2;
	}
	if (s.options.help) {
		rc_start_help(stdout);
		return 0;
	}
	if (s.options.require_efa)
		setenv("RAYLET_C_REQUIRE_EFA", "1", 1); /* the daemon looks, as it does under `ray start` */
	rc_log_level(RC_ERROR);
	if (prepare(&s, &error) == 0) {
		rc_loop_run(s.loop);
	} else {
		fprintf(stderr, "raylet-c start: %s\n", error.text);
		s.exit_status = 1;
	}
	rc_gcs_destroy(s.gcs);
	if (s.rpc != NULL)
		rc_rpc_destroy(s.rpc);
	rc_loop_destroy(s.loop);
	rc_security_free(&s.security);
	rc_plan_free(&s.plan);
	free(s.head_session_dir);
	return s.exit_status;
}
