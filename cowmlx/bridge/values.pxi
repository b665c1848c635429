"""Included by bridge.pyx: the host's values to Python's, and back."""

# ---------------------------------------------------------------- From C

cdef str to_text(cow_text text, str name):
    """Decode UTF-8 of the host."""
    if text.length == 0:
        return ""
    try:
        return text.data[:text.length].decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{name} is not UTF-8: {error.reason} at byte {error.start}",
            reason="invalid_utf8", argument=name, byte=error.start,
        ) from None


cdef str to_string(const char* text, str name):
    """Decode a NUL-terminated text; None for NULL."""
    if text == NULL:
        return None
    cdef bytes raw = text
    return to_text(cow_text(raw, len(raw)), name)


ctypedef fused number:
    int32_t
    int64_t
    float


cdef list to_list(const number* items, size_t count):
    """The numbers as objects.

    As in all lists here, there are places for all items first: where a list cannot grow, the list
    comprehensions of Cython 3.3 release an item twice.
    """
    cdef size_t i
    cdef list made = [None] * <Py_ssize_t> count
    for i in range(count):
        made[i] = items[i]
    return made


cdef list to_tokens(cow_tokens tokens):
    return to_list(tokens.data, tokens.count)


# A larger count is taken for a mistake.
cdef enum:
    MAX_ITEMS = 1048576


cdef int check_items(const void* items, size_t count, str name, str count_name) except -1:
    if count > MAX_ITEMS:
        raise OutOfRange(count_name, count, f"at most {<int> MAX_ITEMS}")
    if count > 0 and items == NULL:
        raise InvalidArgument(
            f"{name} is NULL, but {count_name} is {count}", reason="null_argument", argument=name
        )
    return 0


cdef list to_strings(const char* const* items, size_t count, str name, str count_name):
    cdef size_t i
    check_items(items, count, name, count_name)
    for i in range(count):
        if items[i] == NULL:
            raise InvalidArgument(
                f"{name}[{i}] is NULL", reason="null_argument", argument=f"{name}[{i}]"
            )
    cdef list made = [None] * <Py_ssize_t> count
    for i in range(count):
        made[i] = to_string(items[i], f"{name}[{i}]")
    return made


cdef list to_given_strings(const char* const* items, size_t count, str name, str count_name):
    """The same, but None for NULL."""
    return None if items == NULL and count == 0 else to_strings(items, count, name, count_name)


cdef list to_ints(const int32_t* items, size_t count, str name, str count_name):
    check_items(items, count, name, count_name)
    return to_list(items, count)


cdef list to_longs(const int64_t* items, size_t count, str name, str count_name):
    check_items(items, count, name, count_name)
    return to_list(items, count)


cdef list to_floats(const float* items, size_t count, str name, str count_name):
    check_items(items, count, name, count_name)
    return to_list(items, count)


cdef list to_texts(cow_texts all):
    cdef size_t i
    cdef const cow_mlx_text* texts = all.data
    result = []
    for i in range(all.count):
        if texts[i].length == COW_MLX_NUL and texts[i].data != NULL:
            result.append(to_string(texts[i].data, f"texts[{i}]"))
        elif texts[i].data == NULL:
            result.append("")
        else:
            result.append(to_text(cow_text(texts[i].data, texts[i].length), f"texts[{i}]"))
    return result


# ------------------------------------------------------------------ To C

# The size of a buffer that was too small, and where it goes: once there is memory for the error.
cdef size_t* size_place = NULL
cdef size_t size_needed = 0


cdef object too_small(size_t capacity, size_t needed, str what, size_t* place, size_t size):
    global size_place, size_needed
    error = BufferTooSmall(
        f"capacity is {capacity}, but {what.format(needed)}", needed=needed, capacity=capacity
    )
    size_place, size_needed = place, size
    return error


cdef int put_text(cow_text_out out, object value, bint may_query=True) except -1:
    """Write a text, or JSON, to the host's buffer, with a terminator where there is room."""
    cdef bytes text = to_bytes(value)
    cdef size_t size = PyBytes_GET_SIZE(text)
    if size > out.capacity or out.buffer == NULL:
        if size > 0 and not (may_query and out.buffer == NULL):
            raise too_small(out.capacity, size, "the text has {} bytes", out.length, size)
        out.length[0] = size
        return 0
    memcpy(out.buffer, PyBytes_AS_STRING(text), size)
    if out.capacity > size:
        out.buffer[size] = 0
    out.length[0] = size
    return 0


cdef int put_tokens(cow_tokens_out out, list tokens) except -1:
    """Write tokens to the host's buffer: all of them or, where one is no int32, none."""
    cdef size_t size = len(tokens)
    cdef size_t i
    if size and not (INT32_MIN <= min(tokens) and max(tokens) <= INT32_MAX):
        odd = next(token for token in tokens if not INT32_MIN <= token <= INT32_MAX)
        raise BadFormat(
            f"the model's tokenizer gives token {odd}; ids are within 0 to {INT32_MAX}",
            reason="invalid_tokenizer",
        )
    if out.buffer != NULL and size <= out.capacity:
        for i in range(size):
            out.buffer[i] = tokens[i]
    elif out.buffer != NULL:
        raise too_small(out.capacity, size, "there are {} tokens", out.count, size)
    out.count[0] = size
    return 0


cdef int put_floats(cow_floats_out out, object value) except -1:
    """Write float32 values: a list or an evaluated array, maybe with the count for the host."""
    cdef Py_buffer view
    array, count = value if isinstance(value, tuple) else (value, None)
    if isinstance(array, list):
        from array import array as make
        array = make("f", array)
    PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    try:
        if view.format == NULL or view.format[0] != b"f":
            raise CowMlxError("float32 values are declared, and others were computed")
        needed = view.len // sizeof(float)
        told = needed if count is None else count
        if out.buffer != NULL and <size_t> view.len <= out.capacity * sizeof(float):
            memcpy(out.buffer, view.buf, view.len)
        elif out.buffer != NULL:
            raise too_small(out.capacity, needed, "there are {} values", out.count, told)
        out.count[0] = told
    finally:
        PyBuffer_Release(&view)
    return 0


cdef bytes to_bytes(object value):
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        from cowmlx import json_text
        value = json_text.dump(value)
    return value.encode("utf-8", "replace")


cdef double to_real(object value) except? -1:
    """A number; NaN for None."""
    return NAN if value is None else value
