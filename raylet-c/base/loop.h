/* The event loop of the daemon (libuv behind this header, included in loop.c only). One thread runs it and owns all daemon
 * state; everything here is for that thread unless it says "any thread". All callbacks run on the loop thread. */
#ifndef RC_BASE_LOOP_H
#define RC_BASE_LOOP_H

#include <stdint.h>

#include "raylet-c/base/status.h"

typedef struct rc_loop rc_loop;
typedef void (*rc_task_fn)(void *arg);

rc_loop *rc_loop_create(void);
/* After rc_loop_run has returned. What was posted still runs; timers and watches that are left are freed, pool work that is
 * under way is waited for, its done does not run. NULL is fine. */
void rc_loop_destroy(rc_loop *loop);
void rc_loop_run(rc_loop *loop);     /* until rc_loop_stop */
void rc_loop_stop(rc_loop *loop);
uint64_t rc_now_ms(void);      /* monotonic; any thread */
uint64_t rc_wall_ms(void);     /* since 1970; any thread */

/* Any thread: runs fn(arg) on the loop thread, in the order of the posts; bursts are coalesced into one wake-up. */
void rc_loop_post(rc_loop *loop, rc_task_fn fn, void *arg);
/* Slow work (hashing, disk): work(arg) on a pool thread, then done(arg) on the loop thread. */
void rc_loop_work(rc_loop *loop, rc_task_fn work, rc_task_fn done, void *arg);
/* Once, after delay_ms; cannot be taken back. */
void rc_loop_after(rc_loop *loop, uint64_t delay_ms, rc_task_fn fn, void *arg);

/* A timer lives until rc_timer_stop, also a one-shot one (repeat_ms = 0) that has fired. Stopping inside its own callback
 * is fine; NULL is fine. rc_timer_again restarts it with a new delay. */
typedef struct rc_timer rc_timer;
rc_timer *rc_timer_start(rc_loop *loop, uint64_t delay_ms, uint64_t repeat_ms, rc_task_fn fn, void *arg);
void rc_timer_again(rc_timer *timer, uint64_t delay_ms);
void rc_timer_stop(rc_timer *timer);

/* File descriptor watch; does not own the descriptor. After rc_watch_stop no callback comes and the descriptor may be
 * closed at once. */
enum { RC_READABLE = 1, RC_WRITABLE = 2 };
typedef struct rc_watch rc_watch;
typedef void (*rc_watch_fn)(void *arg, int events);
rc_watch *rc_watch_start(rc_loop *loop, int fd, int events, rc_watch_fn fn, void *arg);
void rc_watch_events(rc_watch *watch, int events);
void rc_watch_stop(rc_watch *watch);

/* Signals, delivered on the loop. Never stopped. */
typedef void (*rc_signal_fn)(void *arg, int signum);
void rc_signal_start(rc_loop *loop, int signum, rc_signal_fn fn, void *arg);

#endif
