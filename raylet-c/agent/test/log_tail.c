#include "raylet-c/agent/log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

enum { WAIT_MS = 10000 };

static rc_loop *loop;
static rc_log_tail *tail;
static char folder[] = "/tmp/rc-tail-XXXXXX";
static rc_buf got; /* "pid/job/err/actor/task:line\n" */
static size_t n_lines, n_batches, not_taken;
static bool take = true;

static void batch(void *ctx, const rc_log_batch *b)
{
	(void)ctx;
	n_batches++;
	for (size_t i = 0; i < b->n_lines; i++, n_lines++)
		rc_buf_printf(&got, "%s/%s/%s/%s/%s:%s\n", b->pid, b->job, b->is_error ? "err" : "out", b->actor, b->task, b->lines[i]);
	if (take)
		rc_log_tail_taken(tail);
	else
		not_taken++;
}

static void begin(void)
{
	rc_buf_free(&got);
	n_lines = n_batches = 0;
	tail = rc_log_tail_create(loop, folder, NULL, NULL, batch, NULL);
}

static void write_to(const char *name, int flags, const char *text)
{
	char *path = rc_sprintf("%s/%s", folder, name);
	int fd = open(path, O_WRONLY | O_CREAT | flags, 0644);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	free(path);
}

static size_t want_lines;
static uint64_t until;

static void look(void *arg)
{
	(void)arg;
	if (n_lines >= want_lines || rc_now_ms() > until)
		rc_loop_stop(loop);
}

/* Until so many lines came, and no more in the next 50 ms. */
static const char *lines(size_t n)
{
	want_lines = n;
	until = rc_now_ms() + WAIT_MS;
	rc_timer *t = rc_timer_start(loop, 0, 5, look, NULL);
	rc_loop_run(loop);
	want_lines = n + 1;
	until = rc_now_ms() + 50;
	rc_loop_run(loop);
	rc_timer_stop(t);
	CHECK_EQ_INT(n, n_lines);
	return rc_buf_cstr(&got);
}

static void of_own_workers(void)
{
	begin();
	write_to("worker-aa-01000000-11.out", 0, ":job_id:01000000\n:task_name:f\none\n");
	write_to("worker-bb-01000000-12.err", 0, "two\r\n");
	write_to("worker-cc-01000000-13.out", 0, "not ours\n");
	rc_log_tail_worker(tail, 11);
	lines(1);
	rc_log_tail_worker(tail, 12);
	CHECK_STR("11/01000000/out//f:one\n12/01000000/err//:two\n", lines(2));
	write_to("worker-aa-01000000-11.out", O_APPEND, "three\n:actor_name:A\nfour\n:task_name:A.g\nfive\n\nend\n");
	CHECK_STR("11/01000000/out//f:one\n12/01000000/err//:two\n11/01000000/out//f:three\n11/01000000/out/A/:four\n11/01000000/out/A/A.g:five\n"
	          "11/01000000/out/A/A.g:\n11/01000000/out/A/A.g:end\n",
	          lines(7));
	write_to("worker-dd-ffffffff-11.1.out", 0, "a rotated name\n");
	write_to("worker-11.out", 0, "no worker's name\n");
	write_to("worker-dd-ffffffff-11.err", 0, "no job yet\n");
	CHECK(strstr(lines(8), "11//err//:no job yet\n"));
	rc_log_tail_destroy(tail);
}

static void partial_lines(void)
{
	begin();
	rc_log_tail_worker(tail, 21);
	write_to("worker-aa-02000000-21.out", 0, "begin");
	lines(0);
	write_to("worker-aa-02000000-21.out", O_APPEND, "ning\nrest");
	CHECK_STR("21/02000000/out//:beginning\n21/02000000/out//:rest\n", lines(2)); /* after half a second */
	rc_log_tail_destroy(tail);
}

