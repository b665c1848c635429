"""Included by bridge.pyx: the open arrays, which C keeps, and the values of runs."""

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char* memory, Py_ssize_t size, int flags)
    enum:
        PyBUF_READ
        PyBUF_WRITE

# The elements of an array of size 0.
cdef char NOWHERE[1]


cdef class HeldArray:
    """An array that stays while this lives: cowmlx.arrays.table.Held."""

    cdef cow_array* array
    cdef cow_array_parts parts
    cdef readonly int64_t handle  # by which the host passed it, or 0

    @staticmethod
    cdef HeldArray adopt(cow_array* array, int64_t handle):
        """Take over an array that a caller holds."""
        cdef HeldArray held = HeldArray.__new__(HeldArray)
        held.array = array
        held.handle = handle
        host.arrays_tell(array, &held.parts)
        return held

    @staticmethod
    cdef HeldArray take(int64_t handle):
        """Hold the array of a handle; None if it is not open."""
        cdef HeldArray held = HeldArray.__new__(HeldArray)
        held.array = host.arrays_take(handle, &held.parts)
        held.handle = handle
        return None if held.array == NULL else held

    def __dealloc__(self):
        if self.array != NULL:
            host.arrays_let_go(self.array)

    @property
    def dtype(self):
        return self.parts.dtype

    @property
    def shape(self):
        return tuple(to_list(self.parts.shape, self.parts.rank))

    cdef void look(self) noexcept:
        """Read the array again: another holder may have given it another value."""
        host.arrays_tell(self.array, &self.parts)

    @property
    def is_computed(self):
        self.look()
        return self.parts.data != NULL

    @property
    def value(self):
        self.look()
        return None if self.parts.object == NULL else <object> self.parts.object

    def memory(self):
        self.look()
        return PyMemoryView_FromMemory(<char*> self.parts.data, self.parts.bytes, PyBUF_READ)

    def set_value(self, value, bint is_computed):
        cdef Py_buffer view
        cdef const void* data = NULL
        self.look()
        if is_computed:
            require_declared(value, self.parts.dtype, self.shape)
            PyObject_GetBuffer(value, &view, PyBUF_C_CONTIGUOUS)
            data = view.buf
            PyBuffer_Release(&view)
            if self.parts.bytes == 0:
                data = NOWHERE
        Py_INCREF(value)
        cdef void* last = host.arrays_set_object(self.array, <void*> value, data)
        self.parts.object = <void*> value
        if data != NULL:
            self.parts.data = data
        if last != NULL:
            Py_DECREF(<object> last)

    def adopted(self, make):
        cdef void* memory = host.arrays_take_memory(self.array)
        if memory == NULL:
            return None
        made = None
        try:
            made = make(
                <size_t> memory,
                host.memory_capacity(memory),
                <size_t> host.memory_let_go,
                self.shape,
                self.parts.dtype,
            )
        finally:
            if made is None:
                host.arrays_return_memory(self.array, memory)
        if made is None:
            return None
        value, is_counted = made
        if is_counted:
            host.memory_count_with_engine(memory)
        Py_INCREF(value)
        host.arrays_set_object(self.array, <void*> value, memory)
        self.parts.object = <void*> value
        return value


cdef const void* elements_of(value) except? NULL:
    """Where the row-major elements of an evaluated array are; NULL if they have another order."""
    cdef Py_buffer view
    cdef const void* data = NULL
    PyObject_GetBuffer(value, &view, PyBUF_FULL_RO)
    if view.len == 0:
        data = NOWHERE
    elif PyBuffer_IsContiguous(&view, c'C'):
        data = view.buf
    PyBuffer_Release(&view)
    return data


cdef int32_t copy_shape(tuple shape, int64_t* sides) except -1:
    """Write a shape for C; returns the rank."""
    for i, side in enumerate(shape):
        sides[i] = side
    return len(shape)


cdef cow_array* hold_value(
    value,
    int32_t dtype,
    int32_t rank,
    const int64_t* sides,
    bint is_computed,
    cow_array_parts* parts,
) except NULL:
    """Hold an array of a value, and describe it."""
    cdef const void* data = elements_of(value) if is_computed else NULL
    cdef cow_array* array = host.arrays_hold_object(<void*> value, data, dtype, rank, sides, parts)
    if array == NULL:
        raise MemoryError
    Py_INCREF(value)
    return array


cdef class HostMemory:
    """Memory of C's that becomes an array: cowmlx.arrays.table.Memory."""

    cdef void* data  # NULL once an array has it
    cdef size_t size

    def __dealloc__(self):
        if self.data != NULL:
            host.memory_let_go(self.data)

    def bytes(self):
        return PyMemoryView_FromMemory(<char*> self.data, self.size, PyBUF_WRITE)


