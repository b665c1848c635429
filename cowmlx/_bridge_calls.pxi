"""Included by _bridge.pyx: ending a request, and requests that wait."""

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


cdef char* copied(bytes text) except NULL:
    """A malloc'ed copy with a terminator."""
    cdef size_t size = PyBytes_GET_SIZE(text) + 1
    cdef char* copy = <char*> malloc(size)
    if copy == NULL:
        raise MemoryError
    memcpy(copy, PyBytes_AS_STRING(text), size)
    return copy


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

    cdef int post(self, cow_event* event, bytes text, bytes name=None) except -1:
        """Hand over an event with its own copy of a text: the call may end before it is read."""
        event.text = copied(text)
        event.length = PyBytes_GET_SIZE(text)
        event.name = NULL
        if name is not None:
            try:
                event.name = copied(name)
            except MemoryError:
                free(event.text)
                raise
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

    def post_chat(self, int kind, str text, str name, int finish):
        if self.r.on_event == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_CHAT
        event.chat_kind = kind
        event.finish = finish
        self.post(&event, text.encode("utf-8", "replace"), name.encode("utf-8", "replace"))

    def note(self, str message):
        if self.r.log_message == NULL:
            log(self.r, COW_MLX_LOG_INFO, message)

    def succeed(self):
        end(self.ended(), COW_MLX_OK)

    def succeed_with_handle(self, int32_t handle):
        self.r.args.handle_out[0] = handle
        end(self.ended(), COW_MLX_OK)

    def succeed_with_count(self, size_t count):
        self.r.args.count_out[0] = count
        end(self.ended(), COW_MLX_OK)

    def succeed_with_tokens(self, list tokens):
        try:
            put_tokens(self.r.args.tokens_out, tokens)
        except BaseException as error:
            self.fail(error)
            return
        end(self.ended(), COW_MLX_OK)

    def succeed_with_text(self, str text):
        try:
            put_text(self.r.args.text_out, text.encode("utf-8", "replace"))
        except BaseException as error:
            self.fail(error)
            return
        end(self.ended(), COW_MLX_OK)

    def succeed_with_floats(self, array, size_t count):
        try:
            put_floats(self.r.args.floats_out, array, count)
        except BufferTooSmall as error:
            self.fail(error)
            return
        end(self.ended(), COW_MLX_OK)

    def answer_size(self, size_t size, size_t count):
        cdef cow_floats_out out = self.r.args.floats_out
        if out.buffer != NULL and 0 < size <= out.capacity:
            return False
        out.count[0] = count
        if out.buffer != NULL and size > 0:
            self.fail(
                BufferTooSmall(f"capacity is {out.capacity}, but there are {size} values")
            )
        else:
            end(self.ended(), COW_MLX_OK)
        return True

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
