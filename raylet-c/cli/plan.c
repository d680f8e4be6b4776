/* Command lines of a node's processes; see plan.h. A change of Ray's command lines between releases belongs here and in
 * test/plan.c, where they stand as they were seen. Labels and resources are in amounts.c. */
#define _GNU_SOURCE /* vasprintf */
#include "raylet-c/cli/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/buf.h"

typedef struct words {
	char **w;
	size_t n, cap;
} words;

static void add_owned(words *l, char *word)
{
	if (l->n + 2 > l->cap) {
		l->cap = l->cap == 0 ? 32 : 2 * l->cap;
		l->w = rc_realloc(l->w, l->cap * sizeof *l->w);
	}
	l->w[l->n++] = word;
	l->w[l->n] = NULL;
}

static void add(words *l, const char *word)
{
	add_owned(l, rc_strdup(word));
}

static void addf(words *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void addf(words *l, const char *format, ...)
{
	va_list args;
	char *word = NULL;

	va_start(args, format);
	if (vasprintf(&word, format, args) < 0)
		abort(); /* out of memory */
	va_end(args);
	add_owned(l, word);
}

void rc_words_free(char **w)
{
	if (w == NULL)
		return;
	for (size_t i = 0; w[i] != NULL; i++)
		free(w[i]);
	free(w);
}

/* The quoting of Python's subprocess.list2cmdline, which `ray start` uses. */
char *rc_words_join(char *const *w)
{
	rc_buf out = { 0 };
	char *text;

	for (size_t i = 0; w != NULL && w[i] != NULL; i++) {
		bool quote = w[i][0] == '\0' || strpbrk(w[i], " \t") != NULL;
		size_t slashes = 0;

		if (i > 0)
			rc_buf_str(&out, " ");
		if (quote)
			rc_buf_str(&out, "\"");
		for (const char *p = w[i]; *p != '\0'; p++) {
			if (*p == '"') /* backslashes before a quote are doubled, the quote gets one */
				for (size_t k = 0; k <= slashes; k++)
					rc_buf_str(&out, "\\");
			slashes = *p == '\\' ? slashes + 1 : 0;
			rc_buf_add(&out, p, 1);
		}
		if (quote) {
			for (size_t k = 0; k < slashes; k++)
				rc_buf_str(&out, "\\");
			rc_buf_str(&out, "\"");
		}
	}
	text = rc_strdup(rc_buf_cstr(&out));
	rc_buf_free(&out);
	return text;
}

static char *join_and_free(words *l)
{
	char *text = rc_words_join(l->w);

	rc_words_free(l->w);
	return text;
}

static void add_rotation(words *l, const rc_plan *p)
{
	addf(l, "--logging-rotate-bytes=%lld", (long long)p->rotate_bytes);
	addf(l, "--logging-rotate-backup-count=%lld", (long long)p->rotate_backups);
}

/* Where a Python helper writes what: files, or (no redirection) stderr with the part's name in front. */
static void add_outputs(words *l, const rc_plan *p, const char *part, const char *out, const char *err, const char *log)
{
	const char *base;

	if (!p->v235 && p->redirect) {
		addf(l, "--stdout-filepath=%s", out);
		addf(l, "--stderr-filepath=%s", err);
		base = log != NULL ? strrchr(log, '/') : NULL;
		if (base != NULL)
			addf(l, "--logging-filename=%s", base + 1);
	}
	if (!p->redirect) {
		add(l, "--logging-filename=");
		addf(l, "--logging-format=%%(asctime)s\t%%(levelname)s (%s) %%(filename)s:%%(lineno)s -- %%(message)s", part);
	}
}

static char *python_worker(const rc_plan *p)
{
	words l = { 0 };

	add(&l, p->python);
	addf(&l, "%s/_private/workers/setup_worker.py", p->ray_dir);
	addf(&l, "%s/_private/workers/default_worker.py", p->ray_dir);
	addf(&l, "--node-ip-address=%s", p->node_ip);
	add(&l, "--node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER");
	addf(&l, "--object-store-name=%s", p->store_socket);
	addf(&l, "--raylet-name=%s", p->raylet_socket);
	add(&l, "--redis-address=None");
	addf(&l, "--metrics-agent-port=%lld", (long long)p->metrics_agent_port);
	if (p->v235)
		addf(&l, "--runtime-env-agent-port=%lld", (long long)p->runtime_env_agent_port);
	add_rotation(&l, p);
	addf(&l, "--runtime-env-agent-port=%lld", (long long)p->runtime_env_agent_port);
	addf(&l, "--gcs-address=%s", p->gcs_address);
	addf(&l, "--session-name=%s", p->session_name);
	addf(&l, "--temp-dir=%s", p->temp_dir);
	addf(&l, "--webui=%s", p->webui);
	addf(&l, "--cluster-id=%s", p->cluster_id);
	add(&l, "RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER");
	return join_and_free(&l);
}

static char *java_worker(const rc_plan *p)
{
	words l = { 0 };

	if (!p->java)
		return rc_strdup("");
	add(&l, p->python);
	addf(&l, "%s/_private/workers/setup_worker.py", p->ray_dir);
	addf(&l, "-Dray.address=%s", p->gcs_address);
	add(&l, "-Dray.raylet.node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER");
	addf(&l, "-Dray.object-store.socket-name=%s", p->store_socket);
	addf(&l, "-Dray.raylet.socket-name=%s", p->raylet_socket);
	if (!p->v235)
		add(&l, "-Dray.redis.username=");
	add(&l, "-Dray.redis.password=");
	addf(&l, "-Dray.node-ip=%s", p->node_ip);
	addf(&l, "-Dray.home=%s/../..", p->ray_dir);
	addf(&l, "-Dray.logging.dir=%s/logs", p->session_dir);
	addf(&l, "-Dray.session-dir=%s", p->session_dir);
	add(&l, "RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER");
	add(&l, "io.ray.runtime.runner.worker.DefaultWorker");
	return join_and_free(&l);
}

static char *dashboard_agent(const rc_plan *p)
{
	words l = { 0 };

	add(&l, p->python);
	add(&l, "-u");
	addf(&l, "%s/dashboard/agent.py", p->ray_dir);
	if (!p->v235)
		addf(&l, "--node-id=%s", p->node_id);
	addf(&l, "--node-ip-address=%s", p->node_ip);
	addf(&l, "--metrics-export-port=%lld", (long long)p->metrics_export_port);
	addf(&l, "--%s=%lld", p->v235 ? "dashboard-agent-port" : "grpc-port", (long long)p->metrics_agent_port);
	addf(&l, "--listen-port=%lld", (long long)p->dashboard_agent_listen_port);
	add(&l, "--node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER");
	addf(&l, "--object-store-name=%s", p->store_socket);
	addf(&l, "--raylet-name=%s", p->raylet_socket);
	addf(&l, "--temp-dir=%s", p->temp_dir);
	addf(&l, "--session-dir=%s", p->session_dir);
	addf(&l, "--log-dir=%s", p->log_dir);
	add_rotation(&l, p);
	addf(&l, "--session-name=%s", p->session_name);
	addf(&l, "--gcs-address=%s", p->gcs_address);
	if (!p->v235)
		addf(&l, "--cluster-id-hex=%s", p->cluster_id);
	add_outputs(&l, p, "dashboard_agent", p->agent_out, p->agent_err, p->agent_log);
	if (p->minimal)
		add(&l, "--minimal");
	return join_and_free(&l);
}

static char *runtime_env_agent(const rc_plan *p)
{
	words l = { 0 };

	add(&l, p->python);
	add(&l, "-u");
	addf(&l, "%s/_private/runtime_env/agent/main.py", p->ray_dir);
	if (!p->v235)
		addf(&l, "--node-id=%s", p->node_id);
	addf(&l, "--node-ip-address=%s", p->node_ip);
	addf(&l, "--runtime-env-agent-port=%lld", (long long)p->runtime_env_agent_port);
	if (!p->v235)
		addf(&l, "--session-dir=%s", p->session_dir);
	addf(&l, "--gcs-address=%s", p->gcs_address);
	if (!p->v235)
		addf(&l, "--cluster-id-hex=%s", p->cluster_id);
	addf(&l, "--runtime-env-dir=%s", p->resource_dir);
	add_rotation(&l, p);
	addf(&l, "--log-dir=%s", p->log_dir);
	addf(&l, "--temp-dir=%s", p->temp_dir);
	add_outputs(&l, p, "runtime_env_agent", p->env_out, p->env_err, p->env_log);
	return join_and_free(&l);
}

static void add_command(words *l, const char *flag, char *command)
{
	addf(l, "--%s=%s", flag, command);
	free(command);
}

char **rc_plan_raylet_words(const rc_plan *p)
{
	words l = { 0 };

	add(&l, p->daemon);
	addf(&l, "--raylet_socket_name=%s", p->raylet_socket);
	addf(&l, "--store_socket_name=%s", p->store_socket);
	addf(&l, "--object_manager_port=%lld", (long long)p->object_manager_port);
	addf(&l, "--min_worker_port=%lld", (long long)p->min_worker_port);
	addf(&l, "--max_worker_port=%lld", (long long)p->max_worker_port);
	addf(&l, "--node_manager_port=%lld", (long long)p->node_manager_port);
	addf(&l, "--node_id=%s", p->node_id);
	addf(&l, "--node_ip_address=%s", p->node_ip);
	addf(&l, "--maximum_startup_concurrency=%lld", (long long)p->maximum_startup_concurrency);
	addf(&l, "--static_resource_list=%s", p->resources);
	add_command(&l, "python_worker_command", python_worker(p));
	add_command(&l, "java_worker_command", java_worker(p));
	add(&l, "--cpp_worker_command=");
	addf(&l, "--native_library_path=%s/cpp/lib", p->ray_dir);
	addf(&l, "--temp_dir=%s", p->temp_dir);
	addf(&l, "--session_dir=%s", p->session_dir);
	addf(&l, "--log_dir=%s", p->log_dir);
	addf(&l, "--resource_dir=%s", p->resource_dir);
	addf(&l, "--metrics-agent-port=%lld", (long long)p->metrics_agent_port);
	addf(&l, "--metrics_export_port=%lld", (long long)p->metrics_export_port);
	addf(&l, "--runtime_env_agent_port=%lld", (long long)p->runtime_env_agent_port);
	addf(&l, "--object_store_memory=%lld", (long long)p->object_store_memory);
	addf(&l, "--plasma_directory=%s", p->plasma_dir);
	if (!p->v235)
		addf(&l, "--fallback_directory=%s", p->fallback_dir);
	addf(&l, "--ray-debugger-external=%d", p->debugger_external);
	addf(&l, "--gcs-address=%s", p->gcs_address);
	addf(&l, "--session-name=%s", p->session_name);
	addf(&l, "--labels=%s", p->labels);
	addf(&l, "--cluster-id=%s", p->cluster_id);
	if (!p->v235 && p->redirect) {
		addf(&l, "--stdout_filepath=%s", p->raylet_out);
		addf(&l, "--stderr_filepath=%s", p->raylet_err);
	}
	if (p->worker_port_list[0] != '\0')
		addf(&l, "--worker_port_list=%s", p->worker_port_list);
	addf(&l, "--num_prestart_python_workers=%lld", (long long)p->num_cpus);
	add_command(&l, "dashboard_agent_command", dashboard_agent(p));
	add_command(&l, "runtime_env_agent_command", runtime_env_agent(p));
	if (p->node_name[0] != '\0')
		addf(&l, "--node-name=%s", p->node_name);
	return l.w;
}

char **rc_plan_log_monitor_words(const rc_plan *p)
{
	words l = { 0 };

	add(&l, p->python);
	add(&l, "-u");
	addf(&l, "%s/_private/log_monitor.py", p->ray_dir);
	addf(&l, "--session-dir=%s", p->session_dir);
	addf(&l, "--logs-dir=%s", p->log_dir);
	addf(&l, "--gcs-address=%s", p->gcs_address);
	if (!p->v235)
		addf(&l, "--node-ip-address=%s", p->node_ip);
	add_rotation(&l, p);
	add_outputs(&l, p, "log_monitor", p->monitor_out, p->monitor_err, NULL);
	return l.w;
}

void rc_plan_free(rc_plan *p)
{
	char *owned[] = { p->daemon, p->ray_dir, p->python, p->gcs_address, p->cluster_id, p->session_name, p->webui, p->node_id, p->node_ip,
		          p->node_name, p->temp_dir, p->session_dir, p->log_dir, p->resource_dir, p->raylet_socket, p->store_socket, p->resources,
		          p->labels, p->plasma_dir, p->fallback_dir, p->worker_port_list, p->raylet_out, p->raylet_err, p->agent_out, p->agent_err,
		          p->agent_log, p->env_out, p->env_err, p->env_log, p->monitor_out, p->monitor_err };

	for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
		free(owned[i]);
	*p = (rc_plan){ 0 };
}
