/* Finding this user's nodes in /proc; see nodes_here.h. Two passes: the daemons first, then the processes that belong to them. */
#define _GNU_SOURCE
#include "raylet-c/cli/nodes_here.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/cli/package.h"

enum { FILE_MOST = 1 << 20 }; /* bytes of a command line or an environment that are read */

/* A file of strings that end with NUL each; *ret ends with two NULs more. False: gone, or not ours to read. */
static bool read_strings(const char *proc, pid_t pid, const char *name, rc_buf *ret)
{
	char path[300];
	FILE *f;
	size_t n;

	snprintf(path, sizeof path, "%s/%d/%s", proc, (int)pid, name);
	f = fopen(path, "re");
	ret->n = 0;
	if (f == NULL)
		return false;
	do {
		uint8_t *p = rc_buf_grow(ret, 4096);

		n = fread(p, 1, 4096, f);
		ret->n -= 4096 - n;
	} while (n == 4096 && ret->n < FILE_MOST);
	fclose(f);
	rc_buf_add(ret, "\0", 1); /* also after a last string that was cut */
	rc_buf_add(ret, "\0", 1);
	return ret->n > 2;
}

/* for (const char *s = NULL; (s = next(&strings, s));) ... */
static const char *next(const rc_buf *strings, const char *s)
{
	s = s == NULL ? (const char *)strings->p : s + strlen(s) + 1;
	return s < (const char *)strings->p + strings->n - 1 ? s : NULL;
}

/* The value of --name=value; gflags takes - and _ alike. NULL: not there. */
static const char *flag(const rc_buf *words, const char *name)
{
	size_t n = strlen(name);

	for (const char *s = NULL; (s = next(words, s));) {
		size_t i = 0;

		if (strncmp(s, "--", 2) != 0)
			continue;
		while (i < n && (s[2 + i] == name[i] || (s[2 + i] == '_' && name[i] == '-')))
			i++;
		if (i == n && s[2 + n] == '=')
			return s + n + 3;
	}
	return NULL;
}

/* The value of a flag inside the command of the dashboard agent, which is one word of the daemon's command line. */
static char *agent_flag(const rc_buf *words, const char *name)
{
	const char *command = flag(words, "dashboard-agent-command");
	char *wanted = rc_sprintf(" --%s=", name);
	const char *at = command != NULL ? strstr(command, wanted) : NULL;
	char *value = at != NULL ? rc_strndup(at + strlen(wanted), strcspn(at + strlen(wanted), " \"")) : rc_strdup("");

	free(wanted);
	return value;
}

