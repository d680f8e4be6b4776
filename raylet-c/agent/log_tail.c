/* A change in the folder (inotify) marks a file; a moment later all marked ones are read. Once a second all files are marked,
 * for whatever was missed, and new names are looked for. A worker's files are forgotten when its process is gone and they have
 * been quiet for a while; its pid too, so that they are not taken for new ones. */
#define _GNU_SOURCE
#include "raylet-c/agent/log_tail.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"
#include "raylet-c/base/map.h"

enum { SOON_MS = 10, LOOK_MS = 1000, LOOK_WITHOUT_INOTIFY_MS = 100, PARTIAL_MS = 500, QUIET_MS = 30000 };
enum { READ = 256 * 1024, MAX_LINE = 256 * 1024, MAX_LINES = 1000, MAX_BATCHES = 16, MAX_OPEN = 200, MAX_NAME = 256 };

typedef struct file {
	rc_link link;     /* of all; those read last are at the end */
	char *name, *pid, *job, *actor, *task;
	pid_t process;    /* 0: not a worker's */
	bool is_error, marked;
	int fd;           /* -1: closed for the time being */
	ino_t inode;      /* of what was read last */
	uint64_t at;      /* read up to here */
	rc_buf partial;
	uint64_t grown_ms;
} file;

struct rc_log_tail {
	rc_loop *loop;
	char *folder;
	rc_log_batch_fn fn;
	void *ctx;
	rc_map *files; /* name -> file */
	rc_map *pids;  /* pid -> anything */
	rc_link all;
	size_t n_open, n_batches;
	int inotify;
	rc_watch *watch;
	rc_timer *soon, *look;
	bool scan_wanted; /* a worker was named: its files may be there already */
	bool held_up; /* something is marked, but MAX_BATCHES are out */
};

/* ---- batches ---- */

typedef struct lines {
	char *v[MAX_LINES];
	size_t n;
} lines;

static void flush(rc_log_tail *t, const file *f, lines *l)
{
	if (!l->n)
		return;
	rc_log_batch b = { .pid = f->pid, .job = f->job, .is_error = f->is_error, .actor = f->actor, .task = f->task, .lines = l->v, .n_lines = l->n };
	t->n_batches++;
	t->fn(t->ctx, &b);
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	l->n = 0;
}

static void set(char **where, const char *text, size_t n)
{
	free(*where);
	*where = rc_strndup(text, n);
}

static bool begins(const char *p, size_t n, const char *mark, size_t *ret_n)
{
	*ret_n = strlen(mark);
	return n >= *ret_n && !memcmp(p, mark, *ret_n);
}

static void take_line(rc_log_tail *t, file *f, lines *l, const char *p, size_t n)
{
	size_t mark;
	while (n && (p[n - 1] == '\r' || p[n - 1] == '\n'))
		n--;
	if (begins(p, n, ":actor_name:", &mark)) {
		flush(t, f, l);
		set(&f->actor, p + mark, n - mark);
		set(&f->task, "", 0);
	} else if (begins(p, n, ":task_name:", &mark)) {
		flush(t, f, l);
		set(&f->task, p + mark, n - mark);
	} else if (begins(p, n, ":job_id:", &mark)) {
		flush(t, f, l);
		set(&f->job, p + mark, n - mark);
	} else {
		if (l->n == MAX_LINES)
			flush(t, f, l);
		l->v[l->n++] = rc_strndup(p, n);
		for (char *c = l->v[l->n - 1]; (size_t)(c - l->v[l->n - 1]) < n; c++)
			if (*c == '\0') /* a string on the wire ends there */
				*c = '?';
	}
}

/* ---- one file ---- */

static void close_file(rc_log_tail *t, file *f)
{
	if (f->fd < 0)
		return;
	close(f->fd);
	f->fd = -1;
	t->n_open--;
}

static bool open_file(rc_log_tail *t, file *f)
{
	struct stat st;
	char *path = *f->name == '/' ? rc_strdup(f->name) : rc_sprintf("%s/%s", t->folder, f->name);
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	free(path);
	if (fd < 0)
		return false;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return false;
	}
	if (f->inode && f->inode != st.st_ino)
		f->at = 0;
	f->inode = st.st_ino;
	f->fd = fd;
	t->n_open++;
	if (t->n_open > MAX_OPEN) /* the one that was read longest ago has been read to its end */
		RC_LIST_FOREACH(l, &t->all) {
			file *old = RC_CONTAINER(l, file, link);
			if (old->fd >= 0 && old != f && !old->marked) {
				close_file(t, old);
				break;
			}
		}
	return true;
}

