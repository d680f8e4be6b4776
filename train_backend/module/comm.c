#include <stdlib.h>
#include "train_backend/module/module.h"
typedef struct { PyObject_HEAD rc_comm *comm; } py_comm;
static PyTypeObject *comm_type;
typedef struct { PyObject_HEAD void *address; Py_ssize_t size; } py_window;
rc_comm *rc_comm_of(PyObject *object) {
	if (!PyObject_TypeCheck(object, comm_type)) { PyErr_SetString(PyExc_TypeError, "not a Comm"); return NULL; }
	return ((py_comm *)object)->comm;
}
static PyObject *make(PyObject *type, rc_comm *comm) {
	py_comm *c = (py_comm *)PyType_GenericAlloc((PyTypeObject *)type, 0);
	c->comm = comm; return (PyObject *)c;
}
static PyObject *c_shm(PyObject *type, PyObject *args) {
	int rank, size; double timeout; rc_comm *comm; rc_error error;
	if (!PyArg_ParseTuple(args, "iid", &rank, &size, &timeout)) return NULL;
	if (rc_comm_shm_prepare(rank, size, timeout, &comm, &error)) return rc_raise(&error);
	return make(type, comm);
}
static PyObject *c_blob(PyObject *self, PyObject *unused) {
	const void *bytes; size_t size; (void)unused;
	rc_comm_blob(((py_comm *)self)->comm, &bytes, &size);
	return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
}
static PyObject *c_connect(PyObject *self, PyObject *list) {
	Py_ssize_t n = PySequence_Size(list); rc_error error; int rc;
	const void **blobs = calloc((size_t)n, sizeof *blobs); size_t *sizes = calloc((size_t)n, sizeof *sizes);
	for (Py_ssize_t i = 0; i < n; i++) { PyObject *b = PySequence_GetItem(list, i); char *p; Py_ssize_t s; PyBytes_AsStringAndSize(b, &p, &s); blobs[i] = p; sizes[i] = (size_t)s; }
	Py_BEGIN_ALLOW_THREADS
	rc = rc_comm_connect(((py_comm *)self)->comm, blobs, sizes, &error);
	Py_END_ALLOW_THREADS
	if (rc) return rc_raise(&error);
	Py_RETURN_NONE;
}
static PyObject *window_type;
static PyObject *c_window(PyObject *self, PyObject *args) {
	unsigned long long size; void *base; rc_error error; int rc;
	if (!PyArg_ParseTuple(args, "K", &size)) return NULL;
	Py_BEGIN_ALLOW_THREADS
	rc = rc_comm_window(((py_comm *)self)->comm, (size_t)size, &base, &error);
	Py_END_ALLOW_THREADS
	if (rc) return rc_raise(&error);
	return PyObject_CallFunction(window_type, "O", PyMemoryView_FromMemory(base, (Py_ssize_t)size, 0x200));
}
static PyObject *g_rank(PyObject *self, void *c) { (void)c; return PyLong_FromLong(rc_comm_rank(((py_comm *)self)->comm)); }
static PyObject *g_size(PyObject *self, void *c) { (void)c; return PyLong_FromLong(rc_comm_size(((py_comm *)self)->comm)); }
static PyMethodDef methods[] = {{"shm", c_shm, METH_VARARGS | METH_CLASS, ""}, {"blob", c_blob, METH_NOARGS, ""}, {"connect", c_connect, METH_O, ""}, {"window", c_window, METH_VARARGS, ""}, {0}};
static PyGetSetDef gs[] = {{"rank", g_rank, NULL, NULL, NULL}, {"size", g_size, NULL, NULL, NULL}, {0}};
static PyType_Slot slots[] = {{Py_tp_methods, methods}, {Py_tp_getset, gs}, {0, NULL}};
static PyType_Spec spec = {.name = "raylet_c._train.Comm", .basicsize = sizeof(py_comm), .flags = Py_TPFLAGS_DEFAULT, .slots = slots};
int rc_module_add_comm(PyObject *module) {
	comm_type = (PyTypeObject *)PyType_FromSpec(&spec);
	PyObject *types = PyImport_ImportModule("types");
	PyObject *g = PyDict_New();
	PyDict_SetItemString(g, "__builtins__", PyEval_GetBuiltins());
	(void)types;
	PyObject *r = PyObject_CallFunction((PyObject *)PyImport_ImportModule("collections") ? PyObject_GetAttrString(PyImport_ImportModule("collections"), "namedtuple") : NULL, "ss", "Window", "memory");
	window_type = r;
	return PyModule_AddObject(module, "Comm", (PyObject *)comm_type);
}
