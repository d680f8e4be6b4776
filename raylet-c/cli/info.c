/* `raylet-c info`; see info.h. What a process tells (pid, ports of 2.35.0's agents, session) comes from /proc, everything else from
 * the head's entry of the node. One object a node is made for both forms, so text and JSON cannot differ. Keys are stable. */
#include "raylet-c/cli/info.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/version.h"
#include "raylet-c/cli/head.h"
#include "raylet-c/cli/nodes_here.h"
#include "raylet-c/cli/words.h"

enum { TIMEOUT_MS = 5000 };

static const char help[] =
	"raylet-c info [--json] [--timeout SECONDS]\n"
	"\n"
	"The nodes of this host that run as this user: id, address, ports, versions, resources, and whether the head has them as ALIVE.\n"
	"Status 0: all are; 1: there is none, or one is not.\n";

/* The objects of the nodes of one head, while its answer is read. */
typedef struct listing {
	const rc_node_here *here;
	json_t **objects;
	size_t n;
	const char *address; /* the head that was asked */
} listing;

static void set_text(json_t *object, const char *key, const char *value)
{
	json_object_set_new(object, key, json_string_nocheck(value));
}

/* Ports as far as the command line has them; 0 and "" mean that it does not. */
static json_t *ports_of_process(const rc_node_here *node)
{
	const struct {
		const char *key, *text;
	} ports[] = {
		{ "dashboard_agent_listen", node->agent_listen_port },
		{ "dashboard_agent_grpc", node->agent_grpc_port },
		{ "metrics_export", node->metrics_export_port },
		{ "runtime_env_agent", node->runtime_env_agent_port },
	};
	json_t *object = json_object();

	for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
		if (atoi(ports[i].text) > 0)
			json_object_set_new(object, ports[i].key, json_integer(atoi(ports[i].text)));
	return object;
}

static json_t *describe_process(const rc_node_here *node)
{
	json_t *object = json_object();

	set_text(object, "node_id", node->node_id);
	set_text(object, "state", "unknown");
	set_text(object, "address", node->ip);
	set_text(object, "gcs_address", node->gcs_address);
	set_text(object, "daemon", node->ours ? "raylet-c" : "ray");
	set_text(object, "started_by", node->started ? "raylet-c start" : "ray start");
	json_object_set_new(object, "pid", json_integer(node->daemon));
	set_text(object, "session_dir", node->session_dir);
	set_text(object, "raylet_c_version", RC_VERSION);
	json_object_set_new(object, "ports", ports_of_process(node));
	return object;
}

static void set_port(json_t *ports, const char *key, int64_t port)
{
	if (port > 0)
		json_object_set_new(ports, key, json_integer(port));
}

static void describe_entry(json_t *object, const rc_head_facts *head, const Rw__GcsNodeInfo *node, bool alive)
{
	json_t *ports = json_object_get(object, "ports"), *resources = json_object(), *labels = json_object();

	set_text(object, "state", alive ? "ALIVE" : "DEAD");
	set_text(object, "ray_version", head->release);
	set_text(object, "python_version", head->python);
	set_text(object, "address", RC_GET_STR(node, node_manager_address));
	set_text(object, "hostname", RC_GET_STR(node, node_manager_hostname));
	set_text(object, "node_name", RC_GET_STR(node, node_name));
	json_object_set_new(object, "start_time_ms", json_integer((json_int_t)RC_GET(node, start_time_ms)));
	set_port(ports, "node_manager", RC_GET(node, node_manager_port));
	set_port(ports, "object_manager", RC_GET(node, object_manager_port));
	set_port(ports, "metrics_export", RC_GET(node, metrics_export_port));
	set_port(ports, "runtime_env_agent", RC_GET(node, runtime_env_agent_port));
	set_port(ports, "dashboard_agent_grpc", RC_GET(node, metrics_agent_port));
	set_port(ports, "dashboard_agent_listen", RC_GET(node, dashboard_agent_listen_port));
	for (size_t i = 0; i < node->n_resources_total; i++)
		json_object_set_new(resources, RC_GET_STR(node->resources_total[i], key), json_real(RC_GET(node->resources_total[i], value)));
	for (size_t i = 0; i < node->n_labels; i++)
		set_text(labels, RC_GET_STR(node->labels[i], key), RC_GET_STR(node->labels[i], value));
	json_object_set_new(object, "resources", resources);
	json_object_set_new(object, "labels", labels);
}

