/* The slow twins. See oracle.h. Nothing is shared with the fast code but the places of a quantised message (internal.h). */
#pragma GCC optimize("fp-contract=off")
#include "train_backend/kernels/oracle.h"

#include <math.h>
#include <string.h>

#include "train_backend/kernels/internal.h"

/* ---- formats ---- */

/* A binary format: its fraction's bits, the exponent of its smallest normal number, its largest finite number. */
struct format {
	int fraction, exponent;
	double largest;
};

static const struct format f16 = {10, -14, 65504};
static const struct format bf16 = {7, -126, 0x1.fep127};
static const struct format fp8 = {3, -6, 448};

/* The place value of the last bit of a number of x's size. */
static double unit(struct format format, double x)
{
	int exponent;

	frexp(x, &exponent); /* |x| is in [2^(exponent - 1), 2^exponent) */
	exponent--;
	if (x == 0 || exponent < format.exponent)
		exponent = format.exponent;
	return ldexp(1, exponent - format.fraction);
}

/* The nearest number of the format, ties to even; beyond its largest: infinity. */
static double nearest(struct format format, double x)
{
	double y;

	if (!isfinite(x))
		return x;
	y = rint(x / unit(format, x)) * unit(format, x);
	return fabs(y) > format.largest ? copysign(INFINITY, x) : y;
}

/* The code of a number that the format has: sign, exponent and fraction, `bits` altogether. */
static unsigned code_of(struct format format, int bits, double x)
{
	unsigned sign = signbit(x) ? 1u << (bits - 1) : 0, field;
	unsigned top = (1u << (bits - 1 - format.fraction)) - 1; /* the exponent of infinity and NaN */
	double magnitude = fabs(x), step = unit(format, x);

	if (isnan(x))
		return top << format.fraction | 1u << (format.fraction - 1);
	if (isinf(x))
		return sign | top << format.fraction;
	field = 0;
	if (magnitude >= ldexp(1, format.exponent)) {
		int exponent;

		frexp(magnitude, &exponent);
		field = (unsigned)(exponent - 1 - format.exponent + 1);
		magnitude -= ldexp(1, exponent - 1);
	}
	return sign | field << format.fraction | (unsigned)(magnitude / step);
}

static double number_of(struct format format, int bits, unsigned code)
{
	unsigned top = (1u << (bits - 1 - format.fraction)) - 1;
	unsigned field = code >> format.fraction & top, fraction = code & ((1u << format.fraction) - 1);
	double sign = code >> (bits - 1) & 1 ? -1 : 1;

	if (field == top && format.largest != fp8.largest) /* e4m3 has no infinity; its NaN is not used here */
		return fraction ? NAN : sign * INFINITY;
	if (!field)
		return sign * ldexp(fraction, format.exponent - format.fraction);
	return sign * ldexp((1 << format.fraction) + (int)fraction, (int)field - 1 + format.exponent - format.fraction);
}

double rc_oracle_get(const void *from, rc_dtype type, size_t index)
{
	switch (type) {
	case RC_F32: return ((const float *)from)[index];
	case RC_F64: return ((const double *)from)[index];
	case RC_F16: return number_of(f16, 16, ((const uint16_t *)from)[index]);
	case RC_BF16: return number_of(bf16, 16, ((const uint16_t *)from)[index]);
	default: return ((const uint8_t *)from)[index];
	}
}

/* 16-bit types take what an f32 holds: an f64 is rounded twice, as torch's conversions do. */
void rc_oracle_put(void *to, rc_dtype type, size_t index, double value)
{
	switch (type) {
	case RC_F32: ((float *)to)[index] = (float)value; break;
	case RC_F64: ((double *)to)[index] = value; break;
	case RC_F16: ((uint16_t *)to)[index] = (uint16_t)code_of(f16, 16, nearest(f16, (float)value)); break;
	case RC_BF16: ((uint16_t *)to)[index] = (uint16_t)code_of(bf16, 16, nearest(bf16, (float)value)); break;
	default: ((uint8_t *)to)[index] = (uint8_t)value;
	}
}

static void move(void *to, size_t to_index, const void *from, size_t from_index, size_t element)
{
	memcpy((char *)to + to_index * element, (const char *)from + from_index * element, element);
}

/* ---- layout ---- */

