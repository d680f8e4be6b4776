/* Starting and ending processes. */
#include "raylet-c/cli/children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/test.h"

static char out[] = "/tmp/raylet-c-test-XXXXXX";

static int wait_for(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static const char *run_words(char *const *words, const char *const *env)
{
	static char text[1000];
	rc_error error = { 0 };

	CHECK_EQ_INT(0, truncate(out, 0));
	pid_t pid = rc_child_start(&(rc_child_spec){ .words = words, .env = env, .out = out, .err = out }, &error);
	CHECK_STR("", error.text);
	CHECK(pid > 0);
	CHECK_EQ_INT(0, wait_for(pid));
	FILE *f = fopen(out, "r");
	CHECK(f != NULL);
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

static const char *run(const char *script, const char *const *env)
{
	char *words[] = { "/bin/sh", "-c", (char *)script, NULL };

	return run_words(words, env);
}

static void environment(void)
{
	static const char *const env[] = { "A_NAME=new", "B_NAME=b", NULL };

	setenv("A_NAME", "old", 1);
	setenv("A_NAMES", "kept", 1);
	CHECK_STR("new b kept\n", run("echo $A_NAME $B_NAME $A_NAMES", env));
	CHECK_STR("old\n", run("echo $A_NAME", NULL));
}

static void descriptors(void)
{
	int leak = open("/dev/null", O_RDONLY); /* not close-on-exec */
	char *words[] = { "/bin/ls", "/proc/self/fd", NULL };

	CHECK(leak > 2);
	CHECK_STR("0\n1\n2\n3\n", run_words(words, NULL)); /* 3 is the folder that ls reads */
	close(leak);
}

static void failures(void)
{
	char *words[] = { "/no/such/program", NULL }, *sh[] = { "/bin/true", NULL };
	rc_error error;

	CHECK_EQ_INT(-1, rc_child_start(&(rc_child_spec){ .words = words }, &error));
	CHECK(strstr(error.text, "/no/such/program") != NULL && strstr(error.text, "No such file") != NULL);
	CHECK_EQ_INT(-1, rc_child_start(&(rc_child_spec){ .words = sh, .out = "/no/such/folder/file" }, &error));
	CHECK(strstr(error.text, "/no/such/folder/file") != NULL);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

static void stopping(void)
{
	char *polite[] = { "/bin/sleep", "100", NULL };
	char *stubborn[] = { "/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", NULL };
	rc_error error;
	int status;
	pid_t pid = rc_child_start(&(rc_child_spec){ .words = polite }, &error);

	CHECK_EQ_INT(0, rc_child_ended(pid, &status));
	rc_child_stop(pid, 5000);
	CHECK(kill(pid, 0) != 0 && errno == ESRCH);
	pid = rc_child_start(&(rc_child_spec){ .words = stubborn, .out = "/dev/null", .err = "/dev/null" }, &error);
	usleep(200 * 1000);
	rc_child_stop(pid, 50);
	CHECK(kill(pid, 0) != 0 && errno == ESRCH);
}

int main(void)
{
	int fd = mkstemp(out);

	if (fd < 0 || close(fd) != 0)
		return 1;
	RUN(environment, "a child's environment is ours with the additions in place");
	RUN(descriptors, "a child inherits no descriptor but its three");
	RUN(failures, "a program that cannot be executed is an error with its name, and leaves no process");
	RUN(stopping, "a child is asked to end, and ended when it does not");
	return unlink(out) != 0 ? 1 : test_end();
}
