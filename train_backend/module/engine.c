/* raylet_c._train.Engine: rc_engine with the Python objects around it. What happens once a parameter and step is here, in C: the swap of
 * a module's parameters between sharded and gathered, the count of arrived gradients, their addresses. What happens once a unit is a
 * Python call (python/raylet_c/train/). */
#include <stdlib.h>
#include <string.h>

#include "train_backend/fsdp/engine.h"
#include "train_backend/module/module.h"

typedef struct param {
	PyObject *gathered;  /* the tensor that modules compute with: a leaf in the slot */
	PyObject *sharded;   /* what optimizers and checkpoints see */
	PyObject *places;    /* tuple of (dict, name): where modules hold it */
	PyObject *own_grad;  /* what the sharded parameter gets as gradient, or NULL */
	int gradient;        /* index of its gradient piece, or -1 */
} param;

typedef struct unit {
	param *params;
	Py_ssize_t count;
	rc_dtype grad_type;
	int gradients;       /* how many have gradients */
	rc_piece *parts;     /* a flat parameter's gradient pieces: piece.full elements into their parameter's gradient; NULL: one each */
	size_t part_count;
	int arrived;         /* in this backward pass */
	bool gathered;       /* modules hold the gathered parameters */
	PyObject *complete;  /* called with the unit's index when all gradients have arrived */
} unit;

typedef struct engine {
	PyObject_HEAD
	rc_engine *engine;
	PyObject *comms;     /* held: not freed by close() while the engine has them */
	PyObject *stream;    /* callable: the current stream as an int; NULL on the CPU */
	PyObject *device;    /* its argument */
	unit *units;
	int count;
	PyObject *s_hooks, *s_grad, *s_data_ptr, *s_is_contiguous, *s_contiguous, *s_requires_grad;
} engine;

static void release_params(unit *u)
{
	for (Py_ssize_t i = 0; i < u->count; i++) {
		Py_CLEAR(u->params[i].gathered);
		Py_CLEAR(u->params[i].sharded);
		Py_CLEAR(u->params[i].places);
		Py_CLEAR(u->params[i].own_grad);
	}
	free(u->params);
	u->params = NULL;
	u->count = 0;
	Py_CLEAR(u->complete);
}

static int engine_traverse(PyObject *self, visitproc visit, void *arg)
{
	engine *e = (engine *)self;

	Py_VISIT(Py_TYPE(self));
	Py_VISIT(e->comms);
	Py_VISIT(e->stream);
	for (int i = 0; i < e->count; i++) {
		Py_VISIT(e->units[i].complete);
		for (Py_ssize_t j = 0; j < e->units[i].count; j++) {
			Py_VISIT(e->units[i].params[j].gathered);
			Py_VISIT(e->units[i].params[j].sharded);
			Py_VISIT(e->units[i].params[j].places);
			Py_VISIT(e->units[i].params[j].own_grad);
		}
	}
	return 0;
}

static int engine_clear(PyObject *self)
{
	engine *e = (engine *)self;

	for (int i = 0; i < e->count; i++) {
		release_params(&e->units[i]);
		free(e->units[i].parts);
		e->units[i].parts = NULL;
	}
	Py_CLEAR(e->stream);
	return 0;
}

static void engine_dealloc(PyObject *self)
{
	engine *e = (engine *)self;
	PyTypeObject *type = Py_TYPE(self);

	PyObject_GC_UnTrack(self);
	engine_clear(self);
	rc_engine_destroy(e->engine);
	free(e->units);
	for (Py_ssize_t i = 0; e->comms && i < PyTuple_Size(e->comms); i++)
		rc_comm_drop(PyTuple_GetItem(e->comms, i));
	Py_CLEAR(e->comms);
	Py_CLEAR(e->device);
	Py_CLEAR(e->s_hooks);
	Py_CLEAR(e->s_grad);
	Py_CLEAR(e->s_data_ptr);
	Py_CLEAR(e->s_is_contiguous);
	Py_CLEAR(e->s_contiguous);
	Py_CLEAR(e->s_requires_grad);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

enum { COMMS = 5 };

/* A kind of quantisation by its name; NULL: none. */
static int to_quant(const char *name, bool *is, rc_quant *kind)
{
	static const struct { const char *name; rc_quant kind; } names[] = {{"int8", RC_INT8}, {"int4", RC_INT4}, {"fp8", RC_FP8}};

	*is = name != NULL;
	if (!name)
		return 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(names[i].name, name) == 0) {
			*kind = names[i].kind;
			return 0;
		}
	PyErr_Format(PyExc_ValueError, "%s is no quantisation: int8, int4 and fp8 are", name);
	return -1;
}

