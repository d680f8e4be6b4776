/* See line.h. The thread's turn: jobs that came, pieces of reads as the window allows, the endpoint's poll, stalled peers; then
 * it waits for its eventfd and the endpoint's descriptor. A provider without a descriptor (shm) is polled in short naps as long
 * as something is under way or granted, and not at all otherwise.
 *
 * Reads are cut in pieces, so that a peer that dies is noticed by the next piece, and several reads share the window in turns. */
#define _GNU_SOURCE
#include "raylet-c/fabric/line.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "raylet-c/base/map.h"

enum {
	PIECE = 1 << 20,
	WINDOW = 16,      /* pieces under way */
	MAX_BAD = 1000,   /* failed pieces: then the endpoint is opened anew */
	MAX_PEERS = 4096, /* then addresses that nobody reads from are forgotten */
	NAP_NS = 50000,   /* between polls, something under way */
	/* Only granted: the reader does the work, but for the first contact. Its copies hold a lock that a poll here would spin on (half
	 * a core was measured): so naps double, from the last grant on. */
	GRANTED_NAP_NS = 1000000,
	MAX_GRANTED_NAP_NS = 50000000,
	CHECK_MS = 200,   /* stalls are looked for */
};

typedef struct rc__peer {
	uint64_t address;
	unsigned reads;
	unsigned pieces;
	uint64_t last_ms; /* a piece ended, or the first was posted */
} rc__peer;

typedef struct piece {
	rc_op op;
	rc__line *line;
	rc__read *read;
	struct piece *next_free;
} piece;

/* What goes back to the loop; outlives the line until its last delivery has run. */
typedef struct box {
	pthread_mutex_t lock;
	rc_link jobs;
	bool posted;    /* a delivery is on its way */
	bool broken, broken_told;
	rc_error why;
	rc__line *line; /* NULL: destroyed */
} box;

struct rc__line {
	rc__line_options options;
	pthread_t thread;
	pthread_mutex_t lock;
	rc_link jobs;   /* under the lock: for the thread */
	bool stop;      /* under the lock */
	int wake;
	box *box;
	/* The thread's. */
	rc_endpoint *endpoint;
	rc_region *arena;
	bool arena_tried;
	rc_map *peers; /* address -> rc__peer */
	const rc_error *closing; /* while the endpoint is being closed, why; regions go with it */
	rc_link reads, turns; /* all; those with pieces to post */
	piece *free_piece, *bad_pieces; /* bad: not to be used again while this endpoint lives (endpoint.h) */
	unsigned n_bad;
	int granted;
	long granted_nap_ns;
	uint64_t checked_ms;
};

/* ---- to the loop ---- */

static void deliver_all(box *b, rc__line *l)
{
	rc_link jobs;
	bool broken;

	rc_list_init(&jobs);
	pthread_mutex_lock(&b->lock);
	while (!rc_list_empty(&b->jobs)) {
		rc_link *first = b->jobs.next;

		rc_list_remove(first);
		rc_list_append(&jobs, first);
	}
	broken = b->broken && !b->broken_told;
	b->broken_told = b->broken;
	pthread_mutex_unlock(&b->lock);
	if (broken) /* first: see rc__line_back */
		l->options.broken(l->options.arg, l, &b->why);
	while (!rc_list_empty(&jobs)) {
		rc__job *j = RC_CONTAINER(jobs.next, rc__job, link);

		rc_list_remove(&j->link);
		j->finish(j, j->failed ? &j->error : NULL);
	}
}

