/* raylet_c._train.Comm and Window: rc_comm for Python. Memory comes as integer addresses. The GIL is released in every call that waits;
 * a second thread that calls meanwhile gets an exception. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train_backend/module/module.h"

typedef struct comm {
	PyObject_HEAD
	rc_comm *comm;      /* NULL: closed, or not made yet */
	bool busy;          /* a thread is in a call */
	int aborts;         /* threads in abort(), which may come at any time */
	bool closed;        /* close() was called; comm goes when the last user has gone */
	Py_ssize_t users;   /* windows and engines that live */
} comm;

typedef struct window {
	PyObject_HEAD
	comm *comm; /* held: its memory lives as long */
	void *base;
	Py_ssize_t size;
} window;

typedef struct module_types {
	PyObject *comm, *window;
} module_types;

/* The types of the one module of the process: a single copy serves all that ask rc_comm_of. */
static module_types types;

/* ---- the communicator ---- */

static int closed(const comm *c)
{
	if (c->comm && !c->closed)
		return 0;
	PyErr_SetString(PyExc_ValueError, "the communicator is closed");
	return -1;
}

static int begin(comm *c)
{
	if (closed(c))
		return -1;
	if (c->busy) {
		PyErr_SetString(PyExc_RuntimeError, "another thread is in a call of this communicator");
		return -1;
	}
	c->busy = true;
	return 0;
}

/* One call without the GIL; result and error are the caller's. */
#define CALL(c, result, expression) \
	do { \
		Py_BEGIN_ALLOW_THREADS \
		(result) = (expression); \
		Py_END_ALLOW_THREADS \
		(c)->busy = false; \
	} while (0)

static PyObject *outcome(int result, const rc_error *error)
{
	if (result)
		return rc_raise(error);
	Py_RETURN_NONE;
}

static void *pointer(unsigned long long address)
{
	return (void *)(uintptr_t)address;
}

int rc_dtype_of(const char *name, rc_dtype *ret)
{
	static const struct { const char *torch, *name; rc_dtype type; } names[] = {
		{"torch.uint8", "u8", RC_U8}, {"torch.float32", "f32", RC_F32}, {"torch.float16", "f16", RC_F16},
		{"torch.bfloat16", "bf16", RC_BF16}, {"torch.float64", "f64", RC_F64},
	};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(names[i].torch, name) == 0 || strcmp(names[i].name, name) == 0) {
			*ret = names[i].type;
			return 0;
		}
	PyErr_Format(PyExc_ValueError, "%s is no data type that is served", name);
	return -1;
}

static int to_op(const char *name, rc_redop *ret)
{
	if (strcmp(name, "sum") == 0)
		*ret = RC_SUM;
	else if (strcmp(name, "avg") == 0)
		*ret = RC_AVG;
	else
		return PyErr_Format(PyExc_ValueError, "%s is no reduction that is served: sum and avg are", name), -1;
	return 0;
}

static PyObject *made(PyObject *type, int result, rc_comm *made_comm, const rc_error *error)
{
	comm *c;

	if (result)
		return rc_raise(error);
	c = (comm *)((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
	if (c)
		c->comm = made_comm;
	else
		rc_comm_destroy(made_comm);
	return (PyObject *)c;
}

static PyObject *comm_shm(PyObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"rank", "size", "timeout", NULL};
	int rank, size, result;
	double timeout = 600;
	rc_comm *c = NULL;
	rc_error error;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ii|d", names, &rank, &size, &timeout))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	result = rc_comm_shm_prepare(rank, size, timeout, &c, &error);
	Py_END_ALLOW_THREADS
	return made(type, result, c, &error);
}

static PyObject *comm_fabric(PyObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"rank", "size", "timeout", "providers", "ip", NULL};
	const char *providers = NULL, *ip = NULL;
	int rank, size, result;
	double timeout = 600;
	rc_comm *c = NULL;
	rc_error error;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ii|dzz", names, &rank, &size, &timeout, &providers, &ip))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	result = rc_comm_fabric_prepare(rank, size, providers, ip, timeout, &c, &error);
	Py_END_ALLOW_THREADS
	return made(type, result, c, &error);
}

