/* The pool with fake workers: shell processes that do nothing; the test speaks for them (registration, announcement). */
#define _GNU_SOURCE
#include "raylet-c/procs/pool.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raylet-c/base/test.h"
#include "raylet-c/procs/lineage.h"

static rc_loop *loop;
static rc_procs *procs;
static rc_pool *pool;
static rc_pool_options options;
static int free_cpus;

typedef struct death {
	pid_t pid;
	void *user;
	char text[300];
} death;
static death deaths[64];
static int n_deaths;
static struct {
	rc_worker *w;
	bool force;
} exits[64];
static int n_exits;
static char warned[400];

static void exit_worker(void *ctx, rc_worker *w, bool force)
{
	(void)ctx;
	exits[n_exits].w = w;
	exits[n_exits++].force = force;
}

static void died(void *ctx, rc_worker *w, const char *text)
{
	(void)ctx;
	death *d = &deaths[n_deaths++];
	d->pid = w->pid;
	d->user = w->user;
	snprintf(d->text, sizeof(d->text), "%s", text);
	CHECK_EQ_INT(RC_WS_DEAD, w->state);
}

static int cpus(void *ctx)
{
	(void)ctx;
	return free_cpus;
}

static void warn_job(void *ctx, const rc_id *job, const char *type, const char *text)
{
	(void)ctx;
	(void)job;
	(void)type;
	snprintf(warned, sizeof(warned), "%s", text);
}

static const rc_pool_ops ops = { exit_worker, died, cpus, warn_job };

static void stop_loop(void *arg)
{
	(void)arg;
	rc_loop_stop(loop);
}

static void run_for(unsigned ms)
{
	rc_timer *t = rc_timer_start(loop, ms, 0, stop_loop, NULL);
	rc_loop_run(loop);
	rc_timer_stop(t);
}

typedef struct result {
	int count;
	rc_worker *w;
	rc_pop_status status;
	char text[400];
} result;

static void popped(void *arg, rc_worker *w, rc_pop_status status, const char *text)
{
	result *r = arg;
	r->count++;
	r->w = w;
	r->status = status;
	snprintf(r->text, sizeof(r->text), "%s", text);
}

static rc_id id_of(size_t n, int v)
{
	uint8_t b[32] = { (uint8_t)v, (uint8_t)(v >> 8) };
	return rc_id_from(b, n);
}

static rc_id job(int v)
{
	return id_of(RC_JOB_ID, v);
}

static void begin(const char *command, const char *release)
{
	rc_error e;
	n_deaths = n_exits = 0;
	warned[0] = 0;
	free_cpus = 0;
	options = (rc_pool_options){
		.dialect = rc_dialect_find(release, &e),
		.procs = procs,
		.commands = { command },
		.node_id = id_of(28, 9),
		.node_manager_port = 1000,
		.startup_concurrency = 2,
		.enable_prestart = true,
		.soft_limit = -1,
		.register_timeout_ms = 60000,
		.idle_threshold_ms = 50,
		.reap_interval_ms = 20,
		.kill_grace_ms = 100,
		.max_io_workers = 2,
	};
}

static void make(void)
{
	rc_error e;
	pool = rc_pool_create(loop, &options, &ops, NULL, &e);
	if (!pool)
		printf("# %s\n", e.text);
}

static void end(void)
{
	for (rc_worker *w = NULL; (w = rc_pool_next(pool, w));)
		if (w->type != RC_DRIVER)
			kill(w->pid, SIGKILL);
	rc_pool_destroy(pool);
	run_for(50);
}

static uint64_t pop_as(int job_id, rc_pop base, result *r)
{
	base.job_id = job(job_id);
	*r = (result){ 0 };
	return rc_pool_pop(pool, &base, popped, r);
}

static uint64_t pop(int job_id, result *r)
{
	return pop_as(job_id, (rc_pop){ 0 }, r);
}

