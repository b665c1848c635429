# cython: language_level=3
"""Between C and the engine: unwrap a request, call the engine, map exceptions.

The only Cython, and the project's single exception boundary. Runs on the
dispatch thread, which holds the interpreter.
"""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.math cimport NAN
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cowmlx._cow_mlx cimport *

from cowmlx.errors import BufferTooSmall, CowMlxError, InvalidArgument
from cowmlx.output import CapturedOutput

cdef const cow_host* host = NULL
cdef object engine = None
cdef object output = CapturedOutput()


include "_bridge_values.pxi"
include "_bridge_calls.pxi"
include "_bridge_blas.pxi"
include "_bridge_python.pxi"


# ------------------------------------------------- One entry per operation

# What an entry returns: whether the request has ended with it.
cdef enum:
    ENDED = 0
    KEPT = 1


cdef int runtime_start(HostCall call) except -1:
    cdef cow_request* r = call.r
    cdef const cow_mlx_runtime_params* params = r.args.runtime_params
    python_home = (<bytes> r.args.path).decode("utf-8", "replace")
    if python_home:
        output.install()
    message = engine.start(
        to_string(params.device, "device"), params.memory_limit, params.cache_limit, python_home
    )
    log(r, COW_MLX_LOG_INFO, message)
    return ENDED


cdef int runtime_stop(HostCall call) except -1:
    engine.stop()
    return ENDED


cdef int runtime_info(HostCall call) except -1:
    cdef cow_request* r = call.r
    put_text(r.args.text_out, to_json(engine.runtime_info()))
    return ENDED


cdef int memory_trim(HostCall call) except -1:
    engine.memory_trim()
    return ENDED


cdef int model_load(HostCall call) except -1:
    cdef cow_request* r = call.r
    cdef const cow_mlx_model_params* params = r.args.model_params
    engine.load_model(
        call,
        to_string(r.args.path, "path"),
        to_string(params.adapter_path, "adapter_path"),
        params.lazy,
        params.trust_remote_code,
        params.prefix_cache_bytes,
    )
    return KEPT


cdef int model_free(HostCall call) except -1:
    engine.free_model(call.r.args.handle)
    return ENDED


cdef int model_info(HostCall call) except -1:
    cdef cow_request* r = call.r
    put_text(r.args.text_out, to_json(engine.model_info(r.args.handle)))
    return ENDED


cdef int model_tokenize(HostCall call) except -1:
    cdef cow_request* r = call.r
    text = to_text(r.args.text, "text")
    engine.tokenize(call, r.args.handle, text, r.args.flags)
    return KEPT


cdef int model_detokenize(HostCall call) except -1:
    cdef cow_request* r = call.r
    tokens = to_tokens(r.args.tokens)
    engine.detokenize(call, r.args.handle, tokens, r.args.flags)
    return KEPT


cdef int model_is_end(HostCall call) except -1:
    cdef cow_request* r = call.r
    r.args.bool_out[0] = engine.is_end(r.args.handle, r.args.token)
    return ENDED


cdef int model_chat_prompt(HostCall call) except -1:
    cdef cow_request* r = call.r
    messages = to_text(r.args.text, "messages_json")
    options = to_text(r.args.options, "options_json")
    engine.chat_prompt(call, r.args.handle, messages, options)
    return KEPT


cdef int model_embed(HostCall call) except -1:
    cdef cow_request* r = call.r
    texts = to_texts(r.args.texts, r.args.count)
    engine.embed(call, r.args.handle, texts, embed_fields(r.args.embed_params))
    return KEPT


cdef int adapter_load(HostCall call) except -1:
    cdef cow_request* r = call.r
    path = to_string(r.args.path, "path")
    r.args.handle_out[0] = engine.load_adapter(r.args.handle, path, r.args.scale)
    return ENDED


cdef int adapter_free(HostCall call) except -1:
    engine.free_adapter(call.r.args.handle)
    return ENDED


cdef int context_create(HostCall call) except -1:
    cdef cow_request* r = call.r
    fields = context_fields(r.args.context_params)
    r.args.handle_out[0] = engine.create_context(r.args.handle, fields)
    return ENDED


cdef int context_free(HostCall call) except -1:
    cdef cow_request* r = call.r
    engine.free_context(r.args.handle)
    return ENDED


cdef int context_fork(HostCall call) except -1:
    cdef cow_request* r = call.r
    r.args.handle_out[0] = engine.fork_context(r.args.handle)
    return ENDED


