"""Included by bridge.pyx: how requests end, requests that wait, and outlets."""

# ------------------------------------------------------- Ending a request

cdef void log(cow_request* r, int level, str message):
    """Pass a message to the host's log function when the call returns."""
    cdef bytes text = message.encode("utf-8", "replace")
    r.log_message = <char*> malloc(len(text) + 1)
    if r.log_message != NULL:
        memcpy(r.log_message, PyBytes_AS_STRING(text), len(text) + 1)
        r.log_level = level


cdef void end(cow_request* r, cow_mlx_status status) noexcept:
    """End a request, which must not be touched after this: the host's thread owns it again."""
    try:
        if output.text and r.log_message == NULL:
            log(r, COW_MLX_LOG_WARNING, output.take())
    except BaseException:  # there is no memory for it
        pass
    host.finish(r, status)


cdef void fail(cow_request* r, object error) noexcept:
    global size_place
    cdef int status = COW_MLX_ENOMEM
    try:
        status = write_failure(r, error)
        if status == COW_MLX_EBUFFER and size_place != NULL:
            size_place[0] = size_needed
    except BaseException:
        snprintf(r.message, COW_MESSAGE_SIZE, "%s: not enough memory", r.operation)
        snprintf(
            r.details, COW_DETAILS_SIZE,
            '{"operation": "%s", "reason": "no_memory", "details": {}}', r.operation
        )
    size_place = NULL
    end(r, status)


cdef tuple described(str operation, object error):
    """Describe an error: its status, message and details (both UTF-8), reason, details."""
    cdef int status = COW_MLX_EINTERNAL
    cdef bytes text
    raised = error
    try:
        error = failures.translate(error)
        if isinstance(error, CowMlxError):
            status = error.status
            text = f"{operation}: {error}".encode("utf-8", "replace")
        else:  # an unexpected exception
            text = f"{operation}: {failures.place(error)}".encode("utf-8", "replace")
    except MemoryError:
        raise
    except BaseException:  # its own text fails
        text = f"{operation}: {type(error).__name__}".encode("utf-8", "replace")
    text = text.replace(b"\0", b" ")
    if len(text) >= COW_MESSAGE_SIZE:  # whole characters only
        text = text[:COW_MESSAGE_SIZE - 1].decode("utf-8", "ignore").encode()
    cdef str reason = errors.reason_of(error)
    cdef dict details
    cdef bytes known
    try:
        details = errors.details_of(error)
        known, details = errors.encode_details(operation, reason, details, COW_DETAILS_SIZE - 1)
    except BaseException:  # a value has no text
        known, details = errors.encode_details(operation, reason, {}, COW_DETAILS_SIZE - 1)
    failures.forget_frames(raised)
    return status, text, known, reason, details


cdef int write_failure(cow_request* r, object error) except? -1:
    """Write the message and the details of an error; returns its status."""
    cdef bytes text
    cdef bytes known
    status, text, known, reason, details = described((<bytes> r.operation).decode(), error)
    memcpy(r.message, PyBytes_AS_STRING(text), len(text) + 1)
    memcpy(r.details, PyBytes_AS_STRING(known), len(known) + 1)
    try:
        note_failure(r, status, text.decode(), reason, details)
    except BaseException:  # the call has its message, and must end
        pass
    return status


cdef note_failure(cow_request* r, int status, str message, str reason, dict details):
    """Let context_info have a failure, for threads that did not make the call.

    Skips retryable statuses and read-only queries.
    """
    if READ_ONLY[<int> r.op] or status == COW_MLX_EBUFFER:
        return
    if r.op == COW_OP_CONTEXT_POLL and status == COW_MLX_ETIMEDOUT:
        return
    if engine is not None and r.context:
        engine.note_failure(r.context, status, message, reason, details)


cdef char* copied(bytes text) except NULL:
    """A malloc'ed copy with a terminator."""
    cdef size_t size = PyBytes_GET_SIZE(text) + 1
    cdef char* copy = <char*> malloc(size)
    if copy == NULL:
        raise MemoryError
    memcpy(copy, PyBytes_AS_STRING(text), size)
    return copy


