"""The engine's façade: one method per C call, on the dispatch thread."""

from __future__ import annotations

import sys
from contextlib import suppress
from weakref import WeakKeyDictionary

import mlx.core as mx

from cowmlx import _constants as constants
from cowmlx import _status as statuses
from cowmlx import resources
from cowmlx.cache.layers import can_quantize
from cowmlx.cache.shared import SharedPrefixes
from cowmlx.cache.trimming import can_trim_all
from cowmlx.calls import keeps_call
from cowmlx.errors import BadState, Canceled, InvalidArgument, Unsupported
from cowmlx.generation.context import Context, ContextParams
from cowmlx.generation.lane import Lanes
from cowmlx.generation.params import GenerationParams
from cowmlx.generation.waiters import (
    BeginWaiter,
    ChatWaiter,
    GenerateWaiter,
    NextWaiter,
    PollWaiter,
    TrimWaiter,
)
from cowmlx.handles import NOUNS, HandleTable
from cowmlx.loading import Loading
from cowmlx.scheduler import Scheduler
from cowmlx.streams import StreamPool, choose_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any

    from cowmlx.cache.snapshot import Snapshot
    from cowmlx.calls import Call
    from cowmlx.embedding import Embedding
    from cowmlx.generation.generation import Constrains
    from cowmlx.generation.piece import Stats
    from cowmlx.models.conversation import Conversation
    from cowmlx.models.embedding import HiddenStates
    from cowmlx.models.model import Model
    from cowmlx.saving import Transfer
    from cowmlx.tokenizing import Tokenizing

MLX_VERSION: str = mx.__version__  # type: ignore[attr-defined]


