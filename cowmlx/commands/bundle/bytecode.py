"""Modules of a bundle: bytecode that is valid whatever happens to files' times.

Hosts never write bytecode, so all of it is made here. Where the engine reads a module's source
too, it looks for its imports and classes: an outline of these stays beside the bytecode. The code
has lines for tracebacks and no columns, since a bundle has no sources to show.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

_OUTLINE = re.compile(rb"^[ \t]*(?:class|from|import)\b.*$", re.MULTILINE)
_UNCHECKED = 0b01  # a hash-based file that is never compared with its source (PEP 552)
# Classes keep theirs: email's policies work with it, and a dataclass writes one if it has none.
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)


class NotAModule(Exception):
    """A file with the name of a module and other contents, such as a template."""


def write(
    source: Path, target: Path, name: str, *, documented: bool, annotated: bool = True
) -> None:
    """Compile a module to a ``.pyc``.

    Args:
        source: the module.
        target: the file to write.
        name: its path in tracebacks.
        documented: whether modules and functions keep their docstrings, and code its columns.
        annotated: whether functions keep their annotations otherwise, which Python's own modules
            read.

    Raises:
        NotAModule: its text is none of this Python's language.
    """
    text = source.read_bytes()
    try:
        tree = ast.parse(text, name)
        code = compile(tree, name, "exec", dont_inherit=True, optimize=0) if documented else None
    except (SyntaxError, ValueError) as error:
        raise NotAModule(f"{source}: {error}") from error
    if not documented:
        _drop_docstrings(tree)
        if not annotated:
            _drop_annotations(tree)
        code = without_columns(compile(tree, name, "exec", dont_inherit=True, optimize=0))
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED.to_bytes(4, "little")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(header + importlib.util.source_hash(text) + marshal.dumps(code))
    target.chmod(0o644)


def beside(source: Path) -> Path:
    """Return where the bytecode of a source that is kept belongs."""
    return source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"


def outline(source: Path) -> bytes:
    """Return the lines of a module that import or begin a class.

    Python never executes them, since it takes the bytecode beside; they say so if it does.
    """
    lines = b"\n".join(_OUTLINE.findall(source.read_bytes()))
    return b"raise ImportError('the bytecode of this module is missing')\n" + lines + b"\n"


def _drop_docstrings(tree: ast.AST) -> None:
    """Remove docstrings of modules and functions; asserts stay."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            if len(node.body) > 1 or isinstance(node, ast.Module):
                del node.body[0]  # nothing may stand before "from __future__ import"
            else:
                node.body[0] = ast.copy_location(ast.Pass(), node.body[0])


def _drop_annotations(tree: ast.AST) -> None:
    """Remove annotations of functions; those of classes' members stay."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None


# Tables of locations, as in Objects/locations.md of CPython 3.11 and later: entries of a first
# byte (a bit of 128, a kind in 4 bits, in 3 bits the number of its instructions, less 1) and of
# bytes below 128.
_ENTRY = 128
_ONE_LINE, _LONG, _NO_COLUMNS, _NOWHERE = 10, 14, 13, 15
_MOST = 8  # instructions of an entry


def without_columns(code: CodeType) -> CodeType:
    """Return code without columns of its instructions, also of the functions in it."""
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
    """Yield the number of an entry's instructions, its kind here, and the line's difference."""
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
