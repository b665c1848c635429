"""The C ABI for tests: thin calls that raise on failure and check their outputs.

Every call that fails is checked to have left its outputs alone, and every
result of variable size to have stayed inside its buffer. ``Library.c`` is the
library itself, for tests of a call's bare behaviour.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from ctypes import (
    CDLL,
    addressof,
    byref,
    c_bool,
    c_char,
    c_char_p,
    c_float,
    c_int32,
    c_size_t,
    c_void_p,
    sizeof,
    string_at,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import details, signatures
from support.callbacks import Callbacks, StatusError
from support.outputs import Buffer, poisoned, poisoned_struct, untouched
from support.paths import LIBRARY

# A signal handler may call them, so they leave the thread's message alone.
SILENT = ("cow_mlx_context_cancel", "cow_mlx_program_cancel", "cow_mlx_training_cancel")
# It describes the last call, and leaves that unchanged.
TELLING = "cow_mlx_error_details"


@dataclass(frozen=True)
class Piece:
    """What one ``next`` gave; ``needed`` is set where the buffer was too small."""

    status: int
    text: str = ""
    token: int | None = None
    finish: int | None = None
    logprob: float | None = None
    needed: int | None = None


@dataclass(frozen=True)
class Generation:
    """What one ``generate`` gave."""

    text: str
    pieces: list[str]
    stats: signatures.cow_mlx_stats


@dataclass(frozen=True)
class Event:
    """What a chat's callback was given."""

    kind: int
    text: str
    name: str = ""
    finish: int = 0


@dataclass(frozen=True)
class Chat:
    """What one ``chat`` gave."""

    events: list[Event]
    stats: signatures.cow_mlx_stats

    def said(self, kind: int = signatures.EVENT_TEXT) -> str:
        """All text of a kind."""
        return "".join(event.text for event in self.events if event.kind == kind)

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """The tool calls: names and arguments."""
        calls = [event for event in self.events if event.kind == signatures.EVENT_TOOL_CALL]
        return [(call.name, json.loads(call.text)) for call in calls]


def bind(path: str | Path, loader: type[CDLL] = CDLL) -> CDLL:
    """Open the library and give every function its signature."""
    library = loader(str(path))
    for name, (result, params) in signatures.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = [type_ for _, type_ in params]
    return library


