/* See call.h. */
#include "train_backend/comm/call.h"

#include <inttypes.h>
#include <stdio.h>

static const char *kind_name(rc__kind kind)
{
	static const char *const names[] = {
		[RC__CONNECT] = "connect", [RC__WINDOW] = "making of a window", [RC__ALL_GATHER] = "all-gather",
		[RC__GATHER_PIECES] = "gather of pieces", [RC__REDUCE_SCATTER] = "reduce-scatter", [RC__ALL_REDUCE] = "all-reduce",
		[RC__ALL_TO_ALL] = "all-to-all", [RC__BROADCAST] = "broadcast", [RC__BARRIER] = "barrier", [RC__GRAPH] = "CUDA graph",
	};

	return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown call";
}

static const char *type_name(rc_dtype dtype)
{
	static const char *const names[] = { [RC_U8] = "u8", [RC_F32] = "f32", [RC_F16] = "f16", [RC_BF16] = "bf16", [RC_F64] = "f64" };

	return (unsigned)dtype < sizeof names / sizeof *names ? names[dtype] : "unknown";
}

void rc__call_set_tag(rc__call *call, rc_tag tag)
{
	snprintf(call->unit, sizeof call->unit, "%s", tag.unit ? tag.unit : "");
	snprintf(call->phase, sizeof call->phase, "%s", tag.phase ? tag.phase : "");
}

const char *rc__call_describe(const rc__call *call, char text[RC__CALL_TEXT])
{
	snprintf(text, RC__CALL_TEXT, "%s%s%.*s%s%.*s%s", kind_name(call->kind), *call->unit ? " of " : "", (int)sizeof call->unit, call->unit,
	         *call->phase ? " (" : "", (int)sizeof call->phase, call->phase, *call->phase ? ")" : "");
	return text;
}

bool rc__call_same(const rc__call *x, const rc__call *y)
{
	return x->kind == y->kind && x->dtype == y->dtype && x->op == y->op && x->root == y->root && x->bytes == y->bytes;
}

int rc__call_differ(int a, const rc__call *x, int b, const rc__call *y, rc_error *error)
{
	char one[RC__CALL_TEXT], two[RC__CALL_TEXT];

	rc__call_describe(x, one);
	if (x->kind != y->kind)
		return rc_fail(error, RC_E_INVALID, "calls differ: rank %d is at %s, rank %d at %s", a, one, b, rc__call_describe(y, two));
	if (x->dtype != y->dtype)
		return rc_fail(error, RC_E_INVALID, "%s: types differ: rank %d has %s, rank %d has %s", one, a, type_name(x->dtype), b,
		               type_name(y->dtype));
	if (x->op != y->op)
		return rc_fail(error, RC_E_INVALID, "%s: operations differ: rank %d has %s, rank %d has %s", one, a,
		               x->op == RC_AVG ? "average" : "sum", b, y->op == RC_AVG ? "average" : "sum");
	if (x->root != y->root)
		return rc_fail(error, RC_E_INVALID, "%s: roots differ: rank %d has root %d, rank %d has %d", one, a, x->root, b, y->root);
	return rc_fail(error, RC_E_INVALID, "%s: sizes differ: rank %d has %" PRIu64 " bytes, rank %d has %" PRIu64, one, a, x->bytes, b,
	               y->bytes);
}