static int make(engine *e, PyObject *args, PyObject *kwargs)
{
	rc_engine_config config = {0};
	PyObject *stream, *comms[COMMS] = {NULL, NULL, NULL, Py_None, Py_None};
	rc_comm **const places[COMMS] = {&config.gather, &config.reduce, &config.replicate, &config.gather_between, &config.reduce_between};
	const char *quant_gather = NULL, *quant_reduce = NULL;
	unsigned long long staging, staging_bytes;
	int secondary = 0, host = 0;
	rc_error error;

	if (kwargs && PyDict_Size(kwargs) > 0) {
		PyErr_SetString(PyExc_TypeError, "Engine takes no keyword arguments");
		return -1;
	}
	if (!PyArg_ParseTuple(args, "iOOOKKO|OOzzpp", &config.device, &comms[0], &comms[1], &comms[2], &staging, &staging_bytes, &stream, &comms[3],
	                      &comms[4], &quant_gather, &quant_reduce, &secondary, &host) ||
	    to_quant(quant_gather, &config.quant.gather, &config.quant.gather_kind) ||
	    to_quant(quant_reduce, &config.quant.reduce, &config.quant.reduce_kind))
		return -1;
	config.secondary = secondary;
	config.host = host;
	for (int i = 0; i < COMMS; i++)
		if (comms[i] != Py_None && !(*places[i] = rc_comm_of(comms[i])))
			return -1;
	config.staging = (void *)(uintptr_t)staging;
	config.staging_bytes = (size_t)staging_bytes;
	if (rc_engine_create(&config, &e->engine, &error)) {
		rc_raise(&error);
		return -1;
	}
	e->comms = PyTuple_Pack(COMMS, comms[0], comms[1], comms[2], comms[3], comms[4]);
	if (!e->comms)
		return -1;
	for (int i = 0; i < COMMS; i++)
		rc_comm_hold(comms[i]);
	e->device = PyLong_FromLong(config.device);
	if (stream != Py_None) {
		Py_INCREF(stream);
		e->stream = stream;
	}
	e->s_hooks = PyUnicode_InternFromString("_post_accumulate_grad_hooks");
	e->s_grad = PyUnicode_InternFromString("grad");
	e->s_data_ptr = PyUnicode_InternFromString("data_ptr");
	e->s_is_contiguous = PyUnicode_InternFromString("is_contiguous");
	e->s_contiguous = PyUnicode_InternFromString("contiguous");
	e->s_requires_grad = PyUnicode_InternFromString("requires_grad");
	return e->device && e->s_hooks && e->s_grad && e->s_data_ptr && e->s_is_contiguous && e->s_contiguous && e->s_requires_grad
	               ? 0 : -1;
}

/* Engine(device, gather, reduce, replicate, staging, staging_bytes, stream, gather_between=None, reduce_between=None, quantize_gather=None,
 * quantize_reduce=None, secondary=False, host=False). In tp_new, so that there is none without its rc_engine. */
static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *self = PyType_GenericNew(type, args, kwargs);

	if (self && make((engine *)self, args, kwargs))
		Py_CLEAR(self);
	return self;
}

/* The current stream of the device; NULL on the CPU. -1 with an exception. */
static int current_stream(engine *e, rc_stream *ret)
{
	PyObject *number;

	*ret = NULL;
	if (!e->stream)
		return 0;
	number = PyObject_CallFunctionObjArgs(e->stream, e->device, NULL);
	if (!number)
		return -1;
	*ret = PyLong_AsVoidPtr(number);
	Py_DECREF(number);
	return PyErr_Occurred() ? -1 : 0;
}

static unit *unit_at(engine *e, int index)
{
	if (index >= 0 && index < e->count)
		return &e->units[index];
	PyErr_Format(PyExc_IndexError, "there is no unit %d, only %d", index, e->count);
	return NULL;
}

static rc_piece *to_pieces(PyObject *list, size_t *count)
{
	Py_ssize_t n = PySequence_Size(list);
	rc_piece *pieces;

	if (n < 0)
		return NULL;
	pieces = calloc((size_t)n + 1, sizeof *pieces);
	if (!pieces) {
		PyErr_NoMemory();
		return NULL;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PySequence_GetItem(list, i);
		unsigned long long v[4];

		if (!item || !PyArg_ParseTuple(item, "KKKK", &v[0], &v[1], &v[2], &v[3])) {
			Py_XDECREF(item);
			free(pieces);
			return NULL;
		}
		Py_DECREF(item);
		pieces[i] = (rc_piece){v[0], v[1], v[2], v[3]};
	}
	*count = (size_t)n;
	return pieces;
}

static PyObject *engine_add_slot(PyObject *self, PyObject *unused)
{
	rc_error error;
	int slot = rc_engine_add_slot(((engine *)self)->engine, &error);

	(void)unused;
	return slot < 0 ? rc_raise(&error) : PyLong_FromLong(slot);
}

