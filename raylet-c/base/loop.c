/* The event loop over libuv, the only file that includes it. Every uv handle but the wake-up is the first member of its own
 * allocation, freed in its close callback; that is what makes stopping a handle inside its own callback safe.
 *
 * Traps: uv_poll reports POLLERR (a unix-socket peer that died with unread data) as a status and stops the watch by itself;
 * the owner still has data to read then, so the watch is started again. uv timers count from the loop's cached time, which
 * is old after a long callback: it is refreshed before each start. */
#include "raylet-c/base/loop.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uv.h>

#include "raylet-c/base/buf.h"

typedef struct task {
	rc_task_fn fn;
	void *arg;
} task;

typedef struct task_list {
	task *tasks;
	size_t n, cap;
} task_list;

enum { KEEP_TASKS = 4096 }; /* a longer list is given back after its burst */

struct rc_loop {
	uv_loop_t uv;
	uv_async_t wake;
	pthread_mutex_t lock; /* guards posted */
	task_list posted, running;
	bool ending;
};

struct rc_timer {
	uv_timer_t uv;
	rc_task_fn fn;
	void *arg;
	bool once; /* rc_loop_after: nobody holds it, it closes itself */
};

struct rc_watch {
	uv_poll_t uv;
	rc_watch_fn fn;
	void *arg;
	int events;
	bool stopped;
};

typedef struct signal_watch {
	uv_signal_t uv;
	rc_signal_fn fn;
	void *arg;
} signal_watch;

typedef struct work_item {
	uv_work_t uv;
	rc_loop *loop;
	rc_task_fn work, done;
	void *arg;
} work_item;

static void must(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "event loop: %s failed: %s\n", what, uv_strerror(status));
	abort();
}

static void free_handle(uv_handle_t *handle)
{
	free(handle);
}

static void *handle_of(void *handle) /* the structs here begin with their handle */
{
	return handle;
}

static void close_handle(void *handle)
{
	uv_close(handle_of(handle), free_handle);
}

/* ---- posts ---- */

static void run_posted(rc_loop *loop)
{
	task_list list;

	pthread_mutex_lock(&loop->lock);
	list = loop->posted;
	loop->posted = loop->running; /* empty, its memory is used again */
	pthread_mutex_unlock(&loop->lock);
	loop->running = (task_list){ 0 };
	for (size_t i = 0; i < list.n; i++)
		list.tasks[i].fn(list.tasks[i].arg);
	list.n = 0;
	if (list.cap > KEEP_TASKS) {
		free(list.tasks);
		list = (task_list){ 0 };
	}
	loop->running = list;
}

static void on_wake(uv_async_t *wake)
{
	run_posted(wake->data);
}

void rc_loop_post(rc_loop *loop, rc_task_fn fn, void *arg)
{
	task_list *list = &loop->posted;
	bool first;

	pthread_mutex_lock(&loop->lock);
	if (list->n == list->cap) {
		list->cap = list->cap ? list->cap * 2 : 64;
		list->tasks = rc_realloc(list->tasks, list->cap * sizeof(task));
	}
	first = list->n == 0;
	list->tasks[list->n++] = (task){ fn, arg };
	pthread_mutex_unlock(&loop->lock);
	if (first)
		must(uv_async_send(&loop->wake), "wake-up");
}

/* ---- loop ---- */

rc_loop *rc_loop_create(void)
{
	rc_loop *loop = rc_alloc(sizeof *loop);

	must(uv_loop_init(&loop->uv), "creation");
	must(uv_async_init(&loop->uv, &loop->wake, on_wake), "creation of the wake-up");
	loop->wake.data = loop;
	pthread_mutex_init(&loop->lock, NULL);
	return loop;
}

static void close_any(uv_handle_t *handle, void *arg)
{
	rc_loop *loop = arg;

	if (handle == handle_of(&loop->wake))
		uv_close(handle, NULL);
	else if (!uv_is_closing(handle))
		close_handle(handle);
}

void rc_loop_destroy(rc_loop *loop)
{
	if (!loop)
		return;
	while (loop->posted.n) /* so that nothing handed over is lost: they free what they carry */
		run_posted(loop);
	loop->ending = true;
	uv_walk(&loop->uv, close_any, loop);
	while (uv_run(&loop->uv, UV_RUN_DEFAULT) != 0)
		;
	must(uv_loop_close(&loop->uv), "closing");
	pthread_mutex_destroy(&loop->lock);
	free(loop->posted.tasks);
	free(loop->running.tasks);
	free(loop);
}

