/* Several optimizer steps at once, on the CPU by several threads. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "train_backend/kernels/internal.h"

enum {
	BLOCK = 1 << 18, /* elements that a thread takes at a time: some 100 microseconds of work */
	MAX_THREADS = 64,
};

/* One call's work: blocks of all steps, counted through. */
struct work {
	int (*run)(const struct work *work, size_t step, size_t begin, size_t count, rc_error *error);
	size_t (*count_of)(const struct work *work, size_t step);
	rc_kernels *kernels;
	const void *steps;
	size_t step_count;
	atomic_size_t next;
	atomic_flag failed;
	rc_error error; /* of the thread that set failed */
	bool has_error;
};

static void take_blocks(struct work *work)
{
	size_t first = 0, step = 0; /* the block that `step` begins with */

	for (;;) {
		size_t block = atomic_fetch_add(&work->next, 1), count, begin;
		rc_error error;

		while (step < work->step_count && block - first >= (work->count_of(work, step) + BLOCK - 1) / BLOCK)
			first += (work->count_of(work, step++) + BLOCK - 1) / BLOCK;
		if (step == work->step_count)
			return;
		count = work->count_of(work, step);
		begin = (block - first) * BLOCK;
		if (work->run(work, step, begin, count - begin < BLOCK ? count - begin : BLOCK, &error)) {
			if (!atomic_flag_test_and_set(&work->failed)) {
				work->error = error;
				work->has_error = true;
			}
			return;
		}
	}
}

static void *thread(void *work)
{
	take_blocks(work);
	return NULL;
}

static int run_all(struct work *work, int threads, rc_error *error)
{
	pthread_t others[MAX_THREADS];
	sigset_t all, before;
	size_t blocks = 0;
	int count = 0;

	for (size_t i = 0; i < work->step_count; i++)
		blocks += (work->count_of(work, i) + BLOCK - 1) / BLOCK;
	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads that were there before */
	while (count + 1 < threads && (size_t)count + 1 < blocks && !pthread_create(&others[count], NULL, thread, work))
		count++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	take_blocks(work);
	for (int i = 0; i < count; i++)
		pthread_join(others[i], NULL);
	if (!work->has_error)
		return 0;
	if (error)
		*error = work->error;
	return -1;
}

static void *forward(void *base, rc_dtype type, size_t elements)
{
	return base ? (char *)base + elements * rc_dtype_size(type) : NULL;
}

static const void *forward_const(const void *base, rc_dtype type, size_t elements)
{
	return base ? (const char *)base + elements * rc_dtype_size(type) : NULL;
}

static size_t adamw_count(const struct work *work, size_t step)
{
	return ((const rc_adamw *)work->steps)[step].count;
}

static int adamw_block(const struct work *work, size_t step, size_t begin, size_t count, rc_error *error)
{
	rc_adamw part = ((const rc_adamw *)work->steps)[step];

	part.param = forward(part.param, part.param_type, begin);
	part.grad = forward_const(part.grad, part.grad_type, begin);
	part.exp_avg = forward(part.exp_avg, part.state_type, begin);
	part.exp_avg_sq = forward(part.exp_avg_sq, part.state_type, begin);
	part.cast = forward(part.cast, part.cast_type, begin);
	part.count = count;
	return rc_adamw_step(work->kernels, &part, NULL, error);
}

int rc_adamw_steps(rc_kernels *kernels, const rc_adamw *steps, size_t count, int threads, rc_stream stream, rc_error *error)
{
	struct work work = {.run = adamw_block, .count_of = adamw_count, .kernels = kernels, .steps = steps, .step_count = count,
	                    .failed = ATOMIC_FLAG_INIT};

	if (kernels->device < 0)
		return run_all(&work, threads, error);
	for (size_t i = 0; i < count; i++)
		if (rc_adamw_step(kernels, &steps[i], stream, error))
			return -1;
	return 0;
}

static size_t sgd_count(const struct work *work, size_t step)
{
	return ((const rc_sgd *)work->steps)[step].count;
}

static int sgd_block(const struct work *work, size_t step, size_t begin, size_t count, rc_error *error)
{
	rc_sgd part = ((const rc_sgd *)work->steps)[step];

	part.param = forward(part.param, part.param_type, begin);
	part.grad = forward_const(part.grad, part.grad_type, begin);
	part.momentum_buffer = forward(part.momentum_buffer, part.state_type, begin);
	part.cast = forward(part.cast, part.cast_type, begin);
	part.count = count;
	return rc_sgd_step(work->kernels, &part, NULL, error);
}

int rc_sgd_steps(rc_kernels *kernels, const rc_sgd *steps, size_t count, int threads, rc_stream stream, rc_error *error)
{
	struct work work = {.run = sgd_block, .count_of = sgd_count, .kernels = kernels, .steps = steps, .step_count = count,
	                    .failed = ATOMIC_FLAG_INIT};

	if (kernels->device < 0)
		return run_all(&work, threads, error);
	for (size_t i = 0; i < count; i++)
		if (rc_sgd_step(kernels, &steps[i], stream, error))
			return -1;
	return 0;
}
