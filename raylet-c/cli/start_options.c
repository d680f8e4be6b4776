/* Parsing the words of `raylet-c start`; see start_options.h. Options that `ray start` accepts on a worker node without effect
 * are accepted here too, so that one command line serves both (KubeRay writes it). */
#include "raylet-c/cli/start_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/buf.h"

const char rc_start_help[] =
	"raylet-c start --address=HEAD:PORT [OPTIONS]\n"
	"\n"
	"Starts a worker node on the daemon in C, without changing the ray package and without Python before the node is ALIVE.\n"
	"\n"
	"  --address HOST:PORT                  the head's address (auto: RAY_ADDRESS, else the last cluster of this host)\n"
	"  --node-ip-address IP                 this node's address for others (found out)\n"
	"  --node-name NAME                     shown in listings (the address)\n"
	"  --num-cpus N, --num-gpus N           (found out)\n"
	"  --memory BYTES                       for tasks (what is free beyond the object store)\n"
	"  --object-store-memory BYTES          (0.3 of the free memory)\n"
	"  --resources JSON, --labels LABELS    '{\"name\": 1}'; k=v,k=v or, for a head of 2.35.0, JSON\n"
	"  --temp-dir DIR                       (the head's; a head of 2.35.0 always gives its own)\n"
	"  --plasma-directory DIR, --object-spilling-directory DIR\n"
	"  --node-manager-port N, --object-manager-port N, --metrics-export-port N, --runtime-env-agent-port N,\n"
	"  --dashboard-agent-grpc-port N        (free ones)\n"
	"  --dashboard-agent-listen-port N      (52365)\n"
	"  --min-worker-port N --max-worker-port N, --worker-port-list N,N    (10002 to 19999)\n"
	"  --include-log-monitor BOOL           forward the workers' output to drivers (true)\n"
	"  --no-redirect-output                 logs to stdout and stderr\n"
	"  --block                              stay, and end the node with this command\n"
	"  --require-efa                        refuse to start where trainers would not use EFA (raylet-c doctor says why)\n"
	"  --python FILE, --ray-dir DIR         the interpreter and ray package of the workers (as for raylet-c enable)\n"
	"  --daemon FILE                        the node daemon (the one that was installed with this command)\n";

typedef enum kind { TEXT, NUMBER, PORT, SWITCH, BOOL, HEAD_ONLY, IGNORED, IGNORED_SWITCH } kind;

#define FIELD(f) offsetof(rc_start_options, f)

static const struct option {
	const char *name;
	kind kind;
	size_t field;
} table[] = {
	{ "address", TEXT, FIELD(address) },
	{ "node-ip-address", TEXT, FIELD(node_ip_address) },
	{ "node-name", TEXT, FIELD(node_name) },
	{ "resources", TEXT, FIELD(resources) },
	{ "labels", TEXT, FIELD(labels) },
	{ "temp-dir", TEXT, FIELD(temp_dir) },
	{ "plasma-directory", TEXT, FIELD(plasma_directory) },
	{ "object-spilling-directory", TEXT, FIELD(object_spilling_directory) },
	{ "worker-port-list", TEXT, FIELD(worker_port_list) },
	{ "python", TEXT, FIELD(python) },
	{ "ray-dir", TEXT, FIELD(ray_dir) },
	{ "daemon", TEXT, FIELD(daemon) },
	{ "num-cpus", NUMBER, FIELD(num_cpus) },
	{ "num-gpus", NUMBER, FIELD(num_gpus) },
	{ "memory", NUMBER, FIELD(memory) },
	{ "object-store-memory", NUMBER, FIELD(object_store_memory) },
	{ "node-manager-port", PORT, FIELD(node_manager_port) },
	{ "object-manager-port", PORT, FIELD(object_manager_port) },
	{ "min-worker-port", PORT, FIELD(min_worker_port) },
	{ "max-worker-port", PORT, FIELD(max_worker_port) },
	{ "dashboard-agent-listen-port", PORT, FIELD(dashboard_agent_listen_port) },
	{ "dashboard-agent-grpc-port", PORT, FIELD(dashboard_agent_grpc_port) },
	{ "metrics-export-port", PORT, FIELD(metrics_export_port) },
	{ "runtime-env-agent-port", PORT, FIELD(runtime_env_agent_port) },
	{ "block", SWITCH, FIELD(block) },
	{ "no-redirect-output", SWITCH, FIELD(no_redirect_output) },
	{ "include-log-monitor", BOOL, FIELD(log_monitor) },
	{ "require-efa", SWITCH, FIELD(require_efa) },
	{ "help", SWITCH, FIELD(help) },
	{ "head", HEAD_ONLY, 0 },
	{ "port", HEAD_ONLY, 0 },
	{ "redis-shard-ports", HEAD_ONLY, 0 },
	{ "include-dashboard", HEAD_ONLY, 0 },
	{ "system-config", HEAD_ONLY, 0 },
	{ "ray-client-server-port", IGNORED, 0 },
	{ "dashboard-host", IGNORED, 0 },
	{ "dashboard-port", IGNORED, 0 },
	{ "redis-username", IGNORED, 0 },
	{ "redis-password", IGNORED, 0 },
	{ "autoscaling-config", IGNORED, 0 },
	{ "tracing-startup-hook", IGNORED, 0 },
	{ "log-style", IGNORED, 0 },
	{ "log-color", IGNORED, 0 },
	{ "logging-level", IGNORED, 0 },
	{ "logging-format", IGNORED, 0 },
	{ "disable-usage-stats", IGNORED_SWITCH, 0 },
	{ "enable-object-reconstruction", IGNORED_SWITCH, 0 },
	{ "no-monitor", IGNORED_SWITCH, 0 },
	{ "verbose", IGNORED_SWITCH, 0 },
};

