"""Included by bridge.pyx: what concerns the process: its BLAS, its Python, a fork."""

from posix.dlfcn cimport RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW, dlerror, dlopen, dlsym

# ------------------------------------------------------------------- BLAS

ctypedef const char* (*blas_open_fn)(const char*) noexcept


cdef str last_dl_error():
    cdef const char* text = dlerror()
    return "" if text == NULL else (<bytes> text).decode("utf-8", "replace")


cdef tuple bring_blas():
    """Lend libmlx an optimized BLAS, if the system has one.

    Its functions become visible to libmlx only once they work. Returns the name of the BLAS that
    libmlx uses, and why it is not the one that was asked for, or None.
    """
    import os

    from cowmlx import blas
    cdef bytes path, shim
    cdef void* library
    cdef blas_open_fn open_blas
    cdef const char* problem
    wanted = blas.wanted()
    if wanted is None:
        return blas.builtin(), None
    resources.require_memory(blas.memory(), "OpenBLAS")
    resources.require_threads(blas.processors(), "OpenBLAS")
    path = os.fsencode(wanted)
    shim = os.fsencode(os.path.join(os.path.dirname(__file__), "lib", blas.SHIM))
    library = dlopen(shim, RTLD_NOW | RTLD_LOCAL)
    if library == NULL:
        return blas.builtin(), last_dl_error()
    open_blas = <blas_open_fn> dlsym(library, "cow_blas_open")
    if open_blas == NULL:
        return blas.builtin(), last_dl_error()
    problem = open_blas(path)
    if problem != NULL:
        return blas.builtin(), (<bytes> problem).decode("utf-8", "replace")
    if dlopen(shim, RTLD_NOW | RTLD_GLOBAL) == NULL:
        return blas.builtin(), last_dl_error()
    return "openblas", None


# ------------------------------------------------------- Python of the process

cdef extern from "Python.h":
    const char* Py_GetVersion()

cdef extern from *:
    """
    /* Untrusted text makes templates, grammars and parsers recurse. That has to fit the dispatch
     * thread's stack, whatever limit a host has set for its threads. */
    enum { RECURSION_LIMIT = 2000 };

    static void bound_recursion(void) {
      PyThreadState* state = PyThreadState_Get();
    #if PY_VERSION_HEX < 0x030C0000
      /* Python compares the depth, limit - remaining, with Py_GetRecursionLimit() once nothing
       * remains. */
      state->recursion_limit = Py_GetRecursionLimit();
      state->recursion_remaining = RECURSION_LIMIT;
    #else
      state->py_recursion_limit = RECURSION_LIMIT;
      state->py_recursion_remaining = RECURSION_LIMIT;
    #endif
    }
    """
    void bound_recursion()

cdef extern from "<dlfcn.h>" nogil:
    ctypedef struct Dl_info:
        const char* dli_fname
    int dladdr(const void* address, Dl_info* info)


cdef str libpython():
    """Return the file that holds the interpreter's code: a libpython, or a program."""
    cdef Dl_info info
    if dladdr(<const void*> Py_GetVersion, &info) == 0 or info.dli_fname == NULL:
        return None
    return (<bytes> info.dli_fname).decode("utf-8", "surrogateescape")


# ------------------------------------------------------------------- Fork

# A forked child frees none of mlx's objects. To free an array takes the lock of mlx's allocator,
# which a thread of the parent may have held at the moment of the fork, and changes state that the
# thread may have left half changed. An interpreter that ends frees all that its modules hold, and a
# garbage collection frees other objects.

cdef extern from *:
    """
    static PyObject* kept_types = NULL; /* a tuple, kept for good */

    /* A tp_dealloc: the object lives on without references. */
    static void keep_object(PyObject* object) { Py_SET_REFCNT(object, 1); }

    static void keep_objects(void) {
      for (Py_ssize_t i = 0; kept_types && i < PyTuple_GET_SIZE(kept_types); i++) {
        ((PyTypeObject*)PyTuple_GET_ITEM(kept_types, i))->tp_dealloc = keep_object;
      }
    }
    """
    PyObject* kept_types
    void keep_objects() noexcept nogil


cdef note_kept_types():
    """Find out the types once: their objects are kept in children forked from now on."""
    global kept_types
    from cowmlx.accelerate import kernels

    if kept_types == NULL:
        types = kernels.mlx_types()
        Py_INCREF(types)
        kept_types = <PyObject*> types
