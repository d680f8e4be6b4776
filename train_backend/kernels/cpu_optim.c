/* Optimizer steps on the CPU, see kernels.h: tiles of all the buffers at a time, so that each is read and written once. */
#include <math.h>
#include <string.h>

#include "train_backend/kernels/cpu_tiles.h"
#include "train_backend/kernels/internal.h"

/* high accuracy, denormals kept, no error handling: what torch asks MKL for */
#define ROOTS_MODE 0x140102

/* What somebody has written to the narrow copy since the last step counts. param: f32. */
static void follow(const rc__cpu_ops *cpu, float *param, const void *cast, rc_dtype type, size_t count)
{
	uint16_t rounded[TILE];
	float values[TILE];

	narrow(cpu, param, rounded, type, count);
	if (memcmp(rounded, cast, count * sizeof *rounded) == 0)
		return;
	widen(cpu, cast, type, values, count);
	for (size_t i = 0; i < count; i++)
		if (memcmp(&rounded[i], at(cast, type, i), sizeof *rounded) != 0)
			param[i] = values[i];
}

/* The loop of cpu_simd.inc in f64, for f64 parameters. */
static void adamw_f64(const rc__cpu_ops *cpu, const rc_adamw *step, const rc__adamw_factors *f)
{
	double near = f->weight1 < 0.5 ? 0 : 1, weight = f->weight1 < 0.5 ? f->weight1 : f->weight1 - 1;

	for (size_t i = 0; i < step->count; i++) {
		double p = get_f64(cpu, step->param, step->param_type, i) * f->decay;
		double g = get_f64(cpu, step->grad, step->grad_type, i) * f->grad_scale;
		double m = get_f64(cpu, step->exp_avg, step->state_type, i);
		double v = get_f64(cpu, step->exp_avg_sq, step->state_type, i);

		if (f->l2 != 0)
			g = fma(p, f->l2, g);
		m = fma(weight, g - m, near != 0 ? g : m);
		v = fma(f->weight2 * g, g, v * f->beta2);
		p -= f->step_size * m / (sqrt(v) / f->root + f->eps);
		put_f64(cpu, step->param, step->param_type, i, p);
		put_f64(cpu, step->exp_avg, step->state_type, i, m);
		put_f64(cpu, step->exp_avg_sq, step->state_type, i, v);
		if (step->cast) /* param is f64: nothing was rounded yet */
			put_f64(cpu, step->cast, step->cast_type, i, p);
	}
}

static void adamw_tile(const rc__cpu_ops *cpu, const rc__adamw_factors *factors, const rc_roots *roots, float *param, const float *grad,
                       float *exp_avg, float *exp_avg_sq, size_t count)
{
	float found[TILE];

	if (!roots) {
		cpu->adamw_f32(factors, param, grad, exp_avg, exp_avg_sq, count);
		return;
	}
	cpu->adamw_moments(factors, param, grad, exp_avg, exp_avg_sq, count);
	roots->take((int)count, exp_avg_sq, found, ROOTS_MODE);
	cpu->adamw_apply(factors, param, exp_avg, found, count);
}