static PyObject *comm_nccl(PyObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"rank", "size", "device", "timeout", NULL};
	int rank, size, device, result;
	double timeout = 600;
	rc_comm *c = NULL;
	rc_error error;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iii|d", names, &rank, &size, &device, &timeout))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	result = rc_comm_nccl_prepare(rank, size, device, timeout, &c, &error);
	Py_END_ALLOW_THREADS
	return made(type, result, c, &error);
}

static PyObject *comm_blob(PyObject *self, PyObject *unused)
{
	const void *bytes;
	size_t size;

	(void)unused;
	if (closed((comm *)self))
		return NULL;
	rc_comm_blob(((comm *)self)->comm, &bytes, &size);
	return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
}

static PyObject *comm_connect(PyObject *self, PyObject *list)
{
	comm *c = (comm *)self;
	PyObject *result = NULL, *held = PySequence_Tuple(list); /* the blobs live until the end of the call */
	const void **blobs = NULL;
	size_t *sizes = NULL;
	Py_ssize_t n;
	rc_error error;
	int failed;

	if (!held || closed(c))
		goto out;
	n = PyTuple_Size(held);
	if (n != rc_comm_size(c->comm)) {
		PyErr_Format(PyExc_ValueError, "%zd blobs for %d ranks", n, rc_comm_size(c->comm));
		goto out;
	}
	blobs = calloc((size_t)n, sizeof *blobs);
	sizes = calloc((size_t)n, sizeof *sizes);
	if (!blobs || !sizes) {
		PyErr_NoMemory();
		goto out;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		char *bytes;
		Py_ssize_t size;

		if (PyBytes_AsStringAndSize(PyTuple_GetItem(held, i), &bytes, &size))
			goto out;
		blobs[i] = bytes;
		sizes[i] = (size_t)size;
	}
	if (begin(c))
		goto out;
	CALL(c, failed, rc_comm_connect(c->comm, blobs, sizes, &error));
	result = outcome(failed, &error);
out:
	free(blobs);
	free(sizes);
	Py_XDECREF(held);
	return result;
}

static PyObject *comm_window(PyObject *self, PyObject *args)
{
	comm *c = (comm *)self;
	PyTypeObject *type = (PyTypeObject *)types.window;
	Py_ssize_t size;
	void *base = NULL;
	window *w;
	rc_error error;
	int failed;

	if (!PyArg_ParseTuple(args, "n", &size))
		return NULL;
	if (size < 0)
		return PyErr_Format(PyExc_ValueError, "a window of %zd bytes", size);
	if (begin(c))
		return NULL;
	CALL(c, failed, rc_comm_window(c->comm, (size_t)size, &base, &error));
	if (failed)
		return rc_raise(&error);
	w = (window *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!w)
		return NULL;
	Py_INCREF(self);
	c->users++;
	w->comm = c;
	w->base = base;
	w->size = size;
	return (PyObject *)w;
}

typedef int (*block_exchange)(rc_comm *, rc_tag, const void *, void *, size_t, rc_stream, rc_error *);

/* Operations on blocks of bytes. */
static PyObject *exchange(PyObject *self, PyObject *args, PyObject *kwargs, block_exchange operation)
{
	static char *names[] = {"send", "recv", "bytes", "stream", "unit", "phase", NULL};
	comm *c = (comm *)self;
	unsigned long long send, recv, stream = 0;
	Py_ssize_t bytes;
	rc_tag tag = {0};
	rc_error error;
	int failed;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KKn|Kzz", names, &send, &recv, &bytes, &stream, &tag.unit, &tag.phase) || begin(c))
		return NULL;
	CALL(c, failed, operation(c->comm, tag, pointer(send), pointer(recv), (size_t)bytes, pointer(stream), &error));
	return outcome(failed, &error);
}

static PyObject *comm_all_gather(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return exchange(self, args, kwargs, rc_comm_all_gather);
}

