"""Reading JSON that comes from outside: every such text is read here.

Nesting is bounded before anything recurses: a host's own recursion limit may lie beyond what the
stack holds.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import contextmanager
from itertools import accumulate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Generator, Iterator
    from typing import Any, Protocol

    class Vocabulary(Protocol):
        """A vocabulary that was read in C: see ``cowmlx/bridge/vocabulary.pxi``."""

        end: int

        def strings(self) -> list[str]:
            """Return the texts of the tokens."""

        def ids(self) -> array[int]:
            """Return the ids of the tokens."""

        def merges(self, data: bytes, at: int) -> tuple[int, array[int], array[int]] | None:
            """Read merges: where they end, and the places of what is merged."""


MAX_DEPTH = 256  # arrays and objects in each other
SLICE = 1 << 16  # characters that are read at once where a text is read in steps
ENTRY = 1 << 6  # characters for which the way to each part of them counts

SEVERAL = 256  # values that are written at once where a text is made in steps

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\[\]{}]*')  # numbers, words, and what is between them

# A string, closed or not. Possessive, so that no text takes more than one pass.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# Reads a vocabulary in C (cowmlx/bridge/vocabulary.pxi); set by the bridge.
_read_vocabulary: Callable[[bytes, int], Vocabulary | None] = lambda data, at: None  # noqa: E731
# An opening bracket is a step of 1, a closing one of -1.
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_UNSIGNED = bytes(set(range(256)) - set(b'[]{}"\\'))


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
    with _as_malformed():
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        _check_depth(text)
        return json.loads(text, object_pairs_hook=pairs)


def parse_steps(
    text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Generator[None, None, Any]:
    """Return the value of a JSON text as :func:`parse` does, in steps: yields after each slice."""
    if len(text) <= SLICE:
        return parse(text, pairs)
    with _as_malformed():
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        reader = _Reader(text, pairs)
        value, end = yield from reader.value(reader.skip(0), 0)
        if reader.skip(end) < len(text):
            raise json.JSONDecodeError("Extra data", text, reader.skip(end))
        return value


def dump(value: Any) -> str:
    """Return a value as a JSON text; numbers that JSON does not have become null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False)