cdef int context_checkpoint(HostCall call) except -1:
    cdef cow_request* r = call.r
    r.args.handle_out[0] = engine.checkpoint(r.args.handle)
    return ENDED


cdef int context_rewind(HostCall call) except -1:
    engine.rewind(call.r.args.handle, call.r.args.other)
    return ENDED


cdef int checkpoint_free(HostCall call) except -1:
    engine.free_checkpoint(call.r.args.handle)
    return ENDED


cdef int context_save(HostCall call) except -1:
    cdef cow_request* r = call.r
    engine.save_context(call, r.args.handle, to_string(r.args.path, "path"))
    return KEPT


cdef int context_load(HostCall call) except -1:
    cdef cow_request* r = call.r
    engine.load_context(call, r.args.handle, to_string(r.args.path, "path"))
    return KEPT


cdef int context_set_adapter(HostCall call) except -1:
    engine.set_adapter(call.r.args.handle, call.r.args.other)
    return ENDED


cdef int context_reset(HostCall call) except -1:
    cdef cow_request* r = call.r
    engine.reset_context(r.args.handle)
    return ENDED


cdef int context_tokens(HostCall call) except -1:
    cdef cow_request* r = call.r
    put_tokens(r.args.tokens_out, engine.context_tokens(r.args.handle))
    return ENDED


cdef int context_trim_end(HostCall call) except -1:
    engine.trim_end(call, call.r.args.handle, call.r.args.count)
    return KEPT


cdef int context_trim_front(HostCall call) except -1:
    engine.trim_front(call, call.r.args.handle, call.r.args.count)
    return KEPT


cdef int context_info(HostCall call) except -1:
    cdef cow_request* r = call.r
    put_text(r.args.text_out, to_json(engine.context_info(r.args.handle)))
    return ENDED


cdef int context_begin(HostCall call) except -1:
    cdef cow_request* r = call.r
    fields = generation_fields(r.args.generation_params)
    engine.begin(call, r.args.handle, to_tokens(r.args.tokens), fields)
    return KEPT


cdef int context_next(HostCall call) except -1:
    cdef cow_request* r = call.r
    engine.next(call, r.args.handle)
    return KEPT


cdef int context_poll(HostCall call) except -1:
    engine.poll(call, call.r.args.handle, call.r.args.timeout_ms)
    return KEPT


cdef int context_wake_fd(HostCall call) except -1:
    call.r.args.fd_out[0] = engine.wake_fd(call.r.args.handle)
    return ENDED


cdef int context_generate(HostCall call) except -1:
    cdef cow_request* r = call.r
    fields = generation_fields(r.args.generation_params)
    engine.generate(call, r.args.handle, to_tokens(r.args.tokens), fields)
    return KEPT


cdef int context_chat(HostCall call) except -1:
    cdef cow_request* r = call.r
    messages = to_text(r.args.text, "messages_json")
    options = to_text(r.args.options, "options_json")
    fields = generation_fields(r.args.generation_params)
    engine.chat(call, r.args.handle, messages, options, fields)
    return KEPT


cdef int context_logprobs(HostCall call) except -1:
    tokens, logprobs = engine.context_logprobs(call.r.args.handle)
    put_logprobs(call.r, tokens, logprobs)
    return ENDED


cdef int context_logits(HostCall call) except -1:
    logits = engine.context_logits(call.r.args.handle)
    put_floats(call.r.args.floats_out, logits, logits.size)
    return ENDED


cdef int context_stats(HostCall call) except -1:
    cdef cow_request* r = call.r
    put_stats(r.args.stats_out, engine.context_stats(r.args.handle))
    return ENDED


