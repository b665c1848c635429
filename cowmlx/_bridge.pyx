# cython: language_level=3
"""Between C and the engine: unwrap a request, call the engine, map exceptions.

The only Cython, and the project's single exception boundary. Runs on the
dispatch thread, which holds the interpreter.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.math cimport NAN
from libc.stdint cimport int32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from cowmlx._cow_mlx cimport *

from cowmlx.errors import BufferTooSmall, CowMlxError, InvalidArgument
from cowmlx.output import CapturedOutput

cdef const cow_host* host = NULL
cdef object engine = None
cdef object output = CapturedOutput()


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
        "bias_count": params.bias_count,
        "stop": to_stops(params),
        "grammar": to_string(params.grammar, "grammar"),
        "grammar_kind": params.grammar_kind,
        "logprobs": params.logprobs,
        "draft": params.draft,
        "draft_tokens": params.draft_tokens,
    }


cdef dict context_fields(const cow_mlx_context_params* params):
    return {
        "max_tokens": params.max_tokens,
        "kv_bits": params.kv_bits,
        "kv_group_size": params.kv_group_size,
        "solo": params.solo,
        "priority": params.priority,
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
    """Write tokens to the host's buffer."""
    cdef size_t size = len(tokens)
    cdef size_t i
    if out.buffer != NULL and size <= out.capacity:
        for i in range(size):
            out.buffer[i] = tokens[i]
    elif out.buffer != NULL:
        out.count[0] = size
        raise BufferTooSmall(f"capacity is {out.capacity}, but there are {size} tokens")
    out.count[0] = size
    return 0


cdef bytes to_json(dict value):
    import json
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


cdef void put_piece(cow_mlx_piece* out, object piece):
    out.token = piece.token
    out.logprob = NAN
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


# ------------------------------------------------------- Ending a request

cdef int status_of(object error):
    if isinstance(error, CowMlxError):
        return error.status
    if isinstance(error, MemoryError) or "[malloc" in str(error):
        return COW_MLX_ENOMEM
    return COW_MLX_EINTERNAL


cdef str describe(object error):
    """The text of an error; of one that nobody foresaw, where it came from."""
    if isinstance(error, CowMlxError):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    trace = error.__traceback__
    if trace is None:
        return text
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{text} ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"


cdef void log(cow_request* r, int level, str message):
    """Let the host's log function have a message when the call returns."""
    cdef bytes text = message.encode("utf-8", "replace")
    r.log_message = <char*> malloc(len(text) + 1)
    if r.log_message != NULL:
        memcpy(r.log_message, PyBytes_AS_STRING(text), len(text) + 1)
        r.log_level = level


cdef void end(cow_request* r, cow_mlx_status status):
    """The host's thread owns the request again, and must not be touched after this."""
    if output.text and r.log_message == NULL:
        log(r, COW_MLX_LOG_WARNING, output.take())
    host.finish(r, status)


cdef void fail(cow_request* r, object error):
    cdef str operation = (<bytes> r.operation).decode()
    cdef int status = COW_MLX_EINTERNAL
    cdef bytes text
    try:
        status = status_of(error)
        text = f"{operation}: {describe(error)}".encode("utf-8", "replace")
    except BaseException:  # its own text fails
        text = f"{operation}: {type(error).__name__}".encode("utf-8", "replace")
    text = text.replace(b"\0", b" ")
    if len(text) >= COW_MESSAGE_SIZE:  # whole characters only
        text = text[:COW_MESSAGE_SIZE - 1].decode("utf-8", "ignore").encode()
    memcpy(r.message, PyBytes_AS_STRING(text), len(text) + 1)
    end(r, status)