static int count(rc_worker_state state)
{
	int n = 0;
	for (rc_worker *w = NULL; (w = rc_pool_next(pool, w));)
		n += w->state == state && w->type != RC_DRIVER;
	return n;
}

static rc_worker *nth(rc_worker_state state, int n)
{
	for (rc_worker *w = NULL; (w = rc_pool_next(pool, w));)
		if (w->state == state && n-- == 0)
			return w;
	return NULL;
}

typedef struct registration {
	int count, port;
	rc_worker *w;
	char failure[300];
} registration;

static void registered(void *arg, rc_worker *w, int port, const char *failure)
{
	registration *r = arg;
	r->count++;
	r->w = w;
	r->port = port;
	snprintf(r->failure, sizeof(r->failure), "%s", failure ? failure : "");
}

static int next_worker = 1;

/* Registers process w under a fresh worker id. */
static registration *reg(rc_worker *w, registration *r)
{
	static rc_id ids[256];
	rc_id *id = &ids[next_worker % 256];
	*id = id_of(RC_WORKER_ID, next_worker++);
	*r = (registration){ 0 };
	rc_register_client m = { .worker_type = w->type, .pid = w->pid, .startup_token = w->startup_token, .worker_id = rc_id_view(id) };
	m.job_id = rc_id_view(&w->job_id);
	m.ip = rc_view_str("127.0.0.1");
	rc_pool_register(pool, &m, w->pid, r, registered, r);
	return r;
}

static rc_worker *up(rc_worker *w)
{
	static registration rs[64];
	static int n;
	registration *r = reg(w, &rs[n++ % 64]);
	CHECK(r->w == w);
	if (r->w)
		rc_pool_announced(pool, w, 5000);
	return w;
}

static void start_job(int v)
{
	rc_id j = job(v);
	rc_pool_job_started(pool, &j, NULL);
}

#define SLEEPER "/bin/sleep 100 RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER"
/* sleep would not take the options that follow */
#define IDLE "/bin/sh -c 'exec sleep 100' sh"

static void lease_and_reuse(void)
{
	begin(IDLE, "2.35.0");
	make();
	start_job(1);
	result a, b;
	CHECK(pop(1, &a) != 0);
	CHECK_EQ_INT(1, count(RC_WS_STARTING));
	rc_worker *w = up(nth(RC_WS_STARTING, 0));
	CHECK_EQ_INT(1, a.count);
	CHECK(a.w == w && w->state == RC_WS_LEASED && w->port == 5000);
	CHECK_STR("127.0.0.1", w->ip);
	CHECK(rc_pool_find(pool, &w->id) == w);
	rc_pool_push(pool, w);
	CHECK_EQ_INT(RC_WS_IDLE, w->state);
	CHECK_EQ_INT(0, pop(1, &b));
	CHECK(b.w == w);
	end();
	CHECK_EQ_INT(0, n_deaths);
}

static void matching(void)
{
	begin(IDLE, "2.35.0");
	make();
	start_job(1);
	start_job(2);
	result a, b, c, d, e;
	pop_as(1, (rc_pop){ .is_gpu = true }, &a);
	rc_worker *w = up(nth(RC_WS_STARTING, 0));
	rc_pool_push(pool, w);
	CHECK(pop(2, &b) != 0);                                   /* another job */
	CHECK(pop(1, &c) != 0);                                   /* no GPU */
	CHECK(pop_as(1, (rc_pop){ .is_gpu = true, .is_actor = true }, &d) != 0);
	rc_pop detached = { .is_gpu = true, .root_detached_actor_id = id_of(RC_ACTOR_ID, 5) };
	CHECK(pop_as(1, detached, &e) != 0);
	CHECK_EQ_INT(RC_WS_IDLE, w->state);
	CHECK_EQ_INT(0, pop_as(1, (rc_pop){ .is_gpu = true }, &a));
	CHECK(a.w == w);
	end();
	CHECK_EQ_INT(RC_POP_CANCELLED, b.status);
}