ctypedef int (*entry)(HostCall) except -1
cdef entry[<int> COW_OP_COUNT] ENTRIES
ENTRIES[<int> COW_OP_RUNTIME_START] = runtime_start
ENTRIES[<int> COW_OP_RUNTIME_STOP] = runtime_stop
ENTRIES[<int> COW_OP_RUNTIME_INFO] = runtime_info
ENTRIES[<int> COW_OP_MEMORY_TRIM] = memory_trim
ENTRIES[<int> COW_OP_MODEL_LOAD] = model_load
ENTRIES[<int> COW_OP_MODEL_FREE] = model_free
ENTRIES[<int> COW_OP_MODEL_INFO] = model_info
ENTRIES[<int> COW_OP_MODEL_TOKENIZE] = model_tokenize
ENTRIES[<int> COW_OP_MODEL_DETOKENIZE] = model_detokenize
ENTRIES[<int> COW_OP_MODEL_IS_END] = model_is_end
ENTRIES[<int> COW_OP_MODEL_CHAT_PROMPT] = model_chat_prompt
ENTRIES[<int> COW_OP_MODEL_EMBED] = model_embed
ENTRIES[<int> COW_OP_ADAPTER_LOAD] = adapter_load
ENTRIES[<int> COW_OP_ADAPTER_FREE] = adapter_free
ENTRIES[<int> COW_OP_CONTEXT_CREATE] = context_create
ENTRIES[<int> COW_OP_CONTEXT_FREE] = context_free
ENTRIES[<int> COW_OP_CONTEXT_FORK] = context_fork
ENTRIES[<int> COW_OP_CONTEXT_RESET] = context_reset
ENTRIES[<int> COW_OP_CONTEXT_TOKENS] = context_tokens
ENTRIES[<int> COW_OP_CONTEXT_TRIM_END] = context_trim_end
ENTRIES[<int> COW_OP_CONTEXT_TRIM_FRONT] = context_trim_front
ENTRIES[<int> COW_OP_CONTEXT_CHECKPOINT] = context_checkpoint
ENTRIES[<int> COW_OP_CONTEXT_REWIND] = context_rewind
ENTRIES[<int> COW_OP_CHECKPOINT_FREE] = checkpoint_free
ENTRIES[<int> COW_OP_CONTEXT_SAVE] = context_save
ENTRIES[<int> COW_OP_CONTEXT_LOAD] = context_load
ENTRIES[<int> COW_OP_CONTEXT_SET_ADAPTER] = context_set_adapter
ENTRIES[<int> COW_OP_CONTEXT_INFO] = context_info
ENTRIES[<int> COW_OP_CONTEXT_BEGIN] = context_begin
ENTRIES[<int> COW_OP_CONTEXT_NEXT] = context_next
ENTRIES[<int> COW_OP_CONTEXT_POLL] = context_poll
ENTRIES[<int> COW_OP_CONTEXT_WAKE_FD] = context_wake_fd
ENTRIES[<int> COW_OP_CONTEXT_GENERATE] = context_generate
ENTRIES[<int> COW_OP_CONTEXT_CHAT] = context_chat
ENTRIES[<int> COW_OP_CONTEXT_LOGPROBS] = context_logprobs
ENTRIES[<int> COW_OP_CONTEXT_LOGITS] = context_logits
ENTRIES[<int> COW_OP_CONTEXT_STATS] = context_stats


# ------------------------------------------------------------ The table

cdef cbool attach(const cow_host* services) noexcept:
    """Serve a library; there can be one."""
    global host
    if host != NULL and host != services:
        return False
    host = services
    return True


cdef cbool run(cow_request* r) noexcept:
    """Carry out one request. Every Python exception ends here, as a status."""
    cdef HostCall call = HostCall.keep(r)
    try:
        ensure_engine()
        if ENTRIES[<int> r.op](call) == KEPT:
            return True
        call.succeed()
    except BaseException as error:
        call.fail(error)
    return False


cdef cbool step() noexcept:
    """Do one unit of work. Units end their own calls; what raises here is a bug of ours."""
    try:
        return engine is not None and engine.step()
    except BaseException:
        engine.stop()
        return False


cdef void rest() noexcept:
    """Wait until mlx's threads have nothing to do. What failed there matters to nobody now."""
    try:
        if engine is not None:
            engine.rest()
    except BaseException:
        pass


cdef ensure_engine():
    global engine
    if engine is None:
        blas, problem = bring_blas()
        from cowmlx.engine import Engine
        engine = Engine(
            cancel_epoch, context_opened, context_closed, blas, problem, libpython()
        )


def cancel_epoch(cow_mlx_context context):
    return host.cancel_epoch(context)


def context_opened(cow_mlx_context context):
    host.context_opened(context)


def context_closed(cow_mlx_context context):
    host.context_closed(context)


ctypedef void (*exit_hook)() noexcept nogil


def register_exit(capsule):
    """Call a C function, given as a capsule, when the interpreter ends."""
    import atexit

    def leave():
        cdef exit_hook hook = <exit_hook> PyCapsule_GetPointer(capsule, "cowmlx.at_exit")
        with nogil:
            hook()

    atexit.register(leave)


cdef cow_bridge TABLE
TABLE.abi = COW_BRIDGE_ABI
TABLE.attach = attach
TABLE.run = run
TABLE.step = step
TABLE.rest = rest

table = PyCapsule_New(&TABLE, COW_BRIDGE_CAPSULE, NULL)
