"""Included by bridge.pyx: runs and operations that repeat one before, without the engine."""

from time import perf_counter

cdef struct LaunchType:
    int32_t dtype
    int32_t rank
    int64_t shape[COW_MLX_MAX_RANK]


cdef enum:
    MOST_TAKEN = 8  # inputs of an operation
    MOST_UNCHECKED = 1 << 20  # bytes that small runs take before memory is checked again

cdef double FRESH = 1e-3  # seconds for which a check of memory holds for small runs
cdef double checked_at = 0  # by perf_counter
cdef int64_t unchecked = 0  # bytes that small runs may still take


cdef int require_memory(object size, str what, double now) except -1:
    """Make sure that a run gets its memory.

    Small runs that follow each other share a check, which takes a quarter of the time of the
    shortest. Under a limit of the host's every run is checked.
    """
    global checked_at, unchecked
    cdef bint is_limited = engine.runtime.memory_is_limited
    if not is_limited and size <= unchecked and now - checked_at < FRESH:
        unchecked -= <int64_t> size
        return 0
    unchecked = 0
    if not host.can_map(RESERVE):
        resources.require_memory(RESERVE, what)
    engine.runtime.require_room(size, what)
    checked_at = now
    unchecked = MOST_UNCHECKED
    return 0


cdef LaunchType* copy_types(list types) except NULL:
    """Pairs of a dtype and a shape, for C."""
    cdef LaunchType* made = <LaunchType*> calloc(len(types) + 1, sizeof(LaunchType))
    if made == NULL:
        raise MemoryError
    for i, (dtype, shape) in enumerate(types):
        made[i].dtype = dtype
        made[i].rank = copy_shape(shape, made[i].shape)
    return made


cdef bint is_same(
    const LaunchType* type, int32_t dtype, int32_t rank, const int64_t* shape
) noexcept:
    cdef int32_t d
    if type.dtype != dtype or type.rank != rank:
        return False
    for d in range(rank):
        if type.shape[d] != shape[d]:
            return False
    return True


cdef class Launch:
    """Computes results of inputs of some types; cowmlx.arrays.table.ArrayTable makes it."""

    cdef LaunchType* inputs
    cdef LaunchType* outputs
    cdef size_t input_count
    cdef size_t output_count
    cdef list declared  # the outputs as pairs
    cdef object compute
    cdef list order  # what it takes: indices of inputs, and arrays
    cdef bint is_checked  # the first results had the declared types; a recording keeps its types
    cdef object size  # bytes of memory that it needs
    cdef str what  # it is, for messages

    @staticmethod
    cdef Launch make(compute, list order, list inputs, list outputs, size, str what):
        cdef Launch launch = Launch.__new__(Launch)
        launch.inputs = copy_types(inputs)
        launch.outputs = copy_types(outputs)
        launch.input_count = len(inputs)
        launch.output_count = len(outputs)
        launch.declared = outputs
        launch.compute = compute
        launch.order = order
        launch.size = size
        launch.what = what
        return launch

    def __dealloc__(self):
        free(self.inputs)
        free(self.outputs)

    cdef bint takes(self, cow_array** arrays, size_t count) noexcept:
        """Whether it is for inputs of these types."""
        cdef cow_array_parts parts
        cdef size_t i
        if count != self.input_count:
            return False
        for i in range(count):
            host.arrays_tell(arrays[i], &parts)
            if not is_same(&self.inputs[i], parts.dtype, parts.rank, parts.shape):
                return False
        return True

    cdef bint gives(self, cow_results outputs) noexcept:
        """Whether its results fit the host's memory."""
        cdef const cow_result* result
        cdef size_t i
        if outputs.count != self.output_count:
            return False
        for i in range(outputs.count):
            result = &outputs.data[i]
            if result.is_host and not is_same(
                &self.outputs[i], result.dtype, result.rank, result.shape
            ):
                return False
        return True

    cdef list results(self, cow_array** arrays, const cow_mlx_value* values, double now):
        """Compute the results of inputs that it takes; None if the engine has to.

        ``values`` are the host's, with memory beside arrays; NULL if all are arrays. ``now`` is
        perf_counter's.
        """
        cdef cow_array_parts parts
        cdef size_t i
        cdef list found = [None] * <Py_ssize_t> self.input_count
        cdef list given = list(self.order)
        for i in range(self.input_count):
            host.arrays_tell(arrays[i], &parts)
            if parts.object != NULL:
                found[i] = <object> parts.object
            elif values != NULL and values[i].array == 0 and parts.bytes > 0:
                found[i] = <size_t> parts.data  # which its caller holds meanwhile
            elif parts.bytes <= engine.arrays.MOST_AT_ONCE:
                found[i] = value_of(arrays[i])
            else:
                return None
        for i in range(<size_t> len(given)):
            if type(given[i]) is int:
                given[i] = found[given[i]]
        require_memory(self.size, self.what, now)
        cdef list results = self.compute(given)
        if results is not None and not self.is_checked:
            for i in range(self.output_count):
                dtype, shape = self.declared[i]
                require_declared(results[i], dtype, shape)
            self.is_checked = True
        return results

    cdef cow_array* hold(self, size_t output, value) except NULL:
        """Hold the result of an output."""
        cdef cow_array_parts parts
        cdef const LaunchType* type = &self.outputs[output]
        return hold_value(value, type.dtype, type.rank, type.shape, True, &parts)