static void on_node(void *arg, const rc_head_facts *head, const Rw__GcsNodeInfo *node, bool alive)
{
	const rc_id id = RC_GET_ID(node, node_id);
	const rc_id_hex hex = rc_id_to_hex(&id);
	listing *l = arg;

	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->here[i].gcs_address, l->address) == 0 && strcmp(l->here[i].node_id, hex.s) == 0)
			describe_entry(l->objects[i], head, node, alive);
}

/* Every head is asked once. */
static void ask_heads(listing *l, uint64_t timeout_ms)
{
	for (size_t i = 0; i < l->n; i++) {
		bool asked = false;
		rc_error error;

		for (size_t k = 0; k < i; k++)
			asked = asked || strcmp(l->here[k].gcs_address, l->here[i].gcs_address) == 0;
		if (asked)
			continue;
		l->address = l->here[i].gcs_address;
		if (rc_head_nodes(l->address, timeout_ms, on_node, l, &error) == 0)
			continue;
		for (size_t k = i; k < l->n; k++)
			if (strcmp(l->here[k].gcs_address, l->address) == 0)
				set_text(l->objects[k], "error", error.text);
	}
}

static void print_map(const char *title, json_t *map)
{
	const char *key;
	json_t *value;

	printf("%s:", title);
	json_object_foreach(map, key, value) {
		if (json_is_string(value))
			printf(" %s=%s", key, json_string_value(value));
		else
			printf(" %s=%.15g", key, json_number_value(value));
	}
	printf("\n");
}

static void print_text(json_t *node)
{
	const char *key;
	json_t *value;

	printf("node %s: %s\n", json_string_value(json_object_get(node, "node_id")), json_string_value(json_object_get(node, "state")));
	json_object_foreach(node, key, value) {
		if (strcmp(key, "node_id") == 0 || strcmp(key, "state") == 0)
			continue;
		printf("  ");
		if (json_is_object(value))
			print_map(key, value);
		else if (json_is_string(value))
			printf("%s: %s\n", key, json_string_value(value));
		else
			printf("%s: %lld\n", key, (long long)json_integer_value(value));
	}
}

static int show(const rc_node_here *here, size_t n, bool as_json, uint64_t timeout_ms)
{
	json_t *all = json_array();
	listing l = { .here = here, .objects = rc_alloc((n + 1) * sizeof *l.objects), .n = n };
	int status = n > 0 ? 0 : 1;

	for (size_t i = 0; i < n; i++) {
		l.objects[i] = describe_process(&here[i]);
		json_array_append_new(all, l.objects[i]);
	}
	ask_heads(&l, timeout_ms);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(json_string_value(json_object_get(l.objects[i], "state")), "ALIVE") != 0)
			status = 1;
		if (!as_json)
			print_text(l.objects[i]);
	}
	if (as_json) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		printf("\n");
	} else if (n == 0) {
		printf("no Ray worker node of this user runs here\n");
	}
	json_decref(all);
	free(l.objects);
	return status;
}

int rc_info_command(int argc, char **argv)
{
	const char *timeout = NULL;
	bool as_json = false, wants_help = false;
	const rc_word words[] = { { "--json", NULL, &as_json }, { "--timeout", &timeout, NULL }, { "--help", NULL, &wants_help }, { 0 } };
	int64_t seconds = TIMEOUT_MS / 1000;
	rc_node_here *here;
	rc_error error;
	size_t n;
	int status;

	if (rc_words_read(words, argc, argv, &error) != 0 ||
	    (timeout != NULL && rc_word_number("--timeout", timeout, 1, 86400, &seconds, &error) != 0)) {
		fprintf(stderr, "raylet-c info: %s\n", error.text);
		return 2;
	}
	if (wants_help) {
		fputs(help, stdout);
		return 0;
	}
	rc_log_level(RC_ERROR);
	if (rc_nodes_here("/proc", &here, &n, &error) != 0) {
		fprintf(stderr, "raylet-c info: %s\n", error.text);
		return 1;
	}
	status = show(here, n, as_json, (uint64_t)seconds * 1000);
	rc_nodes_here_free(here, n);
	return status;
}