cdef class HostArrays:
    """The open arrays: cowmlx.arrays.table.ArrayTable."""

    def start(self, bint has_float64):
        host.arrays_start(has_float64)

    def stop(self):
        host.arrays_stop()
        drop_objects()

    def count(self):
        return host.arrays_count()

    def hold(self, value, int32_t dtype, tuple shape, bint is_computed):
        cdef int64_t sides[COW_MLX_MAX_RANK]
        cdef HeldArray held = HeldArray.__new__(HeldArray)
        cdef int32_t rank = copy_shape(shape, sides)
        held.array = hold_value(value, dtype, rank, sides, is_computed, &held.parts)
        return held

    def add(self, value, int32_t dtype, tuple shape, bint is_computed=False):
        cdef int64_t sides[COW_MLX_MAX_RANK]
        cdef int32_t rank = copy_shape(shape, sides)
        cdef const void* data = elements_of(value) if is_computed else NULL
        Py_INCREF(value)
        cdef int64_t handle = host.arrays_add_object(<void*> value, data, dtype, rank, sides)
        if handle == 0:
            Py_DECREF(value)
        return handle

    def memory(self, size_t size):
        cdef HostMemory memory = HostMemory.__new__(HostMemory)
        memory.data = host.memory_new(size)
        memory.size = size
        return None if memory.data == NULL else memory

    def trim(self):
        host.memory_trim()

    def bound_memory(self, size_t limit, size_t others):
        host.memory_bound(limit, others)

    def memory_in_use(self):
        return host.memory_in_use()

    def add_memory(self, HostMemory memory, int32_t dtype, tuple shape):
        cdef int64_t sides[COW_MLX_MAX_RANK]
        cdef int32_t rank = copy_shape(shape, sides)
        cdef int64_t handle = host.arrays_add_host(memory.data, dtype, rank, sides)
        if handle != 0:
            memory.data = NULL
        return handle

    def close(self, int64_t handle):
        return host.arrays_close(handle)

    def launch(self, compute, list order, list inputs, list outputs, size, str what):
        return Launch.make(compute, order, inputs, outputs, size, what)

    def take(self, int64_t handle):
        return HeldArray.take(handle)


cdef list to_handles(cow_handles handles):
    return to_list(handles.data, handles.count)


cdef int put_arrays(cow_arrays_out out, list handles) except -1:
    """Write handles that were opened for the host: all of them, or close all."""
    cdef size_t size = len(handles)
    cdef size_t i
    if size > out.capacity or (size > 0 and out.buffer == NULL):
        for handle in handles:
            host.arrays_close(handle)
        if out.buffer != NULL or out.count == NULL:
            raise too_small(out.capacity, size, "there are {} arrays", out.count, size)
    else:
        for i in range(size):
            out.buffer[i] = handles[i]
    if out.count != NULL:
        out.count[0] = size
    return 0


cdef void drop_objects() noexcept:
    """Release objects of arrays that no thread needs any more."""
    cdef void* dropped = NULL if host == NULL else host.arrays_next_dropped()
    while dropped != NULL:
        Py_DECREF(<object> dropped)
        dropped = host.arrays_next_dropped()


# --------------------------------------------------------- Values of a run

cdef list to_values(cow_values values):
    """The arrays of inputs, which the caller no longer holds."""
    cdef size_t i
    cdef HeldArray held
    arrays = []
    for i in range(values.count):
        held = HeldArray.adopt(values.arrays[i], values.given[i].array)
        values.arrays[i] = NULL
        arrays.append(held)
    return arrays


cdef list to_results(cow_results results):
    """The dtypes and shapes that results must have; None if any will do."""
    cdef size_t i
    cdef cow_result* result
    wanted = []
    for i in range(results.count):
        result = &results.data[i]
        shape = tuple(to_list(result.shape, result.rank))
        wanted.append((result.dtype, shape) if result.is_host else None)
    return wanted


cdef bint is_of_type(HeldArray array, const cow_result* declared) noexcept:
    cdef int32_t d
    cdef int32_t rank = array.parts.rank
    if array.parts.dtype != declared.dtype or rank != declared.rank:
        return False
    for d in range(rank):
        if array.parts.shape[d] != declared.shape[d]:
            return False
    return True


cdef int put_results(cow_results results, list held) except -1:
    """Pass the arrays of results to the caller, which has made room for them."""
    cdef size_t i
    cdef HeldArray array
    for i in range(results.count):
        array = held[i]
        if results.data[i].is_host and not is_of_type(array, &results.data[i]):
            shape = to_list(results.data[i].shape, results.data[i].rank)
            raise CowMlxError(
                f"a result of dtype {array.dtype} and shape {list(array.shape)} was computed where "
                f"dtype {results.data[i].dtype} and shape {shape} were declared"
            )
    for i in range(results.count):
        array = held[i]
        results.data[i].array = array.array
        array.array = NULL
    return 0
