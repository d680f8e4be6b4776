#define _GNU_SOURCE
#include "raylet-c/agent/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/base/loop.h"
#include "raylet-c/base/map.h"

enum { MAX_CMDLINE = 256 * 1024 };

typedef struct seen {
	uint64_t start_ticks, at_ms;
	double cpu_seconds;
	bool in_this_round;
} seen;

struct rc_process_table {
	rc_map *pids; /* pid -> seen */
	long ticks, page;
	double boot; /* seconds since 1970 */
};

static bool read_whole(const char *path, rc_buf *out, size_t most)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = 1;
	while (n > 0 && out->n < most) {
		uint8_t *to = rc_buf_grow(out, 4096);
		n = read(fd, to, 4096);
		out->n -= 4096 - (n > 0 ? (size_t)n : 0);
	}
	close(fd);
	return n >= 0;
}

static double boot_time(void)
{
	rc_buf text = { 0 };
	double boot = 0;
	if (read_whole("/proc/stat", &text, 1 << 20)) {
		const char *line = strstr(rc_buf_cstr(&text), "\nbtime ");
		boot = line ? strtod(line + 7, NULL) : 0;
	}
	rc_buf_free(&text);
	return boot;
}

rc_process_table *rc_process_table_create(void)
{
	rc_process_table *t = rc_alloc(sizeof(*t));
	*t = (rc_process_table){ .pids = rc_map_create(), .ticks = sysconf(_SC_CLK_TCK), .page = sysconf(_SC_PAGESIZE), .boot = boot_time() };
	return t;
}

void rc_process_table_destroy(rc_process_table *t)
{
	if (!t)
		return;
	void *value;
	for (size_t i = 0; rc_map_next(t->pids, &i, NULL, &value);)
		free(value);
	rc_map_destroy(t->pids);
	free(t);
}

void rc_process_table_sweep(rc_process_table *t)
{
	rc_view key;
	void *value;
	for (size_t i = 0; rc_map_next(t->pids, &i, &key, &value);) {
		seen *s = value;
		if (!s->in_this_round) {
			rc_map_del(t->pids, key);
			free(s);
		} else {
			s->in_this_round = false;
		}
	}
}

/* Fields behind the name: state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime ... */
static bool read_stat(const rc_process_table *t, const char *folder, rc_process_info *p)
{
	char path[64], state;
	rc_buf text = { 0 };
	unsigned long utime, stime;
	long cutime, cstime;
	unsigned long long start, vsize, blkio = 0;
	snprintf(path, sizeof(path), "%s/stat", folder);
	bool ok = read_whole(path, &text, 4096);
	const char *behind = ok ? strrchr(rc_buf_cstr(&text), ')') : NULL;
	ok = behind && sscanf(behind + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld %*d %*d %*d %*d %llu %llu %*d", &state, &utime,
	                      &stime, &cutime, &cstime, &start, &vsize) == 7 &&
	     state != 'Z' && state != 'X';
	if (ok) {
		const char *field = behind + 1; /* the 42nd of the file is the 40th here */
		for (int i = 0; i < 39 && field; i++)
			field = strchr(field + 1, ' ');
		if (field)
			blkio = strtoull(field, NULL, 10);
		const double ticks = (double)t->ticks;
		p->start_ticks = start;
		p->create_time = t->boot + (double)start / ticks;
		p->user = (double)utime / ticks;
		p->system = (double)stime / ticks;
		p->children_user = (double)cutime / ticks;
		p->children_system = (double)cstime / ticks;
		p->iowait = (double)blkio / ticks;
		p->vms = vsize;
	}
	rc_buf_free(&text);
	return ok;
}

static bool read_memory(const rc_process_table *t, const char *folder, rc_process_info *p)
{
	char path[64];
	rc_buf text = { 0 };
	unsigned long long size, resident, shared, code, data;
	snprintf(path, sizeof(path), "%s/statm", folder);
	bool ok = read_whole(path, &text, 4096) &&
	          sscanf(rc_buf_cstr(&text), "%llu %llu %llu %llu %*u %llu", &size, &resident, &shared, &code, &data) == 5;
	if (ok) {
		const uint64_t page = (uint64_t)t->page;
		p->vms = size * page;
		p->rss = resident * page;
		p->shared = shared * page;
		p->text = code * page;
		p->data = data * page;
	}
	rc_buf_free(&text);
	return ok;
}

static uint64_t kb_field(const char *text, const char *name)
{
	const char *at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

static void read_full(const char *folder, rc_process_info *p)
{
	char path[64];
	rc_buf text = { 0 };
	snprintf(path, sizeof(path), "%s/smaps_rollup", folder);
	p->has_full = read_whole(path, &text, 65536) && text.n;
	const char *s = rc_buf_cstr(&text);
	if (p->has_full) {
		p->uss = kb_field(s, "\nPrivate_Clean:") + kb_field(s, "\nPrivate_Dirty:") + kb_field(s, "\nPrivate_Hugetlb:");
		p->pss = kb_field(s, "\nPss:");
		p->swap = kb_field(s, "\nSwap:");
	}
	rc_buf_free(&text);
}

static int count_fds(const char *folder)
{
	char path[64];
	snprintf(path, sizeof(path), "%s/fd", folder);
	DIR *d = opendir(path);
	int n = 0;
	if (!d)
		return -1;
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void read_cmdline(const char *folder, rc_process_info *p)
{
	char path[64];
	snprintf(path, sizeof(path), "%s/cmdline", folder);
	read_whole(path, &p->cmdline, MAX_CMDLINE);
	while (p->cmdline.n && p->cmdline.p[p->cmdline.n - 1] == '\0')
		p->cmdline.n--;
	if (p->cmdline.n)
		rc_buf_add(&p->cmdline, "", 1);
}

static void set_percent(rc_process_table *t, rc_process_info *p)
{
	rc_view key = rc_view_of(&p->pid, sizeof(p->pid));
	seen *s = rc_map_get(t->pids, key);
	uint64_t now = rc_now_ms();
	double cpu = p->user + p->system;
	if (!s) {
		s = rc_alloc(sizeof(*s));
		rc_map_put(t->pids, key, s);
	} else if (s->start_ticks == p->start_ticks && now > s->at_ms) {
		p->cpu_percent = (cpu - s->cpu_seconds) * 100000 / (double)(now - s->at_ms);
	}
	*s = (seen){ .start_ticks = p->start_ticks, .at_ms = now, .cpu_seconds = cpu, .in_this_round = true };
}

bool rc_process_look(rc_process_table *t, pid_t pid, bool full, rc_process_info *ret)
{
	char folder[32];
	*ret = (rc_process_info){ .pid = pid };
	snprintf(folder, sizeof(folder), "/proc/%d", (int)pid);
	if (!read_stat(t, folder, ret) || !read_memory(t, folder, ret))
		return false;
	ret->num_fds = count_fds(folder);
	read_cmdline(folder, ret);
	if (full)
		read_full(folder, ret);
	set_percent(t, ret);
	return true;
}

void rc_process_info_free(rc_process_info *p)
{
	rc_buf_free(&p->cmdline);
}
