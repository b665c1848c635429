"""Included by _bridge.pyx: which Python this is."""

cdef extern from "Python.h":
    const char* Py_GetVersion()

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
