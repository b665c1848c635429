"""Writes the Cython declarations of the headers."""

from __future__ import annotations

from tools.bindings.header import Alias, Enum, Header, Signature, Struct, Type

NAMES = {"bool": "cbool", "_Bool": "cbool"}

# The dispatch thread holds the interpreter when it calls these.
HELD = {"cow_bridge"}

OPENING = '''\
"""{generated}"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "<stdbool.h>" nogil:
    ctypedef bint cbool "bool"


cdef extern from "bridge.h" nogil:
'''


def pxd(headers: list[Header], generated: str) -> str:
    """Return the text of cowmlx/generated/cow_mlx.pxd."""
    blocks = []
    for header in headers:
        blocks += [macro(name, value) for name, value in header.macros.items()]
        if header.statuses:
            blocks.append("const size_t COW_MLX_NUL")
        blocks += [declaration(item) for item in header.declarations]
    body = "\n\n".join(blocks)
    indented = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    return OPENING.format(generated=generated) + indented + "\n"


def macro(name: str, value: int | str) -> str:
    """A macro, as the constant that it is in C."""
    return f"const char* {name}" if isinstance(value, str) else f"enum: {name}"


def declaration(item: Enum | Struct | Alias) -> str:
    """One enum, struct or typedef."""
    if isinstance(item, Alias):
        return f"ctypedef {variable(item.name, item.type, ' noexcept nogil')}"
    if isinstance(item, Enum):
        head = f"ctypedef enum {item.name}:" if item.name else "enum:"
        return "\n    ".join([head, *item.values])
    keyword = "ctypedef struct" if item.is_typedef and item.members else "struct"
    if item.members is None:
        return f"{keyword} {item.name}"
    suffix = " noexcept" if item.name in HELD else " noexcept nogil"
    members = [variable(name, type_, suffix) for name, type_ in item.members]
    return "\n    ".join([f"{keyword} {item.name}:", *members])


def variable(name: str, type_: Type, suffix: str) -> str:
    """A member, parameter or typedef; ``suffix`` ends function pointers."""
    if type_.function:
        return pointer(name, type_.function, suffix)
    return f"{spell(type_)} {name}".strip()


def pointer(name: str, signature: Signature, suffix: str) -> str:
    """A function pointer."""
    params = ", ".join(variable(name, type_, suffix) for name, type_ in signature.params)
    line = f"{spell(signature.result)} (*{name})({params}){suffix}"
    return line if len(line) < 85 else line.replace(")(", ")(\n        ")


def spell(type_: Type) -> str:
    """A type that is no function pointer."""
    const = "const " if type_.const else ""
    return const + NAMES.get(type_.name, type_.name) + "".join(type_.pointers)