static void returned_worker_serves_the_waiting(void)
{
	begin(IDLE, "2.35.0");
	make();
	start_job(1);
	result a, b, c;
	pop(1, &a);
	rc_worker *w = up(nth(RC_WS_STARTING, 0));
	pop(1, &b);
	rc_worker *coming = nth(RC_WS_STARTING, 0);
	rc_pool_push(pool, w);
	CHECK(b.w == w);
	pop(1, &c); /* takes over the start that is on its way */
	CHECK_EQ_INT(1, count(RC_WS_STARTING));
	up(coming);
	CHECK(c.w == coming);
	end();
}

static void limits_starts(void)
{
	begin(IDLE, "2.60.0");
	make();
	start_job(1);
	result r[5];
	for (int i = 0; i < 5; i++)
		pop(1, &r[i]);
	CHECK_EQ_INT(2, count(RC_WS_STARTING));
	up(nth(RC_WS_STARTING, 0));
	CHECK_EQ_INT(2, count(RC_WS_STARTING));
	CHECK_EQ_INT(1, r[0].count);
	for (int i = 0; i < 4; i++)
		up(nth(RC_WS_STARTING, 0));
	for (int i = 0; i < 5; i++)
		CHECK(r[i].w != NULL);
	CHECK(strstr(warned, "worker processes run on node") == NULL);
	for (int i = 0; i < 2; i++)
		pop(1, &r[i]);
	for (int i = 0; i < 2; i++)
		up(nth(RC_WS_STARTING, 0));
	CHECK(strstr(warned, "worker processes run on node") == NULL); /* 7 workers: less than 4 for each of 2 starts at once */
	pop(1, &r[0]);
	CHECK(strstr(warned, "8 worker processes run on node") != NULL);
	end();
}

static void cancel_leaves_a_spare(void)
{
	begin(IDLE, "2.60.0");
	make();
	start_job(1);
	result a, b;
	uint64_t id = pop(1, &a);
	rc_pool_pop_cancel(pool, id);
	rc_pool_pop_cancel(pool, id);
	rc_pool_pop_cancel(pool, 12345);
	CHECK_EQ_INT(1, a.count);
	CHECK_EQ_INT(RC_POP_CANCELLED, a.status);
	pop(1, &b);
	CHECK_EQ_INT(1, count(RC_WS_STARTING));
	up(nth(RC_WS_STARTING, 0));
	CHECK_EQ_INT(1, b.count);
	end();
}

static void waits_for_its_job(void)
{
	begin(IDLE, "2.60.0");
	make();
	result a, b;
	pop(7, &a);
	CHECK_EQ_INT(0, count(RC_WS_STARTING));
	start_job(7);
	CHECK_EQ_INT(1, count(RC_WS_STARTING));
	pop(8, &b);
	rc_id j = job(8);
	rc_pool_job_finished(pool, &j);
	CHECK_EQ_INT(RC_POP_JOB_FINISHED, b.status);
	CHECK_EQ_INT(0, pop(8, &b));
	CHECK_EQ_INT(RC_POP_JOB_FINISHED, b.status);
	CHECK(rc_pool_job_is_finished(pool, &j));
	end();
}

static void dying_starts_are_retried(void)
{
	begin("/bin/sh -c 'exit 3' sh", "2.60.0");
	make();
	start_job(1);
	result a;
	pop(1, &a);
	uint64_t before = rc_now_ms();
	while (!a.count && rc_now_ms() - before < 6000)
		run_for(20);
	CHECK_EQ_INT(RC_POP_START_FAILED, a.status);
	CHECK_STR("a worker process could not be started, 4 times; the last one: exit status 3", a.text);
	CHECK_EQ_INT(4, n_deaths);
	CHECK_STR("exit status 3", deaths[0].text);
	end();
}

