/* The raylet-c command: which subcommand, its words, its exit status. 0: done; 1: refused or failed, with one line on stderr;
 * 2: wrong words on the command line (as Ray's own command line has it). */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raylet-c/base/version.h"
#include "raylet-c/cli/doctor.h"
#include "raylet-c/cli/health_check.h"
#include "raylet-c/cli/info.h"
#include "raylet-c/cli/install.h"
#include "raylet-c/cli/start.h"
#include "raylet-c/cli/stop.h"
#include "raylet-c/cli/top.h"
#include "raylet-c/wire/dialect.h"

static const char help[] =
	"raylet-c: Ray worker nodes on a node daemon in C\n"
	"\n"
	"  raylet-c enable [--ray-dir DIR] [--daemon FILE]   put the daemon in the place of Ray's own inside a ray package\n"
	"  raylet-c disable [--ray-dir DIR]                  put Ray's own back\n"
	"  raylet-c status [--ray-dir DIR]                   which one a ray package has\n"
	"  raylet-c start --address=HEAD:PORT [OPTIONS]      start a node without changing a package (raylet-c start --help)\n"
	"  raylet-c stop [OPTIONS]                           end the nodes that raylet-c start started here (raylet-c stop --help)\n"
	"  raylet-c info [--json]                            the nodes of this host: address, ports, resources, are they alive\n"
	"  raylet-c top [--once] [--json]                    the nodes of this host live: workers, leases, object store, GPUs\n"
	"  raylet-c health-check [--address HEAD:PORT]       does a head answer, is it of this release\n"
	"  raylet-c doctor [--json] [--pair [HOST]]          is this machine fit as a training node, which network is used, how fast\n"
	"  raylet-c train explain MODEL [OPTIONS]            what the FSDP engine does with a model (raylet-c train explain --help)\n"
	"  raylet-c version                                  this version and the Ray releases that it supports\n"
	"\n"
	"DIR is a ray package, or an environment that holds one; without it: the environment of this command, then the one of\n"
	"`ray`, then the one of `python3` on PATH. After `enable`, `ray start` brings up nodes as before; `ray start --head` and\n"
	"RAYLET_C=0 in the environment run Ray's own daemon.\n";

static int wrong_words(const char *format, const char *word)
{
	fputs("raylet-c: ", stderr);
	fprintf(stderr, format, word);
	fputs("; see raylet-c --help\n", stderr);
	return 2;
}

static int failed(const rc_error *error)
{
	fprintf(stderr, "raylet-c: %s\n", error->text);
	return 1;
}

/* "--name VALUE" or "--name=VALUE": 1 and moves *i; 0: another word; -1: no value. */
static int option(int argc, char **argv, int *i, const char *name, const char **ret)
{
	size_t n = strlen(name);

	if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] != '\0' && argv[*i][n] != '='))
		return 0;
	if (argv[*i][n] == '=') {
		*ret = argv[*i] + n + 1;
		return 1;
	}
	if (*i + 1 >= argc)
		return -1;
	*ret = argv[++*i];
	return 1;
}

/* `train WORD ...` is Python: raylet_c.train.WORD, run by the interpreter beside this command, else the one on PATH. */
static int run_train(int argc, char **argv)
{
	char python[PATH_MAX], module[64], **words;
	ssize_t n = readlink("/proc/self/exe", python, sizeof python - sizeof "python3");
	char *slash;

	if (argc < 3 || strcmp(argv[2], "explain") != 0)
		return wrong_words("train: no such command: %s", argc < 3 ? "(none)" : argv[2]);
	words = calloc((size_t)argc + 2, sizeof *words);
	if (!words)
		return 1;
	snprintf(module, sizeof module, "raylet_c.train.%s", argv[2]);
	words[0] = "python3";
	words[1] = "-m";
	words[2] = module;
	for (int i = 3; i < argc; i++)
		words[i] = argv[i];
	python[n > 0 ? n : 0] = '\0';
	slash = strrchr(python, '/');
	if (slash) {
		strcpy(slash + 1, "python3");
		execv(python, words);
	}
	execvp("python3", words);
	fprintf(stderr, "raylet-c: train: no python3 can be run, beside this command or on PATH\n");
	free(words);
	return 1;
}