static char *copy_flag(const rc_buf *words, const char *name)
{
	const char *value = flag(words, name);

	return rc_strdup(value != NULL ? value : "");
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static bool is_marked(const char *proc, pid_t pid, const char *node_id, rc_buf *scratch)
{
	const size_t n = strlen(RC_STARTED_VARIABLE);

	if (!read_strings(proc, pid, "environ", scratch))
		return false;
	for (const char *s = NULL; (s = next(scratch, s));)
		if (strncmp(s, RC_STARTED_VARIABLE "=", n + 1) == 0)
			return strcmp(s + n + 1, node_id) == 0;
	return false;
}

static pid_t parent_of(const char *proc, pid_t pid)
{
	char path[300], line[600], *after;
	FILE *f;
	int parent = 0;

	snprintf(path, sizeof path, "%s/%d/stat", proc, (int)pid);
	f = fopen(path, "re");
	if (f == NULL)
		return 0;
	after = fgets(line, sizeof line, f) != NULL ? strrchr(line, ')') : NULL;
	if (after == NULL || sscanf(after + 1, " %*c %d", &parent) != 1)
		parent = 0;
	fclose(f);
	return parent;
}

/* `raylet-c start ...` */
static bool is_starter(const char *proc, pid_t pid, rc_buf *scratch)
{
	const char *program, *word;

	if (pid <= 0 || !read_strings(proc, pid, "cmdline", scratch))
		return false;
	program = next(scratch, NULL);
	word = program != NULL ? next(scratch, program) : NULL;
	return word != NULL && strcmp(base_name(program), "raylet-c") == 0 && strcmp(word, "start") == 0;
}

static void look_at_daemon(const char *proc, pid_t pid, rc_buf *words, rc_buf *scratch, rc_node_here *ret)
{
	char *program = rc_sprintf("%s/%d/exe", proc, (int)pid);
	pid_t parent = parent_of(proc, pid);

	*ret = (rc_node_here){ .daemon = pid };
	ret->node_id = copy_flag(words, "node-id");
	ret->ip = copy_flag(words, "node-ip-address");
	ret->gcs_address = copy_flag(words, "gcs-address");
	ret->session_dir = copy_flag(words, "session-dir");
	ret->agent_listen_port = agent_flag(words, "listen-port");
	ret->agent_grpc_port = copy_flag(words, "metrics-agent-port");
	ret->metrics_export_port = copy_flag(words, "metrics-export-port");
	ret->runtime_env_agent_port = copy_flag(words, "runtime-env-agent-port");
	ret->started = is_marked(proc, pid, ret->node_id, scratch);
	ret->ours = rc_is_our_daemon(program, NULL) == 1;
	if (ret->started && is_starter(proc, parent, scratch))
		ret->starter = parent;
	free(program);
}

/* A worker daemon has both flags; --head is a head's. */
static bool is_daemon(const rc_buf *words)
{
	const char *program = next(words, NULL);

	if (program == NULL || strstr(base_name(program), "raylet") == NULL || flag(words, "node-id") == NULL ||
	    flag(words, "gcs-address") == NULL)
		return false;
	for (const char *s = NULL; (s = next(words, s));)
		if (strcmp(s, "--head") == 0 || strcmp(s, "--head=true") == 0)
			return false;
	return true;
}

static bool is_log_monitor(const rc_buf *words)
{
	for (const char *s = NULL; (s = next(words, s));)
		if (strcmp(base_name(s), "log_monitor.py") == 0)
			return true;
	return false;
}

/* Pids of this user's processes. */
static size_t own_processes(const char *proc, DIR *folder, pid_t **ret)
{
	struct dirent *entry;
	size_t n = 0, room = 0;

	*ret = NULL;
	while ((entry = readdir(folder)) != NULL) {
		char path[300];
		struct stat st;

		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof path, "%s/%.20s", proc, entry->d_name);
		if (stat(path, &st) != 0 || st.st_uid != geteuid())
			continue;
		if (n == room) {
			room = room == 0 ? 256 : room * 2;
			*ret = rc_realloc(*ret, room * sizeof **ret);
		}
		(*ret)[n++] = (pid_t)atoi(entry->d_name);
	}
	return n;
}

int rc_nodes_here(const char *proc, rc_node_here **ret, size_t *ret_n, rc_error *error)
{
	DIR *folder = opendir(proc);
	rc_buf words = { 0 }, scratch = { 0 };
	rc_node_here *nodes = NULL;
	size_t n = 0, n_pids;
	pid_t *pids;

	if (folder == NULL)
		return rc_fail_errno(error, "cannot read %s", proc);
	n_pids = own_processes(proc, folder, &pids);
	closedir(folder);
	for (size_t i = 0; i < n_pids && n < RC_NODES_HERE_MOST; i++) {
		if (!read_strings(proc, pids[i], "cmdline", &words) || !is_daemon(&words))
			continue;
		nodes = rc_realloc(nodes, (n + 1) * sizeof *nodes);
		look_at_daemon(proc, pids[i], &words, &scratch, &nodes[n++]);
	}
	for (size_t i = 0; i < n_pids && n > 0; i++) {
		if (!read_strings(proc, pids[i], "cmdline", &words) || !is_log_monitor(&words))
			continue;
		for (size_t k = 0; k < n; k++)
			if (nodes[k].started && is_marked(proc, pids[i], nodes[k].node_id, &scratch))
				nodes[k].monitor = pids[i];
	}
	free(pids);
	rc_buf_free(&words);
	rc_buf_free(&scratch);
	*ret = nodes;
	*ret_n = n;
	return 0;
}

void rc_nodes_here_free(rc_node_here *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *owned[] = { nodes[i].node_id, nodes[i].ip, nodes[i].gcs_address, nodes[i].session_dir, nodes[i].agent_listen_port,
			          nodes[i].agent_grpc_port, nodes[i].metrics_export_port, nodes[i].runtime_env_agent_port };

		for (size_t k = 0; k < sizeof owned / sizeof owned[0]; k++)
			free(owned[k]);
	}
	free(nodes);
}