static void missing_program_fails(void)
{
	begin("/no/such/python x.py", "2.60.0");
	make();
	start_job(1);
	result a;
	pop(1, &a);
	uint64_t before = rc_now_ms();
	while (!a.count && rc_now_ms() - before < 6000)
		run_for(20);
	CHECK_EQ_INT(RC_POP_START_FAILED, a.status);
	CHECK(strstr(a.text, "exec of '/no/such/python': No such file or directory") != NULL);
	end();
}

static void hung_starts_are_killed(void)
{
	begin(IDLE, "2.60.0");
	options.register_timeout_ms = 1000;
	make();
	start_job(1);
	result a;
	pop(1, &a);
	rc_worker *first = nth(RC_WS_STARTING, 0);
	pid_t pid = first->pid;
	run_for(1400);
	CHECK_EQ_INT(1, n_deaths);
	CHECK(strstr(deaths[0].text, "was alive but did not register within 1 s: it hung while starting, and was killed (signal 9 (Killed))") != NULL);
	CHECK(!rc__pid_running(pid));
	CHECK_EQ_INT(1, count(RC_WS_STARTING)); /* its replacement */
	up(nth(RC_WS_STARTING, 0));
	CHECK_EQ_INT(1, a.count);
	CHECK(a.w != NULL);
	run_for(1100);
	CHECK_EQ_INT(1, n_deaths);
	end();
}

static void registration_is_matched(void)
{
	begin(IDLE, "2.35.0");
	make();
	start_job(1);
	result a, b;
	pop(1, &a);
	pop(1, &b);
	rc_worker *one = nth(RC_WS_STARTING, 0), *two = nth(RC_WS_STARTING, 1);
	rc_id id = id_of(RC_WORKER_ID, 900), third = id_of(RC_WORKER_ID, 901);
	registration r = { 0 };
	rc_register_client m = { .pid = 99999, .startup_token = two->startup_token, .worker_id = rc_id_view(&id) };
	rc_pool_register(pool, &m, 99999, NULL, registered, &r); /* by token, behind a launcher */
	CHECK(r.w == two);
	CHECK_EQ_INT(99999, two->pid);
	two->pid = one->pid; /* so that end() has something to kill */
	m.worker_id = rc_id_view(&third);
	m.startup_token = 12345;
	rc_pool_register(pool, &m, 99999, NULL, registered, &r);
	CHECK(r.w == NULL);
	CHECK(strstr(r.failure, "process 99999 was not started by this node") != NULL);
	m.startup_token = -1;
	m.pid = one->pid;
	rc_pool_register(pool, &m, one->pid, NULL, registered, &r); /* by pid */
	CHECK(r.w == one);
	rc_pool_register(pool, &m, one->pid, NULL, registered, &r);
	CHECK_STR("a process with this worker id is registered already", r.failure);
	m.worker_id = rc_view_of("short", 5);
	rc_pool_register(pool, &m, one->pid, NULL, registered, &r);
	CHECK_STR("the worker id is not 28 bytes long", r.failure);
	end();
}

