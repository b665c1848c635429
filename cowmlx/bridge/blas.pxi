"""Included by bridge.pyx: an optimised BLAS for libmlx, brought in before mlx is."""

from posix.dlfcn cimport RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW, dlerror, dlopen, dlsym

ctypedef const char* (*blas_open_fn)(const char*, int) noexcept


cdef str last_dl_error():
    cdef const char* text = dlerror()
    return "" if text == NULL else (<bytes> text).decode("utf-8", "replace")


cdef tuple bring_blas():
    """Lend libmlx a better BLAS where there is one.

    Its functions become visible to libmlx only when they work. Returns what libmlx
    uses, and why it is not what was wanted, or None.
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
    problem = open_blas(path, blas.threads())
    if problem != NULL:
        return blas.builtin(), (<bytes> problem).decode("utf-8", "replace")
    if dlopen(shim, RTLD_NOW | RTLD_GLOBAL) == NULL:
        return blas.builtin(), last_dl_error()
    return "openblas", None