static PyObject *engine_add_bucket(PyObject *self, PyObject *unused)
{
	rc_error error;
	int bucket = rc_engine_add_bucket(((engine *)self)->engine, &error);

	(void)unused;
	return bucket < 0 ? rc_raise(&error) : PyLong_FromLong(bucket);
}

/* set_bucket(bucket, packed, packed_bytes, reduced, reduced_bytes) */
static PyObject *engine_set_bucket(PyObject *self, PyObject *args)
{
	unsigned long long packed, packed_bytes, reduced, reduced_bytes;
	rc_error error;
	int bucket;

	if (!PyArg_ParseTuple(args, "iKKKK", &bucket, &packed, &packed_bytes, &reduced, &reduced_bytes))
		return NULL;
	if (rc_engine_set_bucket(((engine *)self)->engine, bucket, (void *)(uintptr_t)packed, (size_t)packed_bytes,
	                         (void *)(uintptr_t)reduced, (size_t)reduced_bytes, &error))
		return rc_raise(&error);
	Py_RETURN_NONE;
}

/* add_unit(name, pieces, chunk, shard_type, gather_type, shard, cast, full, slot, first_bucket, bucket_count) */
static PyObject *engine_add_unit(PyObject *self, PyObject *args)
{
	engine *e = (engine *)self;
	rc_unit_spec spec = {0};
	PyObject *list;
	unsigned long long chunk, shard, cast, full;
	const char *shard_type, *gather_type;
	rc_piece *pieces;
	rc_error error;
	unit *units;
	int index;

	if (!PyArg_ParseTuple(args, "sOKssKKKiii", &spec.name, &list, &chunk, &shard_type, &gather_type, &shard, &cast, &full, &spec.slot,
	                      &spec.first_bucket, &spec.bucket_count) ||
	    rc_dtype_of(shard_type, &spec.shard_type) || rc_dtype_of(gather_type, &spec.gather_type))
		return NULL;
	pieces = to_pieces(list, &spec.count);
	if (!pieces)
		return NULL;
	spec.pieces = pieces;
	spec.chunk = (size_t)chunk;
	spec.shard = (void *)(uintptr_t)shard;
	spec.cast = (void *)(uintptr_t)cast;
	spec.full = (void *)(uintptr_t)full;
	units = realloc(e->units, (size_t)(e->count + 1) * sizeof *units);
	if (!units) {
		free(pieces);
		return PyErr_NoMemory();
	}
	e->units = units;
	index = rc_engine_add_unit(e->engine, &spec, &error);
	free(pieces);
	if (index < 0)
		return rc_raise(&error);
	units[index] = (unit){.grad_type = spec.gather_type};
	e->count = index + 1;
	return PyLong_FromLong(index);
}

/* gather_room(chunk, type), reduce_room(chunk, type) */
static PyObject *room_of(PyObject *self, PyObject *args, size_t (*call)(const rc_engine *, size_t, rc_dtype))
{
	unsigned long long chunk;
	const char *name;
	rc_dtype type;

	if (!PyArg_ParseTuple(args, "Ks", &chunk, &name) || rc_dtype_of(name, &type))
		return NULL;
	return PyLong_FromSize_t(call(((engine *)self)->engine, (size_t)chunk, type));
}

static PyObject *engine_gather_room(PyObject *self, PyObject *args)
{
	return room_of(self, args, rc_engine_gather_room);
}

static PyObject *engine_reduce_room(PyObject *self, PyObject *args)
{
	return room_of(self, args, rc_engine_reduce_room);
}

/* set_rooms(gather, gather_bytes, reduce, reduce_bytes) */
static PyObject *engine_set_rooms(PyObject *self, PyObject *args)
{
	unsigned long long gather, gather_bytes, reduce, reduce_bytes;

	if (!PyArg_ParseTuple(args, "KKKK", &gather, &gather_bytes, &reduce, &reduce_bytes))
		return NULL;
	rc_engine_set_rooms(((engine *)self)->engine, (void *)(uintptr_t)gather, (size_t)gather_bytes, (void *)(uintptr_t)reduce,
	                    (size_t)reduce_bytes);
	Py_RETURN_NONE;
}

/* set_secondary(unit, memory) */
static PyObject *engine_set_secondary(PyObject *self, PyObject *args)
{
	unsigned long long memory;
	rc_error error;
	int index;

	if (!PyArg_ParseTuple(args, "iK", &index, &memory))
		return NULL;
	if (rc_engine_set_secondary(((engine *)self)->engine, index, (void *)(uintptr_t)memory, &error))
		return rc_raise(&error);
	Py_RETURN_NONE;
}

