/* See mesh.h. */
#define _GNU_SOURCE
#include "train_backend/comm/fabric/mesh.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { COMES = 1, ENDS, LEAVES }; /* rc__mesh_message.kind */
enum { CONTROL_TAG = 1, DATA_TAG = 2 };
enum { SPINS = 2000 };

static const double slice = 0.1; /* seconds between two looks at whether the others live */
static const double grace = 0.2; /* for what one that has gone had sent before */
static const double flush = 0.5; /* for the last messages to go out */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* ---- control messages ---- */

static void take_control(rc__mesh *m, const rc__mesh_message *message, uint64_t n)
{
	rc__mesh_peer *peer;

	if (n <= offsetof(rc__mesh_message, text) || n > sizeof *message || message->rank < 0 || message->rank >= m->comm->size ||
	    message->rank == m->comm->rank || ((const char *)message)[n - 1])
		return;
	if (memcmp(message->id, m->id, sizeof m->id)) {
		if (m->number <= 1) /* afterwards all ranks are known, and others' messages mean nothing */
			m->stranger = message->rank;
		return;
	}
	peer = &m->peers[message->rank];
	if (message->kind == COMES && message->call.number == peer->number + 1) {
		memcpy(&peer->come[message->call.number % 2], message, n);
		peer->number++;
	} else if (message->kind == LEAVES) {
		peer->left = true;
		peer->gone = now();
	} else if (message->kind == ENDS && !m->told.kind) {
		memcpy(&m->told, message, n);
	}
}

static int post_control(rc__mesh *m, int i, rc_error *error)
{
	return rc_endpoint_receive(m->endpoint, &m->in[i], sizeof m->in[i], m->region, (uint64_t)CONTROL_TAG << 62, &m->controls[i].op, error);
}

static void control_done(rc_op *op, uint64_t n, const rc_error *error)
{
	rc__mesh_op *o = (rc__mesh_op *)op;
	rc__mesh *m = o->mesh;
	int i = (int)(o - m->controls);
	rc_error why;

	if (atomic_load(&m->broken))
		return;
	if (error) {
		m->failed = *error;
		return;
	}
	take_control(m, &m->in[i], n);
	if (post_control(m, i, &why))
		m->failed = why;
}

/* A send failed: the rank is given the time that its last messages may take, one of which may say why. */
static void out_of_reach(rc__mesh_peer *peer, const rc_error *error)
{
	if (!peer->gone) {
		peer->gone = now();
		peer->why = *error;
	}
}

static void told_done(rc_op *op, uint64_t n, const rc_error *error)
{
	rc__mesh_op *o = (rc__mesh_op *)op;

	(void)n;
	if (error)
		out_of_reach(&o->mesh->peers[o->peer], error);
}

/* To every rank that is there; ops: [size], none of them busy. */
static void tell(rc__mesh *m, const rc__mesh_message *message, rc__mesh_op *ops)
{
	size_t n = offsetof(rc__mesh_message, text) + strlen(message->text) + 1;
	rc_error error;

	for (int i = 1; i < m->comm->size; i++) {
		int q = (m->comm->rank + i) % m->comm->size;

		if (!m->peers[q].left && rc_endpoint_send(m->endpoint, m->peers[q].address, message, n, m->region, (uint64_t)CONTROL_TAG << 62,
		                                          &ops[q].op, &error))
			out_of_reach(&m->peers[q], &error);
	}
}

static bool telling(const rc__mesh *m, const rc__mesh_op *ops)
{
	for (int q = 0; q < m->comm->size; q++)
		if (ops[q].op.busy && !m->peers[q].gone)
			return true;
	return false;
}

/* ---- the end ---- */

