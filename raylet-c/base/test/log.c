/* Log lines, written into files by a child process that redirects itself. */
#include "raylet-c/base/log.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static char folder[] = "/tmp/rc_log_XXXXXX";
static char out_path[64], err_path[64];

static void read_file(const char *path, char *text, size_t n)
{
	FILE *f = fopen(path, "r");
	size_t got = f ? fread(text, 1, n - 1, f) : 0;

	text[got] = 0;
	if (f)
		fclose(f);
	unlink(path);
}

static void in_child(void (*fn)(void), const char *out, const char *err)
{
	pid_t pid = fork();
	int status = 1;

	if (pid == 0) {
		rc_error e;

		if (rc_log_redirect(out, err, &e) < 0)
			_exit(9);
		fn();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	CHECK_EQ_INT(0, status);
}

static void say(void)
{
	rc_debug("too fine");
	rc_info("hello %d\nforged line", 5);
	rc_warn("careful");
	rc_error_log("broken");
}

static void shape(void)
{
	char text[4096];
	int y, mo, d, h, mi, s, ms, pid, tid, line;
	char level, file[64];

	in_child(say, out_path, err_path);
	read_file(out_path, text, sizeof text);
	CHECK_EQ_INT(10, sscanf(text, "[%4d-%2d-%2d %2d:%2d:%2d,%3d %c %d %d]", &y, &mo, &d, &h, &mi, &s, &ms, &level, &pid, &tid));
	CHECK_EQ_INT('I', level);
	CHECK_EQ_INT(1, strstr(text, "(raylet) ") ? sscanf(strstr(text, "(raylet) "), "(raylet) %63[^:]:%d:", file, &line) - 1 : 0);
	CHECK_STR("log.c", file);
	CHECK(strstr(text, ": hello 5 forged line\n") != NULL);
	CHECK(strstr(text, " W ") && strstr(text, " E ") && !strstr(text, "too fine"));
	read_file(err_path, text, sizeof text);
	CHECK(strstr(text, ": broken\n") && !strstr(text, "careful"));
}

static void one_file(void)
{
	char text[4096], *first;

	in_child(say, out_path, out_path);
	read_file(out_path, text, sizeof text);
	first = strstr(text, "broken");
	CHECK(first && !strstr(first + 1, "broken"));
}

static void say_much(void)
{
	char big[10000];

	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = 0;
	rc_info("%s", big);
	rc_info("next");
}

static void long_line(void)
{
	char text[12000], *end;

	in_child(say_much, out_path, err_path);
	read_file(out_path, text, sizeof text);
	end = strchr(text, '\n');
	CHECK(end && end - text < 4096 && strncmp(end - 3, "...", 3) == 0 && strstr(end, "next\n"));
	unlink(err_path);
}

static void bad_path(void)
{
	rc_error e;

	CHECK_EQ_INT(-1, rc_log_redirect("/nonexistent/raylet.out", NULL, &e));
	CHECK(strstr(e.text, "/nonexistent/raylet.out") != NULL);
}

static void say_often(void)
{
	for (int i = 0; i < 5000; i++)
		rc_warn("again %d", i);
	rc_warn("another");
}

static void flood(void)
{
	static char text[2 << 20];
	size_t lines = 0;

	in_child(say_often, out_path, err_path);
	read_file(out_path, text, sizeof text);
	unlink(err_path);
	for (const char *p = text; (p = strstr(p, ": again ")) != NULL; p++)
		lines++;
	CHECK(lines >= 1000 && lines <= 2000); /* a minute may end in between */
	CHECK(strstr(text, ": another\n") != NULL);
}

int main(void)
{
	if (!mkdtemp(folder))
		return 1;
	snprintf(out_path, sizeof out_path, "%s/out", folder);
	snprintf(err_path, sizeof err_path, "%s/err", folder);
	RUN(shape, "lines look like a stock raylet's, and only errors reach stderr");
	RUN(one_file, "an error is written once when stdout and stderr are one file");
	RUN(long_line, "a line that is too long is cut and marked");
	RUN(bad_path, "a log file that cannot be opened is named");
	RUN(flood, "a place that logs without end is held back, others are not");
	rmdir(folder);
	return test_end();
}