static void worker_id_of_the_command_line(void)
{
	char file[64], *command;
	snprintf(file, sizeof(file), "/tmp/rc_pool_test_args.%d", (int)getpid());
	command = rc_sprintf("/bin/sh -c 'echo \"$@\" >%s; exec sleep 100' sh", file);
	begin(command, "2.60.0");
	make();
	start_job(1);
	result a;
	pop(1, &a);
	rc_worker *w = nth(RC_WS_STARTING, 0);
	char text[1000] = "";
	for (int i = 0; i < 100 && !strchr(text, '\n'); i++) {
		run_for(10);
		int fd = open(file, O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		text[n > 0 ? n : 0] = 0;
		if (fd >= 0)
			close(fd);
	}
	unlink(file);
	char *hex = strstr(text, "--worker-id=");
	CHECK(hex != NULL);
	if (!hex)
		return;
	hex[12 + 56] = 0;
	rc_id id = rc_id_from_hex(hex + 12);
	registration r = { 0 };
	rc_register_client m = { .pid = 0, .startup_token = -1, .worker_id = rc_id_view(&id) };
	rc_pool_register(pool, &m, 1, NULL, registered, &r);
	CHECK(r.w == w);
	end();
	free(command);
}

static void idle_workers_are_asked_to_leave(void)
{
	begin(IDLE, "2.60.0");
	make();
	start_job(1);
	result a, b;
	pop(1, &a);
	pop(1, &b);
	rc_worker *one = up(nth(RC_WS_STARTING, 0)), *two = up(nth(RC_WS_STARTING, 0));
	free_cpus = 1;
	rc_pool_push(pool, one);
	rc_pool_push(pool, two);
	run_for(200);
	CHECK_EQ_INT(1, n_exits); /* the oldest; one is worth keeping */
	CHECK(exits[0].w == one && !exits[0].force);
	CHECK_EQ_INT(RC_WS_EXITING, one->state);
	rc_pool_exit_answered(pool, one, true, false); /* owns objects */
	CHECK_EQ_INT(RC_WS_IDLE, one->state);
	run_for(200);
	CHECK_EQ_INT(2, n_exits);
	CHECK(exits[1].w == two);
	rc_pool_exit_answered(pool, two, false, false); /* no answer: ended */
	run_for(300);
	CHECK_EQ_INT(1, n_deaths);
	CHECK_STR("idle, and it did not answer the request to exit (signal 15 (Terminated))", deaths[0].text);
	free_cpus = 0;
	run_for(200);
	CHECK_EQ_INT(3, n_exits);
	rc_pool_exit_answered(pool, one, true, true);
	rc_pool_disconnected(pool, one, 20); /* said good-bye, but stays */
	run_for(300);
	CHECK_EQ_INT(2, n_deaths);
	CHECK_STR("idle, asked to exit (signal 15 (Terminated))", deaths[1].text);
	end();
}

static void finished_job_clears_its_workers(void)
{
	begin(IDLE, "2.60.0");
	free_cpus = 8;
	make();
	free_cpus = 8;
	start_job(1);
	result a, b, c, d;
	pop(1, &a);
	pop_as(1, (rc_pop){ .root_detached_actor_id = id_of(RC_ACTOR_ID, 5) }, &b);
	rc_worker *plain = up(nth(RC_WS_STARTING, 0)), *detached = up(nth(RC_WS_STARTING, 0));
	rc_pool_push(pool, plain);
	rc_pool_push(pool, detached);
	pop_as(1, (rc_pop){ .is_gpu = true }, &c);
	pid_t starting = nth(RC_WS_STARTING, 0)->pid;
	rc_id j = job(1);
	rc_pool_job_finished(pool, &j);
	CHECK_EQ_INT(RC_POP_JOB_FINISHED, c.status);
	CHECK_EQ_INT(1, n_exits);
	CHECK(exits[0].w == plain && exits[0].force);
	CHECK_EQ_INT(RC_WS_IDLE, detached->state);
	run_for(200);
	CHECK_EQ_INT(1, n_deaths);
	CHECK_EQ_INT(starting, deaths[0].pid);
	CHECK_EQ_INT(0, pop_as(1, (rc_pop){ .root_detached_actor_id = id_of(RC_ACTOR_ID, 5) }, &d));
	end();
}

static void forgets_the_oldest_finished_jobs(void)
{
	begin(IDLE, "2.60.0");
	make();
	rc_id j;
	for (int i = 1; i <= 20001; i++) { /* the head tells of a job's end more than once */
		j = job(i);
		rc_pool_job_finished(pool, &j);
		rc_pool_job_finished(pool, &j);
	}
	CHECK(rc_pool_job_is_finished(pool, &j));
	j = job(2);
	CHECK(rc_pool_job_is_finished(pool, &j));
	j = job(1);
	CHECK(!rc_pool_job_is_finished(pool, &j));
	end();
}

static void first_job_prestarts(void)
{
	begin(IDLE, "2.60.0");
	options.prestart = 3;
	options.idle_threshold_ms = 100000;
	make();
	start_job(1);
	CHECK_EQ_INT(2, count(RC_WS_STARTING)); /* under the concurrency */
	up(nth(RC_WS_STARTING, 0));
	up(nth(RC_WS_STARTING, 0));
	up(nth(RC_WS_STARTING, 0));
	CHECK_EQ_INT(3, count(RC_WS_IDLE));
	start_job(2);
	CHECK_EQ_INT(0, count(RC_WS_STARTING));
	result a;
	CHECK_EQ_INT(0, pop(1, &a));
	free_cpus = 5;
	rc_pop like = { .job_id = job(1) };
	rc_pool_backlog(pool, &like, 100); /* 2 idle, 5 CPUs: 3 more, 2 at once */
	CHECK_EQ_INT(2, count(RC_WS_STARTING));
	up(nth(RC_WS_STARTING, 0));
	up(nth(RC_WS_STARTING, 0));
	up(nth(RC_WS_STARTING, 0));
	CHECK_EQ_INT(0, count(RC_WS_STARTING));
	rc_pool_backlog(pool, &like, 100);
	CHECK_EQ_INT(0, count(RC_WS_STARTING));
	end();
}

static void prestarted_are_kept(void)
{
	begin(IDLE, "2.60.0");
	options.idle_threshold_ms = 20;
	make();
	start_job(1);
	rc_id j = job(1);
	rc_pool_prestart(pool, &j, RC_LANG_PYTHON, NULL, 1, 400);
	up(nth(RC_WS_STARTING, 0));
	run_for(150);
	CHECK_EQ_INT(0, n_exits);
	run_for(450);
	CHECK_EQ_INT(1, n_exits);
	end();
}

static int listener(int port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_ANY) };
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0)
		return fd;
	close(fd);
	return -1;
}