static void tell_the_end(rc__mesh *m, int kind, rc_code code, const char *text)
{
	double limit = now() + flush;
	rc_error error;

	m->out = (rc__mesh_message){ .kind = kind, .rank = m->comm->rank, .call = m->said.call, .code = code };
	memcpy(m->out.id, m->id, sizeof m->id);
	snprintf(m->out.text, sizeof m->out.text, "%s", text);
	tell(m, &m->out, m->tells);
	while (telling(m, m->tells) && rc_endpoint_poll(m->endpoint, &error) >= 0 && now() < limit)
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

static int broken(const rc__mesh *m, rc_error *error)
{
	return rc_fail(error, m->reason.code, "%s", m->reason.text);
}

/* other: who has told; then the others are told by it. */
static int end(rc__mesh *m, rc_code code, const char *text, bool other, rc_error *error)
{
	if (!atomic_load(&m->broken)) {
		rc_fail(&m->reason, code, "%s", text);
		atomic_store(&m->broken, true);
		if (!other)
			tell_the_end(m, ENDS, code, text);
		rc_endpoint_close(m->endpoint);
		m->endpoint = NULL;
		if (m->move) {
			free(m->move->regions);
			m->move->regions = NULL;
			m->move = NULL;
		}
	}
	return broken(m, error);
}

/* The present call, then why it cannot go on. */
static int end_call(rc__mesh *m, rc_code code, rc_error *error, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int end_call(rc__mesh *m, rc_code code, rc_error *error, const char *format, ...)
{
	char text[sizeof error->text], name[RC__CALL_TEXT];
	va_list args;
	int n = snprintf(text, sizeof text, "%s: ", rc__call_describe(&m->said.call, name));

	va_start(args, format);
	vsnprintf(text + n, sizeof text - (size_t)n, format, args);
	va_end(args);
	return end(m, code, text, false, error);
}

static int end_late(rc__mesh *m, int q, rc_error *error)
{
	const rc__mesh_peer *late = &m->peers[q];
	long long pid = late->process.pid;
	double timeout = m->comm->timeout;
	char name[RC__CALL_TEXT];
	int here = 0; /* the first that has come: all who wait say the same */

	while (m->peers[here].number < m->number)
		here++;
	if (late->number == 0)
		return end_call(m, RC_E_TIMEOUT, error, "rank %d (pid %lld on %s) did not come within %g s; it has come to no call yet, and rank %d is "
		                "at call %" PRIu64, q, pid, late->host, timeout, here, m->number);
	if (late->number >= m->number)
		return end_call(m, RC_E_TIMEOUT, error, "rank %d (pid %lld on %s) did not go on within %g s; it came to this call (%" PRIu64
		                ") and is moving data, stopped or out of reach", q, pid, late->host, timeout, m->number);
	return end_call(m, RC_E_TIMEOUT, error, "rank %d (pid %lld on %s) did not come within %g s; it came last to %s, call %" PRIu64
	                ", and rank %d is at call %" PRIu64, q, pid, late->host, timeout,
	                rc__call_describe(&late->come[late->number % 2].call, name), late->number, here, m->number);
}

static bool dead(const rc__mesh_peer *peer)
{
	return peer->near && !rc__process_lives(&peer->process, peer->fd);
}

static int end_gone(rc__mesh *m, int q, rc_error *error)
{
	const rc__mesh_peer *peer = &m->peers[q];
	long long pid = peer->process.pid;

	if (peer->left)
		return end_call(m, RC_E_UNAVAILABLE, error, "rank %d (pid %lld on %s) has closed its communicator", q, pid, peer->host);
	if (peer->why.code && !dead(peer))
		return end_call(m, RC_E_UNAVAILABLE, error, "rank %d (pid %lld on %s) is out of reach: %s", q, pid, peer->host, peer->why.text);
	return end_call(m, RC_E_UNAVAILABLE, error, "rank %d (pid %lld on %s) has died", q, pid, peer->host);
}

/* ---- waiting ---- */

static bool waits_for(const rc__mesh *m, int q)
{
	const rc__mesh_peer *peer = &m->peers[q];

	return q != m->comm->rank && (peer->number < m->number || m->says[q].op.busy || peer->receives || peer->sends);
}

/* 0: go on waiting. since: when something came last. */
static int look_at_others(rc__mesh *m, double t, double since, rc_error *error)
{
	for (int q = 0; q < m->comm->size; q++) {
		rc__mesh_peer *peer = &m->peers[q];

		if (!waits_for(m, q))
			continue;
		if (!peer->gone && dead(peer))
			peer->gone = t;
		if (peer->gone && t - peer->gone > grace && t - since > grace)
			return end_gone(m, q, error);
	}
	return 0;
}

/* One who is behind in meeting is named before one who has come; by rank, so that all who wait name the same. */
static int latest(const rc__mesh *m)
{
	int found = -1;

	for (int q = 0; q < m->comm->size; q++) {
		if (m->peers[q].number < m->number)
			return q;
		if (found < 0 && waits_for(m, q))
			found = q;
	}
	return found;
}

/* Whether something that has come ends it. n: of the last poll. */
static int judge(rc__mesh *m, int n, const rc_error *why, rc_error *error)
{
	if (m->told.kind)
		return end(m, (rc_code)m->told.code, m->told.text, true, error);
	if (atomic_load(&m->aborting))
		return end(m, m->aborted.code, m->aborted.text, false, error);
	if (n < 0)
		return end_call(m, why->code, error, "%s", why->text);
	if (m->failed.code)
		return end_call(m, m->failed.code, error, "%s", m->failed.text);
	if (m->stranger >= 0)
		return end_call(m, RC_E_INVALID, error, "rank %d is of another communicator than rank %d: they were not given the same blobs",
		                m->stranger, m->comm->rank);
	return 0;
}

static int look(rc__mesh *m, rc_error *error)
{
	rc_error why;
	int n = rc_endpoint_poll(m->endpoint, &why);

	return judge(m, n, &why, error);
}

static void doze(rc__mesh *m, unsigned idle)
{
	int fd = rc_endpoint_fd(m->endpoint);

	if (idle < m->spins)
		relax();
	else if (fd >= 0 && rc_endpoint_may_wait(m->endpoint))
		poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 10);
	else
		nanosleep(&(struct timespec){ .tv_nsec = fd >= 0 || idle < m->spins + 100 ? 20000 : 500000 }, NULL);
}

/* Until step says 1; it is asked after whatever has come. -1: it is over. renew: the timeout begins again whenever something comes. */
static int wait_until(rc__mesh *m, int (*step)(rc__mesh *m, rc_error *error), bool renew, rc_error *error)
{
	double begin = now(), since = begin, next_look = begin + slice;
	unsigned idle = 0;

	for (;;) {
		rc_error why;
		int n = rc_endpoint_poll(m->endpoint, &why), done = n < 0 ? 0 : step(m, error);
		double t;

		if (done) /* before anything is judged: a rank may have gone, or aborted, after its part in this was done */
			return done < 0 ? -1 : 0;
		if (judge(m, n, &why, error))
			return -1;
		if (n > 0) {
			idle = 0;
			since = now();
			continue;
		}
		doze(m, idle++);
		if (idle < m->spins)
			continue;
		t = now();
		if (t >= next_look) {
			next_look = t + slice;
			if (look_at_others(m, t, since, error))
				return -1;
		}
		if (t - (renew ? since : begin) > m->comm->timeout)
			return end_late(m, latest(m), error);
	}
}

/* ---- moving data ---- */

static size_t pieces_of(const rc__mesh *m, const size_t *bytes, size_t piece)
{
	size_t most = 0;

	for (int q = 0; q < m->comm->size; q++)
		if (q != m->comm->rank && bytes[q] > most)
			most = bytes[q];
	return (most + piece - 1) / piece;
}

static uint64_t data_tag(const rc__mesh *m, int sender, size_t piece)
{
	uint64_t id;

	memcpy(&id, m->id, sizeof id);
	return (uint64_t)DATA_TAG << 62 | (id & 0xffff) << 46 | (m->number & 0x3fff) << 32 | (uint64_t)sender << 20 |
	       ((m->pieces + piece) & 0xfffff);
}

static void data_done(rc_op *op, uint64_t n, const rc_error *error)
{
	rc__mesh_op *o = (rc__mesh_op *)op;
	rc__mesh *m = o->mesh;
	bool receive = o >= m->receives && o < m->receives + RC__MESH_RECEIVES;
	rc__mesh_peer *peer = &m->peers[o->peer];

	if (atomic_load(&m->broken))
		return;
	if (error && !receive) {
		out_of_reach(peer, error);
		return;
	}
	if (error || (receive && n != o->bytes)) {
		rc_fail(&m->failed, error ? error->code : RC_E_INVALID, "rank %d (pid %lld on %s): %s", o->peer, (long long)peer->process.pid,
		        peer->host, error ? error->text : "a piece of another length came");
		return;
	}
	if (!receive) {
		peer->sends--;
		return;
	}
	peer->receives--;
	rc__comm_took(m->comm, o->peer, o->bytes);
	if (m->move->depth)
		m->move->waiting[o->piece % m->move->depth]--;
}

static rc__mesh_op *idle_op(rc__mesh_op *ops, int count)
{
	for (int i = 0; i < count; i++)
		if (!ops[i].op.busy)
			return &ops[i];
	return NULL;
}

/* Pieces go in the same order everywhere: piece by piece, and of each piece to the next rank, the one after it, ... So what one rank waits
 * to receive, another has not put behind something that waits for more. */
static int post_receives(rc__mesh *m, rc_error *error)
{
	rc__move *v = m->move;
	size_t others = (size_t)m->comm->size - 1;
	rc__mesh_op *o;

	for (; v->next_recv < v->all_recvs; v->next_recv++) {
		size_t k = v->next_recv / others, i = 1 + v->next_recv % others;
		int q = (int)((size_t)m->comm->rank + others + 1 - i) % m->comm->size;
		size_t begin = k * v->piece, at = v->depth ? k % v->depth * v->piece : begin;

		if (v->depth && k >= v->folded + v->depth)
			break;
		if (begin >= v->recv_bytes[q])
			continue;
		o = idle_op(m->receives, RC__MESH_RECEIVES);
		if (!o)
			break;
		o->peer = q;
		o->piece = k;
		o->bytes = min(v->piece, v->recv_bytes[q] - begin);
		if (rc_endpoint_receive(m->endpoint, v->recv[q] + at, o->bytes, v->regions ? v->regions[m->comm->size + q] : NULL,
		                        data_tag(m, q, k), &o->op, error))
			return -1;
		if (v->depth)
			v->waiting[k % v->depth]++;
	}
	return 0;
}

static int post_sends(rc__mesh *m, rc_error *error)
{
	rc__move *v = m->move;
	size_t others = (size_t)m->comm->size - 1;
	rc__mesh_op *o;

	for (; v->next_send < v->all_sends; v->next_send++) {
		size_t k = v->next_send / others, i = 1 + v->next_send % others;
		int q = (int)((size_t)m->comm->rank + i) % m->comm->size;
		size_t begin = k * v->piece;

		if (begin >= v->send_bytes[q])
			continue;
		o = idle_op(m->sends, RC__MESH_SENDS);
		if (!o)
			break;
		o->peer = q;
		o->piece = k;
		o->bytes = min(v->piece, v->send_bytes[q] - begin);
		if (rc_endpoint_send(m->endpoint, m->peers[q].address, v->send[q] + begin, o->bytes, v->regions ? v->regions[q] : NULL,
		                     data_tag(m, m->comm->rank, k), &o->op, error))
			return -1;
	}
	return 0;
}

/* The memory of a move, for providers that want to know it. */
static int register_memory(rc__mesh *m, rc__move *v, rc_error *error)
{
	int size = m->comm->size;

	v->regions = NULL;
	if (!rc_endpoint_offer(m->endpoint)->registers)
		return 0;
	v->regions = calloc(2 * (size_t)size, sizeof *v->regions);
	if (!v->regions)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for %d regions", 2 * size);
	for (int q = 0; q < size; q++) {
		size_t room = v->depth ? v->depth * v->piece : v->recv_bytes[q];

		if (q == m->comm->rank)
			continue;
		if (v->send_bytes[q]) {
			v->regions[q] = rc_endpoint_register(m->endpoint, (char *)(uintptr_t)v->send[q], v->send_bytes[q], false, error);
			if (!v->regions[q])
				return -1;
		}
		if (v->recv_bytes[q]) {
			v->regions[size + q] = rc_endpoint_register(m->endpoint, v->recv[q], room, false, error);
			if (!v->regions[size + q])
				return -1;
		}
	}
	return 0;
}

static int begin_move(rc__mesh *m, rc__move *v, rc_error *error)
{
	size_t others = (size_t)m->comm->size - 1, sends = pieces_of(m, v->send_bytes, v->piece), recvs = pieces_of(m, v->recv_bytes, v->piece);
	rc_error why;

	v->next_send = v->next_recv = v->folded = 0;
	v->all_sends = sends * others;
	v->all_recvs = recvs * others;
	memset(v->waiting, 0, sizeof v->waiting);
	for (int q = 0; q < m->comm->size; q++) {
		if (q == m->comm->rank)
			continue;
		m->peers[q].sends = (v->send_bytes[q] + v->piece - 1) / v->piece;
		m->peers[q].receives = (v->recv_bytes[q] + v->piece - 1) / v->piece;
	}
	m->move = v;
	if (register_memory(m, v, &why) || post_receives(m, &why))
		return end_call(m, why.code, error, "%s", why.text);
	return 0;
}

static bool moved(const rc__mesh *m)
{
	for (int q = 0; q < m->comm->size; q++)
		if (m->peers[q].sends || m->peers[q].receives)
			return false;
	return true;
}

/* Hands on what is there of all ranks, then lets more come. */
static int move_on(rc__mesh *m, rc_error *error)
{
	rc__move *v = m->move;
	size_t others = (size_t)m->comm->size - 1, most = 0;
	rc_error why;

	for (int q = 0; q < m->comm->size; q++)
		if (q != m->comm->rank && v->recv_bytes[q] > most)
			most = v->recv_bytes[q];
	while (v->depth && v->folded * others < v->all_recvs && v->next_recv >= (v->folded + 1) * others &&
	       v->waiting[v->folded % v->depth] == 0) {
		v->come(v->arg, v->folded, min(v->piece, most - v->folded * v->piece));
		v->folded++;
		if (post_receives(m, &why))
			return end_call(m, why.code, error, "%s", why.text);
	}
	if (post_receives(m, &why) || post_sends(m, &why))
		return end_call(m, why.code, error, "%s", why.text);
	return moved(m);
}

static int finish_move(rc__mesh *m, rc_error *error)
{
	rc__move *v = m->move;
	size_t sends = v->all_sends, recvs = v->all_recvs, others = (size_t)m->comm->size - 1;

	if (wait_until(m, move_on, true, error))
		return -1;
	for (int q = 0; v->regions && q < 2 * m->comm->size; q++)
		rc_endpoint_unregister(m->endpoint, v->regions[q]);
	free(v->regions);
	v->regions = NULL;
	m->move = NULL;
	if (others)
		m->pieces += (uint32_t)((sends > recvs ? sends : recvs) / others);
	return 0;
}

int rc__mesh_move(rc__mesh *m, rc__move *move, rc_error *error)
{
	return begin_move(m, move, error) || finish_move(m, error) ? -1 : 0;
}

/* ---- meeting ---- */

static int met(rc__mesh *m, rc_error *error)
{
	(void)error;
	for (int q = 0; q < m->comm->size; q++)
		if (q != m->comm->rank && (m->peers[q].number < m->number || m->says[q].op.busy))
			return 0;
	return 1;
}

int rc__mesh_enter(rc__mesh *m, rc_tag tag, const rc__call *call, const rc_error *failed, rc__move *move, rc_error *error)
{
	rc__mesh_peer *own = &m->peers[m->comm->rank];
	rc_error how;

	pthread_mutex_lock(&m->lock);
	if (atomic_load(&m->broken))
		return broken(m, error);
	m->said = (rc__mesh_message){ .kind = COMES, .rank = m->comm->rank, .call = *call, .code = failed ? (int32_t)failed->code : RC_OK };
	memcpy(m->said.id, m->id, sizeof m->id);
	m->said.call.number = ++m->number;
	rc__call_set_tag(&m->said.call, tag);
	if (m->said.code)
		snprintf(m->said.text, sizeof m->said.text, "%s", failed->text);
	own->come[m->number % 2] = m->said;
	own->number = m->number;
	m->pieces = 0;
	if (look(m, error)) /* what was told since the last call */
		return -1;
	if (move && begin_move(m, move, error))
		return -1;
	tell(m, &m->said, m->says);
	if (wait_until(m, met, false, error))
		return -1;
	for (int q = 1; q < m->comm->size; q++)
		if (!rc__call_same(&rc__mesh_come(m, 0)->call, &rc__mesh_come(m, q)->call)) {
			rc__call_differ(0, &rc__mesh_come(m, 0)->call, q, &rc__mesh_come(m, q)->call, &how);
			return end(m, how.code, how.text, false, error);
		}
	return move ? finish_move(m, error) : 0;
}

static void end_aborted(rc__mesh *m)
{
	rc_error error;

	if (m->endpoint)
		end(m, m->aborted.code, m->aborted.text, false, &error);
}

int rc__mesh_leave(rc__mesh *m, int result)
{
	pthread_mutex_unlock(&m->lock);
	if (atomic_load(&m->aborting) && pthread_mutex_trylock(&m->lock) == 0) { /* it came when the call did not look any more */
		end_aborted(m);
		pthread_mutex_unlock(&m->lock);
	}
	return result;
}

const rc__mesh_message *rc__mesh_come(const rc__mesh *m, int rank)
{
	return &m->peers[rank].come[m->number % 2];
}

int rc__mesh_check(rc__mesh *m, rc_error *error)
{
	int result;

	pthread_mutex_lock(&m->lock);
	if (atomic_load(&m->broken))
		result = broken(m, error);
	else
		result = look(m, error);
	return rc__mesh_leave(m, result);
}

void rc__mesh_abort(rc__mesh *m, const char *reason)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&one);
	if (!atomic_load(&m->aborting)) {
		rc_fail(&m->aborted, RC_E_CANCELLED, "aborted by rank %d (pid %lld on %s): %s", m->comm->rank,
		        (long long)m->peers[m->comm->rank].process.pid, m->peers[m->comm->rank].host, reason ? reason : "");
		atomic_store(&m->aborting, true);
	}
	pthread_mutex_unlock(&one);
	if (pthread_mutex_trylock(&m->lock) == 0) { /* else the call in progress ends it */
		end_aborted(m);
		pthread_mutex_unlock(&m->lock);
	}
}