static PyObject *comm_gather_pieces(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"send", "chunk", "element", "pieces", "full", "unit", "phase", NULL};
	comm *c = (comm *)self;
	PyObject *list, *held, *result = NULL;
	unsigned long long send, full;
	Py_ssize_t chunk, element, n;
	rc_piece *pieces = NULL;
	rc_tag tag = {0};
	rc_error error;
	int failed;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KnnOK|zz", names, &send, &chunk, &element, &list, &full, &tag.unit, &tag.phase))
		return NULL;
	held = PySequence_Tuple(list);
	if (!held)
		return NULL;
	n = PyTuple_Size(held);
	pieces = calloc((size_t)n + 1, sizeof *pieces);
	if (!pieces) {
		PyErr_NoMemory();
		goto out;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		unsigned long long v[4];

		if (!PyArg_ParseTuple(PyTuple_GetItem(held, i), "KKKK", &v[0], &v[1], &v[2], &v[3]))
			goto out;
		pieces[i] = (rc_piece){v[0], v[1], v[2], v[3]};
	}
	if (begin(c))
		goto out;
	CALL(c, failed, rc_comm_gather_pieces(c->comm, tag, pointer(send), (size_t)chunk, (size_t)element, pieces, (size_t)n, pointer(full),
	                                      &error));
	result = outcome(failed, &error);
out:
	free(pieces);
	Py_DECREF(held);
	return result;
}

static PyObject *comm_reduce_scatter(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"send", "recv", "count", "dtype", "op", "stream", "unit", "phase", NULL};
	comm *c = (comm *)self;
	unsigned long long send, recv, stream = 0;
	const char *type, *op_name = "sum";
	Py_ssize_t count;
	rc_tag tag = {0};
	rc_dtype dtype;
	rc_redop op;
	rc_error error;
	int failed;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KKns|sKzz", names, &send, &recv, &count, &type, &op_name, &stream, &tag.unit, &tag.phase) ||
	    rc_dtype_of(type, &dtype) || to_op(op_name, &op) || begin(c))
		return NULL;
	CALL(c, failed, rc_comm_reduce_scatter(c->comm, tag, pointer(send), pointer(recv), (size_t)count, dtype, op, pointer(stream), &error));
	return outcome(failed, &error);
}

static PyObject *comm_all_reduce(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"data", "count", "dtype", "op", "stream", "unit", "phase", NULL};
	comm *c = (comm *)self;
	unsigned long long data, stream = 0;
	const char *type, *op_name = "sum";
	Py_ssize_t count;
	rc_tag tag = {0};
	rc_dtype dtype;
	rc_redop op;
	rc_error error;
	int failed;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Kns|sKzz", names, &data, &count, &type, &op_name, &stream, &tag.unit, &tag.phase) ||
	    rc_dtype_of(type, &dtype) || to_op(op_name, &op) || begin(c))
		return NULL;
	CALL(c, failed, rc_comm_all_reduce(c->comm, tag, pointer(data), (size_t)count, dtype, op, pointer(stream), &error));
	return outcome(failed, &error);
}

static PyObject *comm_all_to_all(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return exchange(self, args, kwargs, rc_comm_all_to_all);
}

static PyObject *comm_broadcast(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"data", "bytes", "root", "stream", "unit", "phase", NULL};
	comm *c = (comm *)self;
	unsigned long long data, stream = 0;
	Py_ssize_t bytes;
	rc_tag tag = {0};
	rc_error error;
	int root, failed;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Kni|Kzz", names, &data, &bytes, &root, &stream, &tag.unit, &tag.phase) || begin(c))
		return NULL;
	CALL(c, failed, rc_comm_broadcast(c->comm, tag, pointer(data), (size_t)bytes, root, pointer(stream), &error));
	return outcome(failed, &error);
}

static PyObject *comm_barrier(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"unit", "phase", NULL};
	comm *c = (comm *)self;
	rc_tag tag = {0};
	rc_error error;
	int failed;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zz", names, &tag.unit, &tag.phase) || begin(c))
		return NULL;
	CALL(c, failed, rc_comm_barrier(c->comm, tag, &error));
	return outcome(failed, &error);
}

