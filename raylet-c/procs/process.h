/* Child processes of the node: start, watch, signal, and make sure that nothing of them stays behind.
 *
 * Lineage mark: every child gets a soft RLIMIT_RTTIME of 2^62 + a number unique to this daemon and child. The limit only
 * concerns real-time scheduling, is never reached, and is inherited through fork and exec, whatever the descendant does with
 * its session, group, environment or parent. So descendants of a child are found by prlimit(), also orphans that the daemon
 * adopted (it is a child subreaper), and also by the guardian after the daemon was killed.
 *
 * Death of a child: SIGCHLD, waitid; then all processes with its mark are killed, and only when none is left (or after 2 s:
 * a process stuck in a driver) `exited` is called. So when a worker is reported dead its GPU memory is free.
 *
 * Guardian: a small process forked before anything else, without exec, in a session of its own; it holds the read end of a
 * pipe, and at its end (the daemon ended, however) kills what bears a mark of this daemon. Titled "rc-guard".
 *
 * Loop thread only, and that must be the main thread: the death signal of a child comes when the *thread* that forked it
 * ends. Nothing else in the daemon may fork or wait: SIGCHLD handling here reaps every child. Linux 5.4 or newer (pidfd). */
#ifndef RC_PROCS_PROCESS_H
#define RC_PROCS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "raylet-c/base/loop.h"

typedef struct rc_procs rc_procs;
typedef struct rc_process rc_process;

/* First thing in main(), before threads and large allocations. argv is overwritten in the guardian only. -1: no guardian. */
int rc_guardian_start(int argc, char **argv, rc_error *error);

rc_procs *rc_procs_create(rc_loop *loop, rc_error *error); /* also makes the process a child subreaper */
/* Kills every child and all descendants, waits at most wait_ms for their end, and frees everything; no callbacks come. */
void rc_procs_destroy(rc_procs *procs, unsigned wait_ms);
/* SIGTERM to every child, before destroy. From then on rc_procs_ending is true: nothing is started again. */
void rc_procs_terminate_all(rc_procs *procs);
bool rc_procs_ending(const rc_procs *procs);

/* Called once, on the loop; p is gone after it. status: as of waitpid. */
typedef void (*rc_exited_fn)(void *arg, rc_process *p, int status);

typedef struct rc_spawn {
	const char *name;         /* for the log: "worker", "dashboard agent" */
	const char *const *argv;  /* NULL at the end; argv[0] is looked up in the PATH of env */
	const char *const *env;   /* whole environment, NULL at the end */
	const char *cwd;          /* NULL: the daemon's */
	const char *stdout_path, *stderr_path; /* appended to, made when missing; NULL: the daemon's own */
	bool own_group;           /* setpgid(0, 0) */
	bool stdin_pipe;          /* stdin is a pipe whose other end the daemon holds until the child's end; else /dev/null */
	int nice;                 /* added; 0: none */
	bool set_oom_score;
	int oom_score_adj;
	const int *keep_fds;      /* descriptors of ours that become 3, 4, ... in the child */
	int n_keep_fds;           /* at most 4 */
} rc_spawn;

/* Signals reset, mask empty, descriptors above 2 closed, death signal SIGKILL. An exec that fails is an error here. */
rc_process *rc_process_spawn(rc_procs *procs, const rc_spawn *spawn, rc_exited_fn fn, void *arg, rc_error *error);
/* The number whose mark the next process of this kind gets, for a child that somebody else forks for us (prefork): the
 * child must set RLIMIT_RTTIME soft to it, then rc_process_adopt takes the process in. fn may come at once if it died. */
uint64_t rc_process_new_mark(rc_procs *procs);
rc_process *rc_process_adopt(rc_procs *procs, pid_t pid, uint64_t mark, bool own_group, const char *name, rc_exited_fn fn, void *arg);

pid_t rc_process_pid(const rc_process *p);
uint64_t rc_process_age_ms(const rc_process *p);
/* signum to the process, or to its group when it has its own. */
void rc_process_signal(rc_process *p, int signum);
/* SIGKILL to it (and its group); all its descendants are killed as soon as it is reaped, before its end is told. */
void rc_process_kill(rc_process *p);
/* SIGTERM, then rc_process_kill when it lives after grace_ms. */
void rc_process_stop(rc_process *p, unsigned grace_ms);
/* Another callback from now on; fn NULL: forget it, it is still reaped. */
void rc_process_set_exited(rc_process *p, rc_exited_fn fn, void *arg);
/* "exit status 7", "signal 9 (Killed)"; text has room for 80 bytes. */
const char *rc_exit_text(int status, char *text);

#endif