static void truncated_and_rotated(void)
{
	begin();
	rc_log_tail_worker(tail, 31);
	write_to("worker-aa-03000000-31.out", 0, "1\n2\n3\n");
	lines(3);
	write_to("worker-aa-03000000-31.out", O_TRUNC, "4\n");
	lines(4);
	char *from = rc_sprintf("%s/worker-aa-03000000-31.out", folder), *to = rc_sprintf("%s.1", from);
	write_to("worker-aa-03000000-31.out", O_APPEND, "5\n6 without an end");
	CHECK_EQ_INT(0, rename(from, to));
	write_to("worker-aa-03000000-31.out", 0, "7\n8\n9\n10\n11\n12\n13\n");
	CHECK_STR("31/03000000/out//:1\n31/03000000/out//:2\n31/03000000/out//:3\n31/03000000/out//:4\n31/03000000/out//:5\n"
	          "31/03000000/out//:6 without an end\n31/03000000/out//:7\n31/03000000/out//:8\n31/03000000/out//:9\n31/03000000/out//:10\n"
	          "31/03000000/out//:11\n31/03000000/out//:12\n31/03000000/out//:13\n",
	          lines(13));
	free(from);
	free(to);
	rc_log_tail_destroy(tail);
}

static void many_lines(void)
{
	enum { N = 100000 };
	rc_buf text = { 0 };
	begin();
	rc_log_tail_worker(tail, 41);
	for (int i = 0; i < N; i++)
		rc_buf_printf(&text, "line %d\n", i);
	write_to("worker-aa-04000000-41.out", 0, rc_buf_cstr(&text));
	uint64_t start = rc_now_ms();
	const char *all = lines(N);
	printf("# %d lines in %llu ms, %zu batches\n", N, (unsigned long long)(rc_now_ms() - start), n_batches);
	bool in_order = true;
	for (int i = 0; i < N && all; i++) {
		char want[60];
		int n = snprintf(want, sizeof(want), "41/04000000/out//:line %d\n", i);
		in_order = in_order && !strncmp(all, want, (size_t)n);
		all += n;
	}
	CHECK(in_order);
	rc_buf_free(&text);
	rc_log_tail_destroy(tail);
}

static void held_up(void)
{
	begin();
	take = false;
	for (int i = 0; i < 40; i++) {
		char name[60];
		snprintf(name, sizeof(name), "worker-%02x-05000000-%d.out", i, 100 + i);
		write_to(name, 0, "x\n");
		rc_log_tail_worker(tail, 100 + i);
	}
	want_lines = 40;
	until = rc_now_ms() + 300;
	rc_timer *t = rc_timer_start(loop, 0, 5, look, NULL);
	rc_loop_run(loop);
	rc_timer_stop(t);
	CHECK_EQ_INT(16, n_lines);
	take = true;
	for (; not_taken; not_taken--)
		rc_log_tail_taken(tail);
	lines(40);
	rc_log_tail_destroy(tail);
}

static void another_file(void)
{
	char *path = rc_sprintf("%s/raylet.err", folder);
	rc_buf_free(&got);
	n_lines = 0;
	tail = rc_log_tail_create(loop, folder, path, "raylet", batch, NULL);
	write_to("raylet.err", 0, "it broke\n");
	CHECK_STR("raylet//err//:it broke\n", lines(1));
	free(path);
	rc_log_tail_destroy(tail);
}

int main(void)
{
	loop = rc_loop_create();
	if (!mkdtemp(folder))
		return 1;
	RUN(of_own_workers, "lines of this node's workers are told with their job, task and actor");
	RUN(partial_lines, "a line waits for its end, but not for ever");
	RUN(truncated_and_rotated, "no line is lost or told twice when a file is truncated or rotated");
	RUN(many_lines, "a hundred thousand lines come in order");
	RUN(held_up, "while batches are not taken the files wait");
	RUN(another_file, "the daemon's own errors are told by its name");
	rc_loop_destroy(loop);
	char *clean = rc_sprintf("rm -r %s", folder);
	int code = system(clean);
	free(clean);
	rc_buf_free(&got);
	return test_end() || code;
}