static void ports_are_waited_for(void)
{
	begin(IDLE, "2.60.0");
	int base = 21000 + getpid() % 8000;
	options.min_port = base;
	options.max_port = base + 1;
	options.startup_concurrency = 4;
	make();
	start_job(1);
	int held = listener(base); /* another program has one of the two */
	CHECK(held >= 0);
	result a, b;
	registration ra, rb;
	pop(1, &a);
	pop(1, &b);
	rc_worker *one = nth(RC_WS_STARTING, 0), *two = nth(RC_WS_STARTING, 1);
	reg(one, &ra);
	reg(two, &rb);
	CHECK_EQ_INT(base + 1, ra.port);
	CHECK_EQ_INT(0, rb.count);
	run_for(250);
	CHECK_EQ_INT(0, rb.count);
	rc_pool_stats st;
	rc_pool_get_stats(pool, &st);
	CHECK_EQ_INT(1, st.waiting_ports);
	close(held);
	run_for(250);
	CHECK_EQ_INT(base, rb.port);
	rc_pool_announced(pool, one, base + 1);
	rc_pool_announced(pool, two, base);
	CHECK(a.w && b.w);
	/* A third has to wait for the end of one: an idle worker is asked to go. */
	result c;
	registration rc;
	pop_as(1, (rc_pop){ .is_gpu = true }, &c);
	reg(nth(RC_WS_STARTING, 0), &rc);
	free_cpus = 10;
	rc_pool_push(pool, one);
	run_for(400);
	CHECK_EQ_INT(0, rc.count);
	CHECK_EQ_INT(1, n_exits);
	CHECK(exits[0].w == one);
	rc_pool_kill(pool, one, true, NULL);
	run_for(400);
	CHECK_EQ_INT(1, rc.count);
	CHECK_EQ_INT(base + 1, rc.port);
	end();
}

