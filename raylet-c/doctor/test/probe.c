/* Somebody else's library that hangs, crashes or talks too much, and the real probes of this machine. */
#include "raylet-c/base/test.h"
#include "raylet-c/doctor/probe.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void says(int out)
{
	dprintf(out, "version: 1.2\nno colon here\nlong-key-of-more-than-thirty-one-letters: x\nprovider:  tcp\nlast: line");
}

static void hangs(int out)
{
	dprintf(out, "version: 1.2\n");
	pause();
}

static void crashes(int out)
{
	(void)out;
	signal(SIGSEGV, SIG_DFL); /* a sanitizer's own handler */
	raise(SIGSEGV);
}

static void leaves(int out)
{
	(void)out;
	_exit(3);
}

static void talks(int out)
{
	for (;;)
		dprintf(out, "line: again and again and again\n");
}

static void writes_elsewhere(int out)
{
	printf("this is for nobody\n");
	fprintf(stderr, "nor this\n");
	fflush(stdout);
	dprintf(out, "a: b\n");
}

static void answers(void)
{
	rc_buf b = { 0 };
	rc_error e;
	char key[32], value[256];
	CHECK_EQ_INT(0, rc__probe("", "test", says, 5, &b, &e));
	const char *at = rc_buf_cstr(&b);
	static const char *const want[][2] = { { "version", "1.2" }, { "provider", "tcp" }, { "last", "line" } };
	for (size_t i = 0; i < 3; i++) {
		CHECK(rc__probe_line(&at, key, value));
		CHECK_STR(want[i][0], key);
		CHECK_STR(want[i][1], value);
	}
	CHECK(!rc__probe_line(&at, key, value));
	b.n = 0;
	CHECK_EQ_INT(0, rc__probe("", "test", writes_elsewhere, 5, &b, &e));
	CHECK_STR("a: b\n", rc_buf_cstr(&b));
	rc_buf_free(&b);
}

static void faults(void)
{
	rc_buf b = { 0 };
	rc_error e = { 0 };
	CHECK_EQ_INT(-1, rc__probe("", "slow", hangs, 1, &b, &e));
	CHECK_STR("slow did not answer within 1 s", e.text);
	CHECK_EQ_INT(-1, rc__probe("", "bad", crashes, 5, &b, &e));
	CHECK_STR("bad crashed: Segmentation fault", e.text);
	CHECK_EQ_INT(-1, rc__probe("", "gone", leaves, 5, &b, &e));
	CHECK_STR("gone ended the process with status 3", e.text);
	CHECK_EQ_INT(-1, rc__probe("", "loud", talks, 5, &b, &e));
	CHECK_EQ_INT(RC_E_FULL, e.code);
	CHECK_EQ_INT(-1, rc__probe("/nowhere", "absent", says, 5, &b, &e));
	CHECK_EQ_INT(RC_E_NOT_FOUND, e.code);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no child is left */
	rc_buf_free(&b);
}

static void this_machine(void)
{
	rc_buf b = { 0 };
	rc_error e;
	CHECK_EQ_INT(0, rc__probe("", "addresses", rc__probe_addresses, 10, &b, &e));
	CHECK(strstr(rc_buf_cstr(&b), "address: lo 127.0.0.1\n") != NULL);
	b.n = 0;
	CHECK_EQ_INT(0, rc__probe("", "clock", rc__probe_clock, 10, &b, &e));
	CHECK(strstr(rc_buf_cstr(&b), "clock: ") != NULL);
	b.n = 0;
	CHECK_EQ_INT(0, rc__probe("", "nvml", rc__probe_nvml, 10, &b, &e));
	CHECK(strstr(rc_buf_cstr(&b), "driver: ") || strstr(rc_buf_cstr(&b), "error: "));
	b.n = 0;
	CHECK_EQ_INT(0, rc__probe("", "libfabric", rc__probe_libfabric, 20, &b, &e));
	CHECK(strstr(rc_buf_cstr(&b), "version: ") || strstr(rc_buf_cstr(&b), "error: "));
	rc_buf_free(&b);
}

int main(void)
{
	RUN(answers, "a probe's lines arrive, and nothing else of what it writes");
	RUN(faults, "a probe that hangs, crashes or never ends is an error with its name, and no process is left");
	RUN(this_machine, "this machine's own libraries and calls answer");
	return test_end();
}
