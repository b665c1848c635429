"""The C ABI for tests: thin calls that raise on failure and check their outputs.

Every call that fails is checked to have left its outputs alone, and every
result of variable size to have stayed inside its buffer. ``Library.c`` is the
library itself, for tests of a call's bare behaviour.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from ctypes import CDLL, byref, c_bool, c_char, c_char_p, c_int32, c_size_t
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import signatures
from support.callbacks import Callbacks, StatusError
from support.outputs import Buffer, poisoned, poisoned_struct, untouched
from support.paths import LIBRARY


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
        for output in outputs:
            if isinstance(output, Buffer):
                output.check_untouched(size_allowed=status == signatures.EBUFFER)
            else:
                assert untouched(output), f"an output was written by a call that failed: {message}"
        raise StatusError(status, self.name(status), message)

    def params(self, noun: str, callbacks: Callbacks | None = None, **values: Any) -> Any:
        """A filled ``cow_mlx_<noun>_params``; NULL if nothing differs from the defaults."""
        if not values:
            return None
        params = signatures.STRUCTS[f"cow_mlx_{noun}_params"]()
        getattr(self.c, f"cow_mlx_{noun}_params_init")(byref(params))
        kinds = dict(params._fields_)
        for name, value in values.items():
            kind = kinds[name]
            if isinstance(value, str | os.PathLike):
                value = os.fsencode(value)
            elif name == "stop":
                params.stop_count = len(value)
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
        """Load a model folder; ``progress(fraction, stage)``."""
        callbacks = Callbacks()
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

    # Contexts.

    def context(self, model: int, **params: Any) -> int:
        """Open a context."""
        out = poisoned(c_int32)
        status = self.c.cow_mlx_context_create(model, self.params("context", **params), byref(out))
        self.check(status, out)
        return out.value

    def free(self, context: int) -> None:
        """Free a context."""
        self.check(self.c.cow_mlx_context_free(context))

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
        """End what the context is doing."""
        self.check(self.c.cow_mlx_context_cancel(context))

    def stats(self, context: int) -> signatures.cow_mlx_stats:
        """Sizes and times of the last generation."""
        out = poisoned_struct(signatures.cow_mlx_stats)
        self.check(self.c.cow_mlx_context_stats(context, byref(out)), out)
        return out

    def begin(self, context: int, tokens: Sequence[int], **params: Any) -> None:
        """Process a prompt; ``prompt_progress(processed, total)``."""
        callbacks = Callbacks()
        array = (c_int32 * len(tokens))(*tokens)
        effective = self.params("generation", callbacks, **params)
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
