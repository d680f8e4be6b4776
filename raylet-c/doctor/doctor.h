/* `raylet-c doctor`: the preflight of a training node. Needs no Python, no root, and nothing of what it looks for. From a
 * process with one thread: it forks to ask libraries (probe.h). */
#ifndef RC_DOCTOR_DOCTOR_H
#define RC_DOCTOR_DOCTOR_H

#include "raylet-c/doctor/lines.h"

typedef struct rc_doctor_options {
	bool json, help, require_efa;
	bool pair;
	const char *pair_host;  /* "HOST" or "HOST:PORT"; NULL with pair: both ends here */
	const char *pair_listen; /* the other end of a pair: "IP:PORT" or "PORT" */
	const char *address;    /* --node-ip-address; NULL: found out */
	const char *ray_dir;    /* --ray-dir */
	const char *root;       /* RC_DOCTOR_ROOT: a folder that describes a machine; "": this one */
} rc_doctor_options;

extern const char rc_doctor_help[];

/* argv: the words after `doctor`. The error names the word. */
int rc_doctor_options_parse(int argc, char *const *argv, rc_doctor_options *ret, rc_error *error) RC_WARN_UNUSED;

/* Writes the report to out, as lines or as JSON. */
void rc_doctor_print(const rc_lines *lines, const rc_choice *choice, const rc_choice_env *env, rc_buf *out);
void rc_doctor_json(const rc_lines *lines, const rc_facts *facts, const rc_choice *choice, const rc_choice_env *env, rc_buf *out);

#endif
