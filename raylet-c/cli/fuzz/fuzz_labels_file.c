/* Any text as a labels file: no label has a line end in it, and reading the labels that came out again gives the same ones. */
#include "raylet-c/cli/labels_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes a label with both parts in quotes. */
static int on_label(void *arg, const char *key, const char *value, rc_error *error)
{
	const char *const parts[] = { key, ": ", value, "\n" };

	(void)error;
	if (strchr(key, '\n') != NULL || strchr(value, '\n') != NULL)
		abort();
	for (size_t i = 0; i < 4; i++) {
		if (i % 2 == 1) {
			rc_buf_str(arg, parts[i]);
			continue;
		}
		rc_buf_str(arg, "'");
		for (const char *p = parts[i]; *p != '\0'; p++) {
			rc_buf_add(arg, p, 1);
			if (*p == '\'')
				rc_buf_add(arg, p, 1);
		}
		rc_buf_str(arg, "'");
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = rc_strndup(data, strnlen((const char *)data, size));
	rc_buf once = { 0 }, twice = { 0 };
	rc_error error;

	if (rc_labels_file_parse(text, on_label, &once, &error) == 0) {
		if (rc_labels_file_parse(rc_buf_cstr(&once), on_label, &twice, &error) != 0 || once.n != twice.n || memcmp(once.p, twice.p, once.n) != 0)
			abort();
	} else if (error.text[0] == '\0') {
		abort();
	}
	rc_buf_free(&once);
	rc_buf_free(&twice);
	free(text);
	return 0;
}
