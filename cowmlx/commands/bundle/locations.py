"""Lines of code objects without columns: what tracebacks of a bundle, which has no sources, show.

The format is that of ``Objects/locations.md`` in CPython 3.11 and later: entries of a first byte
(a bit of 128, a kind in 4 bits, and in 3 bits how many instructions it covers, less 1) and of bytes
below 128.
"""

from __future__ import annotations

from types import CodeType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRY = 128
_ONE_LINE, _LONG, _NO_COLUMNS, _NOWHERE = 10, 14, 13, 15
_MOST = 8  # instructions of an entry


def without_columns(code: CodeType) -> CodeType:
    """Return code whose instructions, and those of the functions in it, know only their lines."""
    constants = tuple(
        without_columns(value) if isinstance(value, CodeType) else value for value in code.co_consts
    )
    return code.replace(co_consts=constants, co_linetable=_shorter(code.co_linetable))


def _shorter(table: bytes) -> bytes:
    entries: list[list[int]] = []  # instructions, kind, and by how much the line differs
    for count, kind, delta in _entries(table):
        last = entries[-1] if entries else None
        alike = last is not None and last[1] == kind and delta == 0
        if last is not None and alike and last[0] + count <= _MOST:
            last[0] += count
        else:
            entries.append([count, kind, delta])
    made = bytearray()
    for count, kind, delta in entries:
        made.append(_ENTRY | kind << 3 | count - 1)
        if kind == _NO_COLUMNS:
            made += _signed(delta)
    return bytes(made)


def _entries(table: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield how many instructions an entry covers, its kind here, and the line's difference."""
    at = 0
    while at < len(table):
        first, at = table[at], at + 1
        kind, count = first >> 3 & 15, (first & 7) + 1
        delta = 0
        if kind in (_LONG, _NO_COLUMNS):
            delta = _read_signed(table, at)
        elif _ONE_LINE <= kind < _NO_COLUMNS:
            delta = kind - _ONE_LINE
        while at < len(table) and table[at] < _ENTRY:
            at += 1
        yield count, _NOWHERE if kind == _NOWHERE else _NO_COLUMNS, delta


def _read_signed(table: bytes, at: int) -> int:
    value = shift = 0
    while True:
        byte = table[at]
        value |= (byte & 63) << shift
        if not byte & 64:
            return -(value >> 1) if value & 1 else value >> 1
        at, shift = at + 1, shift + 6


def _signed(value: int) -> bytes:
    rest = -value << 1 | 1 if value < 0 else value << 1
    made = bytearray()
    while rest >= 64:
        made.append(64 | rest & 63)
        rest >>= 6
    made.append(rest)
    return bytes(made)
