/* The module's life: gRPC itself, the completion queue and its thread, byte buffers, metadata.
 *
 * Traps:
 * - a message given to gRPC must stay until its batch is done (the buffer; its slices are counted by gRPC);
 * - grpc_shutdown is asynchronous: the blocking form is used, so that no gRPC thread outlives rc_rpc_destroy;
 * - gRPC's own log goes through ours. At its default level only errors come (a failed TLS handshake, say): each source line
 *   of gRPC is let through once a minute, since a peer can cause them at will;
 * - gRPC's fork handlers are of no use here (children exec at once, or are forked by another process), so they are off;
 *   all descriptors that gRPC opens are close-on-exec (seen in /proc/PID/fdinfo of a server with clients). */
#define _GNU_SOURCE
#include "raylet-c/rpc/internal.h"

#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "raylet-c/base/log.h"

enum { SWEEP_MS = 10 * 1000, DEFAULT_MAX_MESSAGE = 512 << 20, LAST_ANSWERS_MS = 500, LOG_AGAIN_MS = 60 * 1000, LOG_LINES = 32 };

/* ---- queue ---- */

static void *queue_thread(void *arg)
{
	rc_rpc *rpc = arg;
	for (;;) {
		grpc_event event = grpc_completion_queue_next(rpc->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
		if (event.type == GRPC_QUEUE_SHUTDOWN)
			return NULL;
		if (event.type != GRPC_OP_COMPLETE)
			continue;
		rc__op *op = event.tag;
		rc__receive(op);
		if (op->on_queue)
			op->on_queue(op, event.success);
		else
			rc__mail(rpc->box, op, event.success);
	}
}

/* What gRPC reads of ours while it takes a batch (the details of a status, say) is ordered by its own locks before the last
 * reference goes. TSan does not see these locks, but sees a memcpy that gRPC ends a function with, as if we had called it. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#else
#define AnnotateIgnoreReadsBegin(file, line) ((void)0)
#define AnnotateIgnoreReadsEnd(file, line) ((void)0)
#endif

void rc__start(rc_rpc *rpc, grpc_call *call, const grpc_op *ops, size_t n, rc__op *op)
{
	rc__publish(op);
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	grpc_call_error code = grpc_call_start_batch(call, ops, n, op, NULL);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
	if (code == GRPC_CALL_OK)
		return;
	rc_error_log("gRPC refused a batch of %zu operations: %s", n, grpc_call_error_to_string(code));
	if (op->on_queue)
		op->on_queue(op, false);
	else
		rc__mail(rpc->box, op, false);
}

/* ---- messages and metadata ---- */

rc_view rc__flatten(grpc_byte_buffer **buffer, rc_buf *flat)
{
	if (!*buffer)
		return (rc_view){ 0 };
	grpc_slice_buffer *slices = &(*buffer)->data.raw.slice_buffer;
	if (slices->count == 1)
		return rc_view_of(GRPC_SLICE_START_PTR(slices->slices[0]), GRPC_SLICE_LENGTH(slices->slices[0]));
	for (size_t i = 0; i < slices->count; i++)
		rc_buf_add(flat, GRPC_SLICE_START_PTR(slices->slices[i]), GRPC_SLICE_LENGTH(slices->slices[i]));
	grpc_byte_buffer_destroy(*buffer);
	*buffer = NULL;
	return rc_view_of(flat->p, flat->n);
}

grpc_byte_buffer *rc__message(rc_view bytes)
{
	grpc_slice slice = grpc_slice_from_copied_buffer((const char *)bytes.p, bytes.n);
	grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
	grpc_slice_unref(slice);
	return buffer;
}

size_t rc__metadata(const rc_rpc *rpc, unsigned which, grpc_metadata *out)
{
	size_t n = 0;
	if (rpc->bearer)
		out[n++] = rpc->bearer_metadata;
	if ((which & RC_META_CLUSTER_ID) && rpc->has_cluster)
		out[n++] = rpc->cluster_metadata;
	return n;
}

void rc_rpc_set_cluster_id(rc_rpc *rpc, const char *hex)
{
	grpc_slice value = grpc_slice_from_copied_string(hex);
	if (!grpc_header_nonbin_value_is_legal(value)) {
		rc_error_log("the cluster id is no text for an HTTP header; calls go without it");
		grpc_slice_unref(value);
		return;
	}
	if (rpc->has_cluster)
		grpc_slice_unref(rpc->cluster_metadata.value);
	rpc->cluster_metadata.key = grpc_slice_from_static_string("ray_cluster_id");
	rpc->cluster_metadata.value = value;
	rpc->has_cluster = true;
}

/* ---- life ---- */

/* True when this line of gRPC's source was not let through within the last minute. Any thread. */
static bool may_log(const char *file, int line)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct {
		const char *file; /* gRPC's own __FILE__: static */
		int line;
		uint64_t again;
	} seen[LOG_LINES];
	uint64_t now = rc_now_ms();
	size_t use = 0;
	bool may = true;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < LOG_LINES; i++) {
		if (seen[i].file == file && seen[i].line == line) {
			use = i;
			may = now >= seen[i].again;
			break;
		}
		if (seen[i].again < seen[use].again)
			use = i;
	}
	if (may) {
		seen[use].file = file;
		seen[use].line = line;
		seen[use].again = now + LOG_AGAIN_MS;
	}
	pthread_mutex_unlock(&lock);
	return may;
}

