/* Folders and files of a node. */
#include "raylet-c/cli/session.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"

static char top[] = "/tmp/raylet-c-test-XXXXXX";

static rc_plan plan(bool v235, const char *temp)
{
	return (rc_plan){ .v235 = v235, .redirect = true, .temp_dir = rc_strdup(temp), .session_name = rc_strdup("session_1"), .node_ip = rc_strdup("127.0.0.9"),
		          .gcs_address = rc_strdup("127.0.0.1:6379"), .dashboard_agent_listen_port = 52365 };
}

static void touch(const char *path)
{
	FILE *f = fopen(path, "w");

	CHECK(f != NULL && fclose(f) == 0);
}

static const char *text_of(const char *name)
{
	static char text[4096];
	char *path = rc_sprintf("%s/%s", top, name);
	FILE *f = fopen(path, "r");

	free(path);
	if (f == NULL)
		return NULL;
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

static void folders(void)
{
	char *temp = rc_sprintf("%s/ray", top), *latest = rc_sprintf("%s/ray/session_latest", top), target[400];
	rc_plan p = plan(false, temp), second = plan(false, temp);
	rc_error error = { 0 };
	struct stat st;
	ssize_t n;

	CHECK_EQ_INT(0, rc_session_make(&p, &error));
	CHECK_STR("", error.text);
	CHECK(stat(p.log_dir, &st) == 0 && (st.st_mode & 0777) == 0777);
	CHECK(stat(p.resource_dir, &st) == 0 && stat(temp, &st) == 0 && (st.st_mode & 0777) == 0777);
	CHECK(strstr(p.raylet_socket, "/ray/session_1/sockets/raylet") != NULL);
	n = readlink(latest, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	CHECK_STR(p.session_dir, target);
	touch(p.raylet_socket);
	touch(p.store_socket);
	touch(p.raylet_out);
	CHECK_EQ_INT(0, rc_session_make(&second, &error));
	CHECK(strcmp(second.raylet_socket + strlen(second.raylet_socket) - 9, "/raylet.1") == 0);
	CHECK(strcmp(second.store_socket + strlen(second.store_socket) - 15, "/plasma_store.1") == 0);
	CHECK(strstr(second.raylet_out, "/logs/raylet.1.out") != NULL && strstr(second.raylet_err, "/logs/raylet.err") != NULL);
	CHECK_EQ_INT(0, rc_session_remember(&p, &error));
	CHECK_STR("127.0.0.1:6379", text_of("ray/ray_current_cluster"));
	rc_plan_free(&p);
	rc_plan_free(&second);
	free(temp);
	free(latest);
}

static void bad_folders(void)
{
	char *file = rc_sprintf("%s/file", top), *below = rc_sprintf("%s/file/ray", top);
	char *deep = rc_sprintf("%s/a-folder-with-a-name-that-is-much-too-long-for-a-socket-of-a-node-that-lies-below-it", top);
	rc_error error;
	rc_plan p = plan(false, "relative");

	CHECK_EQ_INT(-1, rc_session_make(&p, &error));
	CHECK(strstr(error.text, "absolute") != NULL && strstr(error.text, "relative") != NULL);
	rc_plan_free(&p);
	touch(file);
	p = plan(false, below);
	CHECK_EQ_INT(-1, rc_session_make(&p, &error));
	CHECK(strstr(error.text, file) != NULL);
	rc_plan_free(&p);
	p = plan(false, deep);
	CHECK_EQ_INT(-1, rc_session_make(&p, &error));
	CHECK(strstr(error.text, "AF_UNIX path length cannot exceed 107") != NULL);
	CHECK(access(deep, F_OK) != 0);
	rc_plan_free(&p);
	free(file);
	free(below);
	free(deep);
}

static void ports(void)
{
	char *temp = rc_sprintf("%s/old", top);
	rc_plan p = plan(true, temp), q = plan(true, temp);
	rc_error error = { 0 };
	char want[400];

	CHECK_EQ_INT(0, rc_session_make(&p, &error));
	CHECK_EQ_INT(0, rc_session_ports_2_35(&p, &error));
	CHECK(p.metrics_agent_port > 1023 && p.metrics_export_port > 1023 && p.runtime_env_agent_port > 1023);
	CHECK_EQ_INT(52365, p.dashboard_agent_listen_port);
	CHECK_STR("{\"node_ip_address\": \"127.0.0.9\"}", text_of("old/session_1/node_ip_address.json"));
	touch(p.store_socket);
	q.metrics_export_port = 8080;
	CHECK_EQ_INT(0, rc_session_make(&q, &error));
	CHECK_EQ_INT(0, rc_session_ports_2_35(&q, &error));
	snprintf(want, sizeof want, "\"metrics_agent_port\": %d", (int)p.metrics_agent_port); /* the first node's entry is still there */
	CHECK(strstr(text_of("old/session_1/ports_by_node.json"), want) != NULL);
	CHECK(strstr(text_of("old/session_1/ports_by_node.json"), "plasma_store.1\": {") != NULL);
	CHECK(strstr(text_of("old/session_1/ports_by_node.json"), "\"metrics_export_port\": 8080") != NULL);
	char *path = rc_sprintf("%s/ports_by_node.json", p.session_dir);
	touch(path);
	CHECK_EQ_INT(-1, rc_session_ports_2_35(&q, &error));
	CHECK(strstr(error.text, "is damaged") != NULL && strstr(error.text, path) != NULL);
	free(path);
	rc_plan_free(&p);
	rc_plan_free(&q);
	free(temp);
}

int main(void)
{
	if (mkdtemp(top) == NULL)
		return 1;
	RUN(folders, "folders are open to all users and a second node gets names of its own");
	RUN(bad_folders, "folders that cannot be are named, and too long socket paths before anything is made");
	RUN(ports, "under 2.35.0 the agents' ports are chosen and kept beside those of other nodes");
	char *clean = rc_sprintf("rm -rf '%s'", top);
	int rc = system(clean);
	free(clean);
	return rc != 0 ? 1 : test_end();
}