static PyObject *comm_group_begin(PyObject *self, PyObject *unused)
{
	comm *c = (comm *)self;
	rc_error error;
	int failed;

	(void)unused;
	if (begin(c))
		return NULL;
	CALL(c, failed, rc_comm_group_begin(c->comm, &error));
	return outcome(failed, &error);
}

static PyObject *comm_group_end(PyObject *self, PyObject *unused)
{
	comm *c = (comm *)self;
	rc_error error;
	int failed;

	(void)unused;
	if (begin(c))
		return NULL;
	CALL(c, failed, rc_comm_group_end(c->comm, &error));
	return outcome(failed, &error);
}

static PyObject *comm_watch(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"stream", "unit", "phase", NULL};
	comm *c = (comm *)self;
	unsigned long long stream = 0;
	rc_tag tag = {0};
	rc_error error;
	int failed;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|zz", names, &stream, &tag.unit, &tag.phase) || begin(c))
		return NULL;
	CALL(c, failed, rc_comm_watch(c->comm, tag, pointer(stream), &error));
	return outcome(failed, &error);
}

static PyObject *comm_taken(PyObject *self, void *unused)
{
	(void)unused;
	return closed((comm *)self) ? NULL : PyLong_FromUnsignedLongLong(rc_comm_taken(((comm *)self)->comm));
}

static PyObject *comm_crossed(PyObject *self, void *unused)
{
	(void)unused;
	return closed((comm *)self) ? NULL : PyLong_FromUnsignedLongLong(rc_comm_crossed(((comm *)self)->comm));
}

static PyObject *comm_set_local(PyObject *self, PyObject *args)
{
	int ranks;

	if (!PyArg_ParseTuple(args, "i", &ranks) || closed((comm *)self))
		return NULL;
	rc_comm_set_local(((comm *)self)->comm, ranks);
	Py_RETURN_NONE;
}

static PyObject *comm_check(PyObject *self, PyObject *unused)
{
	rc_error error;

	(void)unused;
	return closed((comm *)self) ? NULL : outcome(rc_comm_check(((comm *)self)->comm, &error), &error);
}

static PyObject *comm_abort(PyObject *self, PyObject *args)
{
	comm *c = (comm *)self;
	const char *reason;

	if (!PyArg_ParseTuple(args, "s", &reason) || closed(c))
		return NULL;
	c->aborts++;
	Py_BEGIN_ALLOW_THREADS
	rc_comm_abort(c->comm, reason);
	Py_END_ALLOW_THREADS
	c->aborts--;
	Py_RETURN_NONE;
}

/* The communicator goes now, or with the last window or engine that somebody may still use. */
static void release(comm *c)
{
	rc_comm *last = c->comm;

	if (c->users > 0)
		return;
	c->comm = NULL;
	Py_BEGIN_ALLOW_THREADS
	rc_comm_destroy(last);
	Py_END_ALLOW_THREADS
}

static PyObject *comm_close(PyObject *self, PyObject *unused)
{
	comm *c = (comm *)self;

	(void)unused;
	if (c->busy || c->aborts) {
		PyErr_SetString(PyExc_RuntimeError, "another thread is in a call of this communicator");
		return NULL;
	}
	c->closed = true;
	release(c);
	Py_RETURN_NONE;
}

static void comm_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	release((comm *)self);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyObject *comm_get_rank(PyObject *self, void *unused)
{
	(void)unused;
	return closed((comm *)self) ? NULL : PyLong_FromLong(rc_comm_rank(((comm *)self)->comm));
}

static PyObject *comm_get_size(PyObject *self, void *unused)
{
	(void)unused;
	return closed((comm *)self) ? NULL : PyLong_FromLong(rc_comm_size(((comm *)self)->comm));
}

static PyObject *comm_get_transport(PyObject *self, void *unused)
{
	(void)unused;
	return closed((comm *)self) ? NULL : PyUnicode_FromString(rc_comm_transport(((comm *)self)->comm));
}

