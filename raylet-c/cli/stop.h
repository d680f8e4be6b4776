/* `raylet-c stop`: ends the nodes that `raylet-c start` started on this host as this user, and nothing else (--all: also
 * those of `ray start`, this user's). `ray stop` ends all that looks like Ray, other users' too when it may. */
#ifndef RC_CLI_STOP_H
#define RC_CLI_STOP_H

/* The words after "stop". 0: none is left (or there was none); 1: could not look or end them; 2: wrong words. */
int rc_stop_command(int argc, char **argv);

#endif