/* At the end of what is open: is there another file of this name now, or less of this one? */
static bool replaced(rc_log_tail *t, file *f)
{
	struct stat now, own;
	char *path = *f->name == '/' ? rc_strdup(f->name) : rc_sprintf("%s/%s", t->folder, f->name);
	bool there = lstat(path, &now) == 0 && S_ISREG(now.st_mode);
	free(path);
	if (fstat(f->fd, &own) == 0 && (uint64_t)own.st_size < f->at) { /* truncated */
		f->at = 0;
		rc_buf_free(&f->partial);
		return own.st_size > 0;
	}
	if (!there || now.st_ino == f->inode)
		return false;
	close_file(t, f);
	return open_file(t, f);
}

static void take_partial(rc_log_tail *t, file *f, lines *l)
{
	if (f->partial.n)
		take_line(t, f, l, (const char *)f->partial.p, f->partial.n);
	rc_buf_free(&f->partial);
}

static void take_bytes(rc_log_tail *t, file *f, lines *l, const uint8_t *p, size_t n)
{
	while (n) {
		const uint8_t *end = memchr(p, '\n', n);
		size_t length = end ? (size_t)(end - p) + 1 : n;
		if (end && !f->partial.n) {
			take_line(t, f, l, (const char *)p, length);
		} else {
			rc_buf_add(&f->partial, p, length);
			if (end || f->partial.n > MAX_LINE)
				take_partial(t, f, l);
		}
		p += length;
		n -= length;
	}
}

/* True: there may be more at once. */
static bool read_file(rc_log_tail *t, file *f, uint8_t *buffer)
{
	lines l = { .n = 0 };
	if (f->fd < 0 && !open_file(t, f))
		return false;
	ssize_t n = pread(f->fd, buffer, READ, (off_t)f->at);
	if (n > 0) {
		f->at += (uint64_t)n;
		f->grown_ms = rc_now_ms();
		take_bytes(t, f, &l, buffer, (size_t)n);
	}
	bool more = n > 0;
	if (n == 0 && (more = replaced(t, f)))
		take_partial(t, f, &l); /* the old file's last words */
	if (!more && f->partial.n && rc_now_ms() - f->grown_ms >= PARTIAL_MS)
		take_partial(t, f, &l);
	flush(t, f, &l);
	return more;
}

/* ---- all files ---- */

static void note_all(rc_log_tail *t);

static void read_marked(void *arg)
{
	rc_log_tail *t = arg;
	uint8_t *buffer = rc_alloc(READ);
	bool again = false;
	rc_timer_stop(t->soon);
	t->soon = NULL;
	if (t->scan_wanted)
		note_all(t);
	RC_LIST_FOREACH(l, &t->all) {
		file *f = RC_CONTAINER(l, file, link);
		if (!f->marked)
			continue;
		if (t->n_batches >= MAX_BATCHES) {
			t->held_up = true;
			break;
		}
		f->marked = read_file(t, f, buffer);
		again = again || f->marked || f->partial.n;
	}
	free(buffer);
	if (again && !t->held_up)
		t->soon = rc_timer_start(t->loop, SOON_MS, 0, read_marked, t);
}

static void read_soon(rc_log_tail *t)
{
	if (!t->soon && !t->held_up)
		t->soon = rc_timer_start(t->loop, SOON_MS, 0, read_marked, t);
}

static void mark(rc_log_tail *t, file *f)
{
	f->marked = true;
	rc_list_remove(&f->link);
	rc_list_append(&t->all, &f->link);
	read_soon(t);
}

static file *add_file(rc_log_tail *t, const char *name, const char *pid, const char *job, bool is_error, pid_t process)
{
	file *f = rc_alloc(sizeof(*f));
	*f = (file){ .name = rc_strdup(name), .pid = rc_strdup(pid), .job = rc_strdup(job), .actor = rc_strdup(""), .task = rc_strdup(""),
		     .process = process, .is_error = is_error, .fd = -1, .grown_ms = rc_now_ms() };
	rc_list_init(&f->link);
	rc_list_append(&t->all, &f->link);
	rc_map_put(t->files, rc_view_str(name), f);
	return f;
}

static void free_file(rc_log_tail *t, file *f)
{
	close_file(t, f);
	rc_list_remove(&f->link);
	rc_map_del(t->files, rc_view_str(f->name));
	free(f->name);
	free(f->pid);
	free(f->job);
	free(f->actor);
	free(f->task);
	rc_buf_free(&f->partial);
	free(f);
}

/* "worker-<id>-<job>-<pid>.out" or ".err" of a worker of this node. */
static bool parse_name(const rc_log_tail *t, const char *name, pid_t *ret_pid, char job[MAX_NAME], bool *ret_is_error)
{
	size_t n = strlen(name);
	if (strncmp(name, "worker-", 7) != 0 || n >= MAX_NAME || n < 12 || (strcmp(name + n - 4, ".out") && strcmp(name + n - 4, ".err")))
		return false;
	const char *end = name + n - 4, *pid = end, *middle;
	while (pid > name && isdigit((unsigned char)pid[-1]))
		pid--;
	if (pid == end || pid[-1] != '-')
		return false;
	middle = pid - 1;
	while (middle > name && isxdigit((unsigned char)middle[-1]))
		middle--;
	if (middle == pid - 1 || middle <= name || middle[-1] != '-')
		return false;
	*ret_pid = (pid_t)strtol(pid, NULL, 10);
	*ret_is_error = !strcmp(end, ".err");
	snprintf(job, MAX_NAME, "%.*s", (int)(pid - 1 - middle), middle);
	if (!strcmp(job, "ffffffff")) /* started for no job yet */
		*job = '\0';
	return rc_map_get(t->pids, rc_view_of(ret_pid, sizeof(*ret_pid))) != NULL;
}