static void drivers_register(void)
{
	begin(IDLE, "2.60.0");
	make();
	rc_id id = id_of(RC_WORKER_ID, 700), j = job(3);
	registration r = { 0 };
	rc_register_client m = { .worker_type = RC_DRIVER, .pid = getpid(), .startup_token = -1, .worker_id = rc_id_view(&id), .job_id = rc_id_view(&j) };
	rc_pool_register(pool, &m, getpid(), NULL, registered, &r);
	CHECK(r.w && r.w->type == RC_DRIVER && rc_id_eq(&r.w->job_id, &j));
	rc_pool_announced(pool, r.w, 5);
	rc_pool_stats st;
	rc_pool_get_stats(pool, &st);
	CHECK_EQ_INT(1, st.drivers);
	rc_pool_kill(pool, r.w, true, "must not"); /* not ours to end */
	CHECK(rc_pool_find(pool, &id) == r.w);
	rc_pool_disconnected(pool, r.w, 0);
	CHECK(rc_pool_find(pool, &id) == NULL);
	end();
}

static void io_workers_are_cached(void)
{
	begin(IDLE, "2.35.0");
	options.idle_threshold_ms = 10;
	make();
	result a, b, c;
	a = b = c = (result){ 0 };
	rc_pool_pop_io(pool, RC_SPILL_WORKER, popped, &a);
	rc_pool_pop_io(pool, RC_SPILL_WORKER, popped, &b);
	rc_pool_pop_io(pool, RC_SPILL_WORKER, popped, &c);
	CHECK_EQ_INT(2, count(RC_WS_STARTING)); /* max_io_workers */
	rc_worker *one = up(nth(RC_WS_STARTING, 0));
	up(nth(RC_WS_STARTING, 0));
	CHECK(a.w && b.w);
	CHECK_EQ_INT(0, c.count);
	rc_pool_push(pool, one);
	CHECK(c.w == one);
	rc_pool_push(pool, one);
	run_for(200);
	CHECK_EQ_INT(0, n_exits); /* kept for longer than other workers, 30 times 10 ms */
	run_for(300);
	CHECK_EQ_INT(1, n_exits);
	rc_pool_kill(pool, one, true, "test");
	run_for(100);
	CHECK_STR("test (signal 9 (Killed))", deaths[0].text);
	end();
}

static void dynamic_options_are_not_shared(void)
{
	begin("/bin/sh -c 'exec sleep 100' RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER", "2.35.0");
	make();
	start_job(1);
	char *opts[] = { (char *)"--fast" };
	result a, b;
	uint64_t id = pop_as(1, (rc_pop){ .dynamic_options = opts, .n_dynamic_options = 1, .is_actor = true }, &a);
	rc_worker *w = nth(RC_WS_STARTING, 0);
	pop(1, &b);
	CHECK_EQ_INT(2, count(RC_WS_STARTING));
	up(w);
	CHECK(a.w == w);
	CHECK_EQ_INT(0, b.count);
	(void)id;
	id = pop_as(1, (rc_pop){ .dynamic_options = opts, .n_dynamic_options = 1, .is_actor = true }, &a);
	rc_pool_pop_cancel(pool, id);
	run_for(100);
	CHECK_EQ_INT(1, n_deaths);
	CHECK_STR("its lease was withdrawn (signal 9 (Killed))", deaths[0].text);
	end();
}

static void death_of_a_leased_worker(void)
{
	begin(IDLE, "2.60.0");
	make();
	start_job(1);
	result a;
	int mine;
	pop(1, &a);
	rc_worker *w = up(nth(RC_WS_STARTING, 0));
	w->user = &mine;
	kill(w->pid, SIGSEGV);
	run_for(200);
	CHECK_EQ_INT(1, n_deaths);
	CHECK(deaths[0].user == &mine);
	CHECK(strncmp(deaths[0].text, "signal 11 (Segmentation fault)", 30) == 0);
	CHECK_EQ_INT(0, n_exits);
	end();
}

