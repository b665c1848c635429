/* The functions of CPython that the bootstrap calls. libcowmlx links no libpython: they are looked
 * up once the right one is loaded.
 *
 * Include it before every other header: Python.h settles which functions the system declares
 * (_GNU_SOURCE, for RTLD_DEFAULT), and a system newer than that Python settles it otherwise. */
#ifndef COW_PYTHON_API_H
#define COW_PYTHON_API_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#if PY_VERSION_HEX >= 0x030D0000
#define COW_PYTHON_CURRENT_STATE(X) X(PyThreadState_GetUnchecked)
#else
#define COW_PYTHON_CURRENT_STATE(X) X(_PyThreadState_UncheckedGet)
#endif

#define COW_PYTHON_FUNCTIONS(X)     \
  COW_PYTHON_CURRENT_STATE(X)       \
  X(Py_IsInitialized)               \
  X(Py_GetVersion)                  \
  X(PyPreConfig_InitIsolatedConfig) \
  X(Py_PreInitialize)               \
  X(PyConfig_InitIsolatedConfig)    \
  X(PyConfig_SetBytesString)        \
  X(PyConfig_Clear)                 \
  X(PyStatus_Exception)             \
  X(Py_InitializeFromConfig)        \
  X(PyGC_Disable)                   \
  X(PyThreadState_GetInterpreter)   \
  X(PyInterpreterState_Get)         \
  X(PyInterpreterState_Head)        \
  X(PyInterpreterState_Main)        \
  X(PyThread_get_thread_ident)      \
  X(PyGILState_GetThisThreadState)  \
  X(PyGILState_Ensure)              \
  X(PyGILState_Release)             \
  X(PyEval_SaveThread)              \
  X(PyEval_RestoreThread)           \
  X(PyImport_ImportModule)          \
  X(PyObject_GetAttrString)         \
  X(PyObject_CallFunction)          \
  X(PyCapsule_GetPointer)           \
  X(PyCapsule_New)                  \
  X(PyUnicode_DecodeFSDefault)      \
  X(PyUnicode_AsUTF8)               \
  X(PyObject_Str)                   \
  X(PyErr_Fetch)                    \
  X(PyErr_NormalizeException)       \
  X(PyErr_Clear)                    \
  X(PyErr_GivenExceptionMatches)    \
  X(PyExc_MemoryError)              \
  X(Py_DecRef)

typedef struct cow_python_api {
#define COW_PYTHON_MEMBER(name) __typeof__(&name) name;
  COW_PYTHON_FUNCTIONS(COW_PYTHON_MEMBER)
#undef COW_PYTHON_MEMBER
} cow_python_api;

/* "3.11": the Python that this was compiled for. */
#define COW_PYTHON_VERSION COW_TEXT(PY_MAJOR_VERSION) "." COW_TEXT(PY_MINOR_VERSION)
#define COW_TEXT(x) COW_TEXT_OF(x)
#define COW_TEXT_OF(x) #x

#endif