cdef object value_of(cow_array* array):
    """Let the engine have the memory, which takes no turns, of an array that stays its caller's."""
    cdef HeldArray held = HeldArray.adopt(array, 0)
    try:
        return engine.arrays.value_of(held)
    finally:
        held.array = NULL


cdef bint repeat(cow_request* r) except -1:
    """Carry out a request that repeats one before; false if the engine has to."""
    if r.op == COW_OP_PROGRAM_RUN:
        return repeat_run(<const cow_program_run_args*> r.args)
    if r.op == COW_OP_ARRAY_APPLY:
        return repeat_operation(<const cow_array_apply_args*> r.args)
    return False


cdef bint repeat_run(const cow_program_run_args* a) except -1:
    cdef double began = perf_counter(), seconds
    cdef Launch launch
    cdef size_t i
    if a.params.submit or a.params.check_finite or a.params.donate_count:
        return False
    program = engine.programs.to_repeat(a.program)
    if program is None:
        return False
    for launch in program.launches.values():
        if launch.takes(a.inputs.arrays, a.inputs.count) and launch.gives(a.outputs):
            break
    else:
        return False
    results = launch.results(a.inputs.arrays, a.inputs.given, began)
    if results is None:
        return False
    for i in range(launch.output_count):
        a.outputs.data[i].array = launch.hold(i, results[i])
    seconds = perf_counter() - began
    if seconds > <double> program.longest_turn:
        program.note_turn(seconds)
    return True


cdef bint repeat_operation(const cow_array_apply_args* a) except -1:
    cdef cow_array* arrays[MOST_TAKEN]
    cdef size_t count = a.inputs.count
    cdef Launch launch
    cdef HeldArray one
    cdef size_t i
    if count > MOST_TAKEN:
        return False
    launches = engine.operations.launches.get((
        to_string(a.operation, "operation"), to_string(a.attributes_json, "attributes_json")
    ))
    if launches is None:
        return False
    cdef list held = [None] * <Py_ssize_t> count
    for i in range(count):
        one = held[i] = HeldArray.take(a.inputs.data[i])
        if one is None:
            return False
        arrays[i] = one.array
    for launch in launches.values():
        if launch.takes(arrays, count):
            break
    else:
        return False
    results = launch.results(arrays, NULL, perf_counter())
    if results is None:
        return False
    put_arrays(a.outputs, engine.arrays.add_all(results, True))
    return True