int rc__cpu_adamw_step(rc_kernels *kernels, const rc_adamw *step, rc_stream stream, rc_error *error)
{
	const rc__cpu_ops *cpu = kernels->cpu;
	bool all_bf16 = step->param_type == RC_BF16 && step->grad_type == RC_BF16 && step->state_type == RC_BF16 && !step->roots;
	float params[TILE], grads[TILE], firsts[TILE], seconds[TILE];
	rc__adamw_factors factors;
	int root_threads = 0;

	(void)stream, (void)error;
	if (step->skip && *step->skip != 0)
		return 0;
	rc__adamw_factors_make(step, step->step_on_device ? *step->step_on_device : step->step, step->grad_scale ? *step->grad_scale : 1,
	                       &factors);
	if (step->param_type == RC_F64) {
		adamw_f64(cpu, step, &factors);
		return 0;
	}
	if (step->roots)
		root_threads = step->roots->threads(1);
	for (size_t done = 0, n; done < step->count; done += n) {
		void *param = at_mut(step->param, step->param_type, done);
		void *exp_avg = at_mut(step->exp_avg, step->state_type, done), *exp_avg_sq = at_mut(step->exp_avg_sq, step->state_type, done);
		const void *grad = at(step->grad, step->grad_type, done);
		void *cast = step->cast ? at_mut(step->cast, step->cast_type, done) : NULL;

		n = tile_at(done, step->count);
		if (step->follow)
			follow(cpu, param, cast, step->cast_type, n);
		if (all_bf16) {
			cpu->adamw_bf16(&factors, param, grad, exp_avg, exp_avg_sq, n);
		} else {
			float *p = open_tile(cpu, param, step->param_type, params, n);
			float *m = open_tile(cpu, exp_avg, step->state_type, firsts, n), *v = open_tile(cpu, exp_avg_sq, step->state_type, seconds, n);

			adamw_tile(cpu, &factors, step->roots, p, widen(cpu, grad, step->grad_type, grads, n), m, v, n);
			narrow(cpu, p, param, step->param_type, n);
			narrow(cpu, m, exp_avg, step->state_type, n);
			narrow(cpu, v, exp_avg_sq, step->state_type, n);
		}
		if (cast)
			convert(cpu, param, step->param_type, cast, step->cast_type, n, 1);
	}
	if (step->roots)
		(void)step->roots->threads(root_threads);
	return 0;
}

/* The loop of cpu_simd.inc in f64, for f64 parameters. */
static void sgd_f64(const rc__cpu_ops *cpu, const rc_sgd *step, const rc__sgd_factors *f)
{
	for (size_t i = 0; i < step->count; i++) {
		double p = get_f64(cpu, step->param, step->param_type, i), g = get_f64(cpu, step->grad, step->grad_type, i) * f->sign;

		if (f->decay != 0)
			g = fma(p, f->decay, g);
		if (step->momentum_buffer) {
			double b = f->first ? g : fma(g, f->weight, get_f64(cpu, step->momentum_buffer, step->state_type, i) * f->momentum);

			put_f64(cpu, step->momentum_buffer, step->state_type, i, b);
			g = f->nesterov ? fma(b, f->momentum, g) : b;
		}
		p = fma(g, f->step_size, p);
		put_f64(cpu, step->param, step->param_type, i, p);
		if (step->cast)
			put_f64(cpu, step->cast, step->cast_type, i, p);
	}
}

int rc__cpu_sgd_step(rc_kernels *kernels, const rc_sgd *step, rc_stream stream, rc_error *error)
{
	const rc__cpu_ops *cpu = kernels->cpu;
	float params[TILE], grads[TILE], buffers[TILE];
	rc__sgd_factors factors;

	(void)stream, (void)error;
	rc__sgd_factors_make(step, &factors);
	if (step->param_type == RC_F64) {
		sgd_f64(cpu, step, &factors);
		return 0;
	}
	for (size_t done = 0, n; done < step->count; done += n) {
		void *param = at_mut(step->param, step->param_type, done);
		void *buffer = step->momentum_buffer ? at_mut(step->momentum_buffer, step->state_type, done) : NULL;
		void *cast = step->cast ? at_mut(step->cast, step->cast_type, done) : NULL;
		const float *g;
		float *p, *b;

		n = tile_at(done, step->count);
		if (step->follow)
			follow(cpu, param, cast, step->cast_type, n);
		p = open_tile(cpu, param, step->param_type, params, n);
		b = buffer ? open_tile(cpu, buffer, step->state_type, buffers, n) : NULL;
		g = widen(cpu, at(step->grad, step->grad_type, done), step->grad_type, grads, n);
		cpu->sgd_f32(&factors, p, g, b, n);
		narrow(cpu, p, param, step->param_type, n);
		if (b)
			narrow(cpu, b, buffer, step->state_type, n);
		if (cast)
			convert(cpu, param, step->param_type, cast, step->cast_type, n, 1);
	}
	return 0;
}
