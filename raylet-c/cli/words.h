/* The words of a small subcommand: switches, and options with a value in both spellings, "--name VALUE" and "--name=VALUE". Pure;
 * any thread. */
#ifndef RC_CLI_WORDS_H
#define RC_CLI_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "raylet-c/base/status.h"

typedef struct rc_word {
	const char *name;    /* with its dashes */
	const char **value;  /* where the value goes (into argv), or */
	bool *is_there;      /* a switch */
} rc_word;

/* words ends with a NULL name. The error names the word: unknown, without a value, or a switch with one. */
int rc_words_read(const rc_word *words, int argc, char *const *argv, rc_error *error) RC_WARN_UNUSED;
int rc_word_number(const char *name, const char *text, int64_t least, int64_t most, int64_t *ret, rc_error *error) RC_WARN_UNUSED;

#endif
