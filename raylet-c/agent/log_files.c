/* Every part of a path is opened by itself, relative to the one before, with O_NOFOLLOW: so no race between a check and an
 * open can lead out, and kernels without openat2 do. The folder itself may be behind a link (session_latest). */
#define _GNU_SOURCE
#include "raylet-c/agent/log_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 65536, MAX_STARS = 16 };

static int open_folder(const char *folder, rc_error *error)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? rc_fail_errno(error, "the log folder %s cannot be read", folder) : fd;
}

/* The next part of a path into part; the rest, or NULL when a part is too long. */
static const char *next_part(const char *path, char part[NAME_MAX + 1])
{
	while (*path == '/')
		path++;
	size_t n = strcspn(path, "/");
	if (n > NAME_MAX)
		return NULL;
	memcpy(part, path, n);
	part[n] = '\0';
	return path + n;
}

static int leads_out(rc_error *error, const char *name)
{
	return rc_fail(error, RC_E_INVALID, "%s does not lead to a file of the log folder", name);
}

static int not_found(rc_error *error, const char *name)
{
	return rc_fail(error, RC_E_NOT_FOUND, "A file is not found in the log folder: %s", name);
}

/* O_NONBLOCK: a fifo must not hold us up; a regular file does not mind. */
static int walk(int at, const char *name, rc_error *error)
{
	char part[NAME_MAX + 1];
	int fd = at, depth = 0;
	const char *rest = name;
	for (;;) {
		if (!(rest = next_part(rest, part)) || !strcmp(part, "..") || ++depth > RC_LOG_DEPTH_MAX) {
			close(fd);
			return leads_out(error, name);
		}
		if (!*part)
			return fd;
		if (!strcmp(part, "."))
			continue;
		int next = openat(fd, part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		int why = errno;
		close(fd);
		if (next < 0)
			return why == ELOOP ? leads_out(error, name) : not_found(error, name);
		fd = next;
	}
}

int rc_log_file_open(const char *folder, const char *name, bool *ret_is_folder, uint64_t *ret_size, rc_error *error)
{
	size_t n = strlen(folder);
	struct stat st;
	if (*name == '/') {
		if (strncmp(name, folder, n) != 0 || name[n] != '/')
			return leads_out(error, name);
		name += n + 1;
	}
	int at = open_folder(folder, error), fd = at < 0 ? -1 : walk(at, name, error);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) != 0 || !(S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && ret_is_folder))) {
		close(fd);
		return not_found(error, name);
	}
	if (ret_is_folder)
		*ret_is_folder = S_ISDIR(st.st_mode);
	*ret_size = (uint64_t)st.st_size;
	return fd;
}

/* ---- listing ---- */

typedef struct listing {
	rc_log_name_fn fn;
	void *arg;
	size_t count;
} listing;

static void list(listing *l, int fd, const char *prefix, const char *pattern, int depth);

static void list_entry(listing *l, int at, const char *prefix, const struct dirent *e, const char *part, const char *rest, int depth)
{
	bool any_depth = !strcmp(part, "**"), last = !*rest, is_folder = e->d_type == DT_DIR;
	struct stat st;
	if (e->d_type == DT_UNKNOWN) {
		if (fstatat(at, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
			return;
		is_folder = S_ISDIR(st.st_mode);
		if (!is_folder && !S_ISREG(st.st_mode))
			return;
	} else if (!is_folder && e->d_type != DT_REG) {
		return;
	}
	if (!any_depth && fnmatch(part, e->d_name, 0) != 0)
		return;
	char *name = rc_sprintf("%s%s%s", prefix, e->d_name, is_folder ? "/" : "");
	if (last && (!any_depth || is_folder)) { /* "**" at the end means folders only */
		l->fn(l->arg, name);
		l->count++;
	}
	if (is_folder && depth < RC_LOG_DEPTH_MAX && (any_depth || !last)) {
		int fd = openat(at, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		char *again = any_depth ? rc_sprintf("**/%s", rest) : NULL;
		if (fd >= 0)
			list(l, fd, name, again ? again : rest, depth + 1);
		free(again);
	}
	free(name);
}

/* Takes fd. */
static void list(listing *l, int fd, const char *prefix, const char *pattern, int depth)
{
	char part[NAME_MAX + 1];
	const char *rest = next_part(pattern, part);
	while (rest && *rest == '/')
		rest++;
	if (rest && !strcmp(part, "**") && *rest) { /* no folder at all is a match too */
		int same = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (same >= 0)
			list(l, same, prefix, rest, depth);
	}
	DIR *d = rest && *part ? fdopendir(fd) : NULL;
	if (!d) {
		close(fd);
		return;
	}
	for (struct dirent *e; l->count < RC_LOG_FILES_MAX && (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			list_entry(l, dirfd(d), prefix, e, part, rest, depth);
	closedir(d);
}

int rc_log_files_list(const char *folder, const char *pattern, rc_log_name_fn fn, void *arg, rc_error *error)
{
	char part[NAME_MAX + 1];
	size_t stars = 0, deep = 0;
	if (!*pattern)
		pattern = "*";
	for (const char *p = pattern; *p; p++)
		stars += *p == '*';
	for (const char *rest = pattern; *rest;) {
		if (*pattern == '/' || !(rest = next_part(rest, part)) || !strcmp(part, ".."))
			return rc_fail(error, RC_E_INVALID, "Invalid glob filter: %s. It must be a relative path and cannot contain '..'.", pattern);
		deep += !strcmp(part, "**");
	}
	if (stars > MAX_STARS || deep > 2)
		return rc_fail(error, RC_E_INVALID, "Invalid glob filter: %s. It has too many wildcards.", pattern);
	int fd = open_folder(folder, error);
	if (fd < 0)
		return -1;
	listing l = { .fn = fn, .arg = arg };
	list(&l, fd, "", pattern, 0);
	return 0;
}

/* ---- the end of a file ---- */

uint64_t rc_log_tail_start(int fd, uint64_t end, uint64_t lines)
{
	char *block = lines ? rc_alloc(BLOCK) : NULL;
	uint64_t at = end, found = 0, start = lines ? 0 : end;
	while (lines && at > 0) {
		size_t n = at < BLOCK ? (size_t)at : BLOCK;
		ssize_t got = pread(fd, block, n, (off_t)(at - n));
		if (got != (ssize_t)n)
			break;
		for (size_t i = n; i > 0; i--) {
			if (block[i - 1] != '\n' || at - n + i == end) /* the end of the last line */
				continue;
			if (++found == lines) {
				start = at - n + i;
				goto done;
			}
		}
		at -= n;
	}
done:
	free(block);
	return start;
}
