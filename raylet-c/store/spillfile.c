/* See spillfile.h. */
#define _GNU_SOURCE
#include "raylet-c/store/spillfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "raylet-c/base/id.h"

enum { PIECE = 32 << 20, OWNER_MAX = 1 << 16 };

static bool stopped(const bool *stop)
{
	return stop && __atomic_load_n(stop, __ATOMIC_RELAXED);
}

static void put_u64(uint8_t *to, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_u64(const uint8_t *from)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v |= (uint64_t)from[i] << (8 * i);
	return v;
}

/* ---- writing ---- */

static int write_all(int fd, const char *path, const uint8_t *p, uint64_t n, uint64_t offset, const bool *stop, rc_error *e)
{
	while (n) {
		ssize_t done;

		if (stopped(stop))
			return rc_fail(e, RC_E_CANCELLED, "writing %s was stopped", path);
		done = pwrite(fd, p, n > PIECE ? PIECE : n, (off_t)offset);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return rc_fail_errno(e, "cannot write the spill file %s", path);
		p += done;
		n -= (uint64_t)done;
		offset += (uint64_t)done;
	}
	return 0;
}

static int write_item(int fd, const char *path, const rc_spill_item *item, const bool *stop, rc_error *e)
{
	uint64_t at = item->offset;
	rc_buf head = { 0 };
	int result;

	rc_buf_grow(&head, RC_SPILL_HEADER);
	put_u64(head.p, item->owner.n);
	put_u64(head.p + 8, item->metadata.n);
	put_u64(head.p + 16, item->data.n);
	rc_buf_add(&head, item->owner.p, item->owner.n);
	rc_buf_add(&head, item->metadata.p, item->metadata.n);
	result = write_all(fd, path, head.p, head.n, at, stop, e);
	at += head.n;
	rc_buf_free(&head);
	return result < 0 ? -1 : write_all(fd, path, item->data.p, item->data.n, at, stop, e);
}

int rc_spill_write(const char *path, rc_spill_item *items, size_t n, const bool *stop, size_t *ret_done, rc_error *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	uint64_t offset = 0;
	size_t done = 0;

	*ret_done = 0;
	if (fd < 0)
		return rc_fail_errno(e, "cannot make the spill file %s", path);
	for (; done < n; done++) {
		rc_spill_item *item = &items[done];

		item->offset = offset;
		item->size = RC_SPILL_HEADER + item->owner.n + item->metadata.n + item->data.n;
		if (write_item(fd, path, item, stop, e) < 0)
			break;
		offset += item->size;
	}
	if (done < n && (done == 0 || ftruncate(fd, (off_t)offset) < 0)) {
		done = 0;
		unlink(path);
	}
	if (close(fd) < 0 && done) { /* a network file system may tell of a full disk only now */
		done = 0;
		unlink(path);
		return rc_fail_errno(e, "cannot finish the spill file %s", path);
	}
	*ret_done = done;
	return done == n ? 0 : -1;
}

/* ---- URLs ---- */

int rc_spill_parse_url(const char *url, rc_spill_place *ret, rc_error *e)
{
	const char *query = strrchr(url, '?');
	uint64_t offset, size;
	int end = 0;

	if (!query || query == url || sscanf(query, "?offset=%" SCNu64 "&size=%" SCNu64 "%n", &offset, &size, &end) != 2 || query[end])
		return rc_fail(e, RC_E_INVALID, "the URL %s of a spilled object has not the form <path>?offset=<n>&size=<n>", url);
	if (size < RC_SPILL_HEADER || offset > INT64_MAX || size > INT64_MAX - offset)
		return rc_fail(e, RC_E_INVALID, "the URL %s of a spilled object has an impossible size", url);
	*ret = (rc_spill_place){ rc_strndup(url, (size_t)(query - url)), offset, size };
	return 0;
}

char *rc_spill_url(const char *path, uint64_t offset, uint64_t size)
{
	return rc_sprintf("%s?offset=%" PRIu64 "&size=%" PRIu64, path, offset, size);
}

/* ---- reading ---- */

