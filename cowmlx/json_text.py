"""Reading JSON that comes from outside: every such text is read here.

Nesting is bounded before anything recurses: a host's own recursion limit may lie beyond what the
stack holds.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from itertools import accumulate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MAX_DEPTH = 256  # arrays and objects in each other

# A string, closed or not. Possessive, so that no text takes more than one pass.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# An opening bracket is a step of 1, a closing one of -1.
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


class Malformed(ValueError):
    """A text is no JSON that is read here; says why, and where.

    Attributes:
        place: the line and column, or the byte; empty if there is none.
    """

    def __init__(self, message: str, **place: int) -> None:
        super().__init__(message)
        self.place: dict[str, Any] = place


def parse(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text.

    Args:
        text: the text.
        pairs: makes the value of an object; a dict if not given.

    Raises:
        Malformed: it is none, is nested too deeply, or holds a number of thousands of digits.
    """
    with _told():
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        _check_depth(text)
        return json.loads(text, object_pairs_hook=pairs)


def parse_front(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value that begins at ``start``, and where it ends.

    Raises:
        Malformed: as :func:`parse`.
    """
    with _told():
        _check_depth(text[start:])
        return json.JSONDecoder().raw_decode(text, start)


@contextmanager
def _told() -> Iterator[None]:
    """Turn whatever reading raises into :class:`Malformed`."""
    try:
        yield
    except Malformed:
        raise
    except json.JSONDecodeError as exc:
        message = f"{exc.msg} at line {exc.lineno}, column {exc.colno}"
        raise Malformed(message, line=exc.lineno, column=exc.colno) from exc
    except UnicodeDecodeError as exc:
        raise Malformed(f"{exc.reason} at byte {exc.start}", byte=exc.start) from exc
    except RecursionError as exc:
        raise Malformed("it is nested too deeply") from exc
    except ValueError as exc:
        raise Malformed(f"it holds a number that cannot be read ({exc})") from exc


def _check_depth(text: str) -> None:
    """Require that arrays and objects are in each other at most :data:`MAX_DEPTH` deep.

    Raises:
        Malformed: they go deeper.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    plain = _STRING.sub("", text).encode("utf-8", "replace")
    steps = memoryview(plain.translate(_STEPS, _OTHERS)).cast("b")
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise Malformed(f"it is nested more than {MAX_DEPTH} levels deep")
