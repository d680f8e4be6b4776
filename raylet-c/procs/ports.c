/* A queue in random order: nodes that share a host and a range rarely try the same port at once. A port that somebody else
 * holds goes to the end and is tried again later. */
#include "raylet-c/procs/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raylet-c/base/buf.h"
#include "raylet-c/procs/command.h"

struct rc__ports {
	bool any;
	uint16_t *queue; /* a ring of cap */
	size_t head, n, cap;
};

static void add(rc__ports *p, int port)
{
	p->queue = rc_realloc(p->queue, ++p->cap * sizeof(*p->queue));
	p->queue[p->n++] = (uint16_t)port;
}

static int add_list(rc__ports *p, const char *list, rc_error *error)
{
	while (*list) {
		char *end;
		long port = strtol(list, &end, 10);
		if (end == list || (*end && *end != ',') || port < 1 || port > 65535)
			return rc_fail(error, RC_E_INVALID, "--worker_port_list: '%s' is not a list of ports", list);
		add(p, (int)port);
		list = *end ? end + 1 : end;
	}
	return 0;
}

static void shuffle(rc__ports *p)
{
	for (size_t i = p->n; i > 1; i--) {
		uint32_t r;
		if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r))
			return;
		size_t j = r % i;
		uint16_t t = p->queue[i - 1];
		p->queue[i - 1] = p->queue[j];
		p->queue[j] = t;
	}
}

rc__ports *rc__ports_create(int min, int max, const char *list, rc_error *error)
{
	rc__ports *p = rc_alloc(sizeof(*p));
	int rc = 0;
	if (list && *list) {
		rc = add_list(p, list, error);
	} else if (min == 0) {
		p->any = true;
	} else {
		if (max == 0)
			max = 65535;
		if (min < 0 || max > 65535 || max < min)
			rc = rc_fail(error, RC_E_INVALID, "worker ports %d to %d (--min_worker_port, --max_worker_port) are not a range", min, max);
		for (int port = min; rc == 0 && port <= max; port++)
			add(p, port);
	}
	if (rc != 0) {
		rc__ports_destroy(p);
		return NULL;
	}
	shuffle(p);
	return p;
}

void rc__ports_destroy(rc__ports *p)
{
	if (p)
		free(p->queue);
	free(p);
}

bool rc__port_is_free(const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	if (inet_pton(AF_INET, ip, &a.sin_addr) != 1)
		return true;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	int on = 1; /* a port in TIME_WAIT is free for a server, one with a listener is not */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	bool ok = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
	close(fd);
	return ok;
}

int rc__ports_take(rc__ports *p)
{
	if (p->any)
		return 0;
	for (size_t i = p->n; i > 0; i--) {
		int port = p->queue[p->head];
		p->head = (p->head + 1) % p->cap;
		p->n--;
		if (rc__port_is_free("0.0.0.0", port))
			return port;
		rc__ports_give(p, port);
	}
	return -1;
}

void rc__ports_give(rc__ports *p, int port)
{
	if (p->any || port <= 0 || p->n == p->cap)
		return;
	p->queue[(p->head + p->n++) % p->cap] = (uint16_t)port;
}