void rc_oracle_unshuffle(const rc_piece *pieces, size_t count, size_t chunk, const void *gathered, void *full, size_t element)
{
	for (size_t p = 0; p < count; p++)
		for (size_t i = 0; i < pieces[p].total; i++) {
			size_t rank = i / pieces[p].count, place = i % pieces[p].count;

			move(full, pieces[p].full + i, gathered, rank * chunk + pieces[p].chunk + place, element);
		}
}

/* value * scale in f32, or in f64 where one of the types is. */
static double product(double value, float scale, rc_dtype one, rc_dtype other)
{
	return one == RC_F64 || other == RC_F64 ? value * scale : (float)value * scale;
}

void rc_oracle_pack(const rc_piece *pieces, size_t count, int ranks, size_t chunk, const void *const *grads, rc_dtype from, void *packed,
                    rc_dtype to, float scale)
{
	memset(packed, 0, (size_t)ranks * chunk * rc_dtype_size(to));
	for (size_t p = 0; p < count; p++)
		for (size_t i = 0; grads[p] && i < pieces[p].total; i++) {
			size_t place = i / pieces[p].count * chunk + pieces[p].chunk + i % pieces[p].count;

			if (from == to && scale == 1)
				move(packed, place, grads[p], i, rc_dtype_size(to));
			else if (scale == 1)
				rc_oracle_put(packed, to, place, rc_oracle_get(grads[p], from, i));
			else
				rc_oracle_put(packed, to, place, product(rc_oracle_get(grads[p], from, i), scale, from, to));
		}
}

/* ---- element by element ---- */

void rc_oracle_cast(const void *from, rc_dtype from_type, void *to, rc_dtype to_type, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (from_type == to_type)
			move(to, i, from, i, rc_dtype_size(to_type));
		else
			rc_oracle_put(to, to_type, i, rc_oracle_get(from, from_type, i));
}

void rc_oracle_accumulate(void *sum, rc_dtype sum_type, const void *from, rc_dtype from_type, size_t count, float scale)
{
	for (size_t i = 0; i < count; i++) {
		double old = rc_oracle_get(sum, sum_type, i), added = product(rc_oracle_get(from, from_type, i), scale, sum_type, from_type);

		if (sum_type == RC_F64 || from_type == RC_F64)
			rc_oracle_put(sum, sum_type, i, old + added);
		else
			rc_oracle_put(sum, sum_type, i, (float)old + (float)added);
	}
}

void rc_oracle_scale(void *data, rc_dtype type, size_t count, float scale)
{
	for (size_t i = 0; i < count; i++)
		rc_oracle_put(data, type, i, product(rc_oracle_get(data, type, i), scale, type, type));
}

double rc_oracle_sum_squares(const void *data, rc_dtype type, size_t count)
{
	long double sum = 0;

	for (size_t i = 0; i < count; i++) {
		long double x = rc_oracle_get(data, type, i);

		sum += x * x;
	}
	return (double)sum;
}

void rc_oracle_clip_coefficient(float sum, float max_norm, float *coefficient, float *norm)
{
	*norm = sqrtf(sum);
	*coefficient = max_norm / (*norm + 1e-6f);
	if (*coefficient > 1)
		*coefficient = 1;
}

/* ---- AdamW ---- */

/* The parameter, or what somebody has written to its narrow copy. */
static float followed(const void *param, const void *cast, rc_dtype cast_type, size_t i)
{
	uint16_t rounded;
	float p = ((const float *)param)[i];

	rc_oracle_put(&rounded, cast_type, 0, p);
	return memcmp(&rounded, (const uint16_t *)cast + i, sizeof rounded) ? (float)rc_oracle_get(cast, cast_type, i) : p;
}

