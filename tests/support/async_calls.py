"""The calls that return at once, and a dispatch thread that is kept from its work meanwhile."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import addressof, byref, c_int32, c_void_p, sizeof, string_at
from pathlib import Path
from typing import Any

from support import signatures
from support.callbacks import Callbacks
from support.library import Event, Library
from support.on_dispatch import runner
from support.outputs import poisoned, poisoned_struct
from support.signatures import EBUFFER, NUL

FOREVER = 2**32 - 1


def begin(
    lib: Library, context: int, tokens: Sequence[int], callbacks: Any = None, **params: Any
) -> None:
    """Begin without waiting. What the call was given is overwritten when it has returned."""
    callbacks = callbacks or Callbacks()
    array = (c_int32 * len(tokens))(*tokens)
    effective = lib.params("generation", callbacks, **params)
    status = lib.c.cow_mlx_context_begin_async(context, array, len(tokens), effective)
    array[:] = [-1] * len(tokens)
    lib.check(status)


def chat(lib: Library, context: int, messages: Any, *, options: Any = None, **params: Any) -> None:
    """Begin a chat without waiting."""
    data = (messages if isinstance(messages, str) else json.dumps(messages)).encode()
    chosen = None if options is None else json.dumps(options).encode()
    effective = lib.params("generation", Callbacks(), **params)
    lib.check(lib.c.cow_mlx_context_chat_async(context, data, NUL, effective, chosen))


def load(lib: Library, path: Path | str, callbacks: Any = None, **params: Any) -> int:
    """The handle of a model to come."""
    out = poisoned(c_int32)
    effective = lib.params("model", callbacks or Callbacks(), **params)
    lib.check(lib.c.cow_mlx_model_load_async(os.fsencode(path), effective, byref(out)), out)
    return out.value


def poll(lib: Library, context: int, milliseconds: int = FOREVER) -> int:
    """The status of a poll of a context."""
    return lib.c.cow_mlx_context_poll(context, milliseconds)


def model_fd(lib: Library, model: int) -> int:
    """The descriptor of a model."""
    out = poisoned(c_int32)
    lib.check(lib.c.cow_mlx_model_wake_fd(model, byref(out)), out)
    return out.value


def next_event(lib: Library, context: int) -> tuple[int, Event]:
    """The status, and the event."""
    told = poisoned_struct(signatures.cow_mlx_event)
    told.struct_size = sizeof(told)
    status = lib.c.cow_mlx_context_next_event(context, byref(told))
    assert status != EBUFFER
    lib.check(status, told)
    place = addressof(told) + signatures.cow_mlx_event.text.offset
    text = string_at(c_void_p.from_address(place).value, told.length + 1)
    assert text.endswith(b"\0"), "the text is not NUL-terminated"
    return status, Event(told.kind, text[:-1].decode(), told.name.decode(), told.finish)


def events(lib: Library, context: int) -> list[Event]:
    """All events of a chat, its end included."""
    given: list[Event] = []
    status = signatures.OK
    while status == signatures.OK:
        status, event = next_event(lib, context)
        given.append(event)
    return given


@contextmanager
def held(lib: Library) -> Iterator[None]:
    """The dispatch thread does nothing meanwhile."""
    holds, let_go = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        holds.set()
        let_go.wait()

    with runner(lib) as run:
        thread = threading.Thread(target=run, args=(hold,))
        thread.start()
        holds.wait()
        try:
            yield
        finally:
            let_go.set()
            thread.join()
