/* A flat YAML map of strings; see labels_file.h. */
#include "raylet-c/cli/labels_file.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "raylet-c/base/buf.h"

static size_t skip_blanks(const char *s, size_t n, size_t i)
{
	while (i < n && (s[i] == ' ' || s[i] == '\t'))
		i++;
	return i;
}

/* Rest of a line that means nothing: blanks, then a comment perhaps. */
static bool is_rest(const char *s, size_t n, size_t i)
{
	i = skip_blanks(s, n, i);
	return i == n || s[i] == '#';
}

/* A scalar in quotes at s[*i]; moves *i behind it. NULL: not closed, or an escape that is not read here. */
static char *quoted(const char *s, size_t n, size_t *i)
{
	char quote = s[*i];
	rc_buf out = { 0 };

	for (size_t k = *i + 1; k < n; k++) {
		if (s[k] == quote && quote == '\'' && k + 1 < n && s[k + 1] == quote) {
			k++; /* '' is one ' */
		} else if (s[k] == quote) {
			char *text = rc_strdup(rc_buf_cstr(&out));

			rc_buf_free(&out);
			*i = k + 1;
			return text;
		} else if (s[k] == '\\' && quote == '"') {
			if (k + 1 >= n || (s[k + 1] != '"' && s[k + 1] != '\\'))
				break;
			k++;
		}
		rc_buf_add(&out, &s[k], 1);
	}
	rc_buf_free(&out);
	return NULL;
}

/* A plain scalar from s[*i]: to ": " or the end (a key: stop_at_colon), or to " #". */
static char *plain(const char *s, size_t n, size_t *i, bool stop_at_colon)
{
	size_t k = *i, end;

	for (; k < n; k++) {
		if (s[k] == '#' && k > 0 && (s[k - 1] == ' ' || s[k - 1] == '\t'))
			break;
		if (stop_at_colon && s[k] == ':' && (k + 1 == n || s[k + 1] == ' ' || s[k + 1] == '\t'))
			break;
	}
	end = k;
	while (end > *i && (s[end - 1] == ' ' || s[end - 1] == '\t'))
		end--;
	char *text = rc_strndup(s + *i, end - *i);
	*i = k;
	return text;
}

/* Would YAML make something else than a string of this plain scalar? */
static bool is_no_string(const char *s)
{
	static const char *const words[] = { "true", "false", "yes", "no", "on", "off", "null", "~", ".inf", ".nan", "=", "<<" };
	char *end;

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strcasecmp(s, words[i]) == 0)
			return true;
	if (*s == '\0' || strchr("-+.0123456789", *s) == NULL)
		return *s == '\0';
	strtod(s, &end); /* numbers, hexadecimal ones too; dates, 10:30 and 1_000 are digits and -_: only; 1.2.3 is a string */
	return *end == '\0' || (s[strspn(s, "0123456789-_:.")] == '\0' && strchr(s, '.') == strrchr(s, '.'));
}

static int parse_line(const char *s, size_t n, size_t line, rc_label_fn fn, void *arg, rc_error *error)
{
	size_t i = 0;
	bool key_quoted = *s == '"' || *s == '\'', value_quoted;
	char *key = key_quoted ? quoted(s, n, &i) : plain(s, n, &i, true), *value = NULL;
	int rc;

	if (key == NULL || i >= n || s[i] != ':' || (!key_quoted && (strchr("-?[]{},&*!|>%@`", key[0]) != NULL))) {
		free(key);
		return rc_fail(error, RC_E_INVALID, "line %zu: only lines of the form `key: value` are read", line);
	}
	i = skip_blanks(s, n, i + 1);
	value_quoted = i < n && (s[i] == '"' || s[i] == '\'');
	value = value_quoted ? quoted(s, n, &i) : plain(s, n, &i, false);
	if (value == NULL || !is_rest(s, n, i))
		rc = rc_fail(error, RC_E_INVALID, "line %zu: the value of \"%s\" is not one plain or quoted word", line, key);
	else if (!value_quoted && (is_no_string(value) || strchr("[{&*!|>%@`", value[0]) != NULL || strstr(value, ": ") != NULL))
		rc = rc_fail(error, RC_E_INVALID, "line %zu: The value of \"%s\" is not string type: write it in quotes", line, key);
	else if (!key_quoted && is_no_string(key))
		rc = rc_fail(error, RC_E_INVALID, "line %zu: The key is not string type: write \"%s\" in quotes", line, key);
	else
		rc = fn(arg, key, value, error);
	free(key);
	free(value);
	return rc;
}

int rc_labels_file_parse(const char *text, rc_label_fn fn, void *arg, rc_error *error)
{
	size_t line = 0, labels = 0;

	while (*text != '\0') {
		size_t n = strcspn(text, "\n"), length = n;

		line++;
		while (length > 0 && isspace((unsigned char)text[length - 1]))
			length--;
		bool mark = (length == 3) && (strncmp(text, "---", 3) == 0 || strncmp(text, "...", 3) == 0);
		if (!is_rest(text, length, 0) && !mark) {
			if (*text == ' ' || *text == '\t')
				return rc_fail(error, RC_E_INVALID, "line %zu: indented; labels have one level", line);
			if (parse_line(text, length, line, fn, arg, error) != 0)
				return -1;
			labels++;
		}
		text += n + (text[n] == '\n');
	}
	return labels > 0 ? 0 : rc_fail(error, RC_E_INVALID, "The format after deserialization is not a key-value pair map.");
}

char *rc_labels_file_read(const char *path, rc_error *error)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t n;

	if (f == NULL) {
		rc_fail_errno(error, "--labels-file=%s", path);
		return NULL;
	}
	text = rc_alloc(RC_LABELS_FILE_MOST + 1);
	n = fread(text, 1, RC_LABELS_FILE_MOST + 1, f);
	if (ferror(f) || n > RC_LABELS_FILE_MOST || memchr(text, '\0', n) != NULL) {
		rc_fail(error, RC_E_INVALID, "--labels-file=%s is not a text of at most %d bytes", path, RC_LABELS_FILE_MOST);
		free(text);
		text = NULL;
	} else {
		text[n] = '\0';
	}
	fclose(f);
	return text;
}