static void adamw_f32(const rc_adamw *step, size_t i, double count, float grad_scale)
{
	float p = step->follow ? followed(step->param, step->cast, step->cast_type, i)
	                       : (float)rc_oracle_get(step->param, step->param_type, i);
	float g = (float)rc_oracle_get(step->grad, step->grad_type, i);
	float m = (float)rc_oracle_get(step->exp_avg, step->state_type, i);
	float v = (float)rc_oracle_get(step->exp_avg_sq, step->state_type, i);
	float new_weight = (float)(1 - step->beta1), new_square_weight = (float)(1 - step->beta2);
	float step_size = (float)(step->lr / (1 - pow(step->beta1, count)));
	float correction = (float)sqrt(1 - pow(step->beta2, count)), root;

	g = g * grad_scale;
	if (step->maximize)
		g = -g;
	if (step->decoupled)
		p = p * (float)(1 - step->lr * step->weight_decay);
	else if (step->weight_decay != 0)
		g = fmaf(p, (float)step->weight_decay, g);
	if (new_weight < 0.5f)
		m = fmaf(new_weight, g - m, m);
	else
		m = fmaf(new_weight - 1, g - m, g);
	v = fmaf(new_square_weight * g, g, v * (float)step->beta2);
	if (step->roots)
		step->roots->take(1, &v, &root, 0x140102);
	else
		root = sqrtf(v);
	p = p - step_size * m / (root / correction + (float)step->eps);
	rc_oracle_put(step->param, step->param_type, i, p);
	rc_oracle_put(step->exp_avg, step->state_type, i, m);
	rc_oracle_put(step->exp_avg_sq, step->state_type, i, v);
	if (step->cast)
		rc_oracle_put(step->cast, step->cast_type, i, rc_oracle_get(step->param, step->param_type, i));
}

static void adamw_f64(const rc_adamw *step, size_t i, double count, double grad_scale)
{
	double p = rc_oracle_get(step->param, step->param_type, i), g = rc_oracle_get(step->grad, step->grad_type, i);
	double m = rc_oracle_get(step->exp_avg, step->state_type, i), v = rc_oracle_get(step->exp_avg_sq, step->state_type, i);
	double new_weight = 1 - step->beta1, new_square_weight = 1 - step->beta2;

	g = g * grad_scale;
	if (step->maximize)
		g = -g;
	if (step->decoupled)
		p = p * (1 - step->lr * step->weight_decay);
	else if (step->weight_decay != 0)
		g = fma(p, step->weight_decay, g);
	if (new_weight < 0.5)
		m = fma(new_weight, g - m, m);
	else
		m = fma(new_weight - 1, g - m, g);
	v = fma(new_square_weight * g, g, v * step->beta2);
	p = p - step->lr / (1 - pow(step->beta1, count)) * m / (sqrt(v) / sqrt(1 - pow(step->beta2, count)) + step->eps);
	rc_oracle_put(step->param, step->param_type, i, p);
	rc_oracle_put(step->exp_avg, step->state_type, i, m);
	rc_oracle_put(step->exp_avg_sq, step->state_type, i, v);
	if (step->cast)
		rc_oracle_put(step->cast, step->cast_type, i, rc_oracle_get(step->param, step->param_type, i));
}

void rc_oracle_adamw(const rc_adamw *step)
{
	double count = step->step_on_device ? *step->step_on_device : step->step;
	float grad_scale = step->grad_scale ? *step->grad_scale : 1;

	if (step->skip && *step->skip != 0)
		return;
	for (size_t i = 0; i < step->count; i++)
		if (step->param_type == RC_F64)
			adamw_f64(step, i, count, grad_scale);
		else
			adamw_f32(step, i, count, grad_scale);
}

static void sgd_f32(const rc_sgd *step, size_t i)
{
	float p = step->follow ? followed(step->param, step->cast, step->cast_type, i)
	                       : (float)rc_oracle_get(step->param, step->param_type, i);
	float g = (float)rc_oracle_get(step->grad, step->grad_type, i);

	if (step->maximize)
		g = -g;
	if (step->weight_decay != 0)
		g = fmaf(p, (float)step->weight_decay, g);
	if (step->momentum_buffer) {
		float b = g;

		if (!step->first) {
			b = (float)rc_oracle_get(step->momentum_buffer, step->state_type, i) * (float)step->momentum;
			b = fmaf(g, (float)(1 - step->dampening), b);
		}
		rc_oracle_put(step->momentum_buffer, step->state_type, i, b);
		g = step->nesterov ? fmaf(b, (float)step->momentum, g) : b;
	}
	p = fmaf(g, (float)-step->lr, p);
	rc_oracle_put(step->param, step->param_type, i, p);
	if (step->cast)
		rc_oracle_put(step->cast, step->cast_type, i, rc_oracle_get(step->param, step->param_type, i));
}

