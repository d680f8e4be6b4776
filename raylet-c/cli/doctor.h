/* The words of `raylet-c doctor`, and what only this folder knows of: the ray package and the address towards others. */
#ifndef RC_CLI_DOCTOR_H
#define RC_CLI_DOCTOR_H

int rc_doctor_command(int argc, char *const *argv); /* the words after `doctor`; the exit status */

#endif
