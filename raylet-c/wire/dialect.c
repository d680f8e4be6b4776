/* The look-ups of dialect.h in the generated tables. Packing is in pack.c, unpacking in unpack.c. */
#include "raylet-c/wire/codec.h"

#include <string.h>

static const rc_dialect *const dialects[] = {
#define X(release) &rc__dialect_##release,
	RC__RELEASES(X)
#undef X
};

const rc_dialect *rc_dialect_find(const char *release, rc_error *error)
{
	for (size_t i = 0; release && i < sizeof dialects / sizeof *dialects; i++)
		if (strcmp(dialects[i]->release, release) == 0)
			return dialects[i];
	rc_fail(error, RC_E_UNSUPPORTED, "Ray %s is not supported; supported are %s", release && *release ? release : "(no release named)",
	        rc_dialect_releases());
	return NULL;
}

const char *rc_dialect_release(const rc_dialect *d)
{
	return d->release;
}

const char *rc_dialect_releases(void)
{
	return RC__RELEASES_TEXT;
}

const char *rc_method_path(const rc_dialect *d, rc_method m)
{
	return (unsigned)m < RC_M_COUNT ? d->methods[m].path : NULL;
}

int rc_method_find(const rc_dialect *d, const char *path, size_t n)
{
	for (int m = 0; m < RC_M_COUNT; m++)
		if (d->methods[m].path && d->methods[m].n == n && memcmp(d->methods[m].path, path, n) == 0)
			return m;
	return -1;
}

int rc_enum_value(const rc_dialect *d, rc_enum e)
{
	return (unsigned)e < RC_V_COUNT ? d->enums[e] : -1;
}

const rc__message *rc__find_message(const rc_dialect *d, const ProtobufCMessageDescriptor *descriptor)
{
	for (size_t i = 0; i < d->n_messages; i++)
		if (d->messages[i].descriptor == descriptor)
			return d->messages[i].known ? &d->messages[i] : NULL;
	return NULL;
}

bool rc_has_field(const rc_dialect *d, const ProtobufCMessageDescriptor *message, const char *field)
{
	const rc__message *m = rc__find_message(d, message);

	for (size_t i = 0; m && i < m->n_fields; i++)
		if (strcmp(message->fields[m->fields[i].index].name, field) == 0)
			return true;
	return false;
}
