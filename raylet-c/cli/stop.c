/* `raylet-c stop`; see stop.h. Order, as in `ray stop`: the daemon first (it tells the head that it leaves, and ends its workers and
 * agents), then the log monitor, then a `raylet-c start --block` that has not ended by itself. Processes are held by pidfds, so a
 * pid that is used again meets no stranger. Texts that people grep for are those of `ray stop`. */
#define _GNU_SOURCE
#include "raylet-c/cli/stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "raylet-c/base/log.h"
#include "raylet-c/cli/head.h"
#include "raylet-c/cli/nodes_here.h"
#include "raylet-c/cli/words.h"

enum { GRACE_S = 16, DRAIN_ANSWER_MS = 5000, AFTER_KILL_MS = 5000, AFTER_DAEMON_MS = 6000 };

static const char help[] =
	"raylet-c stop [OPTIONS]\n"
	"\n"
	"Ends the nodes that `raylet-c start` started on this host as this user.\n"
	"\n"
	"  -g, --grace-period SECONDS   how long a node may take to leave before it is killed (16)\n"
	"  -f, --force                  kills at once\n"
	"  --drain SECONDS              first, no new work: what runs may end for so long (0: not at all)\n"
	"  --node-id HEX                only this node\n"
	"  --all                        also nodes that `ray start` started here as this user\n";

/* One process that shall end. fd -1: there is none. */
typedef struct target {
	pid_t pid;
	int fd;
} target;

typedef struct node {
	target daemon, monitor, starter;
	const rc_node_here *facts;
} node;

static target hold(pid_t pid)
{
	return (target){ pid, pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1 };
}

static bool wait_gone(const target *t, uint64_t until_ms)
{
	struct pollfd p = { .fd = t->fd, .events = POLLIN };
	uint64_t now;

	if (t->fd < 0)
		return true;
	do {
		now = rc_now_ms();
		if (poll(&p, 1, until_ms > now ? (int)(until_ms - now) : 0) > 0)
			return true;
	} while (now < until_ms);
	return false;
}

static void send(const target *t, int signum)
{
	if (t->fd >= 0 && syscall(SYS_pidfd_send_signal, t->fd, signum, NULL, 0) != 0 && errno != ESRCH)
		fprintf(stderr, "raylet-c stop: process %d: %s\n", (int)t->pid, strerror(errno));
}

/* True: it went without being killed. */
static bool end(const target *t, bool force, uint64_t until_ms)
{
	if (t->fd < 0 || wait_gone(t, 0))
		return true;
	send(t, force ? SIGKILL : SIGTERM);
	if (wait_gone(t, force ? rc_now_ms() + AFTER_KILL_MS : until_ms))
		return true;
	send(t, SIGKILL);
	wait_gone(t, rc_now_ms() + AFTER_KILL_MS);
	return false;
}

/* Until the node has left by itself or the time is over. */
static void drain(const node *n, int64_t seconds)
{
	rc_id id = rc_id_from_hex(n->facts->node_id);
	uint64_t until = rc_now_ms() + (uint64_t)seconds * 1000;
	rc_error error;

	if (rc_head_drain(n->facts->gcs_address, DRAIN_ANSWER_MS, &id, seconds, "raylet-c stop --drain", &error) != 0)
		fprintf(stderr, "raylet-c stop: node %.8s leaves without draining: %s\n", n->facts->node_id, error.text);
	else
		wait_gone(&n->daemon, until);
}

static void drop(target *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
}

/* A pid may have been used again between the look into /proc and the pidfd: what a second look does not find as it was is let go. */
static int check_again(node *nodes, size_t n, rc_error *error)
{
	rc_node_here *now;
	size_t n_now;

	if (rc_nodes_here("/proc", &now, &n_now, error) != 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		const rc_node_here *same = NULL;

		for (size_t k = 0; k < n_now && same == NULL; k++)
			if (strcmp(now[k].node_id, nodes[i].facts->node_id) == 0)
				same = &now[k];
		if (same == NULL || same->daemon != nodes[i].daemon.pid)
			drop(&nodes[i].daemon);
		if (same == NULL || same->monitor != nodes[i].monitor.pid)
			drop(&nodes[i].monitor);
		if (same == NULL || same->starter != nodes[i].starter.pid)
			drop(&nodes[i].starter);
	}
	rc_nodes_here_free(now, n_now);
	return 0;
}

