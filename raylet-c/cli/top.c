/* See top.h. The terminal is put into cbreak mode on the alternate screen, and back on every way out: q, SIGINT, SIGTERM, SIGHUP,
 * SIGQUIT, SIGTSTP (until SIGCONT). A picture is written when it differs from the one before. */
#define _GNU_SOURCE
#include "raylet-c/cli/top.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/base/log.h"
#include "raylet-c/cli/top_frame.h"
#include "raylet-c/cli/top_model.h"
#include "raylet-c/cli/words.h"

enum { ONCE_MS = 500, PLAIN_WIDTH = 200 };

static const char help[] =
	"raylet-c top [--interval SECONDS] [--sort cpu|memory] [--once] [--json]\n"
	"\n"
	"This user's Ray worker nodes on this host, live: resources, object store, transfers, leases, bundles, GPUs, and what each worker does.\n"
	"Keys: q leaves, c and m sort by CPU and memory, j k space b g scroll, h tells them.\n"
	"--once prints one picture as text, --json one as JSON (raylet-c/cli/look.h and top_model.h have the keys), after half a second in\n"
	"which processor time is measured. Status of these: 0, or 1 when no node runs here.\n";

typedef struct top {
	rc_loop *loop;
	rc_top_model *model;
	json_t *all; /* of the last round */
	rc_top_view view;
	rc_buf shown;
	struct termios before;
	bool in_screen;
	bool once, as_json;
	int rounds, status;
} top;

/* ---- the terminal ---- */

static void put(const void *p, size_t n)
{
	const char *at = p;

	while (n > 0) {
		ssize_t done = write(STDOUT_FILENO, at, n);

		if (done < 0 && errno != EINTR)
			return; /* it is gone; SIGHUP comes */
		at += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
}

static void put_text(const char *s)
{
	put(s, strlen(s));
}

static void enter_screen(top *t)
{
	struct termios raw = t->before;

	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	put_text("\033[?1049h\033[?25l\033[?7l"); /* no wrapping: wide characters take two columns */
	t->in_screen = true;
	rc_buf_free(&t->shown);
}

static void leave_screen(top *t)
{
	if (!t->in_screen)
		return;
	put_text("\033[?7h\033[?25h\033[?1049l");
	tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
	t->in_screen = false;
}

static void measure(top *t)
{
	struct winsize w = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || !w.ws_col || !w.ws_row)
		w = (struct winsize){ .ws_col = 80, .ws_row = 24 };
	t->view.width = w.ws_col;
	t->view.height = w.ws_row;
}

static unsigned count_lines(const rc_buf *text)
{
	unsigned n = 0;

	for (size_t i = 0; i < text->n; i++)
		n += text->p[i] == '\n';
	return n;
}

/* Each line is cleared before it is written (behind one of full width its last column would go), what stood below at the end; no newline
 * behind the last, which would scroll. */
static void draw(top *t)
{
	rc_buf text = { 0 }, out = { 0 };
	char clock[16] = "";
	time_t now = time(NULL);
	struct tm parts;

	if (!t->all || !t->in_screen)
		return;
	if (localtime_r(&now, &parts))
		strftime(clock, sizeof clock, "%H:%M:%S", &parts);
	t->view.clock = clock;
	rc_top_frame(t->all, &t->view, &text);
	if (text.n == t->shown.n && memcmp(text.p, t->shown.p, text.n) == 0) {
		rc_buf_free(&text);
		return;
	}
	rc_buf_str(&out, "\033[H\033[K");
	for (size_t i = 0; i < text.n; i++) {
		if (text.p[i] != '\n')
			rc_buf_add(&out, &text.p[i], 1);
		else if (i + 1 < text.n)
			rc_buf_str(&out, "\r\n\033[K");
	}
	rc_buf_str(&out, count_lines(&text) < t->view.height ? "\r\n\033[J\033[m" : "\033[m");
	put(out.p, out.n);
	rc_buf_free(&out);
	rc_buf_free(&t->shown);
	t->shown = text;
}

/* ---- rounds ---- */

static void print(top *t)
{
	if (t->as_json) {
		json_dumpf(t->all, stdout, JSON_INDENT(2));
		printf("\n");
	} else {
		rc_buf text = { 0 };

		rc_top_frame(t->all, &t->view, &text);
		fwrite(text.p, 1, text.n, stdout);
		rc_buf_free(&text);
	}
	t->status = json_array_size(json_object_get(t->all, "nodes")) > 0 ? 0 : 1;
}

static void look(void *arg);

static void on_round(void *arg, json_t *all)
{
	top *t = arg;

	json_decref(t->all);
	t->all = json_incref(all);
	if (!t->once) {
		draw(t);
	} else if (t->rounds++ == 0) {
		rc_loop_after(t->loop, ONCE_MS, look, t);
	} else {
		print(t);
		rc_loop_stop(t->loop);
	}
}

static void look(void *arg)
{
	top *t = arg;

	(void)rc_top_model_look(t->model, on_round, t);
}

/* ---- keys and signals ---- */

static void scroll(top *t, long lines)
{
	t->view.first = lines < 0 && t->view.first < (size_t)-lines ? 0 : t->view.first + (size_t)lines;
}

