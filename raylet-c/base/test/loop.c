/* The event loop: posts, timers, descriptors, pool. */
#include "raylet-c/base/loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static rc_loop *loop;
static int count, order_broken;

static void stop(void *arg)
{
	(void)arg;
	rc_loop_stop(loop);
}

enum { POSTS = 20000 };
static int last[4];

static void check_order(void *arg)
{
	int thread = (int)((long)arg >> 24), n = (int)((long)arg & 0xffffff);

	order_broken += n != last[thread] + 1;
	last[thread] = n;
	if (++count == 4 * POSTS)
		rc_loop_stop(loop);
}

static void *poster(void *arg)
{
	for (long i = 1; i <= POSTS; i++)
		rc_loop_post(loop, check_order, (void *)(((long)arg << 24) | i));
	return NULL;
}

static void posts(void)
{
	pthread_t threads[4];

	loop = rc_loop_create();
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, poster, (void *)i);
	rc_loop_run(loop);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ_INT(0, order_broken);
	CHECK_EQ_INT(4 * POSTS, count);
	rc_loop_destroy(loop);
}

static void post_more(void *arg)
{
	int *left = arg;

	if (--*left > 0)
		rc_loop_post(loop, post_more, arg);
	else
		rc_loop_stop(loop);
}

static void posts_from_posts(void)
{
	int left = 1000, tail = 3;

	loop = rc_loop_create();
	rc_loop_post(loop, post_more, &left);
	rc_loop_run(loop);
	CHECK_EQ_INT(0, left);
	rc_loop_post(loop, post_more, &tail);
	rc_loop_destroy(loop);
	CHECK_EQ_INT(0, tail);
}

static rc_timer *repeating, *once;
static int ticks, shots;

static void tick(void *arg)
{
	(void)arg;
	if (++ticks == 3) {
		rc_timer_stop(repeating);
		rc_timer_again(once, 1);
	}
}

static void shot(void *arg)
{
	(void)arg;
	if (++shots == 2)
		rc_loop_after(loop, 1, stop, NULL);
}

static void timers(void)
{
	uint64_t begin = rc_now_ms();

	loop = rc_loop_create();
	repeating = rc_timer_start(loop, 5, 5, tick, NULL);
	once = rc_timer_start(loop, 0, 0, shot, NULL);
	rc_loop_run(loop);
	CHECK_EQ_INT(3, ticks);
	CHECK_EQ_INT(2, shots);
	CHECK(rc_now_ms() - begin >= 15);
	rc_timer_stop(once);
	rc_timer_stop(NULL);
	rc_loop_destroy(loop);
}

static int pair[2];
static rc_watch *watch;
static int got_bytes, writable_seen;

static void on_pair(void *arg, int events)
{
	char text[8];
	ssize_t n;

	(void)arg;
	if (events & RC_WRITABLE) {
		writable_seen++;
		rc_watch_events(watch, RC_READABLE);
		CHECK_EQ_INT(3, write(pair[1], "abc", 3));
	}
	if (!(events & RC_READABLE))
		return;
	n = read(pair[0], text, 2);
	if (n > 0) {
		got_bytes += (int)n;
		return;
	}
	rc_watch_stop(watch); /* inside its own callback, and the descriptor goes at once */
	close(pair[0]);
	rc_loop_stop(loop);
}

static void close_peer(void *arg)
{
	(void)arg;
	close(pair[1]);
}

static void descriptors(void)
{
	loop = rc_loop_create();
	CHECK_EQ_INT(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	watch = rc_watch_start(loop, pair[0], RC_WRITABLE, on_pair, NULL);
	rc_loop_after(loop, 20, close_peer, NULL);
	rc_loop_run(loop);
	CHECK_EQ_INT(1, writable_seen);
	CHECK_EQ_INT(3, got_bytes);
	rc_loop_destroy(loop);
}

/* A peer that dies with bytes unread makes the kernel report an error; what it sent before must still arrive. */
static void dead_peer(void)
{
	loop = rc_loop_create();
	got_bytes = 0;
	CHECK_EQ_INT(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	CHECK_EQ_INT(1, write(pair[0], "x", 1));
	CHECK_EQ_INT(5, write(pair[1], "hello", 5));
	close(pair[1]);
	watch = rc_watch_start(loop, pair[0], RC_READABLE, on_pair, NULL);
	rc_loop_after(loop, 5000, stop, NULL);
	rc_loop_run(loop);
	CHECK_EQ_INT(5, got_bytes);
	rc_loop_destroy(loop);
}

static pthread_t main_thread;
static bool worked_elsewhere, done_here;

static void work(void *arg)
{
	(void)arg;
	worked_elsewhere = !pthread_equal(pthread_self(), main_thread);
}

static void work_is_done(void *arg)
{
	(void)arg;
	done_here = pthread_equal(pthread_self(), main_thread);
	rc_loop_stop(loop);
}

static void pool(void)
{
	loop = rc_loop_create();
	main_thread = pthread_self();
	rc_loop_work(loop, work, work_is_done, NULL);
	rc_loop_run(loop);
	CHECK(worked_elsewhere && done_here);
	rc_loop_destroy(loop);
	rc_loop_destroy(NULL);
}

static int seen_signal;

static void on_signal(void *arg, int signum)
{
	(void)arg;
	seen_signal = signum;
	rc_loop_stop(loop);
}

static void signals(void)
{
	loop = rc_loop_create();
	rc_signal_start(loop, SIGUSR1, on_signal, NULL);
	kill(getpid(), SIGUSR1);
	rc_loop_run(loop);
	CHECK_EQ_INT(SIGUSR1, seen_signal);
	rc_loop_destroy(loop);
}

int main(void)
{
	RUN(posts, "posts of several threads run each in its thread's order");
	RUN(posts_from_posts, "a post made by a post runs, also the ones left when the loop ends");
	RUN(timers, "timers fire, repeat, restart and stop inside their own callback");
	RUN(descriptors, "a watch reports writable, readable and end of stream");
	RUN(dead_peer, "bytes of a peer that died with unread input are still read");
	RUN(pool, "slow work runs on another thread and its end on the loop");
	RUN(signals, "signals arrive on the loop");
	return test_end();
}
