/* Files are read on the pool; what was read comes back to the loop and goes out as one part, the next read starts when that is
 * gone. So a slow reader holds one part in memory. At most 64 streams at a time. */
#define _GNU_SOURCE
#include "raylet-c/agent/log_service.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raylet-c/agent/log_files.h"
#include "raylet-c/base/list.h"
#include "raylet-c/base/log.h"

enum { PART = 65536, DEFAULT_LINES = 1000, MAX_STREAMS = 64, LEAST_INTERVAL_MS = 100 };

struct rc_log_service {
	rc_loop *loop;
	const rc_dialect *dialect;
	char *log_dir;
	rc_link streams, lists;
	size_t n_streams;
};

/* ---- ListLogs ---- */

typedef struct list {
	rc_log_service *service; /* NULL: gone */
	rc_link link;
	rc_request *request;
	char *folder, *pattern, **names;
	size_t n, room;
	int code;
	rc_error error;
} list;

static void add_name(void *arg, const char *name)
{
	list *l = arg;
	if (l->n == l->room)
		l->names = rc_realloc(l->names, (l->room = l->room ? 2 * l->room : 64) * sizeof(*l->names));
	l->names[l->n++] = rc_strdup(name);
}

static void list_work(void *arg)
{
	list *l = arg;
	l->code = rc_log_files_list(l->folder, l->pattern, add_name, l, &l->error);
}

static void list_done(void *arg)
{
	list *l = arg;
	if (l->service && l->code) {
		rc_warn("a list of logs was refused to %s: %s", rc_request_peer(l->request), l->error.text);
		rc_reply_error(l->request, l->error.code == RC_E_INVALID ? RC_RPC_INVALID : RC_RPC_UNKNOWN, "%s", l->error.text);
	} else if (l->service) {
		Rw__ListLogsReply m = RW__LIST_LOGS_REPLY__INIT;
		rc_buf out = { 0 };
		m.log_files = l->names;
		m.n_log_files = l->n;
		rc_pack(l->service->dialect, &m, &out);
		rc_reply(l->request, rc_view_of(out.p, out.n));
		rc_buf_free(&out);
	}
	rc_list_remove(&l->link);
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
	free(l->folder);
	free(l->pattern);
	free(l);
}

void rc_log_service_list(rc_log_service *s, rc_request *r, rc_view bytes)
{
	Rw__ListLogsRequest *m = rc_unpack(s->dialect, &rw__list_logs_request__descriptor, bytes);
	if (!m) {
		rc_reply_error(r, RC_RPC_INVALID, "ListLogsRequest: malformed");
		return;
	}
	list *l = rc_alloc(sizeof(*l));
	*l = (list){ .service = s, .request = r, .folder = rc_strdup(s->log_dir), .pattern = rc_strdup(RC_GET_STR(m, glob_filter)) };
	rc_free_message(m);
	rc_list_append(&s->lists, &l->link);
	rc_loop_work(s->loop, list_work, list_done, l);
}

/* ---- StreamLog ---- */

typedef struct stream {
	rc_log_service *service; /* NULL: gone, or the peer left */
	rc_link link;
	rc_request *request;
	char *folder, *name;
	int64_t lines, start, end; /* start, end: -1 unless asked for */
	bool follow, working, begun;
	unsigned interval_ms;
	rc_timer *timer; /* until the next look at the end of the file */
	int fd;
	uint64_t at, until; /* until: UINT64_MAX when it follows */
	uint8_t part[PART];
	ssize_t n;
	rc_error error;
} stream;

static void stream_free(stream *t)
{
	if (t->working)
		return;
	rc_timer_stop(t->timer);
	if (t->fd >= 0)
		close(t->fd);
	free(t->folder);
	free(t->name);
	free(t);
}

static void detach(stream *t)
{
	rc_list_remove(&t->link);
	t->service->n_streams--;
	t->service = NULL;
	stream_free(t);
}

static void stream_end(stream *t, int status, const char *detail)
{
	rc_reply_end(t->request, status, detail);
	detach(t);
}

static void open_work(void *arg)
{
	stream *t = arg;
	uint64_t size;
	t->fd = rc_log_file_open(t->folder, t->name, NULL, &size, &t->error);
	if (t->fd < 0)
		return;
	uint64_t end = t->end >= 0 && (uint64_t)t->end < size ? (uint64_t)t->end : size, start = t->start > 0 ? (uint64_t)t->start : 0;
	if (t->lines != -1) {
		uint64_t tail = rc_log_tail_start(t->fd, end, (uint64_t)t->lines);
		start = tail > start ? tail : start;
	}
	t->at = start;
	t->until = t->follow ? UINT64_MAX : end;
}

static void read_work(void *arg)
{
	stream *t = arg;
	uint64_t left = t->until > t->at ? t->until - t->at : 0;
	t->n = pread(t->fd, t->part, left < PART ? (size_t)left : PART, (off_t)t->at);
}