/* A key, or an escape sequence of one. */
static void key(top *t, const char *p, size_t n)
{
	long page = t->view.height / 2;

	if (n == 1 && (*p == 'q' || *p == 'Q'))
		rc_loop_stop(t->loop);
	else if (n == 1 && (*p == 'c' || *p == 'm'))
		t->view.sort = *p == 'c' ? RC_TOP_BY_CPU : RC_TOP_BY_MEMORY;
	else if (n == 1 && (*p == 'h' || *p == '?'))
		t->view.help = !t->view.help;
	else if (n == 1 && *p == 'g')
		t->view.first = 0;
	else if ((n == 1 && *p == 'j') || (n == 3 && p[2] == 'B'))
		scroll(t, 1);
	else if ((n == 1 && *p == 'k') || (n == 3 && p[2] == 'A'))
		scroll(t, -1);
	else if ((n == 1 && *p == ' ') || (n == 4 && p[2] == '6'))
		scroll(t, page);
	else if ((n == 1 && *p == 'b') || (n == 4 && p[2] == '5'))
		scroll(t, -page);
}

static void on_keys(void *arg, int events)
{
	top *t = arg;
	char keys[64];
	ssize_t n = read(STDIN_FILENO, keys, sizeof keys), length;

	(void)events;
	if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) { /* the terminal has gone */
		rc_loop_stop(t->loop);
		return;
	}
	for (ssize_t i = 0; i < n; i += length) {
		length = 1;
		if (keys[i] == '\033' && i + 2 < n && (keys[i + 1] == '[' || keys[i + 1] == 'O'))
			length = i + 3 < n && keys[i + 3] == '~' ? 4 : 3;
		key(t, keys + i, (size_t)length);
	}
	draw(t);
}

/* As the default does it: stops where a shell can go on with it, nothing where none can. */
static void stop_for_a_while(top *t)
{
	struct sigaction ours, standard = { .sa_handler = SIG_DFL };

	leave_screen(t);
	sigaction(SIGTSTP, &standard, &ours);
	raise(SIGTSTP);
	sigaction(SIGTSTP, &ours, NULL);
}

static void go_on(top *t)
{
	enter_screen(t);
	measure(t);
	draw(t);
}

static void on_signal(void *arg, int signum)
{
	top *t = arg;

	switch (signum) {
	case SIGWINCH:
		measure(t);
		rc_buf_free(&t->shown);
		draw(t);
		return;
	case SIGTSTP:
		stop_for_a_while(t);
		go_on(t);
		return;
	case SIGCONT:
		go_on(t);
		return;
	default:
		rc_loop_stop(t->loop);
	}
}

static void run_live(top *t, uint64_t interval_ms)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH };
	rc_timer *timer = rc_timer_start(t->loop, 0, interval_ms, look, t);
	int flags = fcntl(STDIN_FILENO, F_GETFL);
	rc_watch *keys = rc_watch_start(t->loop, STDIN_FILENO, RC_READABLE, on_keys, t);

	fcntl(STDIN_FILENO, F_SETFL, flags); /* the loop made it non-blocking, for the shell and stdout too; VMIN 0 is enough */
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		rc_signal_start(t->loop, signals[i], on_signal, t);
	t->view.colors = true;
	measure(t);
	enter_screen(t);
	rc_loop_run(t->loop);
	leave_screen(t);
	rc_watch_stop(keys);
	rc_timer_stop(timer);
}

static int seconds_of(const char *text, uint64_t *ret_ms, rc_error *error)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end || !(s >= 0.1 && s <= 3600))
		return rc_fail(error, RC_E_INVALID, "--interval: %s is no number of seconds from 0.1 to 3600", text);
	*ret_ms = (uint64_t)(s * 1000);
	return 0;
}

static int read_words(top *t, int argc, char **argv, uint64_t *ret_ms, bool *ret_help, rc_error *error)
{
	const char *interval = NULL, *sort = "cpu";
	const rc_word words[] = { { "--interval", &interval, NULL }, { "--sort", &sort, NULL },      { "--once", NULL, &t->once },
		                  { "--json", NULL, &t->as_json },   { "--help", NULL, ret_help }, { 0 } };

	if (rc_words_read(words, argc, argv, error) != 0 || (interval && seconds_of(interval, ret_ms, error) != 0))
		return -1;
	if (strcmp(sort, "cpu") != 0 && strcmp(sort, "memory") != 0)
		return rc_fail(error, RC_E_INVALID, "--sort: %s is neither cpu nor memory", sort);
	t->view.sort = strcmp(sort, "cpu") == 0 ? RC_TOP_BY_CPU : RC_TOP_BY_MEMORY;
	t->once = t->once || t->as_json;
	return 0;
}

int rc_top_command(int argc, char **argv)
{
	top t = { .view = { .width = PLAIN_WIDTH } };
	const char *terminal = getenv("TERM");
	uint64_t interval_ms = 1000;
	bool wants_help = false;
	rc_error error;

	if (read_words(&t, argc, argv, &interval_ms, &wants_help, &error) != 0) {
		fprintf(stderr, "raylet-c top: %s\n", error.text);
		return 2;
	}
	if (wants_help) {
		fputs(help, stdout);
		return 0;
	}
	if (!t.once && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !terminal || strcmp(terminal, "dumb") == 0 ||
	                tcgetattr(STDIN_FILENO, &t.before) != 0)) {
		fprintf(stderr, "raylet-c top: this is no terminal that can show it (TERM=%s): --once prints one picture\n", terminal ? terminal : "");
		return 1;
	}
	rc_log_level(RC_ERROR);
	t.loop = rc_loop_create();
	t.model = rc_top_model_create(t.loop, &error);
	if (!t.model) {
		fprintf(stderr, "raylet-c top: %s\n", error.text);
		rc_loop_destroy(t.loop);
		return 1;
	}
	if (t.once) {
		rc_loop_after(t.loop, 0, look, &t);
		rc_loop_run(t.loop);
	} else {
		run_live(&t, interval_ms);
	}
	rc_top_model_destroy(t.model);
	rc_loop_destroy(t.loop);
	json_decref(t.all);
	rc_buf_free(&t.shown);
	return t.status;
}