class Engine:
    """Owns every model, context and stream between a runtime start and its stop.

    Methods return their result or raise; those that take a ``call`` keep it and
    end it later. Nothing here starts a thread or takes a lock.

    Args:
        cancel_epoch: how often a context (its handle) has been cancelled.
        open_handle, close_handle: give a handle of a kind, and take it back.
        blas: what matrix products on the CPU are computed with.
        blas_problem: why it is not the optimised one, if that was wanted.
        libpython: the file that holds the interpreter's code, if it is known.
    """

    def __init__(
        self,
        cancel_epoch: Callable[[int], int],
        open_handle: Callable[[int], int],
        close_handle: Callable[[int], None],
        blas: str = "reference",
        blas_problem: str | None = None,
        libpython: str | None = None,
    ) -> None:
        self._libpython = libpython
        self._blas = blas
        self._blas_problem = blas_problem
        self._cancel_epoch = cancel_epoch
        self._handles = HandleTable(open_handle, close_handle)
        self._scheduler = Scheduler()
        self._loadings: list[Loading] = []
        self._embeddings: list[Embedding] = []
        self._tokenizings: list[Tokenizing] = []
        self._hidden: WeakKeyDictionary[Model, HiddenStates] = WeakKeyDictionary()
        self._prefixes: WeakKeyDictionary[Model, SharedPrefixes] = WeakKeyDictionary()
        self._checkpoints: dict[int, list[int]] = {}  # handles, by their context's
        self._transfers: dict[int, Transfer] = {}  # by the handle of their context
        self._streams = StreamPool(mx.Device(mx.cpu))
        self._lanes = Lanes(self._streams)
        self._python_home = ""
        self._limits: tuple[int, int] | None = None  # mlx's own, restored at stop

    # --------------------------------------------------------------- Runtime

    def start(self, params: dict[str, Any], python_home: str) -> str:
        """Choose the device and set limits. Returns a log message.

        Args:
            params: the fields of ``cow_mlx_runtime_params``.
            python_home: that was booted; "" in a joined interpreter.
        """
        memory_limit, cache_limit = params["memory_limit"], params["cache_limit"]
        chosen = choose_device(params["device"])
        if self._streams.device != chosen:
            self._streams = StreamPool(chosen)
            self._lanes = Lanes(self._streams)
        if chosen.type == mx.cpu:
            mx.disable_compile()  # it would run a compiler, in a folder others can guess
        elif mx.metal.is_available():
            mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
        resources.start_default_stream()
        resources.start_readers()
        self._python_home = python_home
        if memory_limit or cache_limit:
            self._limits = (mx.get_memory_limit(), mx.set_cache_limit(cache_limit))
            if not cache_limit:
                mx.set_cache_limit(self._limits[1])
            if memory_limit:
                mx.set_memory_limit(memory_limit)
        started = f"runtime started: mlx {MLX_VERSION} on {self._device_name()}, BLAS {self._blas}"
        return f"{started} ({self._blas_problem})" if self._blas_problem else started

    def stop(self) -> None:
        """Cancel what runs, free everything."""
        self.free_all(_stopped())
        if self._limits is not None:
            mx.set_memory_limit(self._limits[0])
            mx.set_cache_limit(self._limits[1])
            self._limits = None

    def free_all(self, error: BaseException) -> None:
        """End every call with an error and close every handle; the runtime goes on."""
        self._scheduler = Scheduler()
        for unit in (*self._loadings, *self._embeddings, *self._tokenizings):
            with suppress(BaseException):  # the other calls have to end too
                unit.abandon(error)
        for handle in self._handles.handles(constants.KIND_CONTEXT):
            with suppress(BaseException):
                self._close_context(handle, error)
        for kind in (constants.KIND_ADAPTER, constants.KIND_MODEL):
            for handle in self._handles.handles(kind):
                self._handles.remove(kind, handle)
        mx.clear_cache()

    def rest(self) -> None:
        """Wait until mlx's own threads have nothing left to do."""
        self._streams.synchronize()

    def step(self) -> bool:
        """Do one unit of work; false when there is none."""
        return self._scheduler.step()

    def runtime_info(self) -> dict[str, Any]:
        """Return what ``runtime_info`` tells."""
        from cowmlx.models import architectures, light_route

        return {
            "library": constants.VERSION,
            "abi": constants.ABI_VERSION,
            "python": sys.version.split()[0],
            "mlx": MLX_VERSION,
            "mlx_lm": light_route.version(),
            "interpreter": "booted" if self._python_home else "joined",
            "python_home": self._python_home or None,
            "libpython": self._libpython,
            "mlx_path": mx.__file__,
            "mlx_lm_path": light_route.package_folder(),
            "device": self._device_name(),
            "blas": self._blas,
            "blas_problem": self._blas_problem,
            "architectures": architectures.supported(),
            "memory": {
                "active": mx.get_active_memory(),
                "cache": mx.get_cache_memory(),
                "peak": mx.get_peak_memory(),
                "limit": mx.get_memory_limit(),
            },
            "handles": {noun: len(self._handles.handles(kind)) for kind, noun in NOUNS.items()},
        }

    def _device_name(self) -> str:
        return "gpu" if self._streams.device.type == mx.gpu else "cpu"

    def memory_trim(self) -> None:
        """Give mlx's unused buffers back, and the prompts kept for new contexts."""
        for prefixes in self._prefixes.values():
            prefixes.clear()
        mx.clear_cache()

    # ---------------------------------------------------------------- Models

    @keeps_call
    def model_load(self, call: Call, path: str, params: dict[str, Any]) -> None:
        """Start loading a model folder; the call ends with its handle."""
        from cowmlx.models import registry  # late: a start needs none of it

        loader = registry.load(
            path,
            adapter_path=params["adapter_path"],
            lazy=params["lazy"],
            trust_remote_code=params["trust_remote_code"],
        )
        stream = self._streams.take()

        def on_end(loading: Loading) -> None:
            self._loadings.remove(loading)
            self._streams.give_back(stream)

        def open_model(model: Model) -> int:
            self._prefixes[model] = SharedPrefixes(params["prefix_cache_bytes"])
            return self._handles.add(constants.KIND_MODEL, model)

        loading = Loading(call, loader, stream, on_end, open_model)
        self._loadings.append(loading)
        self._scheduler.add(loading)

    def model_free(self, handle: int) -> None:
        """Close a model's handle; its contexts keep the model."""
        model = self._handles.remove(constants.KIND_MODEL, handle)
        units: list[Embedding | Tokenizing] = [*self._embeddings, *self._tokenizings]
        for unit in units:
            if unit.model is model:
                unit.abandon(Canceled("the model was freed", reason="freed"))

    def _model(self, handle: int) -> Model:
        return self._handles.get(constants.KIND_MODEL, handle)  # type: ignore[return-value]

    def model_info(self, handle: int) -> dict[str, Any]:
        """Return what ``model_info`` tells."""
        model = self._model(handle)
        trims = can_trim_all(model.make_cache())
        cache = {
            "trim_end": "in_place" if trims else "recomputed",
            "trim_front": "recomputed",
            "fork": "in_place",
            "quantise": "in_place" if can_quantize(model) else "no",
            "draft": "in_place" if trims else "no",
        }
        return {**model.info(), "cache": cache}

    @keeps_call
    def model_tokenize(self, call: Call, handle: int, text: str, flags: int) -> None:
        """Turn text into tokens; the call ends with them."""
        _check_flags(
            flags, ADD_SPECIAL=constants.ADD_SPECIAL, PARSE_SPECIAL=constants.PARSE_SPECIAL
        )
        model = self._model(handle)
        steps = model.tokenizer.encode_steps(
            text,
            add_special=bool(flags & constants.ADD_SPECIAL),
            parse_special=bool(flags & constants.PARSE_SPECIAL),
        )
        self._run(call, model, steps)

    @keeps_call
    def model_detokenize(self, call: Call, handle: int, tokens: Sequence[int], flags: int) -> None:
        """Turn tokens into text; the call ends with it."""
        _check_flags(flags, SKIP_SPECIAL=constants.SKIP_SPECIAL)
        model = self._model(handle)
        skip = bool(flags & constants.SKIP_SPECIAL)
        steps = model.tokenizer.decode_steps(tokens, skip_special=skip)
        self._run(call, model, steps)

    def _run(self, call: Call, model: Model, steps: Generator[None, None, Any]) -> None:
        """Do the first step of work with a tokenizer now, and what is left in turns."""
        try:
            next(steps)
        except StopIteration as stop:
            call.succeed(stop.value)
            return
        from cowmlx.tokenizing import Tokenizing  # late: most texts are short

        unit = Tokenizing(call, model, steps, self._tokenizings.remove)
        self._tokenizings.append(unit)
        self._scheduler.add(unit)

    def model_is_end(self, handle: int, token: int) -> bool:
        """Whether a token ends a generation."""
        return token in self._model(handle).end_tokens

    @keeps_call
    def model_chat_prompt(
        self, call: Call, handle: int, messages: str, options: str | None
    ) -> None:
        """Render a conversation (JSON texts); the call ends with its tokens."""
        model = self._model(handle)
        self._run(call, model, _read_conversation(model, messages, options).prompt_steps())

    @keeps_call
    def model_embed(
        self, call: Call, handle: int, texts: list[str], fields: dict[str, Any]
    ) -> None:
        """Start turning texts into vectors; the call ends with them."""
        from cowmlx.embedding import Embedding, EmbeddingParams  # late: few hosts need it

        model = self._model(handle)
        model.read_weights()
        params = EmbeddingParams(fields)
        stream = self._streams.take()
        try:
            with mx.stream(stream):
                hidden = self._hidden_states(model)
        except BaseException:
            self._streams.give_back(stream)
            raise
        if call.answer_size(len(texts) * hidden.dims, hidden.dims):
            self._streams.give_back(stream)
            return

        def on_end(embedding: Embedding) -> None:
            self._embeddings.remove(embedding)
            self._streams.give_back(stream)

        embedding = Embedding(call, model, hidden, texts, params, stream, on_end)
        self._embeddings.append(embedding)
        self._scheduler.add(embedding)

    def _hidden_states(self, model: Model) -> HiddenStates:
        from cowmlx.models.embedding import HiddenStates

        if model not in self._hidden:
            self._hidden[model] = HiddenStates(model)
        return self._hidden[model]

    # -------------------------------------------------------------- Adapters

    def adapter_load(self, model_handle: int, path: str, scale: float) -> int:
        """Load an adapter for a model and return its handle."""
        from cowmlx.models import adapters  # late: few hosts need it

        model = self._model(model_handle)
        stream = self._streams.take()
        try:
            with mx.stream(stream):
                adapted = adapters.adapted(model, path, scale)
        finally:
            self._streams.give_back(stream)
        return self._handles.add(constants.KIND_ADAPTER, Adapter(model, adapted))

    def adapter_free(self, handle: int) -> None:
        """Close an adapter's handle; the contexts that use it keep it."""
        self._handles.remove(constants.KIND_ADAPTER, handle)

    def _adapter(self, handle: int) -> Adapter:
        return self._handles.get(constants.KIND_ADAPTER, handle)  # type: ignore[return-value]

    # -------------------------------------------------------------- Contexts

    def context_create(self, model_handle: int, fields: dict[str, Any]) -> int:
        """Open a context and return its handle."""
        model = self._model(model_handle)
        params = ContextParams(fields, model)
        return self._open_context(model, params, self._prefixes[model])

    def _open_context(self, model: Model, params: ContextParams, prefixes: SharedPrefixes) -> int:
        handle = 0

        def cancel_epoch() -> int:
            return self._cancel_epoch(handle)

        context = Context(model, params, self._lanes, cancel_epoch, prefixes)
        handle = self._handles.add(constants.KIND_CONTEXT, context)
        return handle

    def _context(self, handle: int) -> Context:
        return self._handles.get(constants.KIND_CONTEXT, handle)  # type: ignore[return-value]

    def _idle_context(self, handle: int) -> Context:
        context = self._context(handle)
        context.require_idle()
        return context

    def context_free(self, handle: int) -> None:
        """Close a context; a call that waits on it is cancelled."""
        self._close_context(handle, Canceled("the context was freed", reason="freed"))

    def _close_context(self, handle: int, error: BaseException) -> None:
        context = self._context(handle)
        for checkpoint in self._checkpoints.pop(handle, []):
            self._handles.remove(constants.KIND_CHECKPOINT, checkpoint)
        self._handles.remove(constants.KIND_CONTEXT, handle)
        transfer = self._transfers.get(handle)
        if transfer is not None:
            self._scheduler.remove(transfer)
            transfer.abandon(error)
        self._scheduler.remove(context)
        context.abandon(error)

    def context_reset(self, handle: int) -> None:
        """Forget a context's tokens."""
        self._idle_context(handle).reset()

    def context_fork(self, handle: int) -> int:
        """Open a context that holds what another one holds."""
        context = self._idle_context(handle)
        snapshot = context.snapshot()
        forked = self._open_context(context.base, context.params, context.prefixes)
        try:
            self._context(forked).set_model(context.model)
            self._context(forked).adapter = context.adapter
            self._context(forked).restore(snapshot)
        except BaseException:  # nobody would know of it
            self.context_free(forked)
            raise
        return forked

    def context_checkpoint(self, handle: int) -> int:
        """Keep what a context holds."""
        context = self._idle_context(handle)
        checkpoint = Checkpoint(handle, context.model.serial, context.snapshot())
        kept = self._handles.add(constants.KIND_CHECKPOINT, checkpoint)
        self._checkpoints.setdefault(handle, []).append(kept)
        return kept

    def _checkpoint(self, handle: int) -> Checkpoint:
        return self._handles.get(constants.KIND_CHECKPOINT, handle)  # type: ignore[return-value]

    def context_rewind(self, handle: int, checkpoint_handle: int) -> None:
        """Make a context hold what it held at a checkpoint."""
        context = self._idle_context(handle)
        checkpoint = self._checkpoint(checkpoint_handle)
        if checkpoint.context != handle:
            raise InvalidArgument(
                f"checkpoint {checkpoint_handle} is of context {checkpoint.context}, not of "
                f"{handle}",
                reason="foreign_handle",
                handle=checkpoint_handle,
                kind="checkpoint",
            )
        if checkpoint.weights != context.model.serial:
            raise BadState(
                "the context's adapter has changed since the checkpoint; set the one it had first",
                reason="adapter_changed",
            )
        context.restore(checkpoint.snapshot)

    def checkpoint_free(self, handle: int) -> None:
        """Close a checkpoint's handle."""
        checkpoint = self._checkpoint(handle)
        self._handles.remove(constants.KIND_CHECKPOINT, handle)
        self._checkpoints[checkpoint.context].remove(handle)

    @keeps_call
    def context_save(self, call: Call, handle: int, path: str) -> None:
        """Start writing what a context holds to a file."""
        from cowmlx import saving  # late: few hosts need it

        context = self._idle_context(handle)
        self._transfer(call, handle, context, saving.save(context, path))

    @keeps_call
    def context_load(self, call: Call, handle: int, path: str) -> None:
        """Start making a context hold what a file says."""
        from cowmlx import saving

        context = self._idle_context(handle)
        self._transfer(call, handle, context, saving.load(context, path))

    def _transfer(
        self, call: Call, handle: int, context: Context, steps: Generator[None, None, None]
    ) -> None:
        from cowmlx.saving import Transfer

        transfer = Transfer(call, context, steps, lambda: self._transfers.pop(handle, None))
        self._transfers[handle] = transfer
        self._scheduler.add(transfer)

    def context_set_adapter(self, handle: int, adapter: int) -> None:
        """Let a context use an adapter, or none (0)."""
        context = self._idle_context(handle)
        if not adapter:
            context.set_model(context.base)
            context.adapter = None
            return
        found = self._adapter(adapter)
        if found.base is not context.base:
            raise InvalidArgument(
                f"adapter {adapter} is of another model than context {handle}",
                reason="foreign_handle",
                handle=adapter,
                kind="adapter",
            )
        context.set_model(found.adapted)
        context.adapter = adapter

    def context_logits(self, handle: int) -> mx.array:
        """Return (V,) float32 behind the last token that a context holds."""
        return self._idle_context(handle).logits()

    def context_logprobs(self, handle: int) -> tuple[list[int], list[float]]:
        """Return the most probable tokens where the last piece was chosen."""
        generation = self._context(handle).generation
        piece = generation.last if generation is not None else None
        if piece is None:
            raise BadState(
                "no piece has been delivered; call context_next first", reason="nothing_there"
            )
        if piece.top is None:
            raise BadState("this generation was begun with logprobs 0", reason="nothing_there")
        return [token for token, _ in piece.top], [value for _, value in piece.top]

    def context_tokens(self, handle: int) -> list[int]:
        """Return the tokens that a context holds."""
        return self._context(handle).tokens()

    @keeps_call
    def context_trim_end(self, call: Call, handle: int, count: int) -> None:
        """Drop a context's last tokens."""
        context = self._idle_context(handle)
        held = context.tokens()
        self._trim(call, context, held[: max(0, len(held) - count)])

    @keeps_call
    def context_trim_front(self, call: Call, handle: int, count: int) -> None:
        """Drop a context's first tokens; the others are processed again."""
        context = self._idle_context(handle)
        self._trim(call, context, context.tokens()[count:])

    def _trim(self, call: Call, context: Context, kept: list[int]) -> None:
        """Make a context hold ``kept``, in place if it can."""
        trimmed = len(context.tokens()) - len(kept)
        if context.trim(kept, call.cancel_epoch):
            call.succeed(trimmed)
            return
        context.wait(TrimWaiter(call, trimmed))
        self._scheduler.add(context)

    def context_info(self, handle: int) -> dict[str, Any]:
        """Return what ``context_info`` tells."""
        return self._context(handle).info()

    def note_failure(
        self, handle: int, status: int, message: str, reason: str, details: dict[str, Any]
    ) -> None:
        """Let ``context_info`` tell of a call that failed, if its handle is an open context's."""
        context: Context | None = self._handles.find(constants.KIND_CONTEXT, handle)  # type: ignore[assignment]
        if context is not None:
            context.failure = {
                "status": statuses.NAMES[status],
                "message": message,
                "reason": reason,
                "details": details,
            }

    def context_stats(self, handle: int) -> Stats:
        """Return the sizes and times of a context's last generation."""
        generation = self._context(handle).generation
        if generation is None:
            raise BadState(
                "nothing has begun on this context; call context_begin first",
                reason="nothing_begun",
            )
        return generation.stats

    # ------------------------------------------------------------ Generation

    @keeps_call
    def context_begin(
        self, call: Call, handle: int, tokens: list[int], fields: dict[str, Any]
    ) -> None:
        """Start a generation; the call ends when the prompt is processed."""
        self._start(handle, tokens, fields, call).wait(BeginWaiter(call))

    @keeps_call
    def context_generate(
        self, call: Call, handle: int, tokens: list[int], fields: dict[str, Any]
    ) -> None:
        """Start a generation; the call ends with it."""
        _refuse_logprobs(fields)
        self._start(handle, tokens, fields, call).wait(GenerateWaiter(call))

    @keeps_call
    def context_chat(
        self, call: Call, handle: int, messages: str, fields: dict[str, Any], options: str | None
    ) -> None:
        """Answer a conversation (JSON texts); the call ends with the answer."""
        from cowmlx.generation.chat_answer import ChatAnswer  # late: not every host chats

        context = self._idle_context(handle)
        _refuse_logprobs(fields)
        params = GenerationParams(fields)
        conversation = _read_conversation(context.model, messages, options)

        def begin(prompt: list[int]) -> None:
            if not prompt:
                raise InvalidArgument(
                    "the chat template makes nothing of messages_json",
                    reason="missing",
                    argument="messages_json",
                )
            answer = ChatAnswer(context.model, conversation, params)
            self._begin(context, prompt, params, call, answer.constraint)
            context.wait(ChatWaiter(call, answer.splitter))

        steps = conversation.prompt_steps()
        try:
            next(steps)
        except StopIteration as stop:
            begin(stop.value)
            return
        from cowmlx.tokenizing import PromptTokenizing  # late: most prompts are short

        unit = PromptTokenizing(
            call, context, steps, lambda: self._transfers.pop(handle, None), begin
        )
        self._transfers[handle] = unit
        self._scheduler.add(unit)

    def _start(self, handle: int, tokens: list[int], fields: dict[str, Any], call: Call) -> Context:
        context = self._idle_context(handle)
        self._begin(context, tokens, GenerationParams(fields), call)
        return context

    def _begin(
        self,
        context: Context,
        tokens: list[int],
        params: GenerationParams,
        call: Call,
        constraint: Constrains | None = None,
    ) -> None:
        if not tokens:
            raise InvalidArgument(
                "count is 0, but a prompt has at least one token",
                reason="missing",
                argument="count",
            )
        draft = self._model(params.draft) if params.draft else None
        context.begin(tokens, params, call.cancel_epoch, draft, constraint)
        context.failure = None
        self._scheduler.add(context)

    @keeps_call
    def context_poll(self, call: Call, handle: int, timeout_ms: int) -> None:
        """Wait until a piece is there, or none will come."""
        context = self._idle_context(handle)
        if context.generation is None:
            raise BadState("nothing to wait for; call context_begin first", reason="nothing_begun")
        context.wanted = True
        context.wait(PollWaiter(call, timeout_ms))
        self._scheduler.add(context)

    def context_wake_fd(self, handle: int) -> int:
        """Return a descriptor that is readable while a piece is there, or none will come."""
        context = self._context(handle)
        self._scheduler.add(context)
        return context.wake_fd()

    @keeps_call
    def context_next(self, call: Call, handle: int) -> None:
        """Wait for one piece of a generation."""
        context = self._idle_context(handle)
        if context.generation is None:
            raise BadState("nothing to generate; call context_begin first", reason="nothing_begun")
        context.wait(NextWaiter(call))
        self._scheduler.add(context)


