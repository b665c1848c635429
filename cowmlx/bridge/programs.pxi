"""Included by bridge.pyx: the values of a run."""

cdef list to_values(cow_values values):
    """The arrays of inputs, which the caller no longer holds."""
    cdef size_t i
    cdef HeldArray held
    found = []
    for i in range(values.count):
        held = HeldArray.adopt(values.arrays[i], values.given[i].array)
        values.arrays[i] = NULL
        found.append(held)
    return found


cdef list to_results(cow_results results):
    """What results have to be: their dtypes and shapes; None if any will do."""
    cdef size_t i
    cdef cow_result* each
    found = []
    for i in range(results.count):
        each = &results.data[i]
        if each.is_host:
            found.append((each.dtype, tuple([each.shape[d] for d in range(each.rank)])))
        else:
            found.append(None)
    return found


cdef int put_results(cow_results results, list held) except -1:
    """Let the caller hold the arrays of results, which are what it has made room for."""
    cdef size_t i
    cdef HeldArray each
    for each, wanted in zip(held, to_results(results)):
        if wanted is not None and wanted != (each.dtype, each.shape):
            raise CowMlxError(
                f"a result of dtype {each.dtype} and shape {list(each.shape)} was computed where "
                f"dtype {wanted[0]} and shape {list(wanted[1])} were declared"
            )
    for i in range(results.count):
        each = held[i]
        results.data[i].array = each.array
        each.array = NULL
    return 0