static void sgd_f64(const rc_sgd *step, size_t i)
{
	double p = rc_oracle_get(step->param, step->param_type, i), g = rc_oracle_get(step->grad, step->grad_type, i);

	if (step->maximize)
		g = -g;
	if (step->weight_decay != 0)
		g = fma(p, step->weight_decay, g);
	if (step->momentum_buffer) {
		double b = g;

		if (!step->first)
			b = fma(g, 1 - step->dampening, rc_oracle_get(step->momentum_buffer, step->state_type, i) * step->momentum);
		rc_oracle_put(step->momentum_buffer, step->state_type, i, b);
		g = step->nesterov ? fma(b, step->momentum, g) : b;
	}
	p = fma(g, -step->lr, p);
	rc_oracle_put(step->param, step->param_type, i, p);
	if (step->cast)
		rc_oracle_put(step->cast, step->cast_type, i, p);
}

void rc_oracle_sgd(const rc_sgd *step)
{
	for (size_t i = 0; i < step->count; i++)
		if (step->param_type == RC_F64)
			sgd_f64(step, i);
		else
			sgd_f32(step, i);
}

/* ---- block quantisation ---- */

static unsigned encode(rc_quant kind, float x)
{
	double y;

	if (kind != RC_FP8)
		return (unsigned)(int)rint(x) & (kind == RC_INT8 ? 0xff : 0xf);
	y = nearest(fp8, x);
	return code_of(fp8, 8, isinf(y) ? copysign(fp8.largest, y) : y);
}

static float decode(rc_quant kind, unsigned code)
{
	if (kind == RC_FP8)
		return (float)number_of(fp8, 8, code);
	if (kind == RC_INT8)
		return (float)(code < 128 ? (int)code : (int)code - 256);
	return (float)(code < 8 ? (int)code : (int)code - 16);
}

static void put_code(rc_quant kind, unsigned char *codes, size_t i, unsigned code)
{
	if (kind != RC_INT4)
		codes[i] = (unsigned char)code;
	else
		codes[i / 2] = (unsigned char)(i % 2 ? (codes[i / 2] & 15) | code << 4 : (codes[i / 2] & ~15u) | code);
}

static unsigned get_code(rc_quant kind, const unsigned char *codes, size_t i)
{
	if (kind != RC_INT4)
		return codes[i];
	return i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15u;
}

/* -0.0f: the number that changes none when it is added, -0 neither. */
void rc_oracle_quantize(rc_quant kind, size_t block, const void *from, rc_dtype from_type, size_t count, float *residual, void *packed)
{
	float limit = kind == RC_INT8 ? 127 : kind == RC_INT4 ? 7 : 448, *scales = packed;
	unsigned char *codes = (unsigned char *)packed + rc__quant_values(count, block);

	memset(packed, 0, rc_quant_bytes(kind, count, block));
	for (size_t begin = 0; begin < count; begin += block) {
		size_t end = begin + block < count ? begin + block : count;
		float most = 0, inverse, *scale = &scales[begin / block];
		bool finite = true;

		for (size_t i = begin; i < end; i++) {
			float x = (float)rc_oracle_get(from, from_type, i) + (residual ? residual[i] : -0.0f);

			finite = finite && isfinite(x);
			most = fmaxf(most, fabsf(x));
		}
		inverse = limit / most;
		if (!finite)
			*scale = NAN;
		else if (!isfinite(inverse))
			*scale = 0;
		else
			*scale = most / limit;
		for (size_t i = begin; i < end; i++) {
			float x = (float)rc_oracle_get(from, from_type, i) + (residual ? residual[i] : -0.0f);
			unsigned code = 0;

			if (finite && isfinite(inverse))
				code = encode(kind, x * inverse);
			put_code(kind, codes, i, code);
			if (residual)
				residual[i] = finite ? x - decode(kind, code) * *scale : 0;
		}
	}
}

void rc_oracle_dequantize(rc_quant kind, size_t block, const void *packed, void *to, rc_dtype to_type, size_t count, bool add, float scale)
{
	const float *scales = packed;
	const unsigned char *codes = (const unsigned char *)packed + rc__quant_values(count, block);

	for (size_t i = 0; i < count; i++) {
		float x = decode(kind, get_code(kind, codes, i)) * scales[i / block];

		if (!add)
			rc_oracle_put(to, to_type, i, x * scale);
		else if (to_type == RC_F64)
			rc_oracle_put(to, to_type, i, rc_oracle_get(to, to_type, i) + (double)x * scale);
		else
			rc_oracle_put(to, to_type, i, (float)rc_oracle_get(to, to_type, i) + x * scale);
	}
}
