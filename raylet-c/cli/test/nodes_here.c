/* Finding nodes in a /proc that the test lays out itself. */
#include "raylet-c/cli/nodes_here.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"

#define NODE_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define NODE_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static char proc[] = "/tmp/raylet-c-test-XXXXXX";

static void write_file(int pid, const char *name, const char *bytes, size_t n)
{
	char *path = rc_sprintf("%s/%d/%s", proc, pid, name);
	FILE *f = fopen(path, "w");

	CHECK(f != NULL && fwrite(bytes, 1, n, f) == n);
	fclose(f);
	free(path);
}

/* words and env: literals with their NULs. */
#define PROCESS(pid, parent, words, env) add_process(pid, parent, words, sizeof words, env, sizeof env)

static void add_process(int pid, int parent, const char *words, size_t n_words, const char *env, size_t n_env)
{
	char *folder = rc_sprintf("%s/%d", proc, pid), *stat = rc_sprintf("%d (ray let) x) S %d 1 1 0", pid, parent);

	CHECK_EQ_INT(0, mkdir(folder, 0755));
	write_file(pid, "cmdline", words, n_words);
	write_file(pid, "environ", env, n_env);
	write_file(pid, "stat", stat, strlen(stat));
	write_file(pid, "exe", "no mark", 7);
	free(folder);
	free(stat);
}

static void found(void)
{
	rc_node_here *nodes;
	rc_error error;
	size_t n;

	PROCESS(100, 1, "/x/raylet-c\0start\0--block", "A=1");
	PROCESS(101, 100,
	        "/x/raylet\0--raylet_socket_name=/s/raylet\0--node_id=" NODE_A "\0--node_ip_address=127.0.0.9\0--session_dir=/tmp/ray/session_1\0"
	        "--metrics-agent-port=7001\0--labels=\0--gcs-address=127.0.0.1:6379\0--metrics_export_port=7002\0--runtime_env_agent_port=7003\0"
	        "--dashboard_agent_command=python3 -u agent.py --node-manager-port=1 --listen-port=52365 --minimal",
	        "A=1\0RAYLET_C_STARTED=" NODE_A);
	PROCESS(102, 100, "python3\0-u\0/ray/_private/log_monitor.py\0--x", "RAYLET_C_STARTED=" NODE_A);
	PROCESS(103, 101, "ray::IDLE", "RAYLET_C_STARTED=" NODE_A);
	/* a node that a worker of the first one started with `ray start`: it inherits the mark, but has another id */
	PROCESS(104, 103, "/x/raylet\0--node-id=" NODE_B "\0--gcs_address=h:1", "RAYLET_C_STARTED=" NODE_A);
	PROCESS(105, 104, "python3\0/ray/_private/log_monitor.py", "A=1");
	/* no worker daemons: a head's, an editor, a kernel thread */
	PROCESS(106, 1, "/x/raylet\0--node-id=" NODE_B "\0--gcs-address=h:1\0--head", "A=1");
	PROCESS(107, 1, "vi\0--node-id=" NODE_B "\0--gcs-address=h:1", "A=1");
	PROCESS(108, 2, "", "");
	CHECK_EQ_INT(0, rc_nodes_here(proc, &nodes, &n, &error));
	CHECK_EQ_INT(2, n);
	const rc_node_here *a = nodes[0].daemon == 101 ? &nodes[0] : &nodes[1], *b = a == &nodes[0] ? &nodes[1] : &nodes[0];
	CHECK_STR(NODE_A, a->node_id);
	CHECK_STR("127.0.0.9", a->ip);
	CHECK_STR("127.0.0.1:6379", a->gcs_address);
	CHECK_STR("/tmp/ray/session_1", a->session_dir);
	CHECK_STR("52365", a->agent_listen_port);
	CHECK_STR("7001", a->agent_grpc_port);
	CHECK_STR("7002", a->metrics_export_port);
	CHECK_STR("7003", a->runtime_env_agent_port);
	CHECK(a->started && !a->ours);
	CHECK_EQ_INT(102, a->monitor);
	CHECK_EQ_INT(100, a->starter);
	CHECK_STR(NODE_B, b->node_id);
	CHECK_STR("h:1", b->gcs_address);
	CHECK_STR("", b->agent_listen_port);
	CHECK_EQ_INT(104, b->daemon);
	CHECK(!b->started && b->monitor == 0 && b->starter == 0);
	rc_nodes_here_free(nodes, n);
}

static void others(void)
{
	char *folder = rc_sprintf("%s/101", proc);
	rc_node_here *nodes;
	rc_error error;
	size_t n;

	if (chown(folder, 12345, 12345)) { /* not root, or a user namespace of one user */
		printf("# left out: no folder can be given to another user here: %s\n", strerror(errno));
	} else {
		CHECK_EQ_INT(0, rc_nodes_here(proc, &nodes, &n, &error));
		CHECK_EQ_INT(1, n);
		CHECK_EQ_INT(104, nodes[0].daemon);
		rc_nodes_here_free(nodes, n);
	}
	free(folder);
	CHECK_EQ_INT(-1, rc_nodes_here("/no/such/folder", &nodes, &n, &error));
	CHECK(strstr(error.text, "/no/such/folder") != NULL);
}

int main(void)
{
	char *clean;
	int rc;

	if (mkdtemp(proc) == NULL)
		return 1;
	RUN(found, "nodes are found by their command line, those of raylet-c start by their mark, each with its log monitor and starter");
	RUN(others, "processes of other users are not looked into");
	clean = rc_sprintf("rm -r %s", proc);
	rc = system(clean);
	free(clean);
	return rc != 0 ? 1 : test_end();
}