rc_comm *rc_comm_of(PyObject *object)
{
	int is = types.comm ? PyObject_IsInstance(object, types.comm) : 0;

	if (is < 0)
		return NULL;
	if (!is) {
		PyErr_Format(PyExc_TypeError, "%R is no raylet_c._train.Comm", object);
		return NULL;
	}
	return closed((comm *)object) ? NULL : ((comm *)object)->comm;
}

void rc_comm_hold(PyObject *object)
{
	if (object != Py_None)
		((comm *)object)->users++;
}

void rc_comm_drop(PyObject *object)
{
	comm *c = (comm *)object;

	if (object == Py_None)
		return;
	c->users--;
	if (c->closed)
		release(c);
}

#define WITH_NAMES(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef comm_methods[] = {
	{"shm", WITH_NAMES(comm_shm), METH_CLASS | METH_VARARGS | METH_KEYWORDS,
	 "shm(rank, size, timeout=600) -> Comm: ranks of one host, CPU memory"},
	{"fabric", WITH_NAMES(comm_fabric), METH_CLASS | METH_VARARGS | METH_KEYWORDS,
	 "fabric(rank, size, timeout=600, providers=None, ip=None) -> Comm: ranks of several hosts, CPU memory, over libfabric"},
	{"nccl", WITH_NAMES(comm_nccl), METH_CLASS | METH_VARARGS | METH_KEYWORDS, "nccl(rank, size, device, timeout=600) -> Comm: GPU memory"},
	{"blob", comm_blob, METH_NOARGS, "blob() -> bytes that every rank needs for connect"},
	{"connect", comm_connect, METH_O, "connect(blobs): of all ranks, in their order; waits for all"},
	{"window", comm_window, METH_VARARGS, "window(bytes) -> Window: memory that every rank can reach; all ranks call"},
	{"all_gather", WITH_NAMES(comm_all_gather), METH_VARARGS | METH_KEYWORDS,
	 "all_gather(send, recv, bytes, stream=0, unit=None, phase=None)"},
	{"gather_pieces", WITH_NAMES(comm_gather_pieces), METH_VARARGS | METH_KEYWORDS,
	 "gather_pieces(send, chunk, element, pieces, full, unit=None, phase=None); pieces: (chunk, full, count, total) in elements"},
	{"reduce_scatter", WITH_NAMES(comm_reduce_scatter), METH_VARARGS | METH_KEYWORDS,
	 "reduce_scatter(send, recv, count, dtype, op='sum', stream=0, unit=None, phase=None)"},
	{"all_to_all", WITH_NAMES(comm_all_to_all), METH_VARARGS | METH_KEYWORDS,
	 "all_to_all(send, recv, bytes, stream=0, unit=None, phase=None): bytes from and for each rank"},
	{"all_reduce", WITH_NAMES(comm_all_reduce), METH_VARARGS | METH_KEYWORDS,
	 "all_reduce(data, count, dtype, op='sum', stream=0, unit=None, phase=None)"},
	{"broadcast", WITH_NAMES(comm_broadcast), METH_VARARGS | METH_KEYWORDS, "broadcast(data, bytes, root, stream=0, unit=None, phase=None)"},
	{"barrier", WITH_NAMES(comm_barrier), METH_VARARGS | METH_KEYWORDS, "barrier(unit=None, phase=None)"},
	{"group_begin", comm_group_begin, METH_NOARGS, "group_begin(): what follows becomes one launch (nccl)"},
	{"group_end", comm_group_end, METH_NOARGS, "group_end()"},
	{"watch", WITH_NAMES(comm_watch), METH_VARARGS | METH_KEYWORDS,
	 "watch(stream, unit=None, phase=None): after the launch of a CUDA graph with calls in it; all ranks call"},
	{"check", comm_check, METH_NOARGS, "check(): raises why it is broken, if it is"},
	{"set_local", comm_set_local, METH_VARARGS, "set_local(ranks): so many ranks, side by side, share a node; for `crossed`"},
	{"abort", comm_abort, METH_VARARGS, "abort(reason): from any thread; breaks it on every rank"},
	{"close", comm_close, METH_NOARGS, "close()"},
	{0},
};