static int read_all(int fd, const char *path, uint8_t *to, uint64_t n, uint64_t offset, const bool *stop, rc_error *e)
{
	while (n) {
		ssize_t done;

		if (stopped(stop))
			return rc_fail(e, RC_E_CANCELLED, "reading %s was stopped", path);
		done = pread(fd, to, n > PIECE ? PIECE : n, (off_t)offset);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return rc_fail_errno(e, "cannot read the spill file %s", path);
		if (done == 0)
			return rc_fail(e, RC_E_INVALID, "the spill file %s ends at %" PRIu64 ", inside an object", path, offset);
		to += done;
		n -= (uint64_t)done;
		offset += (uint64_t)done;
	}
	return 0;
}

int rc_spill_open(const rc_spill_place *place, rc_spill_header *ret, rc_error *e)
{
	uint8_t bytes[RC_SPILL_HEADER];
	rc_spill_header h;
	uint64_t rest = place->size - RC_SPILL_HEADER;
	int fd = open(place->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return rc_fail_errno(e, "cannot open the spill file %s", place->path);
	if (read_all(fd, place->path, bytes, sizeof bytes, place->offset, NULL, e) < 0)
		goto fail;
	h = (rc_spill_header){ get_u64(bytes), get_u64(bytes + 8), get_u64(bytes + 16) };
	if (h.owner_size > OWNER_MAX || h.owner_size > rest || h.metadata_size > rest - h.owner_size ||
	    h.data_size != rest - h.owner_size - h.metadata_size) {
		rc_fail(e, RC_E_INVALID, "the object at %" PRIu64 " in the spill file %s has lengths %" PRIu64 ", %" PRIu64 ", %" PRIu64
		        " that do not make its size %" PRIu64, place->offset, place->path, h.owner_size, h.metadata_size, h.data_size, place->size);
		goto fail;
	}
	*ret = h;
	return fd;
fail:
	close(fd);
	return -1;
}

int rc_spill_read_owner(int fd, const rc_spill_place *place, const rc_spill_header *h, uint8_t *to, rc_error *e)
{
	return read_all(fd, place->path, to, h->owner_size, place->offset + RC_SPILL_HEADER, NULL, e);
}

int rc_spill_read(int fd, const rc_spill_place *place, const rc_spill_header *h, uint64_t from, uint64_t n, uint8_t *to,
                  const bool *stop, rc_error *e)
{
	uint64_t metadata_at = place->offset + RC_SPILL_HEADER + h->owner_size, data_at = metadata_at + h->metadata_size;
	uint64_t of_data = from >= h->data_size ? 0 : h->data_size - from;

	of_data = of_data > n ? n : of_data;
	if (from > h->data_size + h->metadata_size || n > h->data_size + h->metadata_size - from)
		return rc_fail(e, RC_E_INVALID, "bytes %" PRIu64 "+%" PRIu64 " are outside of the object in the spill file %s", from, n, place->path);
	if (of_data && read_all(fd, place->path, to, of_data, data_at + from, stop, e) < 0)
		return -1;
	if (n == of_data)
		return 0;
	return read_all(fd, place->path, to + of_data, n - of_data, metadata_at + (from + of_data - h->data_size), stop, e);
}

/* ---- names ---- */

char *rc_spill_new_path(const char *dir, size_t n_objects)
{
	rc_id random = rc_id_random(16);

	return rc_sprintf("%s/%s-multi-%zu", dir, rc_id_to_hex(&random).s, n_objects);
}

char *rc_spill_make_dir(const char *base, const char *node_hex, rc_error *e)
{
	char *path = rc_sprintf("%s/ray_spilled_objects_%s", base, node_hex);
	bool failed = false;

	for (char *p = path + 1; !failed; p++) {
		char end = *p;

		if (end != '/' && end != 0)
			continue;
		*p = 0;
		failed = mkdir(path, 0777) < 0 && errno != EEXIST;
		*p = end;
		if (end == 0)
			break;
	}
	if (!failed && access(path, W_OK | X_OK) == 0)
		return path;
	rc_fail_errno(e, "cannot make the folder %s for spilled objects", path);
	free(path);
	return NULL;
}