static void next_read(void *arg);

static void read_done(void *arg)
{
	stream *t = arg;
	t->working = false;
	if (!t->service) {
		stream_free(t);
	} else if (t->n > 0) {
		t->at += (uint64_t)t->n;
		Rw__StreamLogReply m = RW__STREAM_LOG_REPLY__INIT;
		rc_buf out = { 0 };
		RC_SET_BYTES(m, data, t->part, (size_t)t->n);
		rc_pack(t->service->dialect, &m, &out);
		rc_reply_part(t->request, rc_view_of(out.p, out.n));
		rc_buf_free(&out);
	} else if (t->follow && t->n == 0) {
		t->timer = rc_timer_start(t->service->loop, t->interval_ms, 0, next_read, t);
	} else {
		stream_end(t, RC_RPC_OK, "");
	}
}

static void next_read(void *arg)
{
	stream *t = arg;
	rc_timer_stop(t->timer);
	t->timer = NULL;
	t->working = true;
	rc_loop_work(t->service->loop, read_work, read_done, t);
}

static void sent(void *arg)
{
	stream *t = arg;
	if (t->fd < 0)
		stream_end(t, RC_RPC_OK, "");
	else
		next_read(t);
}

static void left(void *arg)
{
	detach(arg);
}

static const rc_parts_ops stream_ops = { sent, left };

static void open_done(void *arg)
{
	stream *t = arg;
	t->working = false;
	if (!t->service) {
		stream_free(t);
		return;
	}
	if (t->fd < 0 && t->error.code == RC_E_INVALID)
		rc_warn("a log was refused to %s: %s", rc_request_peer(t->request), t->error.text);
	t->begun = true;
	rc_reply_begin(t->request, t->fd < 0 ? (const char *[]){ "log_grpc_status", t->error.text, NULL } : NULL, &stream_ops, t);
}

void rc_log_service_stream(rc_log_service *s, rc_request *r, rc_view bytes)
{
	Rw__StreamLogRequest *m = rc_unpack(s->dialect, &rw__stream_log_request__descriptor, bytes);
	if (!m || s->n_streams >= MAX_STREAMS) {
		rc_reply_error(r, m ? RC_RPC_EXHAUSTED : RC_RPC_INVALID, m ? "%d logs are streamed already" : "StreamLogRequest: malformed", MAX_STREAMS);
		rc_free_message(m);
		return;
	}
	stream *t = rc_alloc(sizeof(*t));
	double interval = m->has_interval && m->interval > 0 ? m->interval : 1;
	t->service = s;
	t->request = r;
	t->fd = -1;
	t->folder = rc_strdup(s->log_dir);
	t->name = rc_strdup(RC_GET_STR(m, log_file_name));
	t->lines = RC_GET(m, lines) ? RC_GET(m, lines) : DEFAULT_LINES;
	t->lines = t->lines < 0 ? -1 : t->lines;
	t->start = m->has_start_offset ? m->start_offset : -1;
	t->end = m->has_end_offset ? m->end_offset : -1;
	t->follow = RC_GET(m, keep_alive);
	t->interval_ms = interval > 3600 ? 3600 * 1000 : interval * 1000 < LEAST_INTERVAL_MS ? LEAST_INTERVAL_MS : (unsigned)(interval * 1000);
	rc_free_message(m);
	rc_list_append(&s->streams, &t->link);
	s->n_streams++;
	t->working = true;
	rc_loop_work(s->loop, open_work, open_done, t);
}

/* ---- life ---- */

rc_log_service *rc_log_service_create(rc_loop *loop, const rc_dialect *dialect, const char *log_dir)
{
	rc_log_service *s = rc_alloc(sizeof(*s));
	*s = (rc_log_service){ .loop = loop, .dialect = dialect, .log_dir = rc_strdup(log_dir) };
	rc_list_init(&s->streams);
	rc_list_init(&s->lists);
	return s;
}

void rc_log_service_destroy(rc_log_service *s)
{
	if (!s)
		return;
	RC_LIST_FOREACH(l, &s->lists) {
		list *x = RC_CONTAINER(l, list, link);
		x->service = NULL;
		rc_list_remove(&x->link);
		rc_reply_error(x->request, RC_RPC_UNAVAILABLE, "the node is stopping");
	}
	RC_LIST_FOREACH(l, &s->streams) {
		stream *t = RC_CONTAINER(l, stream, link);
		if (t->begun)
			rc_reply_end(t->request, RC_RPC_UNAVAILABLE, "the node is stopping");
		else
			rc_reply_error(t->request, RC_RPC_UNAVAILABLE, "the node is stopping");
		detach(t);
	}
	free(s->log_dir);
	free(s);
}
