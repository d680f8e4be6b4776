/* Spill files in the format of Ray's external storage (2.35.0 and 2.60.0, python: _private/external_storage.py), so that an
 * IO worker of Ray can read ours and we can read its files. Objects lie one after the other; each is
 *   8 bytes length of the owner's address, 8 bytes length of the metadata, 8 bytes length of the data (little endian),
 *   the address (a serialized ray.rpc.Address), the metadata, the data.
 * A file is <dir>/ray_spilled_objects_<node id>/<32 hex digits>-multi-<number of objects>; an object's URL is
 * "<path>?offset=<n>&size=<n>", size counting the header.
 *
 * No state: any thread. Texts of errors name the file. */
#ifndef RC_STORE_SPILLFILE_H
#define RC_STORE_SPILLFILE_H

#include "raylet-c/base/buf.h"
#include "raylet-c/base/status.h"

enum { RC_SPILL_HEADER = 24 };

typedef struct rc_spill_item {
	rc_view owner, metadata, data;
	uint64_t offset, size; /* set by rc_spill_write */
} rc_spill_item;

/* Writes a new file; *ret_done objects are complete in it. -1: not all; then the file was cut behind these, or is gone when
 * there are none. *stop set by another thread ends it early. */
int rc_spill_write(const char *path, rc_spill_item *items, size_t n, const bool *stop, size_t *ret_done, rc_error *e) RC_WARN_UNUSED;

typedef struct rc_spill_place {
	char *path; /* free() */
	uint64_t offset, size;
} rc_spill_place;

int rc_spill_parse_url(const char *url, rc_spill_place *ret, rc_error *e) RC_WARN_UNUSED;
char *rc_spill_url(const char *path, uint64_t offset, uint64_t size);

typedef struct rc_spill_header {
	uint64_t owner_size, metadata_size, data_size;
} rc_spill_header;

/* Opens the file and reads the header at the place; checks that the lengths add up to the place's size. Returns a descriptor. */
int rc_spill_open(const rc_spill_place *place, rc_spill_header *ret, rc_error *e) RC_WARN_UNUSED;
int rc_spill_read_owner(int fd, const rc_spill_place *place, const rc_spill_header *h, uint8_t *to, rc_error *e) RC_WARN_UNUSED;
/* Bytes from..from+n of (data, metadata). */
int rc_spill_read(int fd, const rc_spill_place *place, const rc_spill_header *h, uint64_t from, uint64_t n, uint8_t *to,
                  const bool *stop, rc_error *e) RC_WARN_UNUSED;

char *rc_spill_new_path(const char *dir, size_t n_objects);
/* Makes base/ray_spilled_objects_<node hex> with its parents; returns its path, NULL on failure. */
char *rc_spill_make_dir(const char *base, const char *node_hex, rc_error *e);

#endif
