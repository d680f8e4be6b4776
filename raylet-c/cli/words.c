/* Words of a command line; see words.h. */
#include "raylet-c/cli/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const rc_word *find(const rc_word *words, const char *text, size_t n)
{
	for (; words->name != NULL; words++)
		if (strlen(words->name) == n && strncmp(words->name, text, n) == 0)
			return words;
	return NULL;
}

int rc_words_read(const rc_word *words, int argc, char *const *argv, rc_error *error)
{
	for (int i = 0; i < argc; i++) {
		size_t n = strcspn(argv[i], "=");
		const rc_word *word = find(words, argv[i], n);

		if (word == NULL)
			return rc_fail(error, RC_E_NOT_FOUND, "No such option: %.*s", (int)n, argv[i]);
		if (word->is_there != NULL) {
			if (argv[i][n] == '=')
				return rc_fail(error, RC_E_INVALID, "%s takes no value", word->name);
			*word->is_there = true;
		} else if (argv[i][n] == '=') {
			*word->value = argv[i] + n + 1;
		} else if (i + 1 < argc) {
			*word->value = argv[++i];
		} else {
			return rc_fail(error, RC_E_INVALID, "%s needs a value", word->name);
		}
	}
	return 0;
}

int rc_word_number(const char *name, const char *text, int64_t least, int64_t most, int64_t *ret, rc_error *error)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || n < least || n > most)
		return rc_fail(error, RC_E_INVALID, "%s=%s is not a whole number from %lld to %lld", name, text, (long long)least, (long long)most);
	*ret = n;
	return 0;
}
