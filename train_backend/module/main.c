/* raylet_c._train: the module itself. */
#include "train_backend/module/module.h"

#include "raylet-c/base/version.h"

PyObject *rc_raise(const rc_error *error)
{
	PyObject *type = PyExc_RuntimeError;

	switch (error->code) {
	case RC_E_INVALID: type = PyExc_ValueError; break;
	case RC_E_UNSUPPORTED: type = PyExc_NotImplementedError; break;
	case RC_E_NO_MEMORY: type = PyExc_MemoryError; break;
	case RC_E_TIMEOUT: type = PyExc_TimeoutError; break;
	case RC_E_UNAVAILABLE: type = PyExc_ConnectionError; break;
	case RC_E_SYSTEM: type = PyExc_OSError; break;
	default: break;
	}
	PyErr_SetString(type, error->text);
	return NULL;
}

static int module_exec(PyObject *module)
{
	if (rc_module_add_comm(module) || rc_module_add_engine(module) || rc_module_add_kernels(module) ||
	    PyModule_AddStringConstant(module, "VERSION", RC_VERSION))
		return -1;
	return 0;
}

static PyModuleDef_Slot module_slots[] = {
	{Py_mod_exec, module_exec},
	{0, NULL},
};

static struct PyModuleDef module_def = {
	PyModuleDef_HEAD_INIT,
	.m_name = "raylet_c._train",
	.m_doc = "Collectives and the FSDP engine of raylet_c, in C.",
	.m_size = 0,
	.m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__train(void);

PyMODINIT_FUNC PyInit__train(void)
{
	return PyModuleDef_Init(&module_def);
}
