"""Writes the Rust declarations of the public header.

They are lists in macros, which the including file defines: the crate makes items of them,
its tests compare them with the header.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from tools.bindings.header import Alias, Function, Header, Signature, Struct, Type

BASE = {
    "_Bool": "bool",
    "char": "c_char",
    "void": "c_void",
    "float": "f32",
    "double": "f64",
    "size_t": "usize",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
}

PREFIX = "COW_MLX_"


def declarations(public: Header, generated: str) -> str:
    """The text of declarations.rs."""
    items = public.declarations
    aliases = [d for d in items if isinstance(d, Alias) and not d.type.function]
    callbacks = [d for d in items if isinstance(d, Alias) and d.type.function]
    structs = [d for d in items if isinstance(d, Struct) and d.members]
    blocks = [
        block("aliases", (f"{alias.name} = {spell(alias.type)};" for alias in aliases)),
        block("statuses", (f'{PREFIX}{n} "{n}" = {v};' for n, v in public.statuses.items())),
        block("constants", constants(public)),
        block("callbacks", (f"fn {c.name}{signature(c.type.function)};" for c in callbacks)),
        block("structs", (struct(item) for item in structs)),
        block("functions", (function(item) for item in public.functions)),
    ]
    return "\n".join([f"// {generated}", "", *blocks])


def block(macro: str, items: Iterable[str]) -> str:
    """One macro with its items."""
    return "\n".join([f"{macro}! {{", textwrap.indent("\n".join(items), "    "), "}", ""])


def constants(public: Header) -> list[str]:
    """The macros and the enumerators, statuses excepted."""
    lines = []
    for name, value in public.macros.items():
        type_, text = ("&str", f'"{value}"') if isinstance(value, str) else ("u32", str(value))
        lines.append(f"{name}: {type_} = {text};")
    lines.append(f"{PREFIX}NUL: usize = usize::MAX;")
    statuses = {PREFIX + name for name in public.statuses}
    for enum in public.enums():
        lines += [f"{n}: i32 = {v};" for n, v in enum.values.items() if n not in statuses]
    return lines


def struct(item: Struct) -> str:
    """One struct."""
    members = [f"    {name}: {spell(type_)}," for name, type_ in item.members or ()]
    return "\n".join([f"struct {item.name} {{", *members, "}"])


def function(item: Function) -> str:
    """One function under the first sentence of its comment."""
    summary = textwrap.wrap(item.summary, 88, initial_indent="/// ", subsequent_indent="/// ")
    return "\n".join([*summary, f"fn {item.name}{signature(item.signature)};"])


def signature(of: Signature | None) -> str:
    """Parameters and result, on as many lines as they need."""
    assert of
    params = [f"{name}: {spell(type_)}" for name, type_ in of.params]
    void = of.result == Type("void")
    result = "" if void else f" -> {spell(of.result)}"
    line = f"({', '.join(params)}){result}"
    if len(line) < 60:
        return line
    return "\n".join(["(", *(f"    {param}," for param in params), f"){result}"])


def spell(type_: Type) -> str:
    """A type in Rust."""
    if type_.function:
        return f'Option<unsafe extern "C" fn{signature(type_.function)}>'
    text, constant = BASE.get(type_.name, type_.name), type_.const
    for star in type_.pointers:
        text = f"*{'const' if constant else 'mut'} {text}"
        constant = star.endswith("const")
    return text
