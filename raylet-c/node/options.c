/* One table of flags; see the header. Flags of either release are accepted whatever the head runs: the release is known only
 * later, and a flag that it lacks does no harm. */
#include "raylet-c/node/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { TEXT, NUMBER, SWITCH } kind;

typedef struct flag {
	const char *name;
	kind kind;
	size_t offset;
	bool needed;
} flag;

#define F(name, kind, needed) { #name, kind, offsetof(rc_options, name), needed }

static const flag flags[] = {
	F(raylet_socket_name, TEXT, true),
	F(store_socket_name, TEXT, true),
	F(node_ip_address, TEXT, true),
	F(node_id, TEXT, true),
	F(node_name, TEXT, false),
	F(static_resource_list, TEXT, false),
	F(labels, TEXT, false),
	F(worker_port_list, TEXT, false),
	F(python_worker_command, TEXT, false),
	F(java_worker_command, TEXT, false),
	F(cpp_worker_command, TEXT, false),
	F(native_library_path, TEXT, false),
	F(dashboard_agent_command, TEXT, false),
	F(runtime_env_agent_command, TEXT, false),
	F(temp_dir, TEXT, false),
	F(session_dir, TEXT, true),
	F(log_dir, TEXT, true),
	F(resource_dir, TEXT, false),
	F(plasma_directory, TEXT, false),
	F(fallback_directory, TEXT, false),
	F(gcs_address, TEXT, true),
	F(session_name, TEXT, false),
	F(cluster_id, TEXT, false),
	F(stdout_filepath, TEXT, false),
	F(stderr_filepath, TEXT, false),
	F(cgroup_path, TEXT, false),
	F(system_pids, TEXT, false),
	F(object_manager_port, NUMBER, false),
	F(node_manager_port, NUMBER, false),
	F(min_worker_port, NUMBER, false),
	F(max_worker_port, NUMBER, false),
	F(maximum_startup_concurrency, NUMBER, false),
	F(metrics_agent_port, NUMBER, false),
	F(metrics_export_port, NUMBER, false),
	F(runtime_env_agent_port, NUMBER, false),
	F(dashboard_agent_listen_port, NUMBER, false),
	F(object_store_memory, NUMBER, true),
	F(num_prestart_python_workers, NUMBER, false),
	F(ray_debugger_external, NUMBER, false),
	F(system_reserved_cpu_weight, NUMBER, false),
	F(system_reserved_memory_bytes, NUMBER, false),
	F(head, SWITCH, false),
	F(huge_pages, SWITCH, false),
	F(enable_resource_isolation, SWITCH, false),
};
enum { N_FLAGS = sizeof(flags) / sizeof(flags[0]) };

static const flag *find(const char *name, size_t n)
{
	for (size_t i = 0; i < N_FLAGS; i++) {
		const char *want = flags[i].name;
		size_t k = 0;
		while (k < n && want[k] != '\0' && (name[k] == want[k] || (name[k] == '-' && want[k] == '_')))
			k++;
		if (k == n && want[k] == '\0')
			return &flags[i];
	}
	return NULL;
}

static int set(const flag *f, const char *value, rc_options *o, rc_error *error)
{
	void *field = (char *)o + f->offset;
	if (f->kind == TEXT) {
		*(const char **)field = value;
		return 0;
	}
	if (f->kind == SWITCH) {
		bool on = !strcmp(value, "true") || !strcmp(value, "1");
		if (!on && strcmp(value, "false") && strcmp(value, "0"))
			return rc_fail(error, RC_E_INVALID, "--%s=%s: true or false is needed", f->name, value);
		*(bool *)field = on;
		return 0;
	}
	char *end;
	errno = 0;
	long long number = strtoll(value, &end, 10);
	if (*value == '\0' || *end != '\0' || errno)
		return rc_fail(error, RC_E_INVALID, "--%s=%s: a whole number is needed", f->name, value);
	*(int64_t *)field = number;
	return 0;
}

static int check(const rc_options *o, const bool *given, rc_error *error)
{
	for (size_t i = 0; i < N_FLAGS; i++)
		if (flags[i].needed && !given[i])
			return rc_fail(error, RC_E_INVALID, "--%s is needed", flags[i].name);
	const int64_t ports[] = { o->object_manager_port, o->node_manager_port, o->min_worker_port, o->max_worker_port,
		                  o->metrics_agent_port, o->metrics_export_port, o->runtime_env_agent_port, o->dashboard_agent_listen_port };
	const char *names[] = { "object_manager_port", "node_manager_port", "min_worker_port", "max_worker_port",
		                "metrics_agent_port", "metrics_export_port", "runtime_env_agent_port", "dashboard_agent_listen_port" };
	for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++)
		if (ports[i] < -1 || ports[i] > 65535)
			return rc_fail(error, RC_E_INVALID, "--%s=%lld: not a port", names[i], (long long)ports[i]);
	if (o->max_worker_port && o->max_worker_port < o->min_worker_port)
		return rc_fail(error, RC_E_INVALID, "--max_worker_port=%lld is below --min_worker_port=%lld", (long long)o->max_worker_port,
		               (long long)o->min_worker_port);
	return 0;
}

int rc_options_parse(int argc, char *const *argv, rc_options *ret, rc_error *error)
{
	rc_options o = { 0 };
	bool given[N_FLAGS] = { false };
	for (size_t i = 0; i < N_FLAGS; i++)
		if (flags[i].kind == TEXT)
			*(const char **)((char *)&o + flags[i].offset) = "";
	o.maximum_startup_concurrency = 1;
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i];
		if (name[0] != '-')
			return rc_fail(error, RC_E_INVALID, "unexpected argument '%.100s': flags only", name);
		name += name[1] == '-' ? 2 : 1;
		const char *equals = strchr(name, '=');
		size_t n = equals ? (size_t)(equals - name) : strlen(name);
		const flag *f = find(name, n);
		if (!f && !equals && !strncmp(name, "no", 2) && (f = find(name + 2, n - 2)) && f->kind == SWITCH) {
			given[f - flags] = true;
			if (set(f, "false", &o, error))
				return -1;
			continue;
		}
		if (!f)
			return rc_fail(error, RC_E_INVALID, "unknown command line flag '%.*s'", (int)(n > 100 ? 100 : n), name);
		const char *value = equals ? equals + 1 : NULL;
		if (!value && f->kind == SWITCH)
			value = "true";
		else if (!value && ++i < argc)
			value = argv[i];
		if (!value)
			return rc_fail(error, RC_E_INVALID, "--%s: a value is needed", f->name);
		given[f - flags] = true;
		if (set(f, value, &o, error))
			return -1;
	}
	if (check(&o, given, error))
		return -1;
	*ret = o;
	return 0;
}
