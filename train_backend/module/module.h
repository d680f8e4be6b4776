/* The CPython module raylet_c._train, in the limited API of 3.9: one file for every CPython from 3.9 on. The GIL is released around
 * whatever waits. One function (rc_raise) makes an exception of an rc_error. */
#ifndef RC_MODULE_MODULE_H
#define RC_MODULE_MODULE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <python3.11/Python.h>

#include "raylet-c/base/status.h"
#include "train_backend/comm/comm.h"

/* Sets the exception: ValueError (RC_E_INVALID), NotImplementedError (RC_E_UNSUPPORTED), MemoryError, TimeoutError, ConnectionError
 * (RC_E_UNAVAILABLE), OSError (RC_E_SYSTEM), RuntimeError for the rest. Returns NULL. */
PyObject *rc_raise(const rc_error *error);

/* Each adds its types to the module; -1 with an exception. */
int rc_module_add_comm(PyObject *module);
int rc_module_add_engine(PyObject *module);
int rc_module_add_kernels(PyObject *module);

/* "torch.float32" or "f32"; -1 with ValueError. */
int rc_dtype_of(const char *name, rc_dtype *ret);

/* The communicator of a Python object of type raylet_c._train.Comm; NULL with TypeError. Borrowed: hold the object. */
rc_comm *rc_comm_of(PyObject *object);

/* For whoever keeps what rc_comm_of gave: between the two, close() leaves the communicator there. object: None is nothing. */
void rc_comm_hold(PyObject *object);
void rc_comm_drop(PyObject *object);

#endif