/* A name in the folder that is there, is new, or has changed. */
static void note_name(rc_log_tail *t, const char *name)
{
	file *f = rc_map_get(t->files, rc_view_str(name));
	pid_t pid;
	char job[MAX_NAME], text[16];
	bool is_error;
	if (!f) {
		if (!parse_name(t, name, &pid, job, &is_error))
			return;
		snprintf(text, sizeof(text), "%d", (int)pid);
		f = add_file(t, name, text, job, is_error, pid);
	}
	mark(t, f);
}

static void note_all(rc_log_tail *t)
{
	DIR *d = opendir(t->folder);
	t->scan_wanted = false;
	for (struct dirent *e; d && (e = readdir(d));)
		if (!strncmp(e->d_name, "worker-", 7))
			note_name(t, e->d_name);
	if (d)
		closedir(d);
}

/* Of a worker that is gone for good. */
static void forget_quiet(rc_log_tail *t)
{
	uint64_t now = rc_now_ms();
	RC_LIST_FOREACH(l, &t->all) {
		file *f = RC_CONTAINER(l, file, link);
		if (!f->process || now - f->grown_ms < QUIET_MS || kill(f->process, 0) == 0 || errno != ESRCH)
			continue;
		rc_map_del(t->pids, rc_view_of(&f->process, sizeof(f->process)));
		free_file(t, f);
	}
}

static void look(void *arg)
{
	rc_log_tail *t = arg;
	note_all(t);
	RC_LIST_FOREACH(l, &t->all) {
		file *f = RC_CONTAINER(l, file, link);
		if (!f->process)
			f->marked = true;
	}
	if (!t->held_up)
		forget_quiet(t);
	read_soon(t);
}

static void on_inotify(void *arg, int events)
{
	rc_log_tail *t = arg;
	char buffer[16384] __attribute__((aligned(8)));
	ssize_t n;
	(void)events;
	while ((n = read(t->inotify, buffer, sizeof(buffer))) > 0)
		for (char *p = buffer; p < buffer + n;) {
			const struct inotify_event *e = (const struct inotify_event *)p;
			if (e->len)
				note_name(t, e->name);
			p += sizeof(*e) + e->len;
		}
}

/* ---- life ---- */

rc_log_tail *rc_log_tail_create(rc_loop *loop, const char *folder, const char *other, const char *other_name, rc_log_batch_fn fn, void *ctx)
{
	rc_log_tail *t = rc_alloc(sizeof(*t));
	*t = (rc_log_tail){ .loop = loop, .folder = rc_strdup(folder), .fn = fn, .ctx = ctx, .files = rc_map_create(), .pids = rc_map_create() };
	rc_list_init(&t->all);
	if (other)
		add_file(t, other, other_name, "", true, 0);
	t->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (t->inotify >= 0 && inotify_add_watch(t->inotify, folder, IN_CREATE | IN_MODIFY | IN_MOVED_TO) < 0) {
		close(t->inotify);
		t->inotify = -1;
	}
	if (t->inotify >= 0)
		t->watch = rc_watch_start(loop, t->inotify, RC_READABLE, on_inotify, t);
	else
		rc_info("no inotify for %s (%s): logs are looked at every %d ms", folder, strerror(errno), LOOK_WITHOUT_INOTIFY_MS);
	uint64_t ms = t->inotify >= 0 ? LOOK_MS : LOOK_WITHOUT_INOTIFY_MS;
	t->look = rc_timer_start(loop, ms, ms, look, t);
	return t;
}

void rc_log_tail_destroy(rc_log_tail *t)
{
	if (!t)
		return;
	rc_watch_stop(t->watch);
	if (t->inotify >= 0)
		close(t->inotify);
	rc_timer_stop(t->soon);
	rc_timer_stop(t->look);
	RC_LIST_FOREACH(l, &t->all)
		free_file(t, RC_CONTAINER(l, file, link));
	rc_map_destroy(t->files);
	rc_map_destroy(t->pids);
	free(t->folder);
	free(t);
}

void rc_log_tail_worker(rc_log_tail *t, pid_t pid)
{
	rc_map_put(t->pids, rc_view_of(&pid, sizeof(pid)), t);
	t->scan_wanted = true;
	read_soon(t);
}

void rc_log_tail_taken(rc_log_tail *t)
{
	t->n_batches--;
	if (!t->held_up)
		return;
	t->held_up = false;
	read_soon(t);
}
