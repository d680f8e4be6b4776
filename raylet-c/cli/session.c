/* Folders and files of a node; see session.h. Modes: Ray opens its folders to all users, as far as it is allowed to. */
#include "raylet-c/cli/session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"

#define SOCKET_PATH_MAX 107

static int make_shared(const char *path, rc_error *error)
{
	char *part = rc_strdup(path);
	int rc = 0;

	for (char *p = part + 1; rc == 0; p++) {
		if (*p != '/' && *p != '\0')
			continue;
		bool last = *p == '\0';
		*p = '\0';
		if (mkdir(part, 0777) != 0 && errno != EEXIST)
			rc = rc_fail_errno(error, "cannot make the folder %s", part);
		if (last)
			break;
		*p = '/';
	}
	struct stat st;
	if (rc == 0 && (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)))
		rc = rc_fail(error, RC_E_INVALID, "%s is not a folder", path);
	if (rc == 0 && (st.st_mode & 0777) != 0777 && chmod(path, st.st_mode | 0777) != 0 && errno != EPERM)
		rc = rc_fail_errno(error, "cannot open the folder %s to all users", path);
	free(part);
	return rc;
}

static bool exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0;
}

/* FOLDER/NAME.SUFFIX, or with .1, .2, ... before the suffix: the first that is free; suffix may be "". */
static char *free_name(const char *folder, const char *name, const char *suffix)
{
	for (unsigned i = 0;; i++) {
		char *path = i == 0 ? rc_sprintf("%s/%s%s", folder, name, suffix) : rc_sprintf("%s/%s.%u%s", folder, name, i, suffix);

		if (!exists(path))
			return path;
		free(path);
	}
}

static int check_socket(const char *path, rc_error *error)
{
	if (strlen(path) > SOCKET_PATH_MAX)
		return rc_fail(error, RC_E_INVALID, "AF_UNIX path length cannot exceed %d bytes, and this has %zu: %s (--temp-dir names a shorter folder)",
		               SOCKET_PATH_MAX, strlen(path), path);
	return 0;
}

/* A symbolic link is replaced, anything else is left alone, and failing is no error: so does Ray. */
static void point_latest(const rc_plan *p)
{
	char *link_path = rc_sprintf("%s/session_latest", p->temp_dir);
	struct stat st;

	if (lstat(link_path, &st) != 0 || (S_ISLNK(st.st_mode) && unlink(link_path) == 0))
		if (symlink(p->session_dir, link_path) != 0 && errno != EEXIST)
			fprintf(stderr, "raylet-c: cannot make %s: %s\n", link_path, strerror(errno));
	free(link_path);
}

int rc_session_make(rc_plan *p, rc_error *error)
{
	char *sockets, *old;
	int rc = -1;

	if (p->temp_dir[0] != '/')
		return rc_fail(error, RC_E_INVALID, "temp_dir must be an absolute path, not \"%s\"", p->temp_dir);
	p->session_dir = rc_sprintf("%s/%s", p->temp_dir, p->session_name);
	p->log_dir = rc_sprintf("%s/logs", p->session_dir);
	p->resource_dir = rc_sprintf("%s/runtime_resources", p->session_dir);
	sockets = rc_sprintf("%s/sockets", p->session_dir);
	old = rc_sprintf("%s/old", p->log_dir);
	p->store_socket = free_name(sockets, "plasma_store", "");
	p->raylet_socket = free_name(sockets, "raylet", "");
	if (check_socket(p->store_socket, error) == 0 && check_socket(p->raylet_socket, error) == 0 && make_shared(p->temp_dir, error) == 0 &&
	    make_shared(p->session_dir, error) == 0 && make_shared(sockets, error) == 0 && make_shared(p->log_dir, error) == 0 &&
	    make_shared(old, error) == 0 && make_shared(p->resource_dir, error) == 0) {
		point_latest(p);
		rc = 0;
	}
	struct {
		char **path;
		const char *name, *suffix;
	} const files[] = {
		{ &p->raylet_out, "raylet", ".out" },
		{ &p->raylet_err, "raylet", ".err" },
		{ &p->agent_out, "dashboard_agent", ".out" },
		{ &p->agent_err, "dashboard_agent", ".err" },
		{ &p->agent_log, "dashboard_agent", ".log" },
		{ &p->env_out, "runtime_env_agent", ".out" },
		{ &p->env_err, "runtime_env_agent", ".err" },
		{ &p->env_log, "runtime_env_agent", ".log" },
		{ &p->monitor_out, "log_monitor", ".out" },
		{ &p->monitor_err, "log_monitor", ".err" },
	};
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		*files[i].path = p->redirect && rc == 0 ? free_name(p->log_dir, files[i].name, files[i].suffix) : rc_strdup("");
	free(sockets);
	free(old);
	return rc;
}

