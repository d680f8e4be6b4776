#include "raylet-c/agent/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/base/test.h"

static char top[] = "/tmp/rc-logs-XXXXXX";
static char *folder;

static char *in(const char *name)
{
	return rc_sprintf("%s/%s", folder, name);
}

static void put(const char *name, const char *text)
{
	char *path = in(name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	free(path);
}

static void link_to(const char *target, const char *name)
{
	char *path = in(name);
	CHECK_EQ_INT(0, symlink(target, path));
	free(path);
}

static void make(void)
{
	folder = rc_sprintf("%s/logs", top);
	char *secret = rc_sprintf("%s/secret", top), *below = in("below"), *deep = in("below/deep"), *fifo = in("fifo");
	CHECK(!mkdir(folder, 0755) && !mkdir(below, 0755) && !mkdir(deep, 0755) && !mkfifo(fifo, 0644));
	put("../secret", "secret");
	put("a.log", "a");
	put("b.out", "b");
	put("below/c.log", "c");
	put("below/deep/d.log", "d");
	link_to("../secret", "out.log");
	link_to("a.log", "inner.log");
	link_to(top, "up");
	free(secret);
	free(below);
	free(deep);
	free(fifo);
}

static void only_regular_files_below(void)
{
	static const char *const good[] = { "a.log", "./a.log", "below/c.log", "below//deep/d.log", "below/./c.log" };
	static const char *const bad[] = { "../secret", "below/../../secret", "out.log", "inner.log", "up/secret", "up/logs/a.log", "fifo", "below",
		                           "none", "a.log/x", "/etc/passwd", "..", "", "below/..", "/" };
	uint64_t size;
	rc_error e;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		int fd = rc_log_file_open(folder, good[i], NULL, &size, &e);
		CHECK(fd >= 0 && size == 1);
		close(fd);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int fd = rc_log_file_open(folder, bad[i], NULL, &size, &e);
		CHECK_STR(fd < 0 ? bad[i] : "", bad[i]);
		CHECK(*e.text);
	}
	char *absolute = in("a.log"), *sibling = rc_sprintf("%s/logs/../secret", top);
	int fd = rc_log_file_open(folder, absolute, NULL, &size, &e);
	CHECK(fd >= 0);
	close(fd);
	CHECK_EQ_INT(-1, rc_log_file_open(folder, sibling, NULL, &size, &e));
	free(absolute);
	free(sibling);
	bool is_folder = false;
	fd = rc_log_file_open(folder, "below", &is_folder, &size, &e);
	CHECK(fd >= 0 && is_folder);
	close(fd);
}

static rc_buf names;

static void note(void *arg, const char *name)
{
	(void)arg;
	rc_buf_printf(&names, "%s ", name);
}

static bool has(const char *name)
{
	char *word = rc_sprintf(" %s ", name), *all = rc_sprintf(" %s", rc_buf_cstr(&names));
	bool found = strstr(all, word) != NULL;
	free(word);
	free(all);
	return found;
}

static size_t listed(const char *pattern)
{
	rc_error e;
	size_t n = 0;
	rc_buf_free(&names);
	CHECK_EQ_INT(0, rc_log_files_list(folder, pattern, note, NULL, &e));
	for (size_t i = 0; i < names.n; i++)
		n += names.p[i] == ' ';
	return n;
}

static void listing(void)
{
	CHECK_EQ_INT(3, listed("*"));
	CHECK(has("a.log") && has("b.out") && has("below/"));
	CHECK_EQ_INT(3, listed(""));
	CHECK_EQ_INT(1, listed("*.log"));
	CHECK_EQ_INT(1, listed("[ab].o?t"));
	CHECK_EQ_INT(2, listed("below/*"));
	CHECK(has("below/c.log") && has("below/deep/"));
	CHECK_EQ_INT(3, listed("**/*.log"));
	CHECK(has("a.log") && has("below/c.log") && has("below/deep/d.log"));
	CHECK_EQ_INT(0, listed("up/*"));
	CHECK_EQ_INT(0, listed("*/secret"));
	static const char *const bad[] = { "../*", "/etc/*", "a/../../*", "..", "*/..", "*****************" };
	rc_error e;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ_INT(-1, rc_log_files_list(folder, bad[i], note, NULL, &e));
	rc_buf_free(&names);
}

static void tails(void)
{
	static const struct {
		const char *text;
		uint64_t lines, start;
	} cases[] = { { "a\nb\nc\n", 1, 4 }, { "a\nb\nc\n", 2, 2 }, { "a\nb\nc\n", 3, 0 }, { "a\nb\nc\n", 9, 0 }, { "a\nb\nc", 1, 4 }, { "a\nb\nc", 2, 2 },
		      { "\n\n\n", 2, 1 }, { "", 5, 0 }, { "x", 1, 0 }, { "a\nb\n", 0, 4 } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put("tail", cases[i].text);
		char *path = in("tail");
		int fd = open(path, O_RDONLY);
		CHECK_EQ_INT(cases[i].start, rc_log_tail_start(fd, strlen(cases[i].text), cases[i].lines));
		close(fd);
		free(path);
	}
	rc_buf big = { 0 }; /* over several blocks, beside a plain count */
	for (int i = 0; i < 30000; i++)
		rc_buf_printf(&big, "line %d\n", i);
	put("tail", rc_buf_cstr(&big));
	char *path = in("tail"), *want = strstr((char *)big.p, "line 10000\n");
	int fd = open(path, O_RDONLY);
	CHECK_EQ_INT(want - (char *)big.p, rc_log_tail_start(fd, big.n, 20000));
	close(fd);
	free(path);
	rc_buf_free(&big);
}

int main(void)
{
	if (!mkdtemp(top))
		return 1;
	make();
	RUN(only_regular_files_below, "regular files below the folder are opened, and nothing else");
	RUN(listing, "patterns list what is below the folder, and no links");
	RUN(tails, "the last lines of a file are found");
	char *clean = rc_sprintf("rm -r %s", top);
	int code = system(clean);
	free(clean);
	free(folder);
	return test_end() || code;
}
