/* `raylet-c top`: this user's nodes on this host, live. Main thread of the command. */
#ifndef RC_CLI_TOP_H
#define RC_CLI_TOP_H

/* argv: the words behind `top`. The exit status: 0 left by q or a signal, or --once with a node; 1: it cannot be done, one line on
 * stderr, or --once without a node; 2: wrong words. */
int rc_top_command(int argc, char **argv);

#endif
