"""An engine without a host, whose steps a test takes one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from cowmlx.engine import Engine, Runtime
from cowmlx.generated import constants
from cowmlx.generated.defaults import MODEL, RUNTIME

_handles = count(1)


class Unspeakable(Exception):
    """An error whose own text fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Call:
    """A host's call, which keeps its result."""

    ready = True
    refused = False
    cancel_epoch = 0
    round = 0
    reserved = 0
    logits_function = None

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.result: Any = None

    def post_progress(self, fraction: float, stage: str) -> None:
        pass

    def post_prompt(self, processed: int, total: int) -> None:
        pass

    def ask_logits(self, question: Any) -> None:
        raise AssertionError("the host has no function for logits")

    def post_text(self, text: bytes) -> None:
        pass

    def warn(self, message: str) -> None:
        """Log nothing."""

    def note(self, message: str) -> None:
        pass

    def succeed(self, value: Any = None) -> bool:
        self.result = value
        return True

    def answer_size(self, size: int, count: int) -> bool:
        return False

    def fail(self, error: BaseException) -> None:
        self.error = error


class ClosedTable:
    """A table of arrays that has none."""

    def memory_in_use(self) -> int:
        return 0

    def count(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@contextmanager
def started(**params: Any) -> Iterator[Engine]:
    """An engine that runs, with some of the runtime's params."""
    engine = Engine(
        Runtime(
            lambda handle: 0,
            lambda kind: next(_handles),
            lambda handle: None,
            "reference",
            None,
            None,
            ClosedTable(),
        )
    )
    engine.start({**RUNTIME, **params}, "")
    yield engine
    engine.stop()


def finish(engine: Engine) -> None:
    """Take every step there is."""
    while engine.step():
        pass


def loaded(engine: Engine, folder: Path, **params: Any) -> int:
    """The handle of a model. Exact unless told otherwise."""
    call = Call()
    given = {**MODEL, "activations": constants.ACTIVATIONS_EXACT, **params}
    engine.model_load(call, str(folder), given)
    finish(engine)
    assert call.error is None, call.error
    return call.result
