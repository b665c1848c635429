"""Modules of a bundle: bytecode that is valid whatever happens to files' times.

Hosts never write bytecode, so all of it is made here. Where the engine reads a module's source
too, it looks for its imports and classes: an outline of these stays beside the bytecode.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import re
import sys

from cowmlx.commands.bundle.locations import without_columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

_OUTLINE = re.compile(rb"^[ \t]*(?:class|from|import)\b.*$", re.MULTILINE)
_UNCHECKED = 0b01  # a hash-based file that is never compared with its source (PEP 552)
# Classes keep theirs: email's policies work with it, and a dataclass writes one if it has none.
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)


class NotAModule(Exception):
    """A file that is called like a module, and is something else, such as a template."""


def write(source: Path, target: Path, name: str, *, documented: bool) -> None:
    """Compile a module.

    Args:
        source: its file.
        target: the ``.pyc`` to write.
        name: of the source as tracebacks name it; no path of this machine.
        documented: whether to keep docstrings.

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
    """Take docstrings of modules and functions out; asserts stay."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            if len(node.body) > 1 or isinstance(node, ast.Module):
                del node.body[0]  # nothing may stand before "from __future__ import"
            else:
                node.body[0] = ast.copy_location(ast.Pass(), node.body[0])