def _finite(value: Any) -> Any:
    """Return a value with None in the place of infinity and NaN."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dump_steps(value: Any, depth: int = 3) -> Generator[None, None, str]:
    """Return a value as a JSON text, in steps.

    Args:
        value: the value.
        depth: how deep lists and objects are written part by part.
    """
    if depth and isinstance(value, dict):
        members = []
        for name, one in value.items():
            written = yield from dump_steps(one, depth - 1)
            members.append(f"{json.dumps(name, ensure_ascii=False)}: {written}")
        return f"{{{', '.join(members)}}}"
    if depth and isinstance(value, list):
        parts = []
        for at, one in enumerate(value):
            parts.append((yield from dump_steps(one, depth - 1)))
            if at % SEVERAL == SEVERAL - 1:
                yield
        return f"[{', '.join(parts)}]"
    return json.dumps(value, ensure_ascii=False)


def ask(read_vocabulary: Callable[[bytes, int], Vocabulary | None]) -> None:
    """Set the function of C that reads a vocabulary."""
    global _read_vocabulary
    _read_vocabulary = read_vocabulary


def read_vocabulary(data: bytes, at: int) -> Vocabulary | None:
    """Return the vocabulary of a tokenizer, an object that begins at a byte.

    None if nothing reads it in C, or it is not written as tokenizers write it.
    """
    return _read_vocabulary(data, at)


class _Reader:
    """Reads a long text: values that fit a slice at once, others part by part.

    Args:
        text: the text.
        pairs: makes the value of an object.
    """

    def __init__(
        self, text: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
    ) -> None:
        self._text = text
        self._pairs: Callable[[list[tuple[str, Any]]], Any] = pairs or dict
        self._decode = json.JSONDecoder(object_pairs_hook=pairs).raw_decode
        self._read = 0

    def skip(self, at: int) -> int:
        """Return where white space ends."""
        spaces = _SPACE.match(self._text, at)
        return at if spaces is None else spaces.end()

    def value(self, at: int, depth: int) -> Generator[None, None, tuple[Any, int]]:
        """Return the value that begins at a place, and where it ends."""
        for size in (SLICE >> 6, SLICE):
            part = self._text[at : at + size]
            _check_depth(part, MAX_DEPTH - depth)
            try:
                decoded, end = self._decode(part)
            except json.JSONDecodeError:  # it may be longer
                continue
            if end < len(part) or at + end == len(self._text):
                yield from self._rest(end + ENTRY)
                return decoded, at + end
        opening = self._text[at : at + 1]
        if opening == "[":
            return (yield from self._list(at + 1, depth + 1))
        if opening == "{":
            return (yield from self._object(at + 1, depth + 1))
        return self._decode(self._text, at)

    def _rest(self, count: int) -> Generator[None]:
        self._read += count
        if self._read >= SLICE // 2:
            self._read = 0
            yield

    def _list(self, at: int, depth: int) -> Generator[None, None, tuple[list[Any], int]]:
        items: list[Any] = []
        at = self.skip(at)
        if self._text[at : at + 1] == "]":
            return items, at + 1
        alone = at  # up to here elements are read one by one
        while True:
            several, comma = self._several(at, depth) if at >= alone else ([], at + SLICE)
            if several:
                items += several
                yield from self._rest(comma - at)
                at = self.skip(comma + 1)
                continue
            alone = max(alone, comma)
            value, at = yield from self.value(at, depth)
            items.append(value)
            at = self.skip(at)
            if self._text[at : at + 1] == "]":
                return items, at + 1
            at = self._expect(",", at)

    def _several(self, at: int, depth: int) -> tuple[list[Any], int]:
        """Return elements of a list up to a comma, and where that is; none if it is not theirs."""
        plain = _PLAIN.match(self._text, at, at + SLICE)
        comma = -1 if plain is None else self._text.rfind(",", at, plain.end())
        if comma < at:
            comma = self._text.rfind("},", at, at + SLICE) + 1
        if comma <= at:
            return [], at + SLICE
        part = self._text[at:comma]
        _check_depth(part, MAX_DEPTH - depth)
        try:
            return json.loads(f"[{part}]", object_pairs_hook=self._pairs), comma
        except json.JSONDecodeError:  # of another list, or the bad element has the place
            return [], comma

    def _object(self, at: int, depth: int) -> Generator[None, None, tuple[Any, int]]:
        pairs: list[tuple[str, Any]] = []
        at = self.skip(at)
        if self._text[at : at + 1] == "}":
            return self._pairs(pairs), at + 1
        while True:
            if self._text[at : at + 1] != '"':
                message = "Expecting property name enclosed in double quotes"
                raise json.JSONDecodeError(message, self._text, at)
            name, at = self._decode(self._text, at)
            value, at = yield from self.value(self._expect(":", self.skip(at)), depth)
            pairs.append((name, value))
            at = self.skip(at)
            if self._text[at : at + 1] == "}":
                return self._pairs(pairs), at + 1
            at = self._expect(",", at)

    def _expect(self, delimiter: str, at: int) -> int:
        if self._text[at : at + 1] != delimiter:
            raise json.JSONDecodeError(f"Expecting {delimiter!r} delimiter", self._text, at)
        return self.skip(at + 1)


def parse_front(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value that begins at ``start``, and where it ends.

    Raises:
        Malformed: as :func:`parse`.
    """
    with _as_malformed():
        _check_depth(text[start:])
        return json.JSONDecoder().raw_decode(text, start)


@contextmanager
def _as_malformed() -> Iterator[None]:
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


def _check_depth(text: str, most: int = MAX_DEPTH) -> None:
    """Require that arrays and objects are in each other at most so deep.

    Raises:
        Malformed: they go deeper.
    """
    if text.count("[") + text.count("{") <= most:
        return
    # Innermost brackets count for one level, all others for one each: more than there are.
    signs = text.encode("utf-8", "replace").translate(None, _UNSIGNED)
    for nothing in (b'""', b"[]", b"{}"):  # between two brackets, an even number of quotes
        signs = signs.replace(nothing, b"")
    if signs.count(b"[") + signs.count(b"{") < most:
        return
    plain = _STRING.sub("", text).encode("utf-8", "replace")
    steps = memoryview(plain.translate(_STEPS, _OTHERS)).cast("b")
    if max(accumulate(steps), default=0) > most:
        raise Malformed(f"it is nested more than {MAX_DEPTH} levels deep")
