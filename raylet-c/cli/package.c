/* Finding a ray package and our daemon; see package.h. Environments have one shape everywhere:
 * PREFIX/bin/<programs>, PREFIX/lib/python3.N/{site,dist}-packages/<packages>. */
#define _GNU_SOURCE /* memmem, pipe2 */
#include "raylet-c/cli/package.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/base/version.h"

#define RAYLET_IN_PACKAGE "/core/src/ray/raylet/raylet"

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool join(char out[PATH_MAX], const char *a, const char *b)
{
	int n = snprintf(out, PATH_MAX, "%s%s", a, b);

	return n >= 0 && n < PATH_MAX;
}

/* The folder of this program, symbolic links resolved; "" when unknown. */
static void own_folder(char out[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);

	out[n < 0 ? 0 : n] = '\0';
	char *slash = strrchr(out, '/');
	if (slash != NULL)
		*slash = '\0';
}

/* The first existing PREFIX/lib/python3.N/{site,dist}-packages/TAIL. */
static bool in_prefix(const char *prefix, const char *tail, char out[PATH_MAX])
{
	static const char *const kinds[] = { "site-packages", "dist-packages" };
	bool found = false;

	for (size_t k = 0; k < 2 && !found; k++) {
		char *pattern = rc_sprintf("%s/lib/python3*/%s/%s", prefix, kinds[k], tail);
		glob_t matches;

		if (glob(pattern, 0, NULL, &matches) == 0) {
			for (size_t i = 0; i < matches.gl_pathc && !found; i++)
				found = is_file(matches.gl_pathv[i]) && join(out, matches.gl_pathv[i], "");
			globfree(&matches);
		}
		free(pattern);
	}
	return found;
}

/* PREFIX of .../PREFIX/lib/python3.N/site-packages/ray has bin/python3: the interpreter that runs the package. */
static void guess_python(rc_package *p)
{
	char prefix[PATH_MAX];

	p->python[0] = '\0';
	if (!join(prefix, p->dir, "/../../../.."))
		return;
	char *real = realpath(prefix, NULL);
	if (real == NULL)
		return;
	if (!join(p->python, real, "/bin/python3") || access(p->python, X_OK) != 0)
		p->python[0] = '\0';
	free(real);
}

int rc_package_release(rc_package *p, rc_error *error)
{
	char path[PATH_MAX], line[256];
	FILE *f;

	if (!join(path, p->dir, "/_version.py"))
		return rc_fail(error, RC_E_INVALID, "path too long: %s", p->dir);
	f = fopen(path, "r");
	if (f == NULL)
		return rc_fail_errno(error, "cannot read the release of the ray package: %s", path);
	p->release[0] = '\0';
	while (fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "version = \"%31[^\"]\"", p->release) == 1)
			break;
	fclose(f);
	if (p->release[0] == '\0')
		return rc_fail(error, RC_E_INVALID, "%s has no line: version = \"...\"", path);
	return 0;
}

/* raylet: path of the daemon inside a package. */
static int from_raylet(const char *raylet, rc_package *ret, rc_error *error)
{
	rc_package p = { 0 };
	size_t n = strlen(raylet), tail = strlen(RAYLET_IN_PACKAGE);

	if (n < tail || n - tail >= sizeof p.dir || strcmp(raylet + n - tail, RAYLET_IN_PACKAGE) != 0)
		return rc_fail(error, RC_E_INVALID, "not a daemon inside a ray package: %s", raylet);
	memcpy(p.dir, raylet, n - tail);
	if (!join(p.raylet, raylet, ""))
		return rc_fail(error, RC_E_INVALID, "path too long: %s", raylet);
	if (rc_package_release(&p, error) != 0)
		return -1;
	guess_python(&p);
	*ret = p;
	return 0;
}