void rc_loop_run(rc_loop *loop)
{
	uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void rc_loop_stop(rc_loop *loop)
{
	uv_stop(&loop->uv);
}

static uint64_t clock_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t rc_now_ms(void)
{
	return clock_ms(CLOCK_MONOTONIC);
}

uint64_t rc_wall_ms(void)
{
	return clock_ms(CLOCK_REALTIME);
}

/* ---- pool ---- */

static void do_work(uv_work_t *uv)
{
	work_item *item = handle_of(uv);

	item->work(item->arg);
}

static void work_done(uv_work_t *uv, int status)
{
	work_item *item = handle_of(uv);

	(void)status; /* never cancelled */
	if (item->done && !item->loop->ending)
		item->done(item->arg);
	free(item);
}

void rc_loop_work(rc_loop *loop, rc_task_fn work, rc_task_fn done, void *arg)
{
	work_item *item = rc_alloc(sizeof *item);

	*item = (work_item){ .loop = loop, .work = work, .done = done, .arg = arg };
	must(uv_queue_work(&loop->uv, &item->uv, do_work, work_done), "handing work to the pool");
}

/* ---- timers ---- */

static void on_timer(uv_timer_t *uv)
{
	rc_timer *timer = handle_of(uv);

	if (timer->once)
		close_handle(timer); /* the memory stays until the loop's closing phase */
	timer->fn(timer->arg);
}

static rc_timer *new_timer(rc_loop *loop, uint64_t delay_ms, uint64_t repeat_ms, rc_task_fn fn, void *arg, bool once)
{
	rc_timer *timer = rc_alloc(sizeof *timer);

	must(uv_timer_init(&loop->uv, &timer->uv), "timer");
	timer->fn = fn;
	timer->arg = arg;
	timer->once = once;
	uv_update_time(&loop->uv);
	must(uv_timer_start(&timer->uv, on_timer, delay_ms, repeat_ms), "timer start");
	return timer;
}

void rc_loop_after(rc_loop *loop, uint64_t delay_ms, rc_task_fn fn, void *arg)
{
	new_timer(loop, delay_ms, 0, fn, arg, true);
}

rc_timer *rc_timer_start(rc_loop *loop, uint64_t delay_ms, uint64_t repeat_ms, rc_task_fn fn, void *arg)
{
	return new_timer(loop, delay_ms, repeat_ms, fn, arg, false);
}

void rc_timer_again(rc_timer *timer, uint64_t delay_ms)
{
	uv_update_time(timer->uv.loop);
	must(uv_timer_start(&timer->uv, on_timer, delay_ms, uv_timer_get_repeat(&timer->uv)), "timer restart");
}

void rc_timer_stop(rc_timer *timer)
{
	if (timer)
		close_handle(timer);
}

/* ---- descriptors ---- */

static void on_poll(uv_poll_t *uv, int status, int events);

static void poll_start(rc_watch *watch)
{
	int events = (watch->events & RC_READABLE ? UV_READABLE : 0) | (watch->events & RC_WRITABLE ? UV_WRITABLE : 0);

	must(events ? uv_poll_start(&watch->uv, events, on_poll) : uv_poll_stop(&watch->uv), "descriptor watch");
}

static void on_poll(uv_poll_t *uv, int status, int events)
{
	rc_watch *watch = handle_of(uv);

	if (status < 0) {
		watch->fn(watch->arg, watch->events);
		if (!watch->stopped)
			poll_start(watch);
		return;
	}
	watch->fn(watch->arg, (events & UV_READABLE ? RC_READABLE : 0) | (events & UV_WRITABLE ? RC_WRITABLE : 0));
}

rc_watch *rc_watch_start(rc_loop *loop, int fd, int events, rc_watch_fn fn, void *arg)
{
	rc_watch *watch = rc_alloc(sizeof *watch);

	must(uv_poll_init(&loop->uv, &watch->uv, fd), "descriptor watch");
	watch->fn = fn;
	watch->arg = arg;
	watch->events = events;
	poll_start(watch);
	return watch;
}

void rc_watch_events(rc_watch *watch, int events)
{
	if (watch->events == events)
		return;
	watch->events = events;
	poll_start(watch);
}

void rc_watch_stop(rc_watch *watch)
{
	if (!watch)
		return;
	watch->stopped = true;
	uv_poll_stop(&watch->uv); /* cannot fail for a handle that is open */
	close_handle(watch);
}

/* ---- signals ---- */

static void on_signal(uv_signal_t *uv, int signum)
{
	signal_watch *watch = handle_of(uv);

	watch->fn(watch->arg, signum);
}

void rc_signal_start(rc_loop *loop, int signum, rc_signal_fn fn, void *arg)
{
	signal_watch *watch = rc_alloc(sizeof *watch);

	must(uv_signal_init(&loop->uv, &watch->uv), "signal watch");
	watch->fn = fn;
	watch->arg = arg;
	must(uv_signal_start(&watch->uv, on_signal, signum), "signal watch");
}
