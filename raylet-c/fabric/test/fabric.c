/* Memory granted by one process and read by another, over each provider that this machine has: contents, bounds, keys, revoked
 * grants, a peer that is killed or frozen in the middle, many peers' reads at once. */
#define _GNU_SOURCE
#include "raylet-c/fabric/fabric.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raylet-c/base/log.h"
#include "raylet-c/base/test.h"

enum { WAIT_MS = 30000, STALL_MS = 3000, MB = 1 << 20, SIZE = 24 * MB + 4097 };

static rc_loop *loop;
static const char *provider;

/* ---- running the loop until something is so ---- */

static struct {
	const int *left;
	uint64_t until;
} wanted;

static void look(void *arg)
{
	(void)arg;
	if (*wanted.left <= 0 || rc_now_ms() >= wanted.until)
		rc_loop_stop(loop);
}

static bool run_until_none(const int *left)
{
	rc_timer *t = rc_timer_start(loop, 0, 1, look, NULL);

	wanted.left = left;
	wanted.until = rc_now_ms() + WAIT_MS;
	rc_loop_run(loop);
	rc_timer_stop(t);
	return *left <= 0;
}

/* ---- one side ---- */

typedef struct side {
	rc_fabric *f;
	rc_fabric_offer offer;
	int starting;
} side;

static void on_ready(void *arg)
{
	((side *)arg)->starting = 0;
}

static bool open_side(side *s, const char *ip)
{
	rc_fabric_offer all[RC_FABRIC_MAX_OFFERS];

	*s = (side){ .starting = 1 };
	s->f = rc_fabric_create(&(rc_fabric_options){
	        .loop = loop, .providers = provider, .ip = ip, .stall_ms = STALL_MS, .rest_ms = 100, .ready = on_ready, .arg = s });
	rc_fabric_start(s->f);
	if (!run_until_none(&s->starting) || rc_fabric_usable(s->f, all) == 0)
		return false;
	s->offer = all[0];
	return true;
}

typedef struct told { /* what the granting process tells the reader */
	uint8_t address[RC_FABRIC_ADDRESS];
	size_t n;
	rc_remote remote;
} told;

static uint8_t byte_of(size_t i)
{
	return (uint8_t)(i * 131 + (i >> 12) + 7);
}

/* ---- the process that grants ---- */

typedef struct child {
	pid_t pid;
	int to, from;
} child;

static int answer_fd;

static void on_granted(void *arg, const rc_error *error, rc_view address, const rc_remote *remote)
{
	told t = { .n = address.n };

	(void)arg;
	if (error) {
		printf("# %s\n", error->text);
		_exit(1);
	}
	memcpy(t.address, address.p, address.n);
	t.remote = *remote;
	if (write(answer_fd, &t, sizeof t) != sizeof t)
		_exit(1);
}

static void on_revoked(void *arg)
{
	(void)arg;
	if (write(answer_fd, "r", 1) != 1)
		_exit(1);
}

typedef struct granter {
	side s;
	int fd;
	uint64_t grant;
	uint8_t *memory;
} granter;

static void on_command(void *arg, int events)
{
	granter *g = arg;
	char c;

	(void)events;
	if (read(g->fd, &c, 1) != 1 || c == 'q') {
		rc_fabric_destroy(g->s.f);
		_exit(0);
	}
	if (c == 'g') /* the middle of the memory only */
		g->grant = rc_fabric_grant(g->s.f, &g->s.offer, g->memory + 4096, SIZE, on_granted, NULL);
	else if (c == 'r')
		rc_fabric_revoke(g->s.f, g->grant, on_revoked, NULL);
}

static child start_child(const char *ip)
{
	int to[2], from[2];
	child c = { 0 };

	if (pipe(to) || pipe(from))
		return c;
	fflush(stdout);
	c.pid = fork();
	if (c.pid == 0) {
		granter g = { .fd = to[0] };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		answer_fd = from[1];
		loop = rc_loop_create();
		g.memory = mmap(NULL, SIZE + 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		memset(g.memory, 0xee, SIZE + 8192);
		for (size_t i = 0; i < SIZE; i++)
			g.memory[4096 + i] = byte_of(i);
		if (!open_side(&g.s, ip))
			_exit(1);
		rc_watch_start(loop, g.fd, RC_READABLE, on_command, &g);
		rc_loop_run(loop);
		_exit(0);
	}
	close(to[0]);
	close(from[1]);
	c.to = to[1];
	c.from = from[0];
	return c;
}

static bool ask(child *c, char command, void *answer, size_t n)
{
	return write(c->to, &command, 1) == 1 && (n == 0 || read(c->from, answer, n) == (ssize_t)n);
}

/* Also what the shm provider leaves of one that was killed (pid:uid:number). */
static void end_child(child *c)
{
	int status;
	char path[80];

	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof path, "/dev/shm/%d:%u:%d", (int)c->pid, (unsigned)geteuid(), i);
		unlink(path);
	}

	close(c->to);
	close(c->from);
	waitpid(c->pid, &status, 0);
}

