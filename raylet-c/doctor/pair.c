/* Two ends: serve() and measure(). The control connection is a blocking TCP socket with a time limit on each step (pair_line.h);
 * everything else goes through `source`, which reads the other end's memory by fabric/ or by that same connection. */
#define _GNU_SOURCE
#include "raylet-c/doctor/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/doctor/pair_line.h"

#define MEMORY (UINT64_C(64) << 20)
#define SERVE_US INT64_C(300000000) /* one measurement */

enum { STEP_MS = 30000, WAIT_FOR_PEER_MS = 600000, WINDOW = 8, LATENCY_READS = 2000, WARM_READS = 100, SPINS = 500, NAP_NS = 20000 };

static const uint64_t piece_sizes[RC_PAIR_SIZES] = { 64 << 10, 1 << 20, 8 << 20 };

static int64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

/* ---- the control connection ---- */

typedef struct control {
	int fd;
	char bytes[4096]; /* read and not taken yet */
	size_t n;
} control;

static int wait_readable(int fd, int ms, rc_error *error)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;
	while ((n = poll(&p, 1, ms)) < 0 && errno == EINTR)
		;
	return n > 0 ? 0 : rc_fail(error, RC_E_TIMEOUT, "the other end said nothing for %d s", ms / 1000);
}

static int send_all(control *c, const void *bytes, size_t n, rc_error *error)
{
	for (const char *p = bytes; n > 0;) {
		ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return rc_fail_errno(error, "the other end is gone");
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static int send_line(control *c, rc_error *error, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int send_line(control *c, rc_error *error, const char *format, ...)
{
	char line[RC__PAIR_LINE];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return send_all(c, line, (size_t)(n < (int)sizeof(line) ? n : (int)sizeof(line) - 1), error);
}

/* Reads more; the peer's end is an error. */
static int take_more(control *c, int ms, rc_error *error)
{
	if (wait_readable(c->fd, ms, error) != 0)
		return -1;
	ssize_t k = recv(c->fd, c->bytes + c->n, sizeof(c->bytes) - c->n, 0);
	if (k <= 0)
		return rc_fail(error, RC_E_UNAVAILABLE, "the other end closed the connection%s%s", k < 0 ? ": " : "", k < 0 ? strerror(errno) : "");
	c->n += (size_t)k;
	return 0;
}

/* true: a line was there, without its new line. */
static bool take_line(control *c, char line[RC__PAIR_LINE])
{
	char *end = memchr(c->bytes, '\n', c->n);
	if (!end || end - c->bytes >= RC__PAIR_LINE)
		return false;
	size_t n = (size_t)(end - c->bytes);
	memcpy(line, c->bytes, n);
	line[n] = '\0';
	c->n -= n + 1;
	memmove(c->bytes, end + 1, c->n);
	return true;
}

static int read_line(control *c, char line[RC__PAIR_LINE], int ms, rc_error *error)
{
	while (!take_line(c, line)) {
		if (c->n >= RC__PAIR_LINE)
			return rc_fail(error, RC_E_INVALID, "the other end does not speak our protocol");
		if (take_more(c, ms, error) != 0)
			return -1;
	}
	return 0;
}

/* After some looks in vain: sleeps until the endpoint or the other connection (-1: none) has something, so that two ends on few
 * processors do not take each other's. */
static void rest(rc_endpoint *p, int other, unsigned *vain)
{
	struct pollfd fds[2] = { { .fd = rc_endpoint_fd(p), .events = POLLIN }, { .fd = other, .events = POLLIN } };
	if (++*vain < SPINS)
		return;
	if (fds[0].fd >= 0 && rc_endpoint_may_wait(p))
		poll(fds, 2, 10);
	else
		nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

/* ---- offers ---- */

typedef struct side {
	rc_fabric_library *library;
	rc_fabric_offer mine[RC_FABRIC_MAX_OFFERS], theirs[RC_FABRIC_MAX_OFFERS];
	size_t n_mine, n_theirs;
	const char *ip;
	control c;
} side;

static void find_offers(const rc_pair_options *o, side *s)
{
	rc_error none;
	s->ip = o->ip ? o->ip : "127.0.0.1";
	if (o->providers && strcmp(o->providers, "off") == 0)
		return;
	s->library = rc_fabric_library_open(NULL, &none);
	if (s->library)
		s->n_mine = rc_fabric_offers(s->library, &(rc_fabric_settings){ .providers = o->providers, .ip = s->ip }, s->mine, &none);
}

static int greet(side *s, rc_error *error)
{
	rc_buf b = { 0 };
	char line[RC__PAIR_LINE];
	rc_buf_str(&b, RC__PAIR_HELLO "\n");
	for (size_t i = 0; i < s->n_mine; i++)
		rc__pair_offer_pack(&s->mine[i], &b);
	rc_buf_str(&b, "end\n");
	int rc = send_all(&s->c, b.p, b.n, error);
	rc_buf_free(&b);
	if (rc != 0 || read_line(&s->c, line, STEP_MS, error) != 0)
		return -1;
	if (strcmp(line, RC__PAIR_HELLO) != 0)
		return rc_fail(error, RC_E_INVALID, "the other end is no raylet-c doctor of this version");
	for (;;) {
		if (read_line(&s->c, line, STEP_MS, error) != 0)
			return -1;
		if (strcmp(line, "end") == 0)
			return 0;
		if (s->n_theirs == RC_FABRIC_MAX_OFFERS)
			return rc_fail(error, RC_E_FULL, "the other end has more than %d offers", RC_FABRIC_MAX_OFFERS);
		if (rc__pair_offer_parse(line, &s->theirs[s->n_theirs++], error) != 0)
			return -1;
	}
}

static void side_close(side *s)
{
	if (s->c.fd >= 0)
		close(s->c.fd);
	rc_fabric_library_close(s->library);
}

/* ---- the serving end ---- */

static uint64_t *make_memory(void)
{
	uint64_t *words = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (words == MAP_FAILED)
		return NULL;
	for (uint64_t i = 0; i < MEMORY / 8; i++)
		words[i] = rc__pair_word(i * 8);
	return words;
}

static int give(side *s, const char *line, const uint64_t *memory, rc_error *error)
{
	unsigned long long offset, n;
	if (sscanf(line, "give %llu %llu", &offset, &n) != 2 || offset > MEMORY || n > MEMORY - offset)
		return rc_fail(error, RC_E_INVALID, "asked for memory that there is not: %.100s", line);
	return send_all(&s->c, (const char *)memory + offset, n, error);
}

/* Moves the endpoint on until the other end says good-bye. */
static int serve_reads(side *s, rc_endpoint *p, const uint64_t *memory, rc_error *error)
{
	char line[RC__PAIR_LINE];
	int64_t heard = now_us();
	unsigned vain = 0;
	for (;;) {
		struct pollfd c = { .fd = s->c.fd, .events = POLLIN };
		while (take_line(&s->c, line)) { /* some may have come with the last line of before */
			if (strcmp(line, "bye") == 0)
				return 0;
			if (p || give(s, line, memory, error) != 0)
				return p ? rc_fail(error, RC_E_INVALID, "not understood: %.100s", line) : -1;
			heard = now_us();
		}
		if (s->c.n >= RC__PAIR_LINE)
			return rc_fail(error, RC_E_INVALID, "the other end does not speak our protocol");
		int moved = p ? rc_endpoint_poll(p, error) : 0;
		if (moved < 0)
			return -1;
		if (moved > 0)
			vain = 0;
		else if (p)
			rest(p, s->c.fd, &vain);
		if (poll(&c, 1, p ? 0 : STEP_MS) > 0 && take_more(&s->c, 0, error) != 0)
			return -1;
		if (now_us() - heard > SERVE_US)
			return rc_fail(error, RC_E_TIMEOUT, "the other end did not end the measurement");
	}
}

static int serve_by_fabric(side *s, const rc_fabric_offer *offer, uint64_t *memory, rc_error *error)
{
	rc__pair_place place = { .size = MEMORY };
	rc_buf b = { 0 };
	rc_endpoint *p = rc_endpoint_open(s->library, offer, s->ip, error);
	rc_region *r = p ? rc_endpoint_register(p, memory, MEMORY, true, error) : NULL;
	int rc = -1;
	if (r) {
		rc_view address = rc_endpoint_address(p);
		memcpy(place.address, address.p, address.n);
		place.address_n = address.n;
		place.remote = rc_region_remote(r);
		rc__pair_place_pack(&place, &b);
		rc = send_all(&s->c, b.p, b.n, error);
		rc_buf_free(&b);
		if (rc == 0)
			rc = serve_reads(s, p, memory, error);
	} else {
		rc_error unheard;
		send_line(&s->c, &unheard, "error %s\n", error->text);
	}
	if (p)
		rc_endpoint_unregister(p, r);
	rc_endpoint_close(p);
	return rc;
}

static int serve(side *s, uint64_t *memory, rc_error *error)
{
	char line[RC__PAIR_LINE];
	unsigned index;
	if (greet(s, error) != 0 || read_line(&s->c, line, STEP_MS, error) != 0)
		return -1;
	if (strcmp(line, "use tcp") == 0)
		return serve_reads(s, NULL, memory, error);
	if (sscanf(line, "use %u", &index) != 1 || index >= s->n_mine)
		return rc_fail(error, RC_E_INVALID, "the other end wants what was not offered: %.100s", line);
	return serve_by_fabric(s, &s->mine[index], memory, error);
}

static int find_address(const char *host, int port, bool listens, struct addrinfo **ret, rc_error *error)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE | AI_NUMERICHOST : 0 };
	char service[16];
	snprintf(service, sizeof(service), "%d", port);
	int rc = getaddrinfo(host, service, &hints, ret);
	return rc == 0 ? 0 : rc_fail(error, RC_E_NOT_FOUND, "%s: %s", host, gai_strerror(rc));
}

static int listen_at(const char *ip, int port, int *ret_port, rc_error *error)
{
	struct addrinfo *a;
	struct sockaddr_storage own;
	socklen_t n = sizeof(own);
	int one = 1;
	if (find_address(ip, port, true, &a, error) != 0)
		return -1;
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 1) != 0 || getsockname(fd, (struct sockaddr *)&own, &n) != 0) {
		rc_fail_errno(error, "cannot listen at %s port %d", ip, port);
		freeaddrinfo(a);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	*ret_port = ntohs(own.ss_family == AF_INET ? ((struct sockaddr_in *)&own)->sin_port : ((struct sockaddr_in6 *)&own)->sin6_port);
	freeaddrinfo(a);
	return fd;
}

static void no_delay(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int rc_pair_serve(const rc_pair_options *o, int port, void (*ready)(void *arg, int port), void *arg, rc_error *error)
{
	side s = { .c.fd = -1 };
	uint64_t *memory = make_memory();
	if (!memory)
		return rc_fail(error, RC_E_NO_MEMORY, "no %llu MiB of memory", (unsigned long long)(MEMORY >> 20));
	find_offers(o, &s);
	int listener = listen_at(s.ip, port, &port, error), rc = -1;
	if (listener >= 0) {
		if (ready)
			ready(arg, port);
		if (wait_readable(listener, WAIT_FOR_PEER_MS, error) == 0 && (s.c.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
			no_delay(s.c.fd);
			rc = serve(&s, memory, error);
		}
		close(listener);
	}
	side_close(&s);
	munmap(memory, MEMORY);
	return rc;
}

/* ---- the measuring end ---- */

typedef struct source {
	side *s;
	rc_endpoint *endpoint; /* NULL: over the control connection */
	rc_region *local;
	uint64_t peer;
	rc__pair_place place;
	uint64_t *to;          /* WINDOW pieces of the largest size */
} source;

typedef struct slot {
	rc_op op;
	bool busy;
	uint64_t offset;
	rc_error error;
	bool failed;
} slot;

static void op_done(rc_op *op, uint64_t n, const rc_error *error)
{
	slot *s = (slot *)op; /* its first member */
	(void)n;
	s->busy = false;
	s->failed = error != NULL;
	if (error)
		s->error = *error;
}

static uint64_t *slot_memory(const source *x, unsigned i)
{
	return x->to + i * (piece_sizes[RC_PAIR_SIZES - 1] / 8);
}

static int begin_read(source *x, slot *s, unsigned i, uint64_t offset, uint64_t n, rc_error *error)
{
	s->op.done = op_done;
	s->offset = offset;
	s->busy = true;
	s->failed = false;
	return rc_endpoint_read(x->endpoint, x->peer, slot_memory(x, i), n, x->local, &x->place.remote, offset, &s->op, error);
}

static int take_stream(source *x, uint64_t *to, uint64_t offset, uint64_t n, rc_error *error)
{
	if (send_line(&x->s->c, error, "give %llu %llu\n", (unsigned long long)offset, (unsigned long long)n) != 0)
		return -1;
	char *p = (char *)to;
	control *c = &x->s->c;
	size_t early = c->n < n ? c->n : n; /* came with the last line */
	memcpy(p, c->bytes, early);
	c->n -= early;
	memmove(c->bytes, c->bytes + early, c->n);
	p += early;
	n -= early;
	while (n > 0) {
		if (wait_readable(x->s->c.fd, STEP_MS, error) != 0)
			return -1;
		ssize_t k = recv(x->s->c.fd, p, n, 0);
		if (k <= 0)
			return rc_fail(error, RC_E_UNAVAILABLE, "the other end closed the connection in the middle of a read");
		p += k;
		n -= (uint64_t)k;
	}
	return 0;
}

static int poll_until(source *x, const slot *slots, unsigned i, rc_error *error)
{
	int64_t end = now_us() + STEP_MS * INT64_C(1000);
	unsigned vain = 0;
	while (slots[i].busy) {
		int moved = rc_endpoint_poll(x->endpoint, error);
		if (moved < 0)
			return -1;
		if (moved == 0)
			rest(x->endpoint, -1, &vain);
		if (slots[i].busy && now_us() > end)
			return rc_fail(error, RC_E_TIMEOUT, "a read was not answered within %d s", STEP_MS / 1000);
	}
	if (slots[i].failed) {
		*error = slots[i].error;
		return -1;
	}
	return 0;
}

static int check(const uint64_t *words, uint64_t offset, uint64_t n, rc_pair_result *r, rc_error *error)
{
	uint64_t wrong = rc__pair_check(words, offset, n);
	if (wrong != offset + n)
		return rc_fail(error, RC_E_INVALID, "WRONG DATA over %s: byte %llu of a read of %llu bytes is not what was sent", r->transport,
		               (unsigned long long)(wrong - offset), (unsigned long long)n);
	r->checked += n;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static int latency(source *x, rc_pair_result *r, rc_error *error)
{
	static int64_t took[LATENCY_READS];
	static slot one;
	for (int i = -WARM_READS; i < LATENCY_READS; i++) {
		uint64_t offset = (uint64_t)(i + WARM_READS) * 4096 % x->place.size;
		*x->to = 0;
		struct timespec a, b;
		clock_gettime(CLOCK_MONOTONIC, &a);
		int rc = x->endpoint ? begin_read(x, &one, 0, offset, 8, error) || poll_until(x, &one, 0, error) : take_stream(x, x->to, offset, 8, error);
		clock_gettime(CLOCK_MONOTONIC, &b);
		if (rc != 0 || check(x->to, offset, 8, r, error) != 0)
			return -1;
		if (i >= 0)
			took[i] = (b.tv_sec - a.tv_sec) * INT64_C(1000000000) + b.tv_nsec - a.tv_nsec;
	}
	qsort(took, LATENCY_READS, sizeof(took[0]), by_value);
	r->reads = LATENCY_READS;
	r->latency_us = (double)took[LATENCY_READS / 2] / 1000;
	r->latency_99_us = (double)took[LATENCY_READS * 99 / 100] / 1000;
	return 0;
}

/* Bytes of one size for some seconds. The check of a piece stands between its end and its next use, so others go on meanwhile; its
 * time is the receiver's, as a copy out of the buffer would be. */
static int bandwidth(source *x, uint64_t piece, unsigned seconds, rc_pair_result *r, rc_pair_size *ret, rc_error *error)
{
	static slot slots[WINDOW];
	uint64_t next = 0, bytes = 0;
	int64_t begin = now_us(), end = begin + seconds * INT64_C(1000000);
	unsigned window = x->endpoint ? WINDOW : 1;
	bool more = true;
	memset(slots, 0, sizeof(slots));
	for (unsigned i = 0; x->endpoint && i < window; i++, next = (next + piece) % x->place.size)
		if (begin_read(x, &slots[i], i, next, piece, error) != 0)
			return -1;
	for (unsigned i = 0, left = window; left > 0; i = (i + 1) % window) {
		more = more && now_us() < end;
		if (x->endpoint && poll_until(x, slots, i, error) != 0)
			return -1;
		if (!x->endpoint && take_stream(x, slot_memory(x, i), slots[i].offset = next, piece, error) != 0)
			return -1;
		if (check(slot_memory(x, i), slots[i].offset, piece, r, error) != 0)
			return -1;
		bytes += piece;
		if (!more) {
			left--;
			continue;
		}
		next = (next + piece) % x->place.size;
		slot_memory(x, i)[0] = 0;
		slot_memory(x, i)[piece / 8 - 1] = 0;
		if (x->endpoint && begin_read(x, &slots[i], i, next, piece, error) != 0)
			return -1;
	}
	double took = (double)(now_us() - begin) / 1e6;
	*ret = (rc_pair_size){ .bytes = piece, .gib_per_s = (double)bytes / took / (1 << 30), .gbit_per_s = (double)bytes * 8 / took / 1e9 };
	return 0;
}

static int measure_all(source *x, const rc_pair_options *o, rc_pair_result *r, rc_error *error)
{
	if (latency(x, r, error) != 0)
		return -1;
	for (int i = 0; i < RC_PAIR_SIZES; i++)
		if (bandwidth(x, piece_sizes[i], o->seconds ? o->seconds : 2, r, &r->sizes[i], error) != 0)
			return -1;
	return send_line(&x->s->c, error, "bye\n");
}

static int open_source(source *x, int mine, rc_error *error)
{
	side *s = x->s;
	char line[RC__PAIR_LINE];
	size_t theirs = 0;
	while (theirs < s->n_theirs && !rc_fabric_same(&s->mine[mine], &s->theirs[theirs]))
		theirs++;
	if (send_line(&s->c, error, "use %zu\n", theirs) != 0 || read_line(&s->c, line, STEP_MS, error) != 0 ||
	    rc__pair_place_parse(line, &x->place, error) != 0)
		return -1;
	x->endpoint = rc_endpoint_open(s->library, &s->mine[mine], s->ip, error);
	if (!x->endpoint || rc_endpoint_peer(x->endpoint, rc_view_of(x->place.address, x->place.address_n), &x->peer, error) != 0)
		return -1;
	x->local = rc_endpoint_register(x->endpoint, x->to, WINDOW * piece_sizes[RC_PAIR_SIZES - 1], false, error);
	return x->local ? 0 : -1;
}

static int measure(side *s, const rc_pair_options *o, rc_pair_result *r, rc_error *error)
{
	size_t room = WINDOW * piece_sizes[RC_PAIR_SIZES - 1];
	source x = { .s = s, .place.size = MEMORY };
	if (greet(s, error) != 0)
		return -1;
	x.to = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (x.to == MAP_FAILED)
		return rc_fail(error, RC_E_NO_MEMORY, "no %zu MiB of memory", room >> 20);
	int mine = rc_fabric_choose(s->mine, s->n_mine, s->theirs, s->n_theirs);
	int rc = mine >= 0 ? open_source(&x, mine, error) : send_line(&s->c, error, "use tcp\n");
	if (mine >= 0)
		snprintf(r->transport, sizeof(r->transport), "%s", s->mine[mine].provider);
	else
		snprintf(r->transport, sizeof(r->transport), "tcp, without libfabric");
	r->link_bits = mine >= 0 ? s->mine[mine].link_bits : 0;
	if (rc == 0)
		rc = measure_all(&x, o, r, error);
	if (x.endpoint)
		rc_endpoint_unregister(x.endpoint, x.local);
	rc_endpoint_close(x.endpoint);
	munmap(x.to, room);
	return rc;
}

static int connect_to(const char *host, int port, rc_error *error)
{
	struct addrinfo *list;
	int fd = -1;
	if (find_address(host, port, false, &list, error) != 0)
		return -1;
	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		struct timeval limit = { .tv_sec = STEP_MS / 1000 };
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0)
			setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* holds for connect() too */
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
			rc_fail_errno(error, "%s port %d cannot be reached (does `raylet-c doctor --pair-listen` run there?)", host, port);
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(list);
	return fd;
}

int rc_pair_measure(const rc_pair_options *o, const char *host, int port, rc_pair_result *ret, rc_error *error)
{
	side s = { .c.fd = connect_to(host, port, error) };
	rc_pair_result r = { 0 };
	if (s.c.fd < 0)
		return -1;
	no_delay(s.c.fd);
	find_offers(o, &s);
	int rc = measure(&s, o, &r, error);
	side_close(&s);
	if (rc == 0)
		*ret = r;
	return rc;
}

static void tell_port(void *arg, int port)
{
	if (write(*(int *)arg, &port, sizeof(port)) != sizeof(port))
		_exit(1);
}

int rc_pair_local(const rc_pair_options *o, rc_pair_result *ret, rc_error *error)
{
	int ends[2], port, status;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return rc_fail_errno(error, "no pipe");
	pid_t child = fork();
	if (child == 0) {
		rc_error unheard;
		_exit(rc_pair_serve(o, 0, tell_port, &ends[1], &unheard) == 0 ? 0 : 1);
	}
	close(ends[1]);
	int rc = child < 0 ? rc_fail_errno(error, "no process for the other end") : wait_readable(ends[0], STEP_MS, error);
	if (rc == 0 && read(ends[0], &port, sizeof(port)) != sizeof(port))
		rc = rc_fail(error, RC_E_UNAVAILABLE, "the other end did not start");
	close(ends[0]);
	if (rc == 0)
		rc = rc_pair_measure(o, o->ip ? o->ip : "127.0.0.1", port, ret, error);
	if (child > 0 && rc != 0)
		kill(child, SIGKILL);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return rc;
}

/* ---- words and report ---- */

int rc_pair_parse(const char *text, char host[256], int *port, rc_error *error)
{
	const char *colon = strrchr(text, ':'), *bracket = strchr(text, ']');
	size_t n = colon && colon > bracket && (bracket || strchr(text, ':') == colon) ? (size_t)(colon - text) : strlen(text);
	bool digits = strspn(text, "0123456789") == strlen(text);
	const char *number = text[n] ? text + n + 1 : digits ? text : "";
	char *end;
	long p = *number ? strtol(number, &end, 10) : RC_PAIR_PORT;
	if (*text == '\0' || p < 0 || p > 65535 || (*number && *end))
		return rc_fail(error, RC_E_INVALID, "%s: not HOST, HOST:PORT or PORT", text);
	*port = (int)p;
	if (digits)
		n = 0;
	bool wrapped = n >= 2 && text[0] == '[' && text[n - 1] == ']';
	snprintf(host, 256, "%.*s", (int)(wrapped ? n - 2 : n), text + wrapped);
	return 0;
}

static uint64_t known_link(const rc_pair_result *r, uint64_t link_bits)
{
	if (strcmp(r->transport, "shm") == 0)
		return 0;
	return r->link_bits ? r->link_bits : link_bits;
}

void rc_pair_print(const rc_pair_result *r, uint64_t link_bits, rc_buf *out)
{
	uint64_t link = known_link(r, link_bits);
	rc_buf_printf(out, "transport %s; a read of 8 bytes: %.1f us (median of %u), %.1f us (99 %%)\n", r->transport, r->latency_us, r->reads,
	              r->latency_99_us);
	for (int i = 0; i < RC_PAIR_SIZES; i++) {
		rc_buf_printf(out, "reads of %5llu KiB: %.2f GiB/s, %.1f Gbit/s", (unsigned long long)(r->sizes[i].bytes >> 10), r->sizes[i].gib_per_s,
		              r->sizes[i].gbit_per_s);
		if (link)
			rc_buf_printf(out, ", %.0f %% of the link's %.0f Gbit/s", r->sizes[i].gbit_per_s * 1e11 / (double)link, (double)link / 1e9);
		rc_buf_str(out, "\n");
	}
	rc_buf_printf(out, "%.1f GiB were checked word by word: all right%s\n", (double)r->checked / (1 << 30),
	              link || strcmp(r->transport, "shm") == 0 ? "" : "; how fast the link is the system does not tell");
}

void rc_pair_json(const rc_pair_result *r, uint64_t link_bits, rc_buf *out)
{
	uint64_t link = known_link(r, link_bits);
	json_t *sizes = json_array();
	for (int i = 0; i < RC_PAIR_SIZES; i++)
		json_array_append_new(sizes, json_pack("{sI sf sf}", "bytes", (json_int_t)r->sizes[i].bytes, "gib_per_s", r->sizes[i].gib_per_s, "gbit_per_s",
		                                       r->sizes[i].gbit_per_s));
	json_t *report = json_pack("{ss sf sf sI so sI}", "transport", r->transport, "latency_us", r->latency_us, "latency_99_us", r->latency_99_us,
	                           "link_bits", (json_int_t)link, "sizes", sizes, "checked_bytes", (json_int_t)r->checked);
	char *text = json_dumps(report, JSON_INDENT(2));
	rc_buf_printf(out, "%s\n", text ? text : "{}");
	free(text);
	json_decref(report);
}