static PyGetSetDef comm_values[] = {
	{.name = "rank", .get = comm_get_rank},
	{.name = "size", .get = comm_get_size},
	{.name = "taken", .get = comm_taken, .doc = "bytes of other ranks' data that came to this one"},
	{.name = "crossed", .get = comm_crossed, .doc = "how much of `taken` came from other nodes"},
	{.name = "transport", .get = comm_get_transport, .doc = "'shm', 'fabric' with its provider or 'nccl' with its version"},
	{0},
};

static PyType_Slot comm_slots[] = {
	{Py_tp_dealloc, comm_dealloc},
	{Py_tp_methods, comm_methods},
	{Py_tp_getset, comm_values},
	{Py_tp_doc, "Collectives of a fixed group of ranks: Comm.shm, Comm.fabric or Comm.nccl, then blob and connect. Addresses are integers; sizes and "
	            "errors as in comm/comm.h. dtype: a torch dtype's name ('torch.float32') or 'f32', 'f16', 'bf16', 'f64'."},
	{0, NULL},
};

static PyType_Spec comm_spec = {
	.name = "raylet_c._train.Comm",
	.basicsize = sizeof(comm),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = comm_slots,
};

/* ---- windows ---- */

static void window_dealloc(PyObject *self)
{
	window *w = (window *)self;
	PyTypeObject *type = Py_TYPE(self);

	if (w->comm) {
		rc_comm_drop((PyObject *)w->comm);
		Py_DECREF((PyObject *)w->comm);
	}
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyObject *window_get_address(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(((window *)self)->base);
}

static PyObject *window_get_size(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromSsize_t(((window *)self)->size);
}

/* A ctypes array lies under the view: it can hold the window, so that memory which a tensor was made of lives as long as the tensor.
 * (The limited API of 3.9 has no buffers of one's own types, and a view of plain memory holds nothing.) */
static PyObject *window_get_memory(PyObject *self, void *unused)
{
	window *w = (window *)self;
	PyObject *ctypes = PyImport_ImportModule("ctypes"), *byte = NULL, *type = NULL, *array = NULL, *view = NULL, *bytes = NULL;

	(void)unused;
	if (ctypes)
		byte = PyObject_GetAttrString(ctypes, "c_ubyte");
	if (byte)
		type = PySequence_Repeat(byte, w->size);
	if (type)
		array = PyObject_CallMethod(type, "from_address", "K", (unsigned long long)(uintptr_t)w->base);
	if (array && PyObject_SetAttrString(array, "window", self) == 0)
		view = PyMemoryView_FromObject(array);
	if (view)
		bytes = PyObject_CallMethod(view, "cast", "s", "B");
	Py_XDECREF(view);
	Py_XDECREF(array);
	Py_XDECREF(type);
	Py_XDECREF(byte);
	Py_XDECREF(ctypes);
	return bytes;
}

static PyGetSetDef window_values[] = {
	{.name = "address", .get = window_get_address},
	{.name = "size", .get = window_get_size},
	{.name = "memory", .get = window_get_memory, .doc = "a writable memoryview, which keeps the window alive"},
	{0},
};

static PyType_Slot window_slots[] = {
	{Py_tp_dealloc, window_dealloc},
	{Py_tp_getset, window_values},
	{Py_tp_doc, "Memory that every rank can reach, from Comm.window."},
	{0, NULL},
};

static PyType_Spec window_spec = {
	.name = "raylet_c._train.Window",
	.basicsize = sizeof(window),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = window_slots,
};

/* ---- the module ---- */

static int add(PyObject *module, const char *name, PyType_Spec *spec, PyObject **ret)
{
	PyObject *type = PyType_FromSpec(spec);

	if (!type)
		return -1;
	Py_INCREF(type); /* for ret; the module takes the other */
	if (PyModule_AddObject(module, name, type)) {
		Py_DECREF(type);
		Py_DECREF(type);
		return -1;
	}
	*ret = type;
	return 0;
}

int rc_module_add_comm(PyObject *module)
{
	return add(module, "Comm", &comm_spec, &types.comm) || add(module, "Window", &window_spec, &types.window) ? -1 : 0;
}