/* ---- reads ---- */

typedef struct reading {
	int left;
	rc_error error; /* of the last that failed */
} reading;

static void on_read(void *arg, const rc_error *e)
{
	reading *r = arg;

	r->left--;
	if (e)
		r->error = *e;
}

static void read_from(side *s, const told *t, uint8_t *to, uint64_t n, uint64_t offset, reading *r)
{
	r->left++;
	rc_fabric_read(s->f, &s->offer, rc_view_of(t->address, t->n), to, n, &t->remote, offset, on_read, r);
}

static void contents(void)
{
	child c = start_child("127.0.0.2");
	uint8_t *got = rc_alloc(SIZE);
	reading r = { 0 };
	size_t wrong = 0;
	char revoked;
	side s;
	told t;

	CHECK(open_side(&s, "127.0.0.1"));
	CHECK(ask(&c, 'g', &t, sizeof t));
	for (size_t at = 0; at < SIZE; at += 5 * MB)
		read_from(&s, &t, got + at, SIZE - at < 5 * MB ? SIZE - at : 5 * MB, at, &r);
	read_from(&s, &t, got, 0, 0, &r);
	CHECK(run_until_none(&r.left));
	CHECK_STR("", r.error.text);
	for (size_t i = 0; i < SIZE; i++)
		wrong += got[i] != byte_of(i);
	CHECK_EQ_INT(0, wrong);
	CHECK(ask(&c, 'r', &revoked, 1)); /* the granting side answers while nothing moves, too */
	if (s.offer.own_keys && strcmp(provider, "shm") != 0) {
		read_from(&s, &t, got, 4096, 0, &r);
		CHECK(run_until_none(&r.left));
		CHECK(r.error.code != RC_OK);
	}
	CHECK(ask(&c, 'q', NULL, 0));
	end_child(&c);
	rc_fabric_destroy(s.f);
	free(got);
}

static void bounds(void)
{
	const struct {
		uint64_t flip, offset, n;
	} bad[] = { { 1, 0, 4096 }, { 0, SIZE - 100, 101 }, { 0, (uint64_t)-4096, 4096 }, { 1ull << 63, 0, 1 } };
	uint8_t got[8192];

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) { /* a refused read may cost the connection: each has its own */
		child c = start_child("127.0.0.2");
		reading r = { 0 };
		side s;
		told t;

		memset(got, 0, sizeof got);
		CHECK(open_side(&s, "127.0.0.1"));
		CHECK(ask(&c, 'g', &t, sizeof t));
		t.remote.key ^= bad[i].flip;
		read_from(&s, &t, got, bad[i].n, bad[i].offset, &r);
		CHECK(run_until_none(&r.left));
		CHECK(r.error.code != RC_OK);
		CHECK_EQ_INT(0, got[0] + got[100] + got[bad[i].n - 1]);
		CHECK(ask(&c, 'q', NULL, 0));
		end_child(&c);
		rc_fabric_destroy(s.f);
	}
}

/* The peer goes while reads are under way: all end with an error that names the provider, within the limit. */
static void dies(int signal)
{
	enum { READS = 40 };
	child c = start_child("127.0.0.2");
	uint8_t *got = rc_alloc(SIZE);
	reading r = { 0 };
	uint64_t begin;
	side s;
	told t;

	CHECK(open_side(&s, "127.0.0.1"));
	CHECK(ask(&c, 'g', &t, sizeof t));
	read_from(&s, &t, got, 4096, 0, &r); /* the two know each other */
	CHECK(run_until_none(&r.left));
	CHECK_STR("", r.error.text);
	for (int i = 0; i < READS; i++)
		read_from(&s, &t, got, SIZE, 0, &r);
	kill(c.pid, signal);
	begin = rc_now_ms();
	CHECK(run_until_none(&r.left));
	printf("# %s: after %llu ms: %s\n", provider, (unsigned long long)(rc_now_ms() - begin), r.error.code ? r.error.text : "all was read");
	CHECK(rc_now_ms() - begin < STALL_MS + 5000);
	if (strcmp(provider, "shm") != 0) { /* a frozen process' memory can be read */
		CHECK(r.error.code != RC_OK);
		CHECK(strstr(r.error.text, "fabric ") != NULL);
	}
	kill(c.pid, SIGKILL);
	end_child(&c);
	rc_fabric_destroy(s.f);
	free(got);
}