cdef class LogitsQuestion:
    """Logits that a host may change: cowmlx.call.LogitsQuestion."""

    cdef cow_logits* logits

    def __dealloc__(self):
        if self.logits != NULL:
            host.logits_let_go(self.logits)

    cdef cow_logits* share(self):
        """Let an event have it, too."""
        host.logits_share(self.logits)
        return self.logits

    @property
    def answer(self):
        cdef int answer = host.logits_answer(self.logits)
        return None if answer == 0 else answer > 0

    @property
    def values(self):
        cdef Py_ssize_t size = self.logits.vocabulary * sizeof(float)
        return PyMemoryView_FromMemory(<char*> self.logits.values, size, PyBUF_WRITE).cast("f")


cdef class LogitsFunction:
    """The host's function for logits: cowmlx.call.LogitsFunction."""

    cdef cow_mlx_logits_fn function
    cdef void* data

    def question(self, list tokens, size_t vocabulary):
        cdef size_t i
        cdef LogitsQuestion question = LogitsQuestion.__new__(LogitsQuestion)
        question.logits = host.logits_new(self.function, self.data, len(tokens), vocabulary)
        if question.logits == NULL:
            raise MemoryError
        for i in range(question.logits.count):
            question.logits.tokens[i] = tokens[i]
        return question


cdef class HostCall:
    """A request that waits: cowmlx.call.Call.

    Once it has ended, its request no longer exists: later questions are answered without it, and
    later events are lost.
    """

    cdef cow_request* r  # NULL once it has ended
    cdef readonly uint32_t cancel_epoch
    cdef readonly uint32_t round
    cdef readonly int32_t reserved

    @staticmethod
    cdef HostCall keep(cow_request* r):
        cdef HostCall call = HostCall.__new__(HostCall)
        call.r = r
        call.cancel_epoch = r.cancel_epoch
        call.round = r.round
        call.reserved = r.model
        return call

    cdef cow_request* give_up_request(self):
        """Return the request, and forget it."""
        cdef cow_request* r = self.r
        self.r = NULL
        kept.discard(self)
        return r

    cdef void end(self, cow_mlx_status status):
        cdef cow_request* r = self.give_up_request()
        if r != NULL:
            end(r, status)

    cdef int post(self, cow_event* event, bytes text, bytes name=None) except -1:
        """Hand over an event with its own copy of a text: the call may end before it is read."""
        event.logits = NULL
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

    cdef void post_and_linger(self, cow_event* event) noexcept:
        """Hand over an event without texts, and give the host some time to take it."""
        cdef cow_request* r = self.r
        event.logits = NULL
        event.text = event.name = NULL
        event.length = 0
        with nogil:  # which the host may need
            host.post(r, event)
            host.linger(r)

    @property
    def ready(self):
        return self.r != NULL and host.can_post(self.r)

    @property
    def refused(self):
        return self.r != NULL and host.refused(self.r)

    def post_progress(self, float fraction, str stage):
        if self.r == NULL or self.r.callbacks.progress == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_PROGRESS
        event.fraction = fraction
        self.post(&event, stage.encode())

    def post_prompt(self, size_t processed, size_t total):
        if self.r == NULL or self.r.callbacks.prompt == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_PROMPT
        event.processed = processed
        event.total = total
        self.post(&event, b"")

    def post_text(self, bytes text):
        if self.r == NULL or self.r.callbacks.text == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_TEXT
        self.post(&event, text)

    def post_chat(self, int kind, str text, str name, int finish):
        if self.r == NULL or self.r.callbacks.event == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_CHAT
        event.chat_kind = kind
        event.finish = finish
        self.post(&event, text.encode("utf-8", "replace"), name.encode("utf-8", "replace"))

    def post_training(self, progress):
        if self.r == NULL or self.r.callbacks.training == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_TRAINING
        event.training.struct_size = sizeof(event.training)
        put_training_event(&event.training, progress)
        self.post_and_linger(&event)

    def ask_batch(self, size_t step, size_t count):
        if self.r == NULL:
            return
        if self.r.callbacks.batch == NULL or self.r.batch != NULL:
            raise RuntimeError("there is no callback to ask, or a batch that was not taken")
        cdef cow_batch* batch = <cow_batch*> calloc(1, sizeof(cow_batch))
        if batch == NULL:
            raise MemoryError
        batch.arrays = <cow_mlx_array*> calloc(count + 1, sizeof(cow_mlx_array))
        if batch.arrays == NULL:
            free(batch)
            raise MemoryError
        batch.step = step
        batch.count = count
        self.r.batch = batch  # freed with the request from here on
        cdef cow_event event
        event.kind = COW_EVENT_BATCH
        self.post(&event, b"")

    def take_batch(self):
        if self.r == NULL or self.r.batch == NULL:
            raise RuntimeError("no batch was asked for")
        cdef cow_batch* batch = self.r.batch
        handles = None
        if batch.given:
            handles = to_list(batch.arrays, batch.count)
        self.r.batch = NULL
        free(batch.arrays)
        free(batch)
        return handles

    @property
    def logits_function(self):
        if self.r == NULL or self.r.callbacks.logits == NULL:
            return None
        cdef LogitsFunction function = LogitsFunction.__new__(LogitsFunction)
        function.function = self.r.callbacks.logits
        function.data = self.r.callbacks.logits_data
        return function

    def ask_logits(self, LogitsQuestion question):
        if self.r == NULL:
            return
        cdef cow_event event
        event.kind = COW_EVENT_LOGITS
        event.text = event.name = NULL
        event.logits = question.share()
        host.post(self.r, &event)

    @property
    def brings_batches(self):
        return self.r != NULL and self.r.callbacks.batch != NULL

    def note(self, str message):
        if self.r != NULL and self.r.log_message == NULL:
            log(self.r, COW_MLX_LOG_INFO, message)

    def warn(self, str message):
        if self.r != NULL and self.r.log_message == NULL:
            log(self.r, COW_MLX_LOG_WARNING, message)

    def succeed(self, value=None):
        if self.r == NULL:
            return False
        try:
            WRITERS[<int> self.r.op](self.r, value)
        except BaseException as error:
            self.fail(error)  # which lets go of the request
        if self.r == NULL:
            return False
        self.end(COW_MLX_OK)
        return True

    def done(self, value):
        if self.r == NULL:
            return
        WRITERS[<int> self.r.op](self.r, value)
        self.end(COW_MLX_DONE)

    def answer_size(self, size_t size, size_t count):
        if self.r == NULL:
            return True
        cdef cow_floats_out out = self.r.floats[0]
        if out.buffer != NULL and 0 < size <= out.capacity:
            return False
        if out.buffer != NULL and size > 0:
            self.fail(too_small(out.capacity, size, "there are {} values", out.count, count))
        else:
            out.count[0] = count
            self.end(COW_MLX_OK)
        return True

    def fail(self, error):
        cdef cow_request* r = self.give_up_request()
        if r != NULL:
            fail(r, error)
        else:
            failures.forget_frames(error)