static int show_status(const rc_package *p, rc_error *error)
{
	static const char *const texts[] = {
		[RC_INSTALL_STOCK] = "disabled: Ray's own daemon is in place",
		[RC_INSTALL_ENABLED] = "enabled: the daemon in C is in place, Ray's own is kept as raylet.stock",
		[RC_INSTALL_OVERWRITTEN] = "overwritten: a later installation of ray put its own daemon back; run raylet-c enable again",
		[RC_INSTALL_NO_STOCK] = "enabled, but raylet.stock is gone: --head and RAYLET_C=0 cannot work; reinstall ray, then enable",
	};
	rc_install_state state;
	rc_error unsupported;

	if (rc_install_state_of(p, &state, error) != 0)
		return failed(error);
	printf("ray %s in %s\n%s\n", p->release, p->dir, texts[state]);
	if (rc_dialect_find(p->release, &unsupported) == NULL)
		printf("this version of raylet-c does not support ray %s; it supports %s\n", p->release, rc_dialect_releases());
	return 0;
}

static int package_command(const char *command, int argc, char **argv)
{
	const char *ray_dir = NULL, *daemon = NULL;
	char found[PATH_MAX];
	rc_package p;
	rc_install_state was;
	rc_error error;

	for (int i = 0; i < argc; i++) {
		int n = option(argc, argv, &i, "--ray-dir", &ray_dir);

		if (n == 0 && strcmp(command, "enable") == 0)
			n = option(argc, argv, &i, "--daemon", &daemon);
		if (n < 0)
			return wrong_words("option %s needs a value", argv[i]);
		if (n == 0)
			return wrong_words("no such option: %s", argv[i]);
	}
	if (rc_package_find(ray_dir, &p, &error) != 0)
		return failed(&error);
	if (strcmp(command, "status") == 0)
		return show_status(&p, &error);
	if (strcmp(command, "disable") == 0) {
		if (rc_install_disable(&p, &was, &error) != 0)
			return failed(&error);
		printf("ray %s in %s: %s\n", p.release, p.dir,
		       was == RC_INSTALL_ENABLED ? "Ray's own daemon is back in place" : "Ray's own daemon was in place already");
		return 0;
	}
	if (daemon == NULL) {
		if (rc_daemon_find(found, &error) != 0)
			return failed(&error);
		daemon = found;
	}
	if (rc_install_enable(&p, daemon, &error) != 0)
		return failed(&error);
	printf("ray %s in %s: the daemon in C is in place; raylet-c disable puts Ray's own back\n", p.release, p.dir);
	return 0;
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "--help";

	if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0 || strcmp(command, "help") == 0) {
		fputs(help, stdout);
		return argc > 1 ? 0 : 2;
	}
	if (strcmp(command, "version") == 0 || strcmp(command, "--version") == 0) {
		printf("raylet-c %s (ray %s)\n", RC_VERSION, rc_dialect_releases());
		return 0;
	}
	if (strcmp(command, "enable") == 0 || strcmp(command, "disable") == 0 || strcmp(command, "status") == 0) {
		if (argc == 3 && strcmp(argv[2], "--help") == 0) {
			fputs(help, stdout);
			return 0;
		}
		return package_command(command, argc - 2, argv + 2);
	}
	if (strcmp(command, "train") == 0)
		return run_train(argc, argv);
	if (strcmp(command, "doctor") == 0)
		return rc_doctor_command(argc - 2, argv + 2);
	if (strcmp(command, "start") == 0)
		return rc_start_command(argc - 2, argv + 2);
	if (strcmp(command, "stop") == 0)
		return rc_stop_command(argc - 2, argv + 2);
	if (strcmp(command, "info") == 0)
		return rc_info_command(argc - 2, argv + 2);
	if (strcmp(command, "top") == 0)
		return rc_top_command(argc - 2, argv + 2);
	if (strcmp(command, "health-check") == 0)
		return rc_health_check_command(argc - 2, argv + 2);
	return wrong_words("no such command: %s", command);
}