/* set_residual(unit, memory) */
static PyObject *engine_set_residual(PyObject *self, PyObject *args)
{
	unsigned long long memory;
	rc_error error;
	int index;

	if (!PyArg_ParseTuple(args, "iK", &index, &memory))
		return NULL;
	if (rc_engine_set_residual(((engine *)self)->engine, index, (void *)(uintptr_t)memory, &error))
		return rc_raise(&error);
	Py_RETURN_NONE;
}

/* move(unit, slot, full) */
static PyObject *engine_move(PyObject *self, PyObject *args)
{
	unsigned long long full;
	rc_error error;
	int index, slot;

	if (!PyArg_ParseTuple(args, "iiK", &index, &slot, &full))
		return NULL;
	if (rc_engine_move(((engine *)self)->engine, index, slot, (void *)(uintptr_t)full, &error))
		return rc_raise(&error);
	Py_RETURN_NONE;
}

/* set_gradient(unit, pieces, chunk, flat). flat: (place, skipped, count, count); a parameter's gradient may lie in several pieces, of which
 * the first skips nothing of it and each next what those before hold. */
static PyObject *engine_set_gradient(PyObject *self, PyObject *args)
{
	unsigned long long chunk;
	PyObject *list;
	rc_piece *pieces;
	size_t count;
	rc_error error;
	int index, flat;
	unit *u;

	if (!PyArg_ParseTuple(args, "iOKp", &index, &list, &chunk, &flat) || !(u = unit_at((engine *)self, index)) ||
	    !(pieces = to_pieces(list, &count)))
		return NULL;
	if (rc_engine_set_gradient(((engine *)self)->engine, index, pieces, count, (size_t)chunk, flat, &error)) {
		free(pieces);
		return rc_raise(&error);
	}
	free(u->parts);
	u->parts = NULL;
	u->part_count = count;
	if (flat)
		u->parts = pieces;
	else
		free(pieces);
	Py_RETURN_NONE;
}

/* Whether the item of bind's list is as swap() and reduce() take it; else an exception. next: the gradient index that comes. */
static bool checked(const param *p, int next)
{
	for (Py_ssize_t i = 0; i < PyTuple_Size(p->places); i++) {
		PyObject *place = PyTuple_GetItem(p->places, i);

		if (!PyTuple_Check(place) || PyTuple_Size(place) != 2 || !PyDict_Check(PyTuple_GetItem(place, 0))) {
			PyErr_Format(PyExc_TypeError, "a place is a tuple of a dict and a name, not %R", place);
			return false;
		}
	}
	if (p->gradient != -1 && p->gradient != next) {
		PyErr_Format(PyExc_ValueError, "gradient %d where %d or -1 comes", p->gradient, next);
		return false;
	}
	return true;
}

/* bind(unit, [(gathered, sharded, ((dict, name), ...), gradient index or -1), ...], complete). Gradient indices come in order. */
static PyObject *engine_bind(PyObject *self, PyObject *args)
{
	PyObject *list, *complete;
	Py_ssize_t n;
	int index;
	unit *u;

	if (!PyArg_ParseTuple(args, "iOO", &index, &list, &complete) || !(u = unit_at((engine *)self, index)) || (n = PySequence_Size(list)) < 0)
		return NULL;
	release_params(u);
	u->params = calloc((size_t)n + 1, sizeof *u->params);
	if (!u->params)
		return PyErr_NoMemory();
	u->gradients = 0;
	u->arrived = 0;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PySequence_GetItem(list, i);
		param *p = &u->params[i];

		if (!item || !PyArg_ParseTuple(item, "OOO!i", &p->gathered, &p->sharded, &PyTuple_Type, &p->places, &p->gradient) ||
		    !checked(p, u->gradients)) {
			Py_XDECREF(item);
			memset(p, 0, sizeof *p);
			release_params(u);
			return NULL;
		}
		Py_INCREF(p->gathered);
		Py_INCREF(p->sharded);
		Py_INCREF(p->places);
		Py_DECREF(item);
		u->gradients += p->gradient >= 0;
		u->count = i + 1;
	}
	Py_INCREF(complete);
	u->complete = complete;
	Py_RETURN_NONE;
}

/* own_gradients(unit, [tensor or None, ...]): what give() sets, for each parameter of bind's list. */
static PyObject *engine_own_gradients(PyObject *self, PyObject *args)
{
	PyObject *list;
	int index;
	unit *u;

	if (!PyArg_ParseTuple(args, "iO", &index, &list) || !(u = unit_at((engine *)self, index)))
		return NULL;
	if (PySequence_Size(list) != u->count) {
		if (!PyErr_Occurred())
			PyErr_Format(PyExc_ValueError, "%zd gradients for %zd parameters", PySequence_Size(list), u->count);
		return NULL;
	}
	for (Py_ssize_t i = 0; i < u->count; i++) {
		PyObject *grad = PySequence_GetItem(list, i);

		if (!grad)
			return NULL;
		Py_CLEAR(u->params[i].own_grad);
		if (grad == Py_None)
			Py_DECREF(grad);
		else
			u->params[i].own_grad = grad;
	}
	Py_RETURN_NONE;
}