static void bad_options_are_named(void)
{
	rc_error e = { 0 };
	begin(IDLE, "2.60.0");
	options.port_list = "1,x";
	CHECK(rc_pool_create(loop, &options, &ops, NULL, &e) == NULL);
	CHECK_STR("--worker_port_list: 'x' is not a list of ports", e.text);
	options.port_list = NULL;
	options.min_port = 5;
	options.max_port = 4;
	CHECK(rc_pool_create(loop, &options, &ops, NULL, &e) == NULL);
	CHECK_STR("worker ports 5 to 4 (--min_worker_port, --max_worker_port) are not a range", e.text);
	options.min_port = options.max_port = 0;
	make();
	result r;
	CHECK_EQ_INT(0, pop_as(1, (rc_pop){ .language = RC_LANG_JAVA }, &r));
	CHECK_EQ_INT(RC_POP_START_FAILED, r.status);
	CHECK_EQ_INT(0, pop_as(1, (rc_pop){ .language = 77 }, &r));
	CHECK_EQ_INT(RC_POP_START_FAILED, r.status);
	start_job(1);
	Rw__RuntimeEnvInfo env = RW__RUNTIME_ENV_INFO__INIT;
	env.serialized_runtime_env = (char *)"{\"pip\": [\"x\"]}";
	CHECK_EQ_INT(0, pop_as(1, (rc_pop){ .runtime_env = &env }, &r));
	CHECK_EQ_INT(RC_POP_RUNTIME_ENV_FAILED, r.status);
	env.serialized_runtime_env = (char *)"{\"env_vars\": {\"A\": \"1\"}}";
	CHECK(pop_as(1, (rc_pop){ .runtime_env = &env }, &r) != 0); /* needs no agent */
	CHECK_EQ_INT(1, count(RC_WS_STARTING));
	end();
}

int main(void)
{
	rc_error error;
	loop = rc_loop_create();
	procs = rc_procs_create(loop, &error);
	RUN(lease_and_reuse, "a worker is started, registered, leased, returned and leased again");
	RUN(matching, "a worker is reused for the same job, GPU need, kind and detached root only");
	RUN(returned_worker_serves_the_waiting, "a returned worker serves the oldest lease that waits, and the start made for that serves the next");
	RUN(limits_starts, "no more workers start at once than allowed, and many draw a warning");
	RUN(cancel_leaves_a_spare, "a cancelled lease is answered once, and its start serves another");
	RUN(waits_for_its_job, "a lease waits for its job, and fails when the job has finished");
	RUN(dying_starts_are_retried, "a worker that dies while starting is replaced, then the lease fails and says how it died");
	RUN(missing_program_fails, "a worker program that cannot be executed fails the lease by its name");
	RUN(hung_starts_are_killed, "a worker that hangs while starting is killed before it is replaced, and the text says that it hung");
	RUN(registration_is_matched, "registrations are matched by token or pid, others are refused");
	RUN(worker_id_of_the_command_line, "registrations are matched by the worker id of the command line");
	RUN(idle_workers_are_asked_to_leave, "idle workers beyond the free CPUs are asked to leave, oldest first");
	RUN(forgets_the_oldest_finished_jobs, "20,000 finished jobs are remembered, the oldest are forgotten");
	RUN(finished_job_clears_its_workers, "a finished job clears its idle and starting workers, but not those of detached actors");
	RUN(first_job_prestarts, "the first job and a backlog start workers ahead");
	RUN(prestarted_are_kept, "workers started ahead are kept as long as asked");
	RUN(ports_are_waited_for, "a worker waits for a free port of the range, and an idle one gives its port up");
	RUN(drivers_register, "a driver is registered and never ended");
	RUN(io_workers_are_cached, "IO workers are started on demand up to their limit, and kept for a while");
	RUN(dynamic_options_are_not_shared, "a worker started with dynamic options serves its own actor only");
	RUN(death_of_a_leased_worker, "the death of a leased worker is told with its signal");
	RUN(bad_options_are_named, "bad ports, languages and runtime envs are refused by name");
	rc_procs_destroy(procs, 2000);
	rc_loop_destroy(loop);
	return test_end();
}
