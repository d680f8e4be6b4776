/* The file of --labels-file. */
#include "raylet-c/cli/labels_file.h"

#include <stdlib.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"

static int on_label(void *arg, const char *key, const char *value, rc_error *error)
{
	(void)error;
	rc_buf_printf(arg, "%s=%s|", key, value);
	return 0;
}

/* "key=value|..." or, for a text that is refused, the error. */
static const char *parsed(const char *text)
{
	static char got[1000];
	rc_buf labels = { 0 };
	rc_error error;

	if (rc_labels_file_parse(text, on_label, &labels, &error) != 0)
		snprintf(got, sizeof got, "%s", error.text);
	else
		snprintf(got, sizeof got, "%s", rc_buf_cstr(&labels));
	rc_buf_free(&labels);
	return got;
}

static void maps(void)
{
	CHECK_STR("a=b|", parsed("a: b"));
	CHECK_STR("gpu=A100|zone=us-west-2a|ray.io/team=it's|none=|v=1.2.3|n=12|",
	          parsed("# comment\n---\ngpu: A100  \r\nzone:\t\"us-west-2a\" # here\n"
	                 "ray.io/team: 'it''s'\n\nnone: \"\"\nv: 1.2.3\n'n': '12'\n...\n"));
	CHECK_STR("a=b#c|", parsed("a: b#c"));
	CHECK_STR("a=x\"y\\z|", parsed("a: \"x\\\"y\\\\z\""));
	CHECK_STR("url=a:b|", parsed("url: a:b"));
}

static void refused(void)
{
	static const char *const no_strings[] = { "a: 1", "a: 1.5", "a: 0x1f", "a: true", "a: No", "a: null", "a: ~", "a:", "a: 2024-01-01",
		                                  "a: 10:30", "a: [b]", "a: {b: c}", "a: |", "a: *b", "a: b: c" };

	for (size_t i = 0; i < sizeof no_strings / sizeof no_strings[0]; i++) {
		if (strstr(parsed(no_strings[i]), "line 1: The value of \"a\" is not string type") == NULL)
			printf("# %s: %s\n", no_strings[i], parsed(no_strings[i]));
		CHECK(strstr(parsed(no_strings[i]), "line 1: The value of \"a\" is not string type") != NULL);
	}
	CHECK_STR("line 2: indented; labels have one level", parsed("a: b\n  c: d"));
	CHECK(strstr(parsed("x: y\n- a"), "line 2: only lines of the form `key: value`") != NULL);
	CHECK(strstr(parsed("{a: b}"), "only lines") != NULL);
	CHECK(strstr(parsed("a: 'b"), "not one plain or quoted word") != NULL);
	CHECK(strstr(parsed("a: 'b' c"), "not one plain or quoted word") != NULL);
	CHECK(strstr(parsed("1: b"), "The key is not string type") != NULL);
	CHECK_STR("The format after deserialization is not a key-value pair map.", parsed(""));
	CHECK_STR("The format after deserialization is not a key-value pair map.", parsed("# nothing\n"));
}

static void files(void)
{
	char path[] = "/tmp/raylet-c-test-XXXXXX", *text;
	rc_error error;
	int fd = mkstemp(path);

	CHECK(fd >= 0 && write(fd, "a: b\n", 5) == 5);
	text = rc_labels_file_read(path, &error);
	CHECK_STR("a: b\n", text);
	free(text);
	CHECK_EQ_INT(0, ftruncate(fd, RC_LABELS_FILE_MOST + 1));
	CHECK(rc_labels_file_read(path, &error) == NULL && strstr(error.text, path) != NULL);
	close(fd);
	unlink(path);
	CHECK(rc_labels_file_read(path, &error) == NULL && strstr(error.text, "No such file") != NULL);
}

int main(void)
{
	RUN(maps, "labels are read from lines of key and value, plain and in quotes");
	RUN(refused, "what YAML would not read as a map of strings is refused with its line");
	RUN(files, "a file that is too long, binary or missing is named");
	return test_end();
}