class Adapter:
    """An adapter of a model.

    Attributes:
        base: the model it was loaded for.
        adapted: the same with the adapter.
    """

    __slots__ = ("adapted", "base")

    def __init__(self, base: Model, adapted: Model) -> None:
        self.base = base
        self.adapted = adapted


class Checkpoint:
    """What a context held, and with which weights.

    Attributes:
        context: the context's handle.
        weights: the serial number of its model, adapter included.
    """

    __slots__ = ("context", "snapshot", "weights")

    def __init__(self, context: int, weights: int, snapshot: Snapshot) -> None:
        self.context = context
        self.weights = weights
        self.snapshot = snapshot


def _stopped() -> Canceled:
    return Canceled("the runtime was stopped", reason="runtime_stopped")


def _check_flags(flags: int, **known: int) -> None:
    rest = flags & ~sum(known.values())
    if rest:
        names = ", ".join(f"COW_MLX_{name} ({value})" for name, value in known.items())
        raise InvalidArgument(
            f"flags has the unknown bits {rest:#x}; it can have {names}",
            reason="unknown_option",
            argument="flags",
            value=f"{rest:#x}",
        )


def _refuse_logprobs(fields: dict[str, Any]) -> None:
    if fields["logprobs"]:
        raise InvalidArgument(
            f"logprobs is {fields['logprobs']}, but they come with context_next only; leave it at "
            "0",
            reason="conflict",
            argument="logprobs",
        )


def _read_conversation(model: Model, messages: str, options: str | None) -> Conversation:
    """Read a conversation (JSON texts), and render it."""
    from cowmlx.models.conversation import Conversation  # late: not every host chats

    if model.chat_template is None:
        raise Unsupported(
            "this model has no chat template; write the prompt yourself and use model_tokenize"
        )
    parsed_messages = _parse_json("messages_json", messages, list)
    parsed_options = _parse_json("options_json", options, dict) if options else {}
    return Conversation(model, parsed_messages, parsed_options)


def _parse_json(name: str, text: str, kind: type) -> Any:
    from cowmlx import json_text
    from cowmlx.models.chat_messages import json_type

    try:
        value = json_text.parse(text)
    except json_text.Malformed as error:
        raise InvalidArgument(
            f"{name} is no JSON: {error}", reason="invalid_json", argument=name, **error.place
        ) from None
    if not isinstance(value, kind):
        wanted = "an array" if kind is list else "an object"
        raise InvalidArgument(
            f"{name} must be {wanted}, but is {json_type(value)}",
            reason="wrong_type",
            argument=name,
            accepted=wanted,
        )
    return value