/* 1 when an object's attribute is set and not None (or, of a dict, not empty), 0, -1 with an exception. */
static int has(PyObject *object, PyObject *name)
{
	PyObject *value = PyObject_GetAttr(object, name);
	int is;

	if (!value)
		return -1;
	is = value != Py_None && (!PyDict_Check(value) || PyDict_Size(value) > 0);
	Py_DECREF(value);
	return is;
}

enum { ARRIVED = 1, MISSING = 2, HAD = 4, LACKED = 8, HOOKED = 16 };

/* look(unit) -> bits over the trained parameters: 1 some gathered ones have gradients, 2 some have none; 4 some sharded ones have, 8 some have
 * none; 16 some sharded ones have hooks of the user on the arrival of gradients. */
static PyObject *engine_look(PyObject *self, PyObject *args)
{
	engine *e = (engine *)self;
	int index, bits = 0;
	unit *u;

	if (!PyArg_ParseTuple(args, "i", &index) || !(u = unit_at(e, index)))
		return NULL;
	for (Py_ssize_t i = 0; i < u->count; i++) {
		int arrived, had, hooked;

		if (u->params[i].gradient < 0)
			continue;
		arrived = has(u->params[i].gathered, e->s_grad);
		had = arrived < 0 ? -1 : has(u->params[i].sharded, e->s_grad);
		hooked = had < 0 ? -1 : has(u->params[i].sharded, e->s_hooks);
		if (hooked < 0)
			return NULL;
		bits |= (arrived ? ARRIVED : MISSING) | (had ? HAD : LACKED) | (hooked ? HOOKED : 0);
	}
	return PyLong_FromLong(bits);
}

/* had(unit) -> whether a trained sharded parameter has a gradient: bit 4 of look(), for a question of every step. */
static PyObject *engine_had(PyObject *self, PyObject *args)
{
	engine *e = (engine *)self;
	int index, had = 0;
	unit *u;

	if (!PyArg_ParseTuple(args, "i", &index) || !(u = unit_at(e, index)))
		return NULL;
	for (Py_ssize_t i = 0; i < u->count && !had; i++)
		if (u->params[i].gradient >= 0 && (had = has(u->params[i].sharded, e->s_grad)) < 0)
			return NULL;
	return PyBool_FromLong(had);
}

/* give(unit): the sharded parameters get their own gradients. */
static PyObject *engine_give(PyObject *self, PyObject *args)
{
	engine *e = (engine *)self;
	int index;
	unit *u;

	if (!PyArg_ParseTuple(args, "i", &index) || !(u = unit_at(e, index)))
		return NULL;
	for (Py_ssize_t i = 0; i < u->count; i++)
		if (u->params[i].own_grad && PyObject_SetAttr(u->params[i].sharded, e->s_grad, u->params[i].own_grad))
			return NULL;
	Py_RETURN_NONE;
}

/* thawed() -> whether a parameter was frozen or thawed since bind. */
static PyObject *engine_thawed(PyObject *self, PyObject *unused)
{
	engine *e = (engine *)self;

	(void)unused;
	for (int i = 0; i < e->count; i++)
		for (Py_ssize_t j = 0; j < e->units[i].count; j++) {
			PyObject *now = PyObject_GetAttr(e->units[i].params[j].sharded, e->s_requires_grad);

			if (!now)
				return NULL;
			Py_DECREF(now); /* True and False are never freed */
			if ((now == Py_True) != (e->units[i].params[j].gradient >= 0))
				Py_RETURN_TRUE;
		}
	Py_RETURN_FALSE;
}

static int swap(unit *u, bool gathered)
{
	if (u->gathered == gathered)
		return 0;
	for (Py_ssize_t i = 0; i < u->count; i++) {
		param *p = &u->params[i];
		PyObject *value = gathered ? p->gathered : p->sharded;
		Py_ssize_t places = PyTuple_Size(p->places);

		for (Py_ssize_t j = 0; j < places; j++) {
			PyObject *place = PyTuple_GetItem(p->places, j);

			if (!place || PyDict_SetItem(PyTuple_GetItem(place, 0), PyTuple_GetItem(place, 1), value))
				return -1;
		}
	}
	u->gathered = gathered;
	return 0;
}

static PyObject *with_stream(PyObject *self, int (*call)(rc_engine *, rc_stream, rc_error *))
{
	engine *e = (engine *)self;
	rc_stream stream;
	rc_error error;
	int rc;

	if (current_stream(e, &stream))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	rc = call(e->engine, stream, &error);
	Py_END_ALLOW_THREADS
	if (rc)
		return rc_raise(&error);
	Py_RETURN_NONE;
}

