"""Included by bridge.pyx: which Python this is."""

cdef extern from "Python.h":
    const char* Py_GetVersion()

cdef extern from *:
    """
    /* What untrusted text makes recurse (templates, grammars, parsers) has to fit the dispatch
     * thread's stack, so its limit is not the one that a host has set for its own threads. */
    enum { RECURSION_LIMIT = 2000 };

    static void bound_recursion(void) {
      PyThreadState* state = PyThreadState_Get();
    #if PY_VERSION_HEX < 0x030C0000
      /* Asks once more when nothing remains: has the depth, limit - remaining, come to what
       * Py_GetRecursionLimit() is then? */
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