# ------------------------------------------------------------------ Outlets

class HostOutlets:
    """The outlets, which C keeps: cowmlx.generation.outlet.Outlets."""

    def begin(self, int32_t handle, uint32_t round, uint32_t cancel_epoch):
        return host.outlets_begin(handle, round, cancel_epoch)

    def clear(self, int32_t handle):
        host.outlets_clear(handle)

    def watch(self, int32_t handle):
        return host.outlets_watch(handle)

    def taken(self, int32_t handle, bint back):
        return host.outlets_taken(handle, back)

    def offer(self, int32_t handle, uint32_t round, piece, bint is_end, bint counts):
        cdef bytes text = piece.text
        cdef cow_offer offer = cow_offer(
            status=COW_MLX_DONE if is_end else COW_MLX_OK,
            is_end=is_end,
            counts=counts,
            event_kind=0,
            token=piece.token,
            logprob=to_real(piece.logprob),
            finish=piece.finish,
            text=PyBytes_AS_STRING(text),
            length=0 if is_end else PyBytes_GET_SIZE(text),
            name=NULL,
        )
        if not host.outlets_offer(handle, round, &offer):
            raise MemoryError

    def ask(self, int32_t handle, uint32_t round, LogitsQuestion question):
        host.outlets_ask(handle, round, question.share())

    def offer_failure(self, int32_t handle, uint32_t round, error):
        cdef bytes text
        cdef bytes known
        status, text, known, reason, details = described("context_next", error)
        cdef cow_offer offer = cow_offer(
            status=status,
            is_end=True,
            counts=False,
            event_kind=0,
            token=0,
            logprob=0,
            finish=0,
            text=PyBytes_AS_STRING(text),
            length=PyBytes_GET_SIZE(text),
            name=PyBytes_AS_STRING(known),
        )
        host.outlets_offer(handle, round, &offer)
        engine.note_failure(handle, status, text.decode(), reason, details)
