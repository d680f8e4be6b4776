/* Parsing the words of `raylet-c start`; see start_options.h. Options that `ray start` accepts on a worker node without effect
 * are accepted here too, so that one command line serves both (KubeRay writes it). */
#include "raylet-c/cli/start_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/buf.h"

static const char served_text[] =
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
	"  --labels-file FILE                   lines of `key: value`; --labels wins (2.60.0)\n"
	"  --temp-dir DIR                       (the head's; a head of 2.35.0 always gives its own)\n"
	"  --plasma-directory DIR, --object-spilling-directory DIR\n"
	"  --node-manager-port N, --object-manager-port N, --metrics-export-port N, --runtime-env-agent-port N,\n"
	"  --dashboard-agent-grpc-port N        (free ones)\n"
	"  --dashboard-agent-listen-port N      (52365)\n"
	"  --min-worker-port N --max-worker-port N, --worker-port-list N,N    (10002 to 19999)\n"
	"  --include-log-monitor BOOL           forward the workers' output to drivers (true)\n"
	"  --ray-debugger-external              debuggers of tasks listen on all addresses\n"
	"  --no-redirect-output                 logs to stdout and stderr\n"
	"  --block                              stay, and end the node with this command\n"
	"  --require-efa                        refuse to start where trainers would not use EFA (raylet-c doctor says why)\n"
	"  --python FILE, --ray-dir DIR         the interpreter and ray package of the workers (as for raylet-c enable)\n"
	"  --daemon FILE                        the node daemon (the one that was installed with this command)\n";

typedef enum kind { TEXT, NUMBER, PORT, SWITCH, BOOL, HEAD_ONLY, REFUSED, IGNORED, IGNORED_SWITCH } kind;

#define SERVED(name_, kind_, field_) { .name = name_, .kind = kind_, .field = offsetof(rc_start_options, field_) }

#define NO_ISOLATION "this node does not put its processes into control groups; leave it out, or run Ray's own daemon: RAYLET_C=0 ray start"
#define NO_SOCKET_NAME "the sockets of a node lie in its session folder (2.35.0 alone had the option, as deprecated); leave it out"

static const struct option {
	const char *name;
	kind kind;
	size_t field;
	const char *reason; /* REFUSED: why, and what to do instead */
} table[] = {
	SERVED("address", TEXT, address),
	SERVED("node-ip-address", TEXT, node_ip_address),
	SERVED("node-name", TEXT, node_name),
	SERVED("resources", TEXT, resources),
	SERVED("labels", TEXT, labels),
	SERVED("labels-file", TEXT, labels_file),
	SERVED("temp-dir", TEXT, temp_dir),
	SERVED("plasma-directory", TEXT, plasma_directory),
	SERVED("object-spilling-directory", TEXT, object_spilling_directory),
	SERVED("worker-port-list", TEXT, worker_port_list),
	SERVED("python", TEXT, python),
	SERVED("ray-dir", TEXT, ray_dir),
	SERVED("daemon", TEXT, daemon),
	SERVED("num-cpus", NUMBER, num_cpus),
	SERVED("num-gpus", NUMBER, num_gpus),
	SERVED("memory", NUMBER, memory),
	SERVED("object-store-memory", NUMBER, object_store_memory),
	SERVED("node-manager-port", PORT, node_manager_port),
	SERVED("object-manager-port", PORT, object_manager_port),
	SERVED("min-worker-port", PORT, min_worker_port),
	SERVED("max-worker-port", PORT, max_worker_port),
	SERVED("dashboard-agent-listen-port", PORT, dashboard_agent_listen_port),
	SERVED("dashboard-agent-grpc-port", PORT, dashboard_agent_grpc_port),
	SERVED("metrics-export-port", PORT, metrics_export_port),
	SERVED("runtime-env-agent-port", PORT, runtime_env_agent_port),
	SERVED("block", SWITCH, block),
	SERVED("no-redirect-output", SWITCH, no_redirect_output),
	SERVED("include-log-monitor", BOOL, log_monitor),
	SERVED("ray-debugger-external", SWITCH, debugger_external),
	SERVED("require-efa", SWITCH, require_efa),
	SERVED("help", SWITCH, help),
	{ .name = "head", .kind = HEAD_ONLY },
	{ .name = "port", .kind = HEAD_ONLY },
	{ .name = "redis-shard-ports", .kind = HEAD_ONLY },
	{ .name = "include-dashboard", .kind = HEAD_ONLY },
	{ .name = "system-config", .kind = HEAD_ONLY },
	{ .name = "enable-resource-isolation", .kind = REFUSED, .reason = NO_ISOLATION },
	{ .name = "cgroup-path", .kind = REFUSED, .reason = NO_ISOLATION },
	{ .name = "system-reserved-cpu", .kind = REFUSED, .reason = NO_ISOLATION },
	{ .name = "system-reserved-memory", .kind = REFUSED, .reason = NO_ISOLATION },
	{ .name = "raylet-socket-name", .kind = REFUSED, .reason = NO_SOCKET_NAME },
	{ .name = "plasma-store-socket-name", .kind = REFUSED, .reason = NO_SOCKET_NAME },
	{ .name = "ray-client-server-port", .kind = IGNORED },
	{ .name = "dashboard-host", .kind = IGNORED },
	{ .name = "dashboard-port", .kind = IGNORED },
	{ .name = "dashboard-grpc-port", .kind = IGNORED },
	{ .name = "gcs-server-port", .kind = IGNORED },
	{ .name = "redis-max-memory", .kind = IGNORED },
	{ .name = "storage", .kind = IGNORED },
	{ .name = "proxy-server-url", .kind = IGNORED },
	{ .name = "redis-username", .kind = IGNORED },
	{ .name = "redis-password", .kind = IGNORED },
	{ .name = "autoscaling-config", .kind = IGNORED },
	{ .name = "tracing-startup-hook", .kind = IGNORED },
	{ .name = "log-style", .kind = IGNORED },
	{ .name = "log-color", .kind = IGNORED },
	{ .name = "logging-level", .kind = IGNORED },
	{ .name = "logging-format", .kind = IGNORED },
	{ .name = "disable-usage-stats", .kind = IGNORED_SWITCH },
	{ .name = "enable-object-reconstruction", .kind = IGNORED_SWITCH },
	{ .name = "no-monitor", .kind = IGNORED_SWITCH },
	{ .name = "verbose", .kind = IGNORED_SWITCH },
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

static void print_names(FILE *out, const char *title, bool (*belongs)(kind))
{
	size_t column = 0;

	fprintf(out, "\n%s\n", title);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		if (!belongs(table[i].kind))
			continue;
		if (column + strlen(table[i].name) > 110) {
			fputs("\n", out);
			column = 0;
		}
		column += (size_t)fprintf(out, "%s--%s", column == 0 ? "  " : " ", table[i].name);
	}
	fputs("\n", out);
}

static bool is_ignored(kind k)
{
	return k == IGNORED || k == IGNORED_SWITCH;
}

static bool is_of_head(kind k)
{
	return k == HEAD_ONLY;
}

void rc_start_help(FILE *out)
{
	fputs(served_text, out);
	print_names(out, "Accepted without effect, as `ray start` does for a worker node:", is_ignored);
	print_names(out, "Refused, since they are for a head:", is_of_head);
	fputs("\nRefused:\n", out);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].kind == REFUSED)
			fprintf(out, "  --%s: %s\n", table[i].name, table[i].reason);
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
		if (option->kind == REFUSED)
			return rc_fail(error, RC_E_UNSUPPORTED, "--%s: %s", option->name, option->reason);
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