static void killed(void)
{
	dies(SIGKILL);
}

static void frozen(void)
{
	dies(SIGSTOP);
}

/* After a failure the offer rests, and works again with a new endpoint. */
static void again(void)
{
	child c = start_child("127.0.0.2"), d = start_child("127.0.0.3");
	rc_fabric_offer all[RC_FABRIC_MAX_OFFERS];
	uint8_t *got = rc_alloc(SIZE);
	reading r = { 0 };
	uint64_t until;
	side s;
	told t;

	CHECK(open_side(&s, "127.0.0.1"));
	CHECK(ask(&c, 'g', &t, sizeof t));
	kill(c.pid, SIGKILL);
	end_child(&c);
	read_from(&s, &t, got, 4096, 0, &r);
	CHECK(run_until_none(&r.left));
	CHECK(r.error.code != RC_OK);
	if (r.error.code == RC_E_TIMEOUT) /* a stalled peer costs the endpoint: it rests when its reads' errors come */
		CHECK_EQ_INT(0, rc_fabric_usable(s.f, all));
	until = rc_now_ms() + WAIT_MS;
	while (rc_fabric_usable(s.f, all) == 0 && rc_now_ms() < until) {
		int no = 1;

		wanted.until = 0;
		rc_loop_post(loop, look, NULL);
		wanted.left = &no;
		rc_loop_run(loop);
	}
	r = (reading){ 0 };
	CHECK(ask(&d, 'g', &t, sizeof t));
	read_from(&s, &t, got, SIZE, 0, &r);
	CHECK(run_until_none(&r.left));
	CHECK_STR("", r.error.text);
	CHECK_EQ_INT(byte_of(SIZE - 1), got[SIZE - 1]);
	CHECK(ask(&d, 'q', NULL, 0));
	end_child(&d);
	rc_fabric_destroy(s.f);
	free(got);
}

/* What is under way when a side ends comes back before the call returns. */
static void ends(void)
{
	child c = start_child("127.0.0.2");
	uint8_t *got = rc_alloc(SIZE);
	reading r = { 0 };
	side s;
	told t;

	CHECK(open_side(&s, "127.0.0.1"));
	CHECK(ask(&c, 'g', &t, sizeof t));
	for (int i = 0; i < 20; i++)
		read_from(&s, &t, got, SIZE, 0, &r);
	rc_fabric_destroy(s.f);
	CHECK_EQ_INT(0, r.left);
	CHECK_EQ_INT(RC_E_CANCELLED, r.error.code);
	CHECK(ask(&c, 'q', NULL, 0));
	end_child(&c);
	free(got);
}

static void malformed(void)
{
	reading r = { 0 };
	uint8_t got[64];
	side s;
	told t = { .n = 3, .address = "xyz" };

	CHECK(open_side(&s, "127.0.0.1"));
	read_from(&s, &t, got, sizeof got, 0, &r);
	t.n = 0;
	read_from(&s, &t, got, sizeof got, 0, &r);
	CHECK(run_until_none(&r.left));
	CHECK(r.error.code != RC_OK);
	rc_fabric_destroy(s.f);
}

static void over(const char *name)
{
	static char sentence[8][200];
	struct {
		void (*fn)(void);
		const char *text;
	} all[] = {
		{ contents, "what was granted is read as it is, and no more once it is revoked" },
		{ bounds, "a wrong key and bytes beside the grant are refused" },
		{ killed, "reads from a killed process end with an error" },
		{ frozen, "reads from a process that stands still end within the limit" },
		{ again, "after a failure a new endpoint works" },
		{ ends, "a side that ends gives all reads back" },
		{ malformed, "a malformed address is an error of the read" },
	};
	side s;

	provider = name;
	if (!open_side(&s, "127.0.0.1") || strcmp(s.offer.provider, name) != 0) {
		printf("# %s: this machine's libfabric does not have it: its tests are left out\n", name);
		rc_fabric_destroy(s.f);
		return;
	}
	rc_fabric_destroy(s.f);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (all[i].fn == bounds && strcmp(name, "shm") == 0)
			continue; /* it checks neither: see fabric.h */
		snprintf(sentence[i], sizeof sentence[i], "%s: %s", name, all[i].text);
		RUN(all[i].fn, sentence[i]);
	}
}

/* libfabric and its providers keep some of what they allocate. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so\n";
}

int main(void)
{
	static const char *const names[] = { "shm", "tcp", "net", "sockets" };

	signal(SIGPIPE, SIG_IGN);
	rc_log_level(RC_ERROR);
	loop = rc_loop_create();
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		over(names[i]);
	rc_loop_destroy(loop);
	return test_end();
}