static void box_free(box *b)
{
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static void deliver(void *arg)
{
	box *b = arg;

	pthread_mutex_lock(&b->lock);
	b->posted = false;
	pthread_mutex_unlock(&b->lock);
	if (b->line)
		deliver_all(b, b->line);
	else
		box_free(b);
}

/* With the lock of the box. */
static void post(rc__line *l)
{
	if (l->box->posted)
		return;
	l->box->posted = true;
	rc_loop_post(l->options.loop, deliver, l->box);
}

void rc__line_back(rc__line *l, rc__job *j, const rc_error *e)
{
	j->failed = e != NULL;
	if (e)
		j->error = *e;
	pthread_mutex_lock(&l->box->lock);
	rc_list_append(&l->box->jobs, &j->link);
	if (!l->closing) /* else with the word that the line is broken: who learns of a failed job must find the offer resting */
		post(l);
	pthread_mutex_unlock(&l->box->lock);
}

static void tell_broken(rc__line *l, const rc_error *e)
{
	pthread_mutex_lock(&l->box->lock);
	l->box->broken = true;
	l->box->why = *e;
	post(l);
	pthread_mutex_unlock(&l->box->lock);
}

/* ---- reads ---- */

static rc__peer *find_peer(rc__line *l, rc_view address, rc_error *e)
{
	rc__peer *peer = rc_map_get(l->peers, address);
	uint64_t number;
	size_t i = 0;
	rc_view key;
	void *value;

	if (peer)
		return peer;
	while (rc_map_count(l->peers) >= MAX_PEERS && rc_map_next(l->peers, &i, &key, &value)) {
		rc__peer *old = value;

		if (old->reads)
			continue;
		rc_endpoint_peer_remove(l->endpoint, old->address);
		rc_map_del(l->peers, key);
		free(old);
	}
	if (rc_endpoint_peer(l->endpoint, address, &number, e) < 0)
		return NULL;
	peer = rc_alloc(sizeof *peer);
	peer->address = number;
	rc_map_put(l->peers, address, peer);
	return peer;
}

/* The region that the memory of a read lies in, where the provider wants one: the arena, else one for this read. */
static int find_region(rc__line *l, rc__read *r, rc_error *e)
{
	if (!rc_endpoint_offer(l->endpoint)->registers)
		return 0;
	if (!l->arena_tried && l->options.arena) {
		l->arena_tried = true;
		l->arena = rc_endpoint_register(l->endpoint, l->options.arena, l->options.arena_size, false, e);
	}
	if (l->arena && rc_region_holds(l->arena, r->to, r->n)) {
		r->use = l->arena;
		return 0;
	}
	r->use = r->local = rc_endpoint_register(l->endpoint, r->to, r->n, false, e);
	return r->local ? 0 : -1;
}

static void read_end(rc__line *l, rc__read *r, const rc_error *e)
{
	rc_list_remove(&r->all);
	rc_list_remove(&r->turn);
	r->peer->reads--;
	if (!l->closing)
		rc_endpoint_unregister(l->endpoint, r->local);
	rc__line_back(l, &r->job, e);
}

static void maybe_end(rc__line *l, rc__read *r)
{
	if (r->under_way > 0)
		return;
	if (r->why.code)
		read_end(l, r, &r->why);
	else if (r->next == r->n)
		read_end(l, r, NULL);
}

static void add_piece(rc__line *l)
{
	piece *p = rc_alloc(sizeof *p);

	p->line = l;
	p->next_free = l->free_piece;
	l->free_piece = p;
}

static void free_pieces(piece *p)
{
	for (piece *next; p; p = next) {
		next = p->next_free;
		free(p);
	}
}

static void piece_done(rc_op *op, uint64_t n, const rc_error *error)
{
	piece *p = RC_CONTAINER(op, piece, op);
	rc__line *l = p->line;
	rc__read *r = p->read;

	(void)n;
	if (error) {
		p->next_free = l->bad_pieces;
		l->bad_pieces = p;
		l->n_bad++;
		add_piece(l);
	} else {
		p->next_free = l->free_piece;
		l->free_piece = p;
	}
	r->under_way--;
	r->peer->pieces--;
	r->peer->last_ms = rc_now_ms();
	if (error && !r->why.code)
		r->why = l->closing ? *l->closing : *error;
	maybe_end(l, r);
}

/* A provider may end a piece inside the call that posts it: r may be gone afterwards only if it was the last. */
static void post_piece(rc__line *l, rc__read *r)
{
	uint64_t at = r->next, n = r->n - at;
	piece *p = l->free_piece;
	rc_error e;

	n = n < PIECE ? n : PIECE;
	l->free_piece = p->next_free;
	p->read = r;
	p->op.done = piece_done;
	r->next += n;
	r->under_way++;
	if (r->peer->pieces++ == 0)
		r->peer->last_ms = rc_now_ms();
	if (rc_endpoint_read(l->endpoint, r->peer->address, r->to + at, n, r->use, &r->from, r->offset + at, &p->op, &e) < 0)
		piece_done(&p->op, 0, &e);
}

/* Each read in turn gets a piece more. */
static void post_pieces(rc__line *l)
{
	while (l->free_piece && !rc_list_empty(&l->turns)) {
		rc__read *r = RC_CONTAINER(l->turns.next, rc__read, turn);

		rc_list_remove(&r->turn);
		if (r->why.code)
			continue; /* ends with its last piece */
		if (r->n - r->next > PIECE)
			rc_list_append(&l->turns, &r->turn);
		post_piece(l, r);
	}
}

void rc__read_run(rc__line *l, rc__job *j)
{
	rc__read *r = RC_CONTAINER(j, rc__read, job);
	rc_error e;

	r->peer = find_peer(l, rc_view_of(r->address, r->address_n), &e);
	if (!r->peer || find_region(l, r, &e) < 0) {
		rc__line_back(l, j, &e);
		return;
	}
	r->peer->reads++;
	rc_list_append(&l->reads, &r->all);
	rc_list_init(&r->turn);
	if (r->n == 0)
		read_end(l, r, NULL);
	else
		rc_list_append(&l->turns, &r->turn);
}

void rc__line_granted(rc__line *l, int change)
{
	l->granted += change;
	if (change > 0)
		l->granted_nap_ns = GRANTED_NAP_NS;
}

rc_endpoint *rc__line_endpoint(rc__line *l)
{
	return l->endpoint;
}

/* ---- the thread ---- */

static bool take_jobs(rc__line *l, rc_link *ret)
{
	bool go_on;

	rc_list_init(ret);
	pthread_mutex_lock(&l->lock);
	while (!rc_list_empty(&l->jobs)) {
		rc_link *first = l->jobs.next;

		rc_list_remove(first);
		rc_list_append(ret, first);
	}
	go_on = !l->stop;
	pthread_mutex_unlock(&l->lock);
	return go_on;
}

/* A peer that has pieces under way and ended none for too long: reads cannot be taken back one by one, so all end. */
static int check_stalls(rc__line *l, rc_error *e)
{
	uint64_t now = rc_now_ms();
	size_t i = 0;
	void *value;

	if (now - l->checked_ms < CHECK_MS)
		return 0;
	l->checked_ms = now;
	if (l->n_bad > MAX_BAD)
		return rc_fail(e, RC_E_UNAVAILABLE, "fabric %s: %u reads have failed", l->options.offer.provider, l->n_bad);
	while (rc_map_next(l->peers, &i, NULL, &value)) {
		const rc__peer *peer = value;

		if (peer->pieces && now - peer->last_ms >= l->options.stall_ms)
			return rc_fail(e, RC_E_TIMEOUT, "fabric %s: a peer has not answered for %llu ms", l->options.offer.provider,
			               (unsigned long long)(now - peer->last_ms));
	}
	return 0;
}

static void wait(rc__line *l)
{
	struct pollfd fds[2] = { { .fd = l->wake, .events = POLLIN }, { .fd = rc_endpoint_fd(l->endpoint), .events = POLLIN } };
	struct timespec limit = { 0 }, *until = &limit;
	bool reading = !rc_list_empty(&l->reads);
	nfds_t n = 2;
	uint64_t count;

	if (fds[1].fd < 0) {
		n = 1;
		limit.tv_nsec = reading ? NAP_NS : l->granted_nap_ns;
		if (!reading && !l->granted)
			until = NULL;
		if (!reading)
			l->granted_nap_ns = l->granted_nap_ns < MAX_GRANTED_NAP_NS / 2 ? 2 * l->granted_nap_ns : MAX_GRANTED_NAP_NS;
	} else if (rc_endpoint_may_wait(l->endpoint)) {
		limit.tv_nsec = CHECK_MS * 1000000L;
		if (!reading)
			until = NULL;
	}
	if (ppoll(fds, n, until, NULL) > 0 && fds[0].revents && read(l->wake, &count, sizeof count) < 0)
		return; /* EAGAIN: nothing was there after all */
}

/* Everything ends with this error; jobs that come later too. */
static void end_all(rc__line *l, const rc_error *e)
{
	rc_link jobs;
	size_t i = 0;
	void *value;

	l->closing = e;
	rc_endpoint_close(l->endpoint); /* ends pieces, and with them reads that have some under way */
	l->endpoint = NULL;
	while (!rc_list_empty(&l->reads))
		read_end(l, RC_CONTAINER(l->reads.next, rc__read, all), e);
	l->closing = NULL;
	tell_broken(l, e);
	(void)take_jobs(l, &jobs);
	while (!rc_list_empty(&jobs)) {
		rc__job *j = RC_CONTAINER(jobs.next, rc__job, link);

		rc_list_remove(&j->link);
		rc__line_back(l, j, e);
	}
	while (rc_map_next(l->peers, &i, NULL, &value))
		free(value);
	rc_map_destroy(l->peers);
	free_pieces(l->free_piece);
	free_pieces(l->bad_pieces);
}

static bool turn(rc__line *l, rc_error *e)
{
	rc_link jobs;
	int ended;

	if (!take_jobs(l, &jobs)) {
		rc_fail(e, RC_E_CANCELLED, "fabric %s: the node is ending", l->options.offer.provider);
		for (rc_link *j = jobs.next; j != &jobs; j = jobs.next) {
			rc_list_remove(j);
			rc__line_back(l, RC_CONTAINER(j, rc__job, link), e);
		}
		return false;
	}
	while (!rc_list_empty(&jobs)) {
		rc__job *j = RC_CONTAINER(jobs.next, rc__job, link);

		rc_list_remove(&j->link);
		j->run(l, j);
	}
	post_pieces(l);
	ended = rc_endpoint_poll(l->endpoint, e);
	if (ended < 0 || check_stalls(l, e) < 0)
		return false;
	if (ended == 0)
		wait(l);
	return true;
}

static void *line_main(void *arg)
{
	rc__line *l = arg;
	rc_error e;

	l->endpoint = rc_endpoint_open(l->options.library, &l->options.offer, l->options.ip, &e);
	while (l->endpoint && turn(l, &e))
		;
	end_all(l, &e);
	return NULL;
}

/* ---- the loop's side ---- */

rc__line *rc__line_create(const rc__line_options *o)
{
	rc__line *l = rc_alloc(sizeof *l);
	sigset_t all, old;

	l->options = *o;
	pthread_mutex_init(&l->lock, NULL);
	rc_list_init(&l->jobs);
	rc_list_init(&l->reads);
	rc_list_init(&l->turns);
	l->peers = rc_map_create();
	for (int i = 0; i < WINDOW; i++)
		add_piece(l);
	l->box = rc_alloc(sizeof *l->box);
	l->box->line = l;
	pthread_mutex_init(&l->box->lock, NULL);
	rc_list_init(&l->box->jobs);
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	sigfillset(&all); /* signals are the loop's */
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (l->wake < 0 || pthread_create(&l->thread, NULL, line_main, l) != 0)
		abort(); /* no descriptors or threads: the daemon cannot work on either */
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return l;
}

static void wake(rc__line *l)
{
	uint64_t one = 1;

	if (write(l->wake, &one, sizeof one) < 0)
		return; /* EAGAIN: it is awake */
}

void rc__line_do(rc__line *l, rc__job *j)
{
	bool broken;

	rc_list_init(&j->link);
	pthread_mutex_lock(&l->box->lock);
	broken = l->box->broken;
	pthread_mutex_unlock(&l->box->lock);
	if (broken) {
		rc__line_back(l, j, &l->box->why);
		return;
	}
	pthread_mutex_lock(&l->lock);
	rc_list_append(&l->jobs, &j->link);
	pthread_mutex_unlock(&l->lock);
	wake(l);
}

void rc__line_destroy(rc__line *l)
{
	box *b;

	if (!l)
		return;
	b = l->box;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_mutex_unlock(&l->lock);
	wake(l);
	pthread_join(l->thread, NULL);
	b->broken_told = true; /* who destroys it needs no telling */
	deliver_all(b, l);
	b->line = NULL;
	if (!b->posted)
		box_free(b);
	close(l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