/* ---- open and close ---- */

static int cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void prepare_ops(rc__mesh *m, rc__mesh_op *ops, int count, rc_op_fn done)
{
	for (int i = 0; i < count; i++)
		ops[i] = (rc__mesh_op){ .op.done = done, .mesh = m, .peer = i };
}

int rc__mesh_open(rc__mesh *m, rc_error *error)
{
	int size = m->comm->size, ranks_here = 0;
	rc_error cause;

	pthread_mutex_init(&m->lock, NULL);
	m->stranger = -1;
	m->says = calloc((size_t)size, sizeof *m->says);
	m->tells = calloc((size_t)size, sizeof *m->tells);
	if (!m->says || !m->tells)
		return rc_fail(error, RC_E_NO_MEMORY, "no memory for %d ranks", size);
	prepare_ops(m, m->says, size, told_done);
	prepare_ops(m, m->tells, size, told_done);
	prepare_ops(m, m->controls, RC__MESH_CONTROLS, control_done);
	prepare_ops(m, m->sends, RC__MESH_SENDS, data_done);
	prepare_ops(m, m->receives, RC__MESH_RECEIVES, data_done);
	for (int q = 0; q < size; q++) {
		rc__mesh_peer *peer = &m->peers[q];

		peer->near = rc__process_reachable(&m->peers[m->comm->rank].process, &peer->process, &cause) == 0;
		ranks_here += peer->near;
		peer->fd = peer->near && q != m->comm->rank ? (int)syscall(SYS_pidfd_open, (pid_t)peer->process.pid, 0) : -1;
		if (peer->fd >= 0 && !rc__process_lives(&peer->process, -1)) {
			close(peer->fd);
			peer->fd = -1;
		}
	}
	/* Spinning while a rank that is waited for has no core only keeps it from coming. */
	m->spins = cores() >= ranks_here ? SPINS : 0;
	if (rc_endpoint_offer(m->endpoint)->registers) {
		m->region = rc_endpoint_register(m->endpoint, &m->said, offsetof(rc__mesh, region) - offsetof(rc__mesh, said), false, error);
		if (!m->region)
			return -1;
	}
	for (int i = 0; i < RC__MESH_CONTROLS; i++)
		if (post_control(m, i, error))
			return -1;
	return 0;
}

void rc__mesh_close(rc__mesh *m)
{
	if (!m->peers)
		return;
	if (m->endpoint && m->says && m->number)
		tell_the_end(m, LEAVES, RC_OK, "");
	atomic_store(&m->broken, true); /* what the endpoint still ends is nobody's */
	rc_endpoint_close(m->endpoint);
	for (int q = 0; m->says && q < m->comm->size; q++)
		if (m->peers[q].fd >= 0)
			close(m->peers[q].fd);
	free(m->says);
	free(m->tells);
	free(m->peers);
	*m = (rc__mesh){ 0 };
}
