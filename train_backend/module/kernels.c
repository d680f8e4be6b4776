/* raylet_c._train.Kernels: optimizer steps over flat tensors, on addresses. What may be stepped so is decided in
 * python/raylet_c/train/own_step.py. */
#include <stdlib.h>

#include "train_backend/kernels/kernels.h"
#include "train_backend/module/module.h"

typedef struct kernels {
	PyObject_HEAD
	rc_kernels *kernels;
} kernels;

/* Kernels(device): -1 is the CPU. In tp_new, so that there is none without its rc_kernels. */
static PyObject *kernels_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	rc_error error;
	PyObject *self;
	int device;

	if (kwargs && PyDict_Size(kwargs) > 0) {
		PyErr_SetString(PyExc_TypeError, "Kernels takes no keyword arguments");
		return NULL;
	}
	if (!PyArg_ParseTuple(args, "i", &device))
		return NULL;
	self = PyType_GenericNew(type, args, kwargs);
	if (self && rc_kernels_create(device, &((kernels *)self)->kernels, &error)) {
		Py_DECREF(self);
		return rc_raise(&error);
	}
	return self;
}

static void kernels_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	rc_kernels_destroy(((kernels *)self)->kernels);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* "torch.float32" or "" where there is no such tensor. */
static int type_of(const char *name, rc_dtype *ret)
{
	*ret = RC_F32;
	return *name ? rc_dtype_of(name, ret) : 0;
}

static PyObject *kernels_adamw(PyObject *self, PyObject *args)
{
	const char *param_type, *grad_type, *state_type, *cast_type;
	rc_adamw options = {0}, *steps;
	int decoupled, maximize, threads, rc;
	unsigned long long take, limit, stream;
	PyObject *list, *row;
	rc_roots roots;
	rc_error error;
	Py_ssize_t n;

	if (!PyArg_ParseTuple(args, "O!ssssdddddpp(KK)iK", &PyList_Type, &list, &param_type, &grad_type, &state_type, &cast_type, &options.lr,
	                      &options.beta1, &options.beta2, &options.eps, &options.weight_decay, &decoupled, &maximize, &take, &limit, &threads,
	                      &stream) ||
	    type_of(param_type, &options.param_type) || type_of(grad_type, &options.grad_type) ||
	    type_of(state_type, &options.state_type) || type_of(cast_type, &options.cast_type))
		return NULL;
	options.decoupled = decoupled;
	options.maximize = maximize;
	options.follow = *cast_type;
	roots.take = (void (*)(int, const float *, float *, int64_t))(uintptr_t)take;
	roots.threads = (int (*)(int))(uintptr_t)limit;
	options.roots = take && limit ? &roots : NULL;
	n = PyList_Size(list);
	steps = calloc((size_t)n + 1, sizeof *steps);
	if (!steps)
		return PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < n; i++) {
		unsigned long long param, grad, exp_avg, exp_avg_sq, cast, count;

		row = PyList_GetItem(list, i);
		steps[i] = options;
		if (!PyArg_ParseTuple(row, "KKKKKKd", &param, &grad, &exp_avg, &exp_avg_sq, &cast, &count, &steps[i].step)) {
			free(steps);
			return NULL;
		}
		steps[i].param = (void *)(uintptr_t)param;
		steps[i].grad = (const void *)(uintptr_t)grad;
		steps[i].exp_avg = (void *)(uintptr_t)exp_avg;
		steps[i].exp_avg_sq = (void *)(uintptr_t)exp_avg_sq;
		steps[i].cast = (void *)(uintptr_t)cast;
		steps[i].count = (size_t)count;
	}
	Py_BEGIN_ALLOW_THREADS
	rc = rc_adamw_steps(((kernels *)self)->kernels, steps, (size_t)n, threads, (rc_stream)(uintptr_t)stream, &error);
	Py_END_ALLOW_THREADS
	free(steps);
	if (rc)
		return rc_raise(&error);
	Py_RETURN_NONE;
}

static PyObject *kernels_sgd(PyObject *self, PyObject *args)
{
	const char *param_type, *grad_type, *state_type, *cast_type;
	rc_sgd options = {0}, *steps;
	int nesterov, maximize, threads, rc;
	unsigned long long stream;
	PyObject *list, *row;
	rc_error error;
	Py_ssize_t n;

	if (!PyArg_ParseTuple(args, "O!ssssddddppiK", &PyList_Type, &list, &param_type, &grad_type, &state_type, &cast_type, &options.lr,
	                      &options.momentum, &options.dampening, &options.weight_decay, &nesterov, &maximize, &threads, &stream) ||
	    type_of(param_type, &options.param_type) || type_of(grad_type, &options.grad_type) ||
	    type_of(state_type, &options.state_type) || type_of(cast_type, &options.cast_type))
		return NULL;
	options.nesterov = nesterov;
	options.maximize = maximize;
	options.follow = *cast_type;
	n = PyList_Size(list);
	steps = calloc((size_t)n + 1, sizeof *steps);
	if (!steps)
		return PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < n; i++) {
		unsigned long long param, grad, buffer, cast, count;
		int first;

		row = PyList_GetItem(list, i);
		steps[i] = options;
		if (!PyArg_ParseTuple(row, "KKKKKp", &param, &grad, &buffer, &cast, &count, &first)) {
			free(steps);
			return NULL;
		}
		steps[i].param = (void *)(uintptr_t)param;
		steps[i].grad = (const void *)(uintptr_t)grad;
		steps[i].momentum_buffer = (void *)(uintptr_t)buffer;
		steps[i].cast = (void *)(uintptr_t)cast;
		steps[i].count = (size_t)count;
		steps[i].first = first;
	}
	Py_BEGIN_ALLOW_THREADS
	rc = rc_sgd_steps(((kernels *)self)->kernels, steps, (size_t)n, threads, (rc_stream)(uintptr_t)stream, &error);
	Py_END_ALLOW_THREADS
	free(steps);
	if (rc)
		return rc_raise(&error);
	Py_RETURN_NONE;
}

static PyMethodDef kernels_methods[] = {
	{"adamw", kernels_adamw, METH_VARARGS,
	 "adamw([(param, grad, exp_avg, exp_avg_sq, cast or 0, count, step), ...], param_type, grad_type, state_type, cast_type or '', lr, beta1, "
	 "beta2, eps, weight_decay, decoupled, maximize, (rc_roots or 0, 0), threads, stream): addresses; cast: the parameter whose master param is"},
	{"sgd", kernels_sgd, METH_VARARGS,
	 "sgd([(param, grad, momentum_buffer or 0, cast or 0, count, first), ...], param_type, grad_type, state_type or '', cast_type or '', lr, "
	 "momentum, dampening, weight_decay, nesterov, maximize, threads, stream)"},
	{0},
};

static PyType_Slot kernels_slots[] = {
	{Py_tp_new, kernels_new},
	{Py_tp_dealloc, kernels_dealloc},
	{Py_tp_methods, kernels_methods},
	{Py_tp_doc, "Kernels(device): optimizer steps over flat tensors, see kernels/kernels.h; -1 is the CPU"},
	{0, NULL},
};

static PyType_Spec kernels_spec = {
	.name = "raylet_c._train.Kernels",
	.basicsize = sizeof(kernels),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = kernels_slots,
};

int rc_module_add_kernels(PyObject *module)
{
	PyObject *type = PyType_FromSpec(&kernels_spec);

	if (!type)
		return -1;
	if (PyModule_AddObject(module, "Kernels", type)) {
		Py_DECREF(type);
		return -1;
	}
	return 0;
}