static int free_port(rc_error *error)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = -1;

	if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &n) == 0)
		port = ntohs(a.sin_port);
	else
		rc_fail_errno(error, "cannot find a free port");
	if (fd >= 0)
		close(fd);
	return port;
}

/* Like Ray, the file is written in place: its readers hold the lock too. */
static int write_json(const char *path, json_t *root, rc_error *error)
{
	char *text = json_dumps(root, 0);
	FILE *f = fopen(path, "w");
	bool bad = f == NULL || text == NULL || fputs(text, f) < 0;

	bad = (f != NULL && fclose(f) != 0) || bad;
	free(text);
	return bad ? rc_fail_errno(error, "cannot write %s", path) : 0;
}

static int lock_file(const char *path, int *ret_fd, rc_error *error)
{
	char *lock = rc_sprintf("%s.lock", path);
	int rc = 0;

	*ret_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (*ret_fd < 0 || flock(*ret_fd, LOCK_EX) != 0)
		rc = rc_fail_errno(error, "cannot lock %s", lock);
	free(lock);
	return rc;
}

static int write_node_ip(const rc_plan *p, rc_error *error)
{
	char *path = rc_sprintf("%s/node_ip_address.json", p->session_dir);
	json_t *root = json_pack("{s:s}", "node_ip_address", p->node_ip);
	int fd = -1, rc;

	rc = lock_file(path, &fd, error);
	if (rc == 0)
		rc = write_json(path, root, error);
	if (fd >= 0)
		close(fd);
	json_decref(root);
	free(path);
	return rc;
}

int rc_session_ports_2_35(rc_plan *p, rc_error *error)
{
	char *path = rc_sprintf("%s/ports_by_node.json", p->session_dir), *node = rc_sprintf("%s:%s", p->node_ip, p->store_socket);
	const struct {
		const char *name;
		int64_t *port;
	} ports[] = {
		{ "metrics_agent_port", &p->metrics_agent_port },
		{ "metrics_export_port", &p->metrics_export_port },
		{ "dashboard_agent_listen_port", &p->dashboard_agent_listen_port },
		{ "runtime_env_agent_port", &p->runtime_env_agent_port },
	};
	json_t *all = NULL, *own = json_object();
	int fd = -1, rc = lock_file(path, &fd, error);

	for (size_t i = 0; rc == 0 && i < 4; i++) {
		int port = *ports[i].port != 0 ? (int)*ports[i].port : free_port(error);

		for (size_t k = 0; k < i; k++)
			if (*ports[k].port == port)
				rc = rc_fail(error, RC_E_EXISTS, "%s and %s are both %d", ports[k].name, ports[i].name, port);
		if (port < 0)
			rc = -1;
		*ports[i].port = port;
		json_object_set_new(own, ports[i].name, json_integer(port));
	}
	if (rc == 0 && exists(path)) {
		json_error_t why;

		all = json_load_file(path, 0, &why);
		if (!json_is_object(all))
			rc = rc_fail(error, RC_E_INVALID, "%s is damaged: %s", path, all == NULL ? why.text : "no object");
	}
	if (rc == 0) {
		if (all == NULL)
			all = json_object();
		json_object_set(all, node, own);
		rc = write_json(path, all, error);
	}
	if (fd >= 0)
		close(fd);
	json_decref(all);
	json_decref(own);
	free(node);
	free(path);
	return rc == 0 ? write_node_ip(p, error) : -1;
}

int rc_session_remember(const rc_plan *p, rc_error *error)
{
	char *path = rc_sprintf("%s/ray_current_cluster", p->temp_dir);
	FILE *f = fopen(path, "w");
	bool bad = f == NULL || fputs(p->gcs_address, f) < 0;
	int rc;

	bad = (f != NULL && fclose(f) != 0) || bad;
	rc = bad ? rc_fail_errno(error, "cannot write %s", path) : 0;
	free(path);
	return rc;
}
