/* `raylet-c start`: a worker node on our daemon without `ray start`. Asks the head who it is, checks that release and Python
 * are the head's, makes the session's folders, starts the daemon with the command line of that release's `ray start`, waits
 * until the head lists the node as ALIVE, and starts the log monitor. */
#ifndef RC_CLI_START_H
#define RC_CLI_START_H

/* The words after "start". The exit status: 0 started (with --block: the node has left in good order), 1 failed, 2 wrong words.
 * On failure nothing stays behind but the session's folders. */
int rc_start_command(int argc, char **argv);

#endif
