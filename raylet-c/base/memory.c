/* See memory.h. */
#include "raylet-c/base/memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t got = read(fd, text, size - 1);
	close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	return true;
}

static bool field_kb(const char *text, const char *name, int64_t *ret)
{
	const char *at = strstr(text, name);
	if (!at)
		return false;
	*ret = strtoll(at + strlen(name), NULL, 10) * 1024;
	return true;
}

static bool number_in(const char *path, int64_t *ret)
{
	char text[64], *end;
	if (!read_file(path, text, sizeof(text)))
		return false;
	long long v = strtoll(text, &end, 10);
	if (end == text) /* "max" */
		return false;
	*ret = v;
	return true;
}

static int64_t stat_in(const char *path, const char *name)
{
	char text[8192];
	if (!read_file(path, text, sizeof(text)))
		return 0;
	size_t n = strlen(name);
	for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (!strncmp(line, name, n) && line[n] == ' ')
			return strtoll(line + n, NULL, 10);
	return 0;
}

bool rc_memory_read(int64_t *ret_used, int64_t *ret_total)
{
	char text[8192];
	int64_t total, available, limit, used;
	if (!read_file("/proc/meminfo", text, sizeof(text)) || !field_kb(text, "MemTotal:", &total) || !field_kb(text, "MemAvailable:", &available))
		return false;
	*ret_total = total;
	*ret_used = total - available;
	if (number_in("/sys/fs/cgroup/memory.max", &limit) && limit < total && number_in("/sys/fs/cgroup/memory.current", &used)) {
		*ret_total = limit;
		*ret_used = used - stat_in("/sys/fs/cgroup/memory.stat", "inactive_file") - stat_in("/sys/fs/cgroup/memory.stat", "active_file");
	} else if (number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", &limit) && limit < total &&
	           number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes", &used)) {
		*ret_total = limit;
		*ret_used = used - stat_in("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file") -
		            stat_in("/sys/fs/cgroup/memory/memory.stat", "total_active_file");
	}
	return true;
}