static const struct option *find(const char *word, size_t n)
{
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (strlen(table[i].name) == n && strncmp(table[i].name, word, n) == 0)
			return &table[i];
	return NULL;
}

static int set_number(const struct option *o, const char *value, int64_t *ret, rc_error *error)
{
	char *end;

	errno = 0;
	*ret = strtoll(value, &end, 10);
	if (errno != 0 || end == value || *end != '\0' || *ret < 0)
		return rc_fail(error, RC_E_INVALID, "Invalid value for '--%s': '%s' is not a whole number from 0 on", o->name, value);
	if (o->kind == PORT && *ret > 65535)
		return rc_fail(error, RC_E_INVALID, "Invalid value for '--%s': %s is no port", o->name, value);
	return 0;
}

static int set_bool(const struct option *o, const char *value, bool *ret, rc_error *error)
{
	static const char *const on[] = { "1", "true", "True", "t", "yes", "y", "on" };
	static const char *const off[] = { "0", "false", "False", "f", "no", "n", "off" };

	for (size_t i = 0; i < 7; i++)
		if (strcmp(value, on[i]) == 0 || strcmp(value, off[i]) == 0) {
			*ret = strcmp(value, on[i]) == 0;
			return 0;
		}
	return rc_fail(error, RC_E_INVALID, "Invalid value for '--%s': '%s' is neither true nor false", o->name, value);
}

/* No two parts on one port; 0 is any free one. */
static int check_ports(const rc_start_options *o, rc_error *error)
{
	const struct {
		const char *name;
		int64_t port;
	} ports[] = {
		{ "node-manager-port", o->node_manager_port },
		{ "object-manager-port", o->object_manager_port },
		{ "dashboard-agent-listen-port", o->dashboard_agent_listen_port },
		{ "dashboard-agent-grpc-port", o->dashboard_agent_grpc_port },
		{ "metrics-export-port", o->metrics_export_port },
		{ "runtime-env-agent-port", o->runtime_env_agent_port },
	};
	const size_t n = sizeof ports / sizeof ports[0];

	if (o->max_worker_port != 0 && o->max_worker_port < o->min_worker_port)
		return rc_fail(error, RC_E_UNSUPPORTED, "--max-worker-port=%lld is below --min-worker-port=%lld", (long long)o->max_worker_port,
		               (long long)o->min_worker_port);
	for (size_t i = 0; i < n; i++) {
		if (ports[i].port == 0)
			continue;
		for (size_t k = i + 1; k < n; k++)
			if (ports[i].port == ports[k].port)
				return rc_fail(error, RC_E_UNSUPPORTED, "--%s and --%s are both %lld", ports[i].name, ports[k].name, (long long)ports[i].port);
		if (o->worker_port_list == NULL && o->min_worker_port != 0 && ports[i].port >= o->min_worker_port && ports[i].port <= o->max_worker_port)
			return rc_fail(error, RC_E_UNSUPPORTED, "--%s=%lld lies in the workers' ports, %lld to %lld (--min-worker-port, --max-worker-port)",
			               ports[i].name, (long long)ports[i].port, (long long)o->min_worker_port, (long long)o->max_worker_port);
	}
	return 0;
}

int rc_start_options_parse(int argc, char *const *argv, rc_start_options *ret, rc_error *error)
{
	rc_start_options o = { .num_cpus = -1, .num_gpus = -1, .memory = -1, .object_store_memory = -1, .min_worker_port = 10002, .max_worker_port = 19999,
		               .dashboard_agent_listen_port = 52365, .log_monitor = true };

	for (int i = 0; i < argc; i++) {
		const char *word = argv[i], *value = NULL;
		size_t n;

		if (strcmp(word, "-v") == 0 || strcmp(word, "-vv") == 0)
			continue;
		if (strncmp(word, "--", 2) != 0)
			return rc_fail(error, RC_E_NOT_FOUND, "Got unexpected extra argument (%s)", word);
		n = strcspn(word + 2, "=");
		const struct option *option = find(word + 2, n);
		if (option == NULL)
			return rc_fail(error, RC_E_NOT_FOUND, "No such option: %.*s", (int)n + 2, word);
		if (option->kind == HEAD_ONLY)
			return rc_fail(error, RC_E_UNSUPPORTED, "--%s is for a head node, which `ray start --head` starts", option->name);
		if (word[n + 2] == '=')
			value = word + n + 3;
		void *field = (char *)&o + option->field;
		if (option->kind == SWITCH || option->kind == IGNORED_SWITCH) {
			if (value != NULL)
				return rc_fail(error, RC_E_INVALID, "--%s takes no value", option->name);
			if (option->kind == SWITCH)
				*(bool *)field = true;
			continue;
		}
		if (value == NULL) {
			if (i + 1 >= argc)
				return rc_fail(error, RC_E_INVALID, "--%s needs a value", option->name);
			value = argv[++i];
		}
		switch (option->kind) {
		case TEXT:
			*(const char **)field = value;
			break;
		case NUMBER:
		case PORT:
			if (set_number(option, value, field, error) != 0)
				return -1;
			break;
		case BOOL:
			if (set_bool(option, value, field, error) != 0)
				return -1;
			break;
		default: /* IGNORED */
			break;
		}
	}
	if (!o.help && o.address == NULL)
		return rc_fail(error, RC_E_UNSUPPORTED, "--address is needed: the head's HOST:PORT");
	if (check_ports(&o, error) != 0)
		return -1;
	*ret = o;
	return 0;
}