class Library:
    """The library's calls. Handles are plain integers.

    Args:
        path: of the library.
        loader: CDLL lets go of the interpreter while a call runs, PyDLL does not.
    """

    def __init__(self, path: str | Path = LIBRARY, loader: type[CDLL] = CDLL):
        self.path = Path(path)
        self.c = bind(path, loader)
        self.log = Callbacks()  # the log outlives the call that sets it
        self.begun: dict[int, Callbacks] = {}

    # Errors.

    def message(self) -> str:
        """The message of this thread's last failed call."""
        return self.c.cow_mlx_error_message().decode()

    def name(self, status: int) -> str:
        """The name of a status."""
        return self.c.cow_mlx_status_name(status).decode()

    def check(self, status: int, *outputs: Any) -> int:
        """Raise on an error, after a look at the outputs it must not have written."""
        if status >= 0:
            return status
        message = self.message()
        failure = details.agreed(details.read(self.c), message)
        for output in outputs:
            if isinstance(output, Buffer):
                output.check_untouched(size_allowed=status == signatures.EBUFFER)
            else:
                assert untouched(output), f"an output was written by a call that failed: {message}"
        raise StatusError(status, self.name(status), message, failure)

    def params(self, noun: str, callbacks: Callbacks | None = None, **values: Any) -> Any:
        """A filled ``cow_mlx_<noun>_params``; NULL if nothing differs from the defaults.

        Lists stand for a pointer and a count: ``stop=[text]``, ``bias={token: value}``.
        """
        if not values:
            return None
        params = signatures.STRUCTS[f"cow_mlx_{noun}_params"]()
        getattr(self.c, f"cow_mlx_{noun}_params_init")(byref(params), sizeof(params))
        kinds = dict(params._fields_)
        for name, value in values.items():
            if name == "bias":
                params.bias_tokens = (c_int32 * len(value))(*value)
                params.bias_values = (c_float * len(value))(*value.values())
                params.bias_count = len(value)
                continue
            kind = kinds[name]
            if isinstance(value, str | os.PathLike):
                value = os.fsencode(value)
            elif name in ("stop", "workers", "dry_sequence_breakers", "grammar_triggers"):
                count = name if name == "stop" else name.removesuffix("s")
                setattr(params, f"{count}_count", len(value))
                value = (c_char_p * len(value))(*(text.encode() for text in value))
            elif callbacks and (value is None or callable(value)):
                value = callbacks.wrap(kind, value)
            setattr(params, name, value)
        return params

    # The runtime.

    def start(self, **params: Any) -> None:
        """Start the runtime; ``log(level, message)``."""
        self.check(self.c.cow_mlx_runtime_start(self.params("runtime", self.log, **params)))

    def stop(self) -> None:
        """Undo one start."""
        self.check(self.c.cow_mlx_runtime_stop())

    def trim_memory(self) -> None:
        """Give unused memory back."""
        self.check(self.c.cow_mlx_memory_trim())

    def info(self, handle: int | None = None) -> dict[str, Any]:
        """The JSON about a model or a context; about the runtime without one."""
        if handle is None:
            return json.loads(self._fill(c_char, self.c.cow_mlx_runtime_info))
        kind = "model" if handle >> 28 == 1 else "context"
        return json.loads(self._fill(c_char, getattr(self.c, f"cow_mlx_{kind}_info"), handle))

    # Models.

    def load(
        self,
        path: str | os.PathLike[str],
        progress: Callable[..., bool | None] | None = None,
        **params: Any,
    ) -> int:
        """Load a model folder; ``progress(fraction, stage)``. Exact unless told otherwise."""
        callbacks = Callbacks()
        params.setdefault("activations", signatures.ACTIVATIONS_EXACT)
        if progress:
            params["progress"] = lambda fraction, stage: progress(fraction, stage.decode())
        effective = self.params("model", callbacks, **params)
        out = poisoned(c_int32)
        status = self.c.cow_mlx_model_load(os.fsencode(path), effective, byref(out))
        callbacks.reraise()
        self.check(status, out)
        return out.value

    def free_model(self, model: int) -> None:
        """Free a model's handle."""
        self.check(self.c.cow_mlx_model_free(model))

    def tokenize(self, model: int, text: str | bytes, flags: int = 0) -> list[int]:
        """The tokens of a text."""
        data = text.encode() if isinstance(text, str) else text
        return self._fill(c_int32, self.c.cow_mlx_model_tokenize, model, data, len(data), flags)

    def detokenize(self, model: int, tokens: Sequence[int], flags: int = 0) -> str:
        """The text of tokens."""
        array = (c_int32 * len(tokens))(*tokens)
        function = self.c.cow_mlx_model_detokenize
        return self._fill(c_char, function, model, array, len(tokens), flags).decode()

    def is_end(self, model: int, token: int) -> bool:
        """Whether a token ends a generation."""
        out = poisoned(c_bool)
        self.check(self.c.cow_mlx_model_is_end(model, token, byref(out)), out)
        return out.value

    def chat_prompt(self, model: int, messages: Any, **options: Any) -> list[int]:
        """The tokens of a conversation; ``messages`` is a list, or JSON text."""
        data = (messages if isinstance(messages, str) else json.dumps(messages)).encode()
        chosen = json.dumps(options).encode() if options else None
        function = self.c.cow_mlx_model_chat_prompt
        return self._fill(c_int32, function, model, data, len(data), chosen)

    def embed(
        self, model: int, texts: Sequence[str | bytes], capacity: int | None = None, **params: Any
    ) -> list[list[float]]:
        """The vectors of texts; ``capacity`` (floats) is what is needed, unless it is given."""
        data = [text.encode() if isinstance(text, str) else text for text in texts]
        array = (signatures.cow_mlx_text * len(data))(*((text, len(text)) for text in data))
        call = [model, array, len(data), self.params("embed", **params)]
        if capacity is None:
            query = Buffer(c_float, 0)
            self.check(self.c.cow_mlx_model_embed(*call, *query.arguments()), query)
            capacity = query.length.value * len(data)
        out = Buffer(c_float, capacity)
        self.check(self.c.cow_mlx_model_embed(*call, *out.arguments()), out)
        dims = out.length.value
        out.check(dims * len(data))
        return [list(out.data[row * dims : (row + 1) * dims]) for row in range(len(data))]

    def rank(
        self, model: int, query: str, documents: Sequence[str], **params: Any
    ) -> list[list[float]]:
        """The scores of documents."""
        data = [text.encode() for text in documents]
        array = (signatures.cow_mlx_text * len(data))(*((text, len(text)) for text in data))
        call = [model, query.encode(), array, len(data), self.params("rank", **params)]
        asked = Buffer(c_float, 0)
        self.check(self.c.cow_mlx_model_rank(*call, *asked.arguments()), asked)
        labels = asked.length.value
        out = Buffer(c_float, labels * len(data))
        self.check(self.c.cow_mlx_model_rank(*call, *out.arguments()), out)
        out.check(labels * len(data))
        return [list(out.data[row * labels : (row + 1) * labels]) for row in range(len(data))]

    def classify(self, model: int, text: str) -> Any:
        """The labels of a text, or its entities. An empty one is NULL, as bindings pass it."""
        data = text.encode() or None
        call = self.c.cow_mlx_model_classify, model, data, len(data or b"")
        return json.loads(bytes(self._fill(c_char, *call)))

    # Adapters.

    def load_adapter(self, model: int, path: str | os.PathLike[str], scale: float = 1.0) -> int:
        """Load an adapter for a model."""
        out = poisoned(c_int32)
        status = self.c.cow_mlx_adapter_load(model, os.fsencode(path), scale, byref(out))
        self.check(status, out)
        return out.value

    def free_adapter(self, adapter: int) -> None:
        """Free an adapter's handle."""
        self.check(self.c.cow_mlx_adapter_free(adapter))

    def set_adapter(self, context: int, adapter: int) -> None:
        """Let a context use an adapter; 0: none."""
        self.check(self.c.cow_mlx_context_set_adapter(context, adapter))

    # Contexts.

    def context(self, model: int, **params: Any) -> int:
        """Open a context; one that shares no prompts, unless ``share_prefix`` is given."""
        effective = self.params("context", **{"share_prefix": False, **params})
        out = poisoned(c_int32)
        status = self.c.cow_mlx_context_create(model, effective, byref(out))
        self.check(status, out)
        return out.value

    def free(self, context: int) -> None:
        """Free a context."""
        self.check(self.c.cow_mlx_context_free(context))
        self.begun.pop(context, None)

    def fork(self, context: int) -> int:
        """Open a context that holds what another one holds."""
        out = poisoned(c_int32)
        self.check(self.c.cow_mlx_context_fork(context, byref(out)), out)
        return out.value

    def checkpoint(self, context: int) -> int:
        """Keep what a context holds."""
        out = poisoned(c_int32)
        self.check(self.c.cow_mlx_context_checkpoint(context, byref(out)), out)
        return out.value

    def rewind(self, context: int, checkpoint: int) -> None:
        """Restore the tokens of a checkpoint."""
        self.check(self.c.cow_mlx_context_rewind(context, checkpoint))

    def free_checkpoint(self, checkpoint: int) -> None:
        """Free a checkpoint."""
        self.check(self.c.cow_mlx_checkpoint_free(checkpoint))

    def reset(self, context: int) -> None:
        """Forget every token."""
        self.check(self.c.cow_mlx_context_reset(context))

    def tokens(self, context: int) -> list[int]:
        """The tokens in the cache."""
        return self._fill(c_int32, self.c.cow_mlx_context_tokens, context)

    def trim_end(self, context: int, count: int) -> int:
        """Drop the last tokens; how many were dropped."""
        return self._trim(self.c.cow_mlx_context_trim_end, context, count)

    def trim_front(self, context: int, count: int) -> int:
        """Drop the first tokens; how many were dropped."""
        return self._trim(self.c.cow_mlx_context_trim_front, context, count)

    def _trim(self, function: Any, context: int, count: int) -> int:
        trimmed = poisoned(c_size_t)
        self.check(function(context, count, byref(trimmed)), trimmed)
        return trimmed.value

    def cancel(self, context: int) -> None:
        """End what the context is doing. A failure sets neither message nor details."""
        status = self.c.cow_mlx_context_cancel(context)
        if status < 0:
            unset = {"reason": "", "details": {}}
            raise StatusError(status, self.name(status), self.message(), unset)

    def stats(self, context: int) -> signatures.cow_mlx_stats:
        """Sizes and times of the last generation."""
        out = poisoned_struct(signatures.cow_mlx_stats)
        self.check(self.c.cow_mlx_context_stats(context, byref(out)), out)
        return out

    def logits(self, context: int) -> list[float]:
        """The model's logits behind the last token in the cache."""
        return self._fill(c_float, self.c.cow_mlx_context_logits, context)

    def logprobs(self, context: int) -> list[tuple[int, float]]:
        """The most probable tokens where the last piece was chosen, with log probabilities."""
        count = poisoned(c_size_t)
        function = self.c.cow_mlx_context_logprobs
        self.check(function(context, None, None, 0, byref(count)), count)
        tokens, values = Buffer(c_int32, count.value), Buffer(c_float, count.value)
        status = function(
            context, tokens.arguments()[0], values.arguments()[0], count.value, byref(count)
        )
        self.check(status, tokens, values)
        tokens.check(count.value)
        values.check(count.value)
        return list(zip(tokens.data[: count.value], values.data[: count.value], strict=True))

    def begin(self, context: int, tokens: Sequence[int], **params: Any) -> None:
        """Process a prompt; ``prompt_progress(processed, total)``."""
        callbacks = Callbacks()
        array = (c_int32 * len(tokens))(*tokens)
        effective = self.params("generation", callbacks, **params)
        if "logits_fn" in params:
            self.begun[context] = callbacks  # a function of the generation outlives the call
        status = self.c.cow_mlx_context_begin(context, array, len(tokens), effective)
        callbacks.reraise()
        self.check(status)

    def next(self, context: int, capacity: int = 256) -> Piece:
        """Generate one token: OK, DONE or EBUFFER; anything else is raised."""
        out = Buffer(c_char, capacity)
        piece = poisoned_struct(signatures.cow_mlx_piece)
        status = self.c.cow_mlx_context_next(context, *out.arguments(), byref(piece))
        if status == signatures.EBUFFER:
            out.check_untouched(size_allowed=True)
            assert untouched(piece)
            return Piece(status, needed=out.length.value)
        self.check(status, out, piece)
        done = status == signatures.DONE
        assert not (done and out.length.value), "DONE comes without text"
        out.check(out.length.value, terminated=not done)
        return Piece(status, out.value().decode(), piece.token, piece.finish, piece.logprob)

    def drain(self, context: int) -> list[Piece]:
        """Every piece until the end, the last one, DONE, included."""
        pieces = [self.next(context)]
        while pieces[-1].status != signatures.DONE:
            pieces.append(self.next(context, capacity=pieces[-1].needed or 256))
        return [piece for piece in pieces if piece.status != signatures.EBUFFER]

    def generate(
        self,
        context: int,
        tokens: Sequence[int],
        on_text: Callable[[str], bool | None] | None = None,
        **params: Any,
    ) -> Generation:
        """Begin and next to the end in one call."""
        callbacks = Callbacks()
        pieces: list[str] = []

        def collect(data: Any, length: int) -> bool | None:
            pieces.append(bytes(data[:length]).decode())
            return on_text(pieces[-1]) if on_text else None

        array = (c_int32 * len(tokens))(*tokens)
        effective = self.params("generation", callbacks, **params)
        stats = poisoned_struct(signatures.cow_mlx_stats)
        status = self.c.cow_mlx_context_generate(
            context,
            array,
            len(tokens),
            effective,
            callbacks.wrap(signatures.cow_mlx_text_fn, collect),
            None,
            byref(stats),
        )
        callbacks.reraise()
        self.check(status, stats)
        return Generation("".join(pieces), pieces, stats)

    def save(self, context: int, path: str | os.PathLike[str]) -> None:
        """Write what a context holds to a file."""
        self.check(self.c.cow_mlx_context_save(context, os.fsencode(path)))

    def restore(self, context: int, path: str | os.PathLike[str]) -> None:
        """Hold what was saved."""
        self.check(self.c.cow_mlx_context_load(context, os.fsencode(path)))

    def chat(
        self,
        context: int,
        messages: Any,
        on_event: Callable[[Event], bool | None] | None = None,
        *,
        options: Any = None,
        **params: Any,
    ) -> Chat:
        """Answer a conversation; ``messages`` and ``options`` are values, or JSON text."""
        callbacks = Callbacks()
        events: list[Event] = []

        def collect(told: Any) -> bool | None:
            event = told.contents
            assert event.struct_size == sizeof(signatures.cow_mlx_event)
            place = addressof(event) + signatures.cow_mlx_event.text.offset
            data = string_at(c_void_p.from_address(place).value, event.length + 1)
            assert data.endswith(b"\0"), "the text is not NUL-terminated"
            events.append(Event(event.kind, data[:-1].decode(), event.name.decode(), event.finish))
            return on_event(events[-1]) if on_event else None

        data = (messages if isinstance(messages, str) else json.dumps(messages)).encode()
        chosen = options if options is None or isinstance(options, str) else json.dumps(options)
        effective = self.params("generation", callbacks, **params)
        stats = poisoned_struct(signatures.cow_mlx_stats)
        status = self.c.cow_mlx_context_chat(
            context,
            data,
            len(data),
            effective,
            None if chosen is None else chosen.encode(),
            callbacks.wrap(signatures.cow_mlx_event_fn, collect),
            None,
            byref(stats),
        )
        callbacks.reraise()
        self.check(status, stats)
        return Chat(events, stats)

    def _fill(self, element: Any, function: Any, *arguments: Any) -> Any:
        """A result of variable size: bytes for c_char, else a list."""
        capacity = 64
        while True:
            out = Buffer(element, capacity)
            status = function(*arguments, *out.arguments())
            if status != signatures.EBUFFER:
                break
            out.check_untouched(size_allowed=True)
            assert out.length.value > capacity, "EBUFFER, but the size needed would fit"
            capacity = out.length.value
        self.check(status, out)
        out.check(out.length.value)
        return out.value()