static void log_from_grpc(gpr_log_func_args *args)
{
	if (args->severity < GPR_LOG_SEVERITY_ERROR)
		rc_log_write(RC_DEBUG, args->file, args->line, "gRPC: %s", args->message);
	else if (may_log(args->file, args->line))
		rc_log_write(RC_WARN, args->file, args->line, "gRPC: %s", args->message);
}

/* gRPC takes these settings from the environment only, when it is set up: in grpc_init and, for the resolver, with the first
 * channel. Children get the user's values.
 * The resolver is the system's (getaddrinfo), as everywhere else in the node; gRPC's other one, c-ares, leaks and does not know
 * nsswitch.conf. A user's own choice of it stands. */
static void init_grpc(void)
{
	static const char fork_support[] = "GRPC_ENABLE_FORK_SUPPORT", resolver[] = "GRPC_DNS_RESOLVER";
	char *before = rc_strdup(getenv(fork_support));
	bool resolver_chosen = getenv(resolver) != NULL;
	setenv(fork_support, "0", 1);
	if (!resolver_chosen)
		setenv(resolver, "native", 1);
	grpc_init();
	grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
	grpc_channel_destroy(grpc_channel_create("ipv4:127.0.0.1:1", credentials, NULL)); /* connects to nothing */
	grpc_channel_credentials_release(credentials);
	if (before)
		setenv(fork_support, before, 1);
	else
		unsetenv(fork_support);
	if (!resolver_chosen)
		unsetenv(resolver);
	free(before);
}

static int start_thread(rc_rpc *rpc, rc_error *error)
{
	/* Signals are the loop thread's. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int code = pthread_create(&rpc->thread, NULL, queue_thread, rpc);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code)
		return rc_fail(error, RC_E_SYSTEM, "cannot start the gRPC queue thread: %s", strerror(code));
	pthread_setname_np(rpc->thread, "rc-grpc");
	return 0;
}

static int set_token(rc_rpc *rpc, const char *token, rc_error *error)
{
	if (!token)
		return 0;
	rpc->bearer = rc_sprintf("Bearer %s", token);
	rpc->bearer_metadata.key = grpc_slice_from_static_string("authorization");
	rpc->bearer_metadata.value = grpc_slice_from_copied_string(rpc->bearer);
	if (!grpc_header_nonbin_value_is_legal(rpc->bearer_metadata.value))
		return rc_fail(error, RC_E_INVALID, "the authentication token has a character that an HTTP header may not have");
	return 0;
}

static void free_rest(rc_rpc *rpc)
{
	rc__mailbox_close(rpc->box);
	rc_map_destroy(rpc->channels);
	rc_map_destroy(rpc->calls);
	if (rpc->has_cluster)
		grpc_slice_unref(rpc->cluster_metadata.value);
	if (rpc->bearer)
		grpc_slice_unref(rpc->bearer_metadata.value);
	free(rpc->bearer);
	rc__tls_free(rpc);
	grpc_completion_queue_destroy(rpc->queue);
	grpc_shutdown_blocking();
	free(rpc);
}

rc_rpc *rc_rpc_create(rc_loop *loop, const rc_rpc_options *options, rc_error *error)
{
	rc_rpc *rpc = rc_alloc(sizeof(*rpc));
	if (rc__tls_load(rpc, options, error)) {
		free(rpc);
		return NULL;
	}
	gpr_set_log_function(log_from_grpc);
	init_grpc();
	rpc->loop = loop;
	rpc->max_message = options->max_message ? options->max_message : DEFAULT_MAX_MESSAGE;
	if (rpc->max_message > INT32_MAX)
		rpc->max_message = INT32_MAX; /* gRPC's channel argument is an int */
	rpc->box = rc__mailbox_create(loop);
	rpc->channels = rc_map_create();
	rpc->calls = rc_map_create();
	rc_list_init(&rpc->all_channels);
	rpc->queue = grpc_completion_queue_create_for_next(NULL);
	if (set_token(rpc, options->token, error) || start_thread(rpc, error)) {
		grpc_completion_queue_shutdown(rpc->queue);
		while (grpc_completion_queue_next(rpc->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type != GRPC_QUEUE_SHUTDOWN)
			;
		free_rest(rpc);
		return NULL;
	}
	rpc->sweep = rc_timer_start(loop, SWEEP_MS, SWEEP_MS, rc__channels_sweep, rpc);
	return rpc;
}

void rc_rpc_destroy(rc_rpc *rpc)
{
	if (!rpc)
		return;
	rpc->closing = true;
	rc_timer_stop(rpc->sweep);
	/* Our own calls first: what they tell may be the answer to a request that waits for it. The rest is answered after that. */
	rc__channels_cancel(rpc);
	while (rc_map_count(rpc->calls))
		rc__mailbox_turn(rpc->box);
	rc__server_stop(rpc);
	/* Answers that were just given get a moment to leave; peers that read none of it do not hold us up. */
	rc__mailbox_wait(rpc->box, rc_now_ms() + LAST_ANSWERS_MS);
	rc__server_cancel(rpc);
	rc__mailbox_wait(rpc->box, UINT64_MAX);
	rc__channels_destroy(rpc);
	rc__server_destroy(rpc);
	grpc_completion_queue_shutdown(rpc->queue);
	pthread_join(rpc->thread, NULL);
	free_rest(rpc);
}