static size_t count_processes(const node *n)
{
	return (size_t)(n->daemon.fd >= 0) + (n->monitor.fd >= 0) + (n->starter.fd >= 0);
}

/* How many of the node's processes had to be killed. */
static size_t stop_node(const node *n, bool force, int64_t grace_s, int64_t drain_s)
{
	size_t killed = 0;

	if (drain_s > 0 && !force)
		drain(n, drain_s);
	killed += !end(&n->daemon, force, rc_now_ms() + (uint64_t)grace_s * 1000);
	killed += !end(&n->monitor, force, rc_now_ms() + (uint64_t)grace_s * 1000);
	if (!wait_gone(&n->starter, rc_now_ms() + AFTER_DAEMON_MS)) /* it sees its daemon gone, and ends */
		killed += !end(&n->starter, force, rc_now_ms() + (uint64_t)grace_s * 1000);
	return killed;
}

typedef struct wishes {
	const char *only; /* NULL: every node */
	bool all, force;
	int64_t grace_s, drain_s;
} wishes;

static int stop_nodes(const rc_node_here *here, size_t n_here, const wishes *w, rc_error *error)
{
	size_t processes = 0, killed = 0, n = 0;
	int rc;
	node *nodes = rc_alloc((n_here + 1) * sizeof *nodes);

	for (size_t i = 0; i < n_here; i++) {
		if ((!here[i].started && !w->all) || (w->only != NULL && strcmp(w->only, here[i].node_id) != 0))
			continue;
		nodes[n++] = (node){ hold(here[i].daemon), hold(here[i].monitor), hold(here[i].starter), &here[i] };
	}
	rc = n > 0 ? check_again(nodes, n, error) : 0;
	for (size_t i = 0; i < n; i++)
		processes += count_processes(&nodes[i]);
	for (size_t i = 0; rc == 0 && i < n; i++)
		killed += stop_node(&nodes[i], w->force, w->grace_s, w->drain_s);
	for (size_t i = 0; i < n; i++) {
		drop(&nodes[i].daemon);
		drop(&nodes[i].monitor);
		drop(&nodes[i].starter);
	}
	free(nodes);
	if (rc != 0)
		return -1;
	if (processes == 0)
		printf(w->all ? "Did not find any active Ray processes.\n" : "Did not find any active Ray processes that raylet-c started.\n");
	else if (killed == 0)
		printf("Stopped all %zu Ray processes.\n", processes);
	else
		printf("Stopped only %zu out of %zu Ray processes within the grace period %lld seconds; the others were killed.\n",
		       processes - killed, processes, (long long)w->grace_s);
	return 0;
}

int rc_stop_command(int argc, char **argv)
{
	const char *grace = NULL, *drain_text = NULL, *ignored = NULL;
	bool verbose = false, wants_help = false;
	wishes w = { .grace_s = GRACE_S };
	const rc_word words[] = {
		{ "--grace-period", &grace, NULL }, { "-g", &grace, NULL },         { "--force", NULL, &w.force },     { "-f", NULL, &w.force },
		{ "--drain", &drain_text, NULL },   { "--node-id", &w.only, NULL }, { "--all", NULL, &w.all },         { "--help", NULL, &wants_help },
		{ "-v", NULL, &verbose },           { "--verbose", NULL, &verbose }, { "--log-style", &ignored, NULL }, { "--log-color", &ignored, NULL },
		{ NULL, NULL, NULL },
	};
	rc_node_here *here;
	rc_error error;
	size_t n;
	int rc;

	if (rc_words_read(words, argc, argv, &error) != 0 ||
	    (grace != NULL && rc_word_number("--grace-period", grace, 0, 86400, &w.grace_s, &error) != 0) ||
	    (drain_text != NULL && rc_word_number("--drain", drain_text, 0, 86400, &w.drain_s, &error) != 0)) {
		fprintf(stderr, "raylet-c stop: %s\n", error.text);
		return 2;
	}
	if (wants_help) {
		fputs(help, stdout);
		return 0;
	}
	rc_log_level(RC_ERROR);
	if (rc_nodes_here("/proc", &here, &n, &error) != 0) {
		fprintf(stderr, "raylet-c stop: %s\n", error.text);
		return 1;
	}
	rc = stop_nodes(here, n, &w, &error);
	rc_nodes_here_free(here, n);
	if (rc != 0)
		fprintf(stderr, "raylet-c stop: %s\n", error.text);
	return rc == 0 ? 0 : 1;
}
