/* The text for RC_TRAIN_ENV: lines NAME=value, defaults for the environment; lines @name=value for transport.py itself. */
#include "raylet-c/node/train.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/base/log.h"
#include "raylet-c/cli/versions.h"

#define FILE_PREFIX "transport-" /* transport.py writes <log_dir>/transport-PID: two lines, within and between */
#define STEPS_PREFIX "steps-"    /* progress.py has <log_dir>/steps-PID: 8 bytes, little-endian */

enum { MAX_FILES = 1024, MAX_KINDS = 32, LINE = 120 };

static char *text_for_workers(const rc_train *t, const rc_choice_env *env, bool required)
{
	rc_buf b = { 0 };
	for (size_t i = 0; i < env->n; i++)
		rc_buf_printf(&b, "%s\n", env->v[i]);
	rc_buf_printf(&b, "@transport=%s\n@logs=%s\n", rc_via_name(t->choice.nccl_between), t->log_dir);
	if (*t->choice.why_not_efa)
		rc_buf_printf(&b, "@why=%s\n", t->choice.why_not_efa);
	if (required)
		rc_buf_str(&b, "@require=efa\n");
	char *text = rc_strdup(rc_buf_cstr(&b));
	rc_buf_free(&b);
	return text;
}

int rc_train_look(const rc_options *o, rc_train *ret, rc_error *error)
{
	const char *asked = getenv("RAYLET_C_REQUIRE_EFA"), *root = getenv("RC_DOCTOR_ROOT");
	bool required = asked && strcmp(asked, "1") == 0;
	rc_package package = { 0 };
	char *slash = rc_package_of_command(o->python_worker_command, &package) ? strrchr(package.dir, '/') : NULL;
	if (slash)
		*slash = '\0';
	rc_facts *facts = rc_alloc(sizeof(*facts));
	rc_facts_gather(&(rc_facts_options){ .root = root ? root : "", .address = o->node_ip_address, .site_packages = slash ? package.dir : NULL,
	                                     .library_path = getenv("LD_LIBRARY_PATH"), .brief = true },
	                facts);
	rc_choice_env env;
	rc_train t = { .log_dir = o->log_dir };
	rc_choose(facts, &t.choice);
	rc_choice_environment(facts, &t.choice, required, &env);
	free(facts);
	if (required && t.choice.nccl_between != RC_VIA_EFA)
		return rc_fail(error, RC_E_UNAVAILABLE, "EFA is required (--require-efa, RAYLET_C_REQUIRE_EFA=1) and cannot be used: %s%s%.180s",
		               t.choice.efa_there ? t.choice.why_not_efa : "this machine has no EFA device", *t.choice.cure ? "; " : "", t.choice.cure);
	if (*t.choice.why_not_efa)
		rc_warn("EFA is there and trainers will not use it: %s; %s", t.choice.why_not_efa, t.choice.cure);
	t.env = text_for_workers(&t, &env, required);
	*ret = t;
	return 0;
}

void rc_train_free(rc_train *t)
{
	free(t->env);
	*t = (rc_train){ 0 };
}

void rc_train_label(const rc_train *t, rc_labels *labels)
{
	if (!rc_labels_get(labels, RC_TRAIN_LABEL))
		rc_labels_set(labels, RC_TRAIN_LABEL, rc_via_name(t->choice.nccl_between));
}

/* ---- what workers found ---- */

typedef struct kind {
	char within[LINE], between[LINE];
	unsigned workers;
} kind;

/* One printable line without its end; false when there is none. */
static bool take_line(FILE *f, char line[LINE])
{
	if (!fgets(line, LINE, f))
		return false;
	line[strcspn(line, "\n")] = '\0';
	for (char *p = line; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return true;
}

/* A file that workers write: no FIFO may hold the loop, no link leads out of the folder. */
static int open_of_worker(const char *path)
{
	return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

static void count(kind *kinds, size_t *n, const char *path)
{
	kind k = { .workers = 1 };
	int fd = open_of_worker(path);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
	bool whole = f && take_line(f, k.within) && take_line(f, k.between);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	for (size_t i = 0; whole && i < *n; i++)
		if (strcmp(kinds[i].within, k.within) == 0 && strcmp(kinds[i].between, k.between) == 0) {
			kinds[i].workers++;
			return;
		}
	if (whole && *n < MAX_KINDS)
		kinds[(*n)++] = k;
}

/* The pid in a name that begins so; 0: another name. */
static pid_t pid_of_name(const char *name, const char *prefix)
{
	size_t n = strlen(prefix);
	char *end;
	long pid = strncmp(name, prefix, n) == 0 ? strtol(name + n, &end, 10) : 0;
	return pid > 1 && *end == '\0' ? (pid_t)pid : 0;
}

static void count_workers(const char *log_dir, kind *kinds, size_t *n)
{
	DIR *folder = opendir(log_dir);
	struct dirent *e;
	for (size_t files = 0; folder && files < MAX_FILES && (e = readdir(folder));) {
		pid_t told = pid_of_name(e->d_name, FILE_PREFIX), pid = told ? told : pid_of_name(e->d_name, STEPS_PREFIX);
		if (!pid)
			continue;
		files++;
		char *path = rc_sprintf("%s/%s", log_dir, e->d_name);
		if (kill(pid, 0) != 0 && errno == ESRCH)
			unlink(path);
		else if (told)
			count(kinds, n, path);
		free(path);
	}
	if (folder)
		closedir(folder);
}

void rc_train_metrics(const rc_train *t, rc_metrics *m)
{
	kind *kinds = rc_alloc(MAX_KINDS * sizeof(*kinds));
	size_t n = 0;
	rc_metrics_gauge(m, "train_transport_configured", "1 for the transport that trainers of this node take between nodes", 1,
	                 (const char *[]){ "Transport", rc_via_name(t->choice.nccl_between), NULL });
	count_workers(t->log_dir, kinds, &n);
	for (size_t i = 0; i < n; i++)
		rc_metrics_gauge(m, "train_transport_workers", "Workers by the transport that their NCCL or gloo says it uses", kinds[i].workers,
		                 (const char *[]){ "Within", kinds[i].within, "Between", kinds[i].between, NULL });
	free(kinds);
}

int64_t rc_train_steps(const rc_train *t, pid_t pid)
{
	char *path = rc_sprintf("%s/" STEPS_PREFIX "%d", t->log_dir, (int)pid);
	int fd = open_of_worker(path);
	uint8_t bytes[8] = { 0 };
	uint64_t steps = 0;
	bool whole = fd >= 0 && read(fd, bytes, sizeof(bytes)) == sizeof(bytes);
	if (fd >= 0)
		close(fd);
	free(path);
	for (int i = 7; i >= 0; i--)
		steps = steps << 8 | bytes[i];
	return whole && steps <= INT64_MAX ? (int64_t)steps : -1;
}

void rc_train_worker_gone(const rc_train *t, pid_t pid)
{
	static const char *const prefixes[] = { FILE_PREFIX, STEPS_PREFIX };
	for (int i = 0; i < 2 && t->log_dir && pid > 0; i++) {
		char *path = rc_sprintf("%s/%s%d", t->log_dir, prefixes[i], (int)pid);
		unlink(path);
		free(path);
	}
}
