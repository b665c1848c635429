"""Included by _bridge.pyx: the host's values to Python's, and back."""

# ---------------------------------------------------------------- From C

cdef str to_text(cow_text text, str name):
    """UTF-8 of the host's, which must be valid."""
    if text.length == 0:
        return ""
    try:
        return text.data[:text.length].decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{name} is not UTF-8: {error.reason} at byte {error.start}"
        ) from None


cdef str to_string(const char* text, str name):
    """A NUL-terminated text; None for NULL."""
    if text == NULL:
        return None
    cdef bytes raw = text
    return to_text(cow_text(raw, len(raw)), name)


cdef list to_tokens(cow_tokens tokens):
    cdef size_t i
    return [tokens.data[i] for i in range(tokens.count)]


cdef list to_stops(const cow_mlx_generation_params* params):
    cdef size_t i
    stops = []
    if params.stop_count > 4096:
        raise InvalidArgument(f"stop_count is {params.stop_count}; at most 4096 are accepted")
    if params.stop_count > 0 and params.stop == NULL:
        raise InvalidArgument(f"stop is NULL, but stop_count is {params.stop_count}")
    for i in range(params.stop_count):
        if params.stop[i] == NULL:
            raise InvalidArgument(f"stop[{i}] is NULL")
        stops.append(to_string(params.stop[i], f"stop[{i}]"))
    return stops


cdef dict to_bias(const cow_mlx_generation_params* params):
    """Bias by token; which tokens exist, the model knows."""
    cdef size_t i
    if params.bias_count > 1 << 20:
        raise InvalidArgument(f"bias_count is {params.bias_count}; at most {1 << 20} are accepted")
    if params.bias_count > 0 and (params.bias_tokens == NULL or params.bias_values == NULL):
        name = "bias_tokens" if params.bias_tokens == NULL else "bias_values"
        raise InvalidArgument(f"{name} is NULL, but bias_count is {params.bias_count}")
    bias = {params.bias_tokens[i]: params.bias_values[i] for i in range(params.bias_count)}
    if <size_t> len(bias) < params.bias_count:
        raise InvalidArgument("bias_tokens names a token twice")
    return bias


cdef list to_texts(const cow_mlx_text* texts, size_t count):
    cdef size_t i
    result = []
    for i in range(count):
        if texts[i].length == COW_MLX_NUL and texts[i].data != NULL:
            result.append(to_string(texts[i].data, f"texts[{i}]"))
        elif texts[i].data == NULL:
            result.append("")
        else:
            result.append(to_text(cow_text(texts[i].data, texts[i].length), f"texts[{i}]"))
    return result


cdef dict embed_fields(const cow_mlx_embed_params* params):
    return {
        "pooling": params.pooling,
        "normalize": params.normalize,
        "add_special": params.add_special,
        "batch_tokens": params.batch_tokens,
    }


cdef dict generation_fields(const cow_mlx_generation_params* params):
    return {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "typical_p": params.typical_p,
        "top_k": params.top_k,
        "xtc_probability": params.xtc_probability,
        "xtc_threshold": params.xtc_threshold,
        "repetition_penalty": params.repetition_penalty,
        "repetition_window": params.repetition_window,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "seed": params.seed,
        "bias": to_bias(params),
        "stop": to_stops(params),
        "grammar": to_string(params.grammar, "grammar"),
        "grammar_kind": params.grammar_kind,
        "logprobs": params.logprobs,
        "draft": params.draft,
        "draft_tokens": params.draft_tokens,
        "presence_window": params.presence_window,
        "frequency_window": params.frequency_window,
        "timeout": params.timeout,
    }


cdef dict context_fields(const cow_mlx_context_params* params):
    return {
        "max_tokens": params.max_tokens,
        "kv_bits": params.kv_bits,
        "kv_group_size": params.kv_group_size,
        "solo": params.solo,
        "priority": params.priority,
        "overflow": params.overflow,
        "keep_tokens": params.keep_tokens,
        "share_prefix": params.share_prefix,
    }


# ------------------------------------------------------------------ To C

cdef int put_text(cow_text_out out, bytes text, bint may_query=True) except -1:
    """Write a text to the host's buffer, with a terminator where there is room."""
    cdef size_t size = PyBytes_GET_SIZE(text)
    if size > out.capacity or out.buffer == NULL:
        out.length[0] = size
        if size == 0 or (may_query and out.buffer == NULL):
            return 0
        raise BufferTooSmall(f"capacity is {out.capacity}, but the text has {size} bytes")
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
        raise BadFormat(f"the model's tokenizer gives token {odd}; ids are within 0 to {INT32_MAX}")
    if out.buffer != NULL and size <= out.capacity:
        for i in range(size):
            out.buffer[i] = tokens[i]
    elif out.buffer != NULL:
        out.count[0] = size
        raise BufferTooSmall(f"capacity is {out.capacity}, but there are {size} tokens")
    out.count[0] = size
    return 0


cdef int put_floats(cow_floats_out out, object array, size_t count) except -1:
    """Write an evaluated float32 array; ``count`` is what the host is told."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS)
    try:
        if out.buffer != NULL and <size_t> view.len <= out.capacity * sizeof(float):
            memcpy(out.buffer, view.buf, view.len)
        elif out.buffer != NULL:
            out.count[0] = count
            needed = view.len // sizeof(float)
            raise BufferTooSmall(f"capacity is {out.capacity}, but there are {needed} values")
        out.count[0] = count
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int put_logprobs(cow_request* r, list tokens, list logprobs) except -1:
    """Write both arrays or, as a size query or with too little room, neither."""
    cdef size_t size = len(tokens)
    cdef size_t i
    put_tokens(r.args.tokens_out, tokens)
    if r.args.tokens_out.buffer != NULL and r.args.floats_out.buffer != NULL:
        for i in range(size):
            r.args.floats_out.buffer[i] = logprobs[i]
    return 0


cdef bytes to_json(dict value):
    import json
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


cdef void put_piece(cow_mlx_piece* out, object piece):
    out.token = piece.token
    out.logprob = NAN if piece.logprob is None else piece.logprob
    out.finish = piece.finish


cdef void put_stats(cow_mlx_stats* out, object stats):
    import mlx.core as mx
    out.prompt_tokens = stats.prompt_tokens
    out.reused_tokens = stats.reused_tokens
    out.generated_tokens = stats.generated_tokens
    out.prompt_seconds = stats.prompt_seconds
    out.generation_seconds = stats.generation_seconds
    out.first_token_seconds = stats.first_token_seconds
    out.peak_memory = mx.get_peak_memory()
    out.drafted_tokens = stats.drafted_tokens
    out.accepted_tokens = stats.accepted_tokens
