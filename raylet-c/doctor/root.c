#include "raylet-c/doctor/root.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* false: too long to be a path. */
static bool path_of(char path[PATH_MAX], const char *root, const char *format, va_list args)
{
	int n = snprintf(path, PATH_MAX, "%s", root);
	if (n < 0 || n >= PATH_MAX)
		return false;
	int k = vsnprintf(path + n, (size_t)(PATH_MAX - n), format, args);
	return k >= 0 && k < PATH_MAX - n;
}

static bool read_text(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	size_t n = fread(text, 1, size - 1, f);
	bool failed = ferror(f) != 0;
	fclose(f);
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	text[n] = '\0';
	return !failed;
}

bool rc__root_read(const char *root, char *text, size_t size, const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	text[0] = '\0';
	va_start(args, format);
	bool fits = path_of(path, root, format, args);
	va_end(args);
	return fits && read_text(path, text, size);
}

bool rc__root_exists(const char *root, const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	va_start(args, format);
	bool fits = path_of(path, root, format, args);
	va_end(args);
	return fits && access(path, F_OK) == 0;
}

bool rc__root_number(const char *root, long long *ret, const char *format, ...)
{
	char path[PATH_MAX], text[64], *end;
	va_list args;
	va_start(args, format);
	bool fits = path_of(path, root, format, args);
	va_end(args);
	if (!fits || !read_text(path, text, sizeof(text)))
		return false;
	errno = 0;
	long long number = strtoll(text, &end, 0);
	if (end == text || errno != 0)
		return false;
	*ret = number;
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

void rc__root_list(const char *root, const char *path, rc__root_names *ret)
{
	char *full = rc_sprintf("%s%s", root, path);
	DIR *folder = opendir(full);
	struct dirent *e;
	free(full);
	ret->n = 0;
	while (folder && ret->n < RC__ROOT_NAMES && (e = readdir(folder)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < RC__ROOT_NAME)
			strcpy(ret->v[ret->n++], e->d_name);
	if (folder)
		closedir(folder);
	qsort(ret->v, ret->n, sizeof(ret->v[0]), by_name);
}
