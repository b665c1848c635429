"""Included by bridge.pyx: a forked child frees none of mlx's objects.

To free an array takes the lock of mlx's allocator, which a thread of the parent may have held at
the moment of the fork, and changes what that thread may have left half changed. An interpreter that
ends frees all that its modules hold, and a garbage collection what it finds.
"""

cdef extern from *:
    """
    static PyObject* kept_types = NULL; /* a tuple, kept for good */

    /* A tp_dealloc: the object lives on, though nobody refers to it. */
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