cdef class HostCall:
    """A request that waits: cowmlx.calls.Call."""

    cdef cow_request* r  # NULL once it has ended

    @staticmethod
    cdef HostCall keep(cow_request* r):
        cdef HostCall call = HostCall.__new__(HostCall)
        call.r = r
        return call

    cdef cow_request* ended(self):
        """The request, given up by this call."""
        cdef cow_request* r = self.r
        self.r = NULL
        return r

    cdef int post(self, cow_event* event, bytes text) except -1:
        """Hand over an event with its own copy of a text: the call may end before it is read."""
        event.length = PyBytes_GET_SIZE(text)
        event.text = <char*> malloc(event.length + 1)
        if event.text == NULL:
            raise MemoryError
        memcpy(event.text, PyBytes_AS_STRING(text), event.length + 1)
        host.post(self.r, event)
        return 0

    @property
    def ready(self):
        return self.r != NULL and host.can_post(self.r)

    @property
    def refused(self):
        return self.r != NULL and host.refused(self.r)

    @property
    def cancel_epoch(self):
        return self.r.cancel_epoch

    def post_progress(self, float fraction, str stage):
        if self.r.args.model_params.progress == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_PROGRESS
        event.fraction = fraction
        self.post(&event, stage.encode())

    def post_prompt(self, size_t processed, size_t total):
        cdef const cow_mlx_generation_params* params = self.r.args.generation_params
        if params == NULL or params.prompt_progress == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_PROMPT
        event.processed = processed
        event.total = total
        self.post(&event, b"")

    def post_text(self, bytes text):
        if self.r.on_text == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_TEXT
        self.post(&event, text)

    def succeed(self):
        end(self.ended(), COW_MLX_OK)

    def succeed_with_handle(self, int32_t handle):
        self.r.args.handle_out[0] = handle
        end(self.ended(), COW_MLX_OK)

    def succeed_with_count(self, size_t count):
        self.r.args.count_out[0] = count
        end(self.ended(), COW_MLX_OK)

    def succeed_with_stats(self, stats):
        put_stats(self.r.args.stats_out, stats)
        end(self.ended(), COW_MLX_OK)

    def deliver(self, piece):
        try:
            put_text(self.r.args.text_out, piece.text, False)
        except BufferTooSmall as error:
            self.fail(error)
            return False
        put_piece(self.r.args.piece_out, piece)
        end(self.ended(), COW_MLX_OK)
        return True

    def done(self, piece):
        put_text(self.r.args.text_out, b"", False)
        put_piece(self.r.args.piece_out, piece)
        end(self.ended(), COW_MLX_DONE)

    def fail(self, error):
        if self.r != NULL:
            fail(self.ended(), error)


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
    put_tokens(r.args.tokens_out, engine.tokenize(r.args.handle, text, r.args.flags))
    return ENDED


cdef int model_detokenize(HostCall call) except -1:
    cdef cow_request* r = call.r
    tokens = to_tokens(r.args.tokens)
    text = engine.detokenize(r.args.handle, tokens, r.args.flags)
    put_text(r.args.text_out, text.encode("utf-8", "replace"))
    return ENDED


cdef int model_is_end(HostCall call) except -1:
    cdef cow_request* r = call.r
    r.args.bool_out[0] = engine.is_end(r.args.handle, r.args.token)
    return ENDED


cdef int model_chat_prompt(HostCall call) except -1:
    cdef cow_request* r = call.r
    messages = to_text(r.args.text, "messages_json")
    options = to_text(r.args.options, "options_json")
    put_tokens(r.args.tokens_out, engine.chat_prompt(r.args.handle, messages, options))
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


cdef int context_generate(HostCall call) except -1:
    cdef cow_request* r = call.r
    fields = generation_fields(r.args.generation_params)
    engine.generate(call, r.args.handle, to_tokens(r.args.tokens), fields)
    return KEPT


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
ENTRIES[<int> COW_OP_CONTEXT_CREATE] = context_create
ENTRIES[<int> COW_OP_CONTEXT_FREE] = context_free
ENTRIES[<int> COW_OP_CONTEXT_RESET] = context_reset
ENTRIES[<int> COW_OP_CONTEXT_TOKENS] = context_tokens
ENTRIES[<int> COW_OP_CONTEXT_TRIM_END] = context_trim_end
ENTRIES[<int> COW_OP_CONTEXT_TRIM_FRONT] = context_trim_front
ENTRIES[<int> COW_OP_CONTEXT_INFO] = context_info
ENTRIES[<int> COW_OP_CONTEXT_BEGIN] = context_begin
ENTRIES[<int> COW_OP_CONTEXT_NEXT] = context_next
ENTRIES[<int> COW_OP_CONTEXT_GENERATE] = context_generate
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


cdef ensure_engine():
    global engine
    if engine is None:
        from cowmlx.engine import Engine
        engine = Engine(cancel_epoch, context_opened, context_closed)


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

table = PyCapsule_New(&TABLE, COW_BRIDGE_CAPSULE, NULL)