static int begin_same(rc_engine *of, rc_stream stream, rc_error *error)
{
	return rc_engine_begin(of, true, stream, error);
}

static int begin_changed(rc_engine *of, rc_stream stream, rc_error *error)
{
	return rc_engine_begin(of, false, stream, error);
}

/* begin(same=False) */
static PyObject *engine_begin(PyObject *self, PyObject *args)
{
	int same = 0;

	if (!PyArg_ParseTuple(args, "|p", &same))
		return NULL;
	return with_stream(self, same ? begin_same : begin_changed);
}

static PyObject *engine_finish(PyObject *self, PyObject *unused)
{
	(void)unused;
	return with_stream(self, rc_engine_finish);
}

/* enter(unit, backward, prefetch): gathered parameters in the modules, and the next unit on its way. */
static PyObject *engine_enter(PyObject *self, PyObject *args)
{
	engine *e = (engine *)self;
	int index, backward, prefetch, rc;
	rc_stream stream;
	rc_error error;
	unit *u;

	if (!PyArg_ParseTuple(args, "ipp", &index, &backward, &prefetch) || !(u = unit_at(e, index)) || current_stream(e, &stream))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	rc = rc_engine_unshard(e->engine, index, backward, stream, &error);
	if (!rc && prefetch)
		rc = rc_engine_prefetch(e->engine, index, backward, stream, &error);
	Py_END_ALLOW_THREADS
	if (rc)
		return rc_raise(&error);
	if (swap(u, true))
		return NULL;
	Py_RETURN_NONE;
}

/* leave(unit): sharded parameters in the modules, the slot free for others. */
static PyObject *engine_leave(PyObject *self, PyObject *args)
{
	engine *e = (engine *)self;
	rc_stream stream;
	rc_error error;
	int index;
	unit *u;

	if (!PyArg_ParseTuple(args, "i", &index) || !(u = unit_at(e, index)) || current_stream(e, &stream))
		return NULL;
	if (swap(u, false))
		return NULL;
	if (rc_engine_release(e->engine, index, stream, &error))
		return rc_raise(&error);
	Py_RETURN_NONE;
}

static PyObject *engine_arrived(PyObject *self, PyObject *args)
{
	int index;
	unit *u;

	if (!PyArg_ParseTuple(args, "i", &index) || !(u = unit_at((engine *)self, index)))
		return NULL;
	return PyLong_FromLong(u->arrived);
}

/* The hook of one unit's gathered parameters: torch calls it when a gradient has been added. self of the function: (engine, unit). */
static PyObject *on_gradient(PyObject *context, PyObject *tensor)
{
	engine *e = (engine *)PyTuple_GetItem(context, 0);
	PyObject *number = PyTuple_GetItem(context, 1), *result;
	unit *u = unit_at(e, (int)PyLong_AsLong(number));

	(void)tensor;
	if (!u)
		return NULL;
	if (++u->arrived != u->gradients)
		Py_RETURN_NONE;
	result = PyObject_CallFunctionObjArgs(u->complete, number, NULL);
	Py_XDECREF(result);
	if (!result)
		return NULL;
	Py_RETURN_NONE;
}

static PyMethodDef gradient_hook_def = {"on_gradient", on_gradient, METH_O, NULL};

static PyObject *engine_gradient_hook(PyObject *self, PyObject *args)
{
	PyObject *context, *hook;
	int index;

	if (!PyArg_ParseTuple(args, "i", &index) || !unit_at((engine *)self, index))
		return NULL;
	context = Py_BuildValue("(Oi)", self, index);
	if (!context)
		return NULL;
	hook = PyCFunction_NewEx(&gradient_hook_def, context, NULL);
	Py_DECREF(context);
	return hook;
}

static PyObject *engine_expect(PyObject *self, PyObject *unused)
{
	engine *e = (engine *)self;

	(void)unused;
	for (int i = 0; i < e->count; i++)
		e->units[i].arrived = 0;
	Py_RETURN_NONE;
}

/* The address of each piece's gradient, from those of the parameters. NULL with an exception. */
static const void **parts_of(const unit *u, const void *const *gradients, rc_dtype type)
{
	const void **parts = calloc(u->part_count + 1, sizeof *parts);
	Py_ssize_t at = -1;

	if (!parts) {
		PyErr_NoMemory();
		return NULL;
	}
	for (size_t i = 0; i < u->part_count; i++) {
		at += u->parts[i].full == 0;
		if (at < 0 || at >= u->gradients) {
			PyErr_Format(PyExc_ValueError, "piece %zu is of gradient %zd, there are %d", i, at, u->gradients);
			free(parts);
			return NULL;
		}
		if (gradients[at])
			parts[i] = (const char *)gradients[at] + u->parts[i].full * rc_dtype_size(type);
	}
	return parts;
}

