/* `raylet-c info`: the nodes of this host (this user's), as the head has them. */
#ifndef RC_CLI_INFO_H
#define RC_CLI_INFO_H

/* The words after "info". 0: there are nodes and all are ALIVE; 1: there is none, or one is not, or its head does not answer; 2: wrong
 * words. */
int rc_info_command(int argc, char **argv);

#endif
