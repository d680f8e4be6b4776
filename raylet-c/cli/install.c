/* enable, disable, status of the daemon inside a ray package; see install.h for the files and their meaning. */
#include "raylet-c/cli/install.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/version.h"
#include "raylet-c/wire/dialect.h"

typedef struct places {
	char *folder, *stock, *marker, *fresh; /* fresh: our daemon before its rename */
	int lock;
} places;

static void leave(places *s)
{
	if (s->lock >= 0)
		close(s->lock);
	free(s->folder);
	free(s->stock);
	free(s->marker);
	free(s->fresh);
}

static void name_places(const rc_package *p, places *s)
{
	s->folder = rc_strndup(p->raylet, (size_t)(strrchr(p->raylet, '/') - p->raylet));
	s->stock = rc_sprintf("%s.stock", p->raylet);
	s->marker = rc_sprintf("%s.c", p->raylet);
	s->fresh = rc_sprintf("%s.new", p->raylet);
	s->lock = -1;
}

static int enter(const rc_package *p, places *s, rc_error *error)
{
	name_places(p, s);
	s->lock = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->lock < 0 || flock(s->lock, LOCK_EX) != 0)
		return rc_fail_errno(error, "cannot lock the folder %s", s->folder);
	return 0;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static int cannot_write(const char *folder, rc_error *error)
{
	return rc_fail_errno(error, "the folder %s cannot be changed (`raylet-c start` runs the daemon without changing the package)", folder);
}

static int write_all(int fd, const char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, bytes, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -1;
		bytes += done;
		n -= (size_t)done;
	}
	return 0;
}

/* A new file `to`, or -1 with errno and nothing left. */
static int copy_file(const char *from, const char *to)
{
	char piece[65536];
	int in = open(from, O_RDONLY | O_CLOEXEC), out, rc = -1, saved;
	ssize_t n = 0;

	if (in < 0)
		return -1;
	unlink(to);
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	if (out >= 0) {
		while ((n = read(in, piece, sizeof piece)) > 0)
			if (write_all(out, piece, (size_t)n) != 0)
				break;
		rc = n == 0 && fchmod(out, 0755) == 0 && fsync(out) == 0 ? 0 : -1;
	}
	saved = errno;
	close(in);
	if (out >= 0) {
		close(out);
		if (rc != 0)
			unlink(to);
	}
	errno = saved;
	return rc;
}

/* raylet stays in place while raylet.stock becomes a second name of it (a copy, where the file system has no hard links). */
static int keep_original(const rc_package *p, const places *s)
{
	char *second = rc_sprintf("%s.part", s->stock);
	int rc;

	unlink(second);
	rc = link(p->raylet, second);
	if (rc != 0)
		rc = copy_file(p->raylet, second);
	if (rc == 0)
		rc = rename(second, s->stock);
	free(second);
	return rc;
}

static int write_marker(const rc_package *p, const places *s)
{
	char *part = rc_sprintf("%s.part", s->marker);
	char *text = rc_sprintf("raylet-c %s in the place of the raylet of ray %s, which is kept as raylet.stock; undo with: raylet-c disable\n", RC_VERSION,
	                        p->release);
	int fd, rc = -1;

	unlink(part);
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd >= 0) {
		rc = write_all(fd, text, strlen(text)) == 0 && fsync(fd) == 0 ? 0 : -1;
		close(fd);
		if (rc == 0)
			rc = rename(part, s->marker);
	}
	free(text);
	free(part);
	return rc;
}

static int state_of(const rc_package *p, const places *s, rc_install_state *ret, rc_error *error)
{
	int ours = rc_is_our_daemon(p->raylet, error);

	if (ours < 0)
		return -1;
	if (ours)
		*ret = exists(s->stock) ? RC_INSTALL_ENABLED : RC_INSTALL_NO_STOCK;
	else
		*ret = exists(s->marker) ? RC_INSTALL_OVERWRITTEN : RC_INSTALL_STOCK;
	return 0;
}

int rc_install_state_of(const rc_package *p, rc_install_state *ret, rc_error *error)
{
	places s;
	int rc;

	name_places(p, &s);
	rc = state_of(p, &s, ret, error);
	leave(&s);
	return rc;
}

int rc_install_enable(const rc_package *p, const char *daemon, rc_error *error)
{
	places s;
	rc_install_state was;
	rc_error why;
	int rc = -1;

	if (rc_dialect_find(p->release, &why) == NULL)
		return rc_fail(error, RC_E_UNSUPPORTED, "%s is ray %s, which this version does not know; it supports %s", p->dir, p->release,
		               rc_dialect_releases());
	int ours = rc_is_our_daemon(daemon, error);
	if (ours < 0)
		return -1;
	if (!ours)
		return rc_fail(error, RC_E_INVALID, "%s is not a raylet-c daemon", daemon);
	if (enter(p, &s, error) == 0 && state_of(p, &s, &was, error) == 0) {
		if (copy_file(daemon, s.fresh) != 0)
			cannot_write(s.folder, error);
		else if ((was == RC_INSTALL_STOCK || was == RC_INSTALL_OVERWRITTEN) && keep_original(p, &s) != 0)
			cannot_write(s.folder, error);
		else if (write_marker(p, &s) != 0 || rename(s.fresh, p->raylet) != 0)
			cannot_write(s.folder, error);
		else
			rc = 0;
		if (rc != 0)
			unlink(s.fresh);
	}
	leave(&s);
	return rc;
}

int rc_install_disable(const rc_package *p, rc_install_state *ret_was, rc_error *error)
{
	places s;
	int rc = -1;

	if (enter(p, &s, error) == 0 && state_of(p, &s, ret_was, error) == 0) {
		rc = 0;
		if (*ret_was == RC_INSTALL_NO_STOCK)
			rc = rc_fail(error, RC_E_NOT_FOUND, "%s is gone: reinstall ray %s to get its own daemon back", s.stock, p->release);
		else if (*ret_was == RC_INSTALL_ENABLED && rename(s.stock, p->raylet) != 0)
			rc = cannot_write(s.folder, error);
		else if ((unlink(s.marker) != 0 && errno != ENOENT) || (*ret_was == RC_INSTALL_OVERWRITTEN && unlink(s.stock) != 0 && errno != ENOENT))
			rc = cannot_write(s.folder, error);
	}
	leave(&s);
	return rc;
}