/* reduce(unit, type, mean, before, after, replicate, into, add, grads): the gradients of the gathered parameters into the shard's. grads: None, or
 * tensors to take instead of `.grad`, in the order of the gradient pieces (None among them: zeros). */
static PyObject *engine_reduce(PyObject *self, PyObject *args)
{
	engine *e = (engine *)self;
	int index, mean, replicate, add, rc = -1;
	const char *type;
	rc_reduce_rule rule = {0};
	unsigned long long into;
	PyObject *grads, **held = NULL;
	const void **pointers = NULL, **parts = NULL;
	rc_dtype grad_type;
	rc_stream stream;
	rc_error error;
	unit *u;

	if (!PyArg_ParseTuple(args, "ispffpKpO", &index, &type, &mean, &rule.before, &rule.after, &replicate, &into, &add, &grads) ||
	    !(u = unit_at(e, index)) || rc_dtype_of(type, &rule.type) || current_stream(e, &stream))
		return NULL;
	if (!u->parts && (size_t)u->gradients != u->part_count) {
		PyErr_Format(PyExc_ValueError, "unit %d has %d gradients bound and %zu laid out", index, u->gradients, u->part_count);
		return NULL;
	}
	rule.mean = mean;
	rule.replicate = replicate;
	held = calloc((size_t)u->gradients + 1, sizeof *held);
	pointers = calloc((size_t)u->gradients + 1, sizeof *pointers);
	if (!held || !pointers) {
		PyErr_NoMemory();
		goto done;
	}
	for (Py_ssize_t i = 0; i < u->count; i++) {
		int at = u->params[i].gradient;
		PyObject *grad, *answer;

		if (at < 0)
			continue;
		grad = grads == Py_None ? PyObject_GetAttr(u->params[i].gathered, e->s_grad) : PySequence_GetItem(grads, at);
		if (!grad)
			goto done;
		held[at] = grad;
		if (grad == Py_None)
			continue;
		answer = PyObject_CallMethodObjArgs(grad, e->s_is_contiguous, NULL);
		Py_XDECREF(answer);
		if (!answer)
			goto done;
		if (answer == Py_False) {
			held[at] = PyObject_CallMethodObjArgs(grad, e->s_contiguous, NULL);
			Py_DECREF(grad);
			if (!held[at])
				goto done;
		}
		answer = PyObject_CallMethodObjArgs(held[at], e->s_data_ptr, NULL);
		if (!answer)
			goto done;
		pointers[at] = PyLong_AsVoidPtr(answer);
		Py_DECREF(answer);
		if (PyErr_Occurred())
			goto done;
	}
	grad_type = grads == Py_None ? u->grad_type : rule.type;
	if (u->parts && !(parts = parts_of(u, pointers, grad_type)))
		goto done;
	Py_BEGIN_ALLOW_THREADS
	rc = rc_engine_reduce(e->engine, index, parts ? parts : pointers, grad_type, &rule, (void *)(uintptr_t)into, add, stream, &error);
	Py_END_ALLOW_THREADS
	if (rc)
		rc_raise(&error);
	for (Py_ssize_t i = 0; !rc && i < u->count; i++)
		if (u->params[i].gradient >= 0 && held[u->params[i].gradient] != Py_None && grads == Py_None)
			rc = PyObject_SetAttr(u->params[i].gathered, e->s_grad, Py_None);
done:
	for (int i = 0; held && i < u->gradients; i++)
		Py_XDECREF(held[i]);
	free(held);
	free(pointers);
	free(parts);
	if (rc)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *engine_forget_events(PyObject *self, PyObject *unused)
{
	(void)unused;
	rc_engine_forget_events(((engine *)self)->engine);
	Py_RETURN_NONE;
}

static PyObject *engine_reset(PyObject *self, PyObject *unused)
{
	engine *e = (engine *)self;

	(void)unused;
	rc_engine_reset(e->engine);
	for (int i = 0; i < e->count; i++) {
		e->units[i].arrived = 0;
		if (swap(&e->units[i], false))
			return NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *engine_stats(PyObject *self, PyObject *unused)
{
	rc_engine_stats s = rc_engine_get_stats(((engine *)self)->engine);

	(void)unused;
	return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "gathers", s.gathers, "secondary_gathers", s.secondary_gathers, "reductions", s.reductions,
	                     "gathered_bytes", s.gathered_bytes, "reduced_bytes", s.reduced_bytes);
}

static PyMethodDef engine_methods[] = {
	{"add_slot", engine_add_slot, METH_NOARGS, "add_slot() -> index"},
	{"add_bucket", engine_add_bucket, METH_NOARGS, "add_bucket() -> index"},
	{"set_bucket", engine_set_bucket, METH_VARARGS, "set_bucket(bucket, packed, packed_bytes, reduced, reduced_bytes): addresses"},
	{"add_unit", engine_add_unit, METH_VARARGS,
	 "add_unit(name, pieces, chunk, shard_type, gather_type, shard, cast, full, slot, first_bucket, bucket_count) -> index; "
	 "pieces: (chunk, full, count, total) in elements"},
	{"gather_room", engine_gather_room, METH_VARARGS, "gather_room(chunk, type) -> bytes of scratch memory"},
	{"reduce_room", engine_reduce_room, METH_VARARGS, "reduce_room(chunk, type) -> bytes of scratch memory"},
	{"set_rooms", engine_set_rooms, METH_VARARGS, "set_rooms(gather, gather_bytes, reduce, reduce_bytes): addresses of scratch memory"},
	{"set_secondary", engine_set_secondary, METH_VARARGS, "set_secondary(unit, memory): [nodes][chunk] of the gathered type"},
	{"set_residual", engine_set_residual, METH_VARARGS, "set_residual(unit, memory): [nodes][chunk of the gradient] f32, or 0"},
	{"move", engine_move, METH_VARARGS, "move(unit, slot, full): to another slot, while it is not in use"},
	{"set_gradient", engine_set_gradient, METH_VARARGS, "set_gradient(unit, pieces, chunk, flat)"},
	{"bind", engine_bind, METH_VARARGS, "bind(unit, [(gathered, sharded, ((dict, name), ...), gradient or -1), ...], complete)"},
	{"own_gradients", engine_own_gradients, METH_VARARGS, "own_gradients(unit, [tensor or None, ...]): what give() sets"},
	{"look", engine_look, METH_VARARGS,
	 "look(unit) -> bits: 1 gradients have arrived, 2 some are missing, 4 sharded parameters have gradients, 8 some lack them, 16 user's hooks"},
	{"had", engine_had, METH_VARARGS, "had(unit) -> whether a trained sharded parameter has a gradient"},
	{"give", engine_give, METH_VARARGS, "give(unit): the sharded parameters get their own gradients"},
	{"thawed", engine_thawed, METH_NOARGS, "thawed() -> whether a parameter was frozen or thawed since bind"},
	{"gradient_hook", engine_gradient_hook, METH_VARARGS, "gradient_hook(unit) -> what to register on its gathered parameters"},
	{"expect", engine_expect, METH_NOARGS, "expect(): a backward pass begins, no gradient has arrived"},
	{"arrived", engine_arrived, METH_VARARGS, "arrived(unit) -> gradients that have arrived in this backward pass"},
	{"begin", engine_begin, METH_VARARGS, "begin(same=False): a step begins; same: no shard has changed since the one before"},
	{"enter", engine_enter, METH_VARARGS, "enter(unit, backward, prefetch): gathered parameters in the modules"},
	{"leave", engine_leave, METH_VARARGS, "leave(unit): sharded parameters in the modules"},
	{"reduce", engine_reduce, METH_VARARGS, "reduce(unit, type, mean, before, after, replicate, into, add, grads)"},
	{"finish", engine_finish, METH_NOARGS, "finish(): all gradients are there for the current stream"},
	{"forget_events", engine_forget_events, METH_NOARGS, "forget_events(): around the capture of a CUDA graph"},
	{"reset", engine_reset, METH_NOARGS, "reset(): after an exception in the middle of a step"},
	{"stats", engine_stats, METH_NOARGS, "stats() -> dict of counts and bytes"},
	{0},
};

static PyType_Slot engine_slots[] = {
	{Py_tp_new, engine_new},
	{Py_tp_dealloc, engine_dealloc},
	{Py_tp_traverse, engine_traverse},
	{Py_tp_clear, engine_clear},
	{Py_tp_methods, engine_methods},
	{Py_tp_doc, "Engine(device, gather, reduce, replicate, staging, staging_bytes, stream, gather_between=None, reduce_between=None, "
	            "quantize_gather=None, quantize_reduce=None, secondary=False, host=False): the schedule of a sharded model, see fsdp/engine.h"},
	{0, NULL},
};

static PyType_Spec engine_spec = {
	.name = "raylet_c._train.Engine",
	.basicsize = sizeof(engine),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
	.slots = engine_slots,
};

int rc_module_add_engine(PyObject *module)
{
	PyObject *type = PyType_FromSpec(&engine_spec);

	if (!type)
		return -1;
	if (PyModule_AddObject(module, "Engine", type)) {
		Py_DECREF(type);
		return -1;
	}
	return 0;
}