/* Asks an interpreter which ray package it would import; nothing of Ray runs. */
static bool ask_python(const char *python, char out_raylet[PATH_MAX])
{
	static const char code[] = "import importlib.util as u; s = u.find_spec('ray'); print(s.submodule_search_locations[0] if s else '')";
	char dir[PATH_MAX];
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return false;
	pid = fork();
	if (pid == 0) {
		if (dup2(fds[1], 1) < 0 || chdir("/") != 0) /* the current folder may hold a folder named ray */
			_exit(127);
		execlp(python, python, "-c", code, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	size_t got = 0;
	while (pid > 0 && got < sizeof dir - 1 && (n = read(fds[0], dir + got, sizeof dir - 1 - got)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		got += n > 0 ? (size_t)n : 0;
	}
	close(fds[0]);
	if (pid < 0)
		return false;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	dir[got] = '\0';
	dir[strcspn(dir, "\n")] = '\0';
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 && dir[0] != '\0' && join(out_raylet, dir, RAYLET_IN_PACKAGE) && is_file(out_raylet);
}

/* The interpreter in the first line of the `ray` program on PATH. */
static bool python_of_ray(char out[PATH_MAX])
{
	const char *path = getenv("PATH");
	char *copy = rc_strdup(path != NULL ? path : "/usr/local/bin:/usr/bin:/bin"), *rest = copy, *folder;
	bool found = false;

	while (!found && (folder = strsep(&rest, ":")) != NULL) {
		char program[PATH_MAX], line[PATH_MAX + 3];
		FILE *f;

		if (!join(program, folder, "/ray") || access(program, X_OK) != 0 || (f = fopen(program, "r")) == NULL)
			continue;
		if (fgets(line, sizeof line, f) != NULL && strncmp(line, "#!/", 3) == 0) {
			line[strcspn(line, " \n")] = '\0';
			found = join(out, line + 2, "") && access(out, X_OK) == 0;
		}
		fclose(f);
	}
	free(copy);
	return found;
}

int rc_package_find(const char *ray_dir, rc_package *ret, rc_error *error)
{
	char raylet[PATH_MAX], other[PATH_MAX];

	if (ray_dir != NULL) {
		char *real = realpath(ray_dir, NULL);

		if (real == NULL)
			return rc_fail_errno(error, "--ray-dir=%s", ray_dir);
		bool found = (join(raylet, real, RAYLET_IN_PACKAGE) && is_file(raylet)) || (join(raylet, real, "/ray" RAYLET_IN_PACKAGE) && is_file(raylet)) ||
		             in_prefix(real, "ray" RAYLET_IN_PACKAGE, raylet);
		free(real);
		if (!found)
			return rc_fail(error, RC_E_NOT_FOUND, "--ray-dir=%s: neither a ray package nor an environment with one (no %s in it)", ray_dir,
			               RAYLET_IN_PACKAGE + 1);
		return from_raylet(raylet, ret, error);
	}
	own_folder(other);
	char *slash = strrchr(other, '/');
	if (slash != NULL && strcmp(slash, "/bin") == 0) {
		*slash = '\0';
		if (in_prefix(other, "ray" RAYLET_IN_PACKAGE, raylet))
			return from_raylet(raylet, ret, error);
	}
	const char *pythons[] = { python_of_ray(other) ? other : NULL, "python3" };
	for (size_t i = 0; i < 2; i++)
		if (pythons[i] != NULL && ask_python(pythons[i], raylet))
			return from_raylet(raylet, ret, error);
	return rc_fail(error, RC_E_NOT_FOUND,
	               "no ray package found: not in the environment of this command, not by `ray` or `python3` on PATH; name one with --ray-dir DIR");
}

int rc_daemon_find(char ret_path[PATH_MAX], rc_error *error)
{
	char folder[PATH_MAX], path[PATH_MAX];

	own_folder(folder);
	if (join(path, folder, "/raylet") && is_file(path) && rc_is_our_daemon(path, error) == 1) {
		join(ret_path, path, "");
		return 0;
	}
	char *slash = strrchr(folder, '/');
	if (slash != NULL) {
		*slash = '\0';
		if (in_prefix(folder, "raylet_c/bin/raylet", path)) {
			join(ret_path, path, "");
			return 0;
		}
		*slash = '/';
	}
	return rc_fail(error, RC_E_NOT_FOUND,
	               "the daemon was not found: no %s/raylet of ours and no raylet_c/bin/raylet in the packages of that environment", folder);
}

int rc_is_our_daemon(const char *path, rc_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *bytes;
	bool found = false;

	if (fd < 0)
		return rc_fail_errno(error, "cannot read %s", path);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return rc_fail(error, RC_E_INVALID, "%s is not a file", path);
	}
	if (st.st_size > 0) {
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (bytes == MAP_FAILED) {
			rc_fail_errno(error, "cannot map %s", path);
			close(fd);
			return -1;
		}
		found = memmem(bytes, (size_t)st.st_size, RC_DAEMON_MARK_ANY, strlen(RC_DAEMON_MARK_ANY)) != NULL;
		munmap(bytes, (size_t)st.st_size);
	}
	close(fd);
	return found;
}
