"""Writes methods of C++ and Rust for calls that need no form of the language's own.

A call has one if no other source of the binding makes it, if its first parameter is a handle whose
noun begins its name, and if the others are numbers, texts, paths, tokens and buffers.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from tools.bindings import emit_rust
from tools.bindings.call_table import Is
from tools.bindings.calls import Call, Role
from tools.bindings.emit_params import is_path

# Calls that change a context, so that their methods of Rust borrow it for that.
CHANGING = ("context_reset", "context_trim_end", "context_trim_front", "context_load")
INPUTS = ("scalar", "string", "text", "tokens")
CPP_TYPES = {
    "size_t": "std::size_t",
    "bool": "bool",
    "_Bool": "bool",
    "double": "double",
    "float": "float",
}
CPP_BUFFERS = {"char": "std::string", "int32_t": "std::vector<std::int32_t>"}
CPP_BUFFERS |= {"float": "std::vector<float>"}


def missing(calls: list[Call], folder: Path, pattern: str) -> dict[str, list[Call]]:
    """The calls that no source in a folder makes, by their noun; generated sources do not count."""
    code = by_hand(folder, pattern)
    if not code:  # a copy of the tree without the binding
        return {}
    made = set(re.findall(r"\bcow_mlx_(\w+)\b", code))
    nouns: dict[str, list[Call]] = {}
    for call in calls:
        if call.name not in made and Is.NO_ROLES not in call.properties:
            nouns.setdefault(noun_of(call), []).append(call)
    return nouns


def by_hand(folder: Path, pattern: str) -> str:
    """The code that somebody wrote, without its comments."""
    sources = [path.read_text() for path in sorted(folder.rglob(pattern))]
    written = [text for text in sources if "enerated by" not in text.partition("\n")[0]]
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", "\n".join(written), flags=re.S)


def noun_of(call: Call) -> str:
    """The noun whose class has the method."""
    noun = call.name.partition("_")[0]
    first, others = call.roles[0], call.roles[1:]
    buffers = [role for role in call.outputs if role.kind == "buffers_out"]
    simple = (
        first.kind == "handle"
        and first.name == noun
        and all(other.kind in INPUTS or other in call.outputs for other in others)
        and all(output.kind in ("value_out", "buffers_out") for output in call.outputs)
        and all(buffer.type.name in CPP_BUFFERS and len(buffer.buffers) == 1 for buffer in buffers)
        and len(buffers) < 2
    )
    if not simple:
        raise ValueError(f"{call.name}: write its methods of C++ and Rust by hand")
    return noun


def is_file(role: Role) -> bool:
    """Whether a text is a path."""
    return role.name == "path" or is_path(role.name)


def buffer_of(call: Call) -> Role | None:
    """The output of variable size."""
    return next((role for role in call.outputs if role.kind == "buffers_out"), None)


# ------------------------------------------------------------------------------------- Rust


def rust(calls: list[Call], folder: Path, generated: str) -> str:
    """Return the text of bindings/rust/cowmlx/src/methods.rs."""
    nouns = missing(calls, folder, "*.rs")
    uses = ["use std::path::Path;", "", "use crate::error::{Result, check};"]
    uses += ["use crate::transfer::{c_path, c_text};"]
    uses += [f"use crate::{{{', '.join(noun.capitalize() for noun in sorted(nouns))}}};"]
    uses += ["use crate::{sys, transfer};"]
    lines = [f"// {generated}", "", "#![allow(unused_imports)]", "", *uses]
    for noun, made in nouns.items():
        lines += ["", f"impl {noun.capitalize()}<'_> {{"]
        for index, call in enumerate(made):
            lines += [""] * bool(index) + [f"    {line}".rstrip() for line in rust_method(call)]
        lines += ["}"]
    return "\n".join([*lines, ""])


def rust_method(call: Call) -> Iterable[str]:
    """One method."""
    buffer = buffer_of(call)
    values = [role for role in call.outputs if role.kind == "value_out"]
    taken = [f"{role.name}: {rust_input(role)}" for role in call.inputs[1:]]
    results = [rust_output(role) for role in call.outputs]
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    for line in textwrap.wrap(call.function.summary, 90):
        yield f"/// {line}"
    yield from ("///", "/// # Errors", f"/// As the manual says of `{call.function.name}`.")
    verb = call.name.partition("_")[2]
    me = "&mut self" if call.name in CHANGING else "&self"
    yield f"pub fn {verb}({', '.join([me, *taken])}) -> Result<{result}> {{"
    for role in call.inputs[1:]:
        if role.kind == "string":
            yield f"    {rust_text(call, role)}"
    yield from (f"    let mut {role.name} = {rust_output(role)}::default();" for role in values)
    given = ", ".join(rust_argument(role) for role in call.roles)
    made = f"unsafe {{ sys::{call.function.name}({given}) }}"
    yield "    // SAFETY: inputs live until the call returns; a buffer has its capacity."
    if buffer:
        how = "text(" if buffer.type.name == "char" else "vector(1024, "
        yield f"    let {buffer.name} = transfer::{how}|{', '.join(buffer.names)}| {made})?;"
    else:
        yield f"    check({made})?;"
    names = ", ".join(role.name for role in call.outputs)
    yield f"    Ok({names if len(results) == 1 else f'({names})'})"
    yield "}"


def rust_input(role: Role) -> str:
    """The type of an input."""
    if role.kind == "string":
        type_ = "impl AsRef<Path>" if is_file(role) else "&str"
        return f"Option<{type_}>" if role.type.nullable else type_
    named = {"text": "&str", "tokens": "&[i32]"}
    return named.get(role.kind) or emit_rust.BASE.get(role.type.name, role.type.name)


def rust_text(call: Call, role: Role) -> str:
    """The statement that makes a text of C."""
    how, value = ("c_path", f"{role.name}.as_ref()") if is_file(role) else ("c_text", role.name)
    named = f'"{call.name}: {role.name}"'
    if role.type.nullable:
        return f"let {role.name} = {role.name}.map(|text| c_text({named}, text)).transpose()?;"
    return f"let {role.name} = {how}({named}, {value})?;"


def rust_argument(role: Role) -> str:
    """The arguments of a role."""
    name = role.name
    match role.kind:
        case "handle":
            return "self.as_raw()"
        case "text":
            return f"{name}.as_ptr().cast(), {name}.len()"
        case "tokens":
            return f"{name}.as_ptr(), {name}.len()"
        case "string" if role.type.nullable:
            return f"{name}.as_deref().map_or(std::ptr::null(), std::ffi::CStr::as_ptr)"
        case "string":
            return f"{name}.as_ptr()"
        case "value_out":
            return f"&mut {name}"
        case "buffers_out":
            return ", ".join(role.names)
    return name


def rust_output(role: Role) -> str:
    """The type of a result."""
    if role.kind == "value_out":
        return emit_rust.BASE.get(role.type.name, role.type.name)
    return (
        "String"
        if role.type.name == "char"
        else f"Vec<{emit_rust.BASE.get(role.type.name, role.type.name)}>"
    )


# -------------------------------------------------------------------------------------- C++


def cpp(calls: list[Call], folder: Path, generated: str) -> str:
    """Return the text of bindings/cpp/cow_mlx/methods.hpp."""
    lines = [f"/* {generated} */", "#ifndef COW_MLX_METHODS_HPP", "#define COW_MLX_METHODS_HPP"]
    lines += ["/* clang-format off */", "", "#include <cstddef>", "#include <cstdint>"]
    lines += ["#include <string>", "#include <string_view>", "#include <tuple>"]
    lines += ["#include <vector>", "", '#include "base.hpp"', "", "namespace cowmlx::detail {"]
    nouns = missing(calls, folder, "*.hpp")
    for noun in ("model", "context", "program", "training"):
        lines += [
            "",
            "template <typename Self>",
            f"class {noun.capitalize()}Methods {{",
            " public:",
        ]
        for call in nouns.pop(noun, []):
            lines += [f"  {line}".rstrip() for line in cpp_method(call)]
        lines += [
            " private:",
            "  auto self() const { return static_cast<const Self*>(this)->handle(); }",
        ]
        lines += ["};"]
    if nouns:
        raise ValueError(f"no class of C++ has generated methods of {sorted(nouns)}")
    return "\n".join([*lines, "", "}  // namespace cowmlx::detail", "", "#endif", ""])


def cpp_method(call: Call) -> Iterable[str]:
    """One method."""
    buffer = buffer_of(call)
    taken = ", ".join(f"{cpp_input(role)} {role.name}" for role in call.inputs[1:])
    results = [cpp_output(role) for role in call.outputs]
    result = "void" if not results else results[0]
    result = f"std::tuple<{', '.join(results)}>" if len(results) > 1 else result
    first, *rest = textwrap.wrap(call.function.summary, 90)
    yield f"/** {first}{'' if rest else ' */'}"
    yield from (f" *  {line}{' */' if line is rest[-1] else ''}" for line in rest)
    yield f"{result} {call.name.partition('_')[2]}({taken}) const {{"
    for role in call.outputs:
        if role.kind == "value_out":
            yield f"  {cpp_output(role)} {role.name}{{}};"
    given = ", ".join(cpp_argument(call, role) for role in call.roles)
    made = f"{call.function.name}({given})"
    if buffer:
        data, capacity, size = buffer.names
        element = (
            "char"
            if buffer.type.name == "char"
            else CPP_TYPES.get(buffer.type.name, "std::int32_t")
        )
        yield f"  auto {data}_ = fill<{cpp_output(buffer)}>("
        sizes = f"std::size_t {capacity}, std::size_t* {size}"
        yield f"      {4096 if element == 'char' else 1024}, [&]({element}* {data}, {sizes}) {{"
        yield f"        return {made};"
        yield "      });"
    else:
        yield f"  check({made});"
    names = [role.name + "_" * (role is buffer) for role in call.outputs]
    if names:
        yield f"  return {names[0] if len(names) == 1 else '{' + ', '.join(names) + '}'};"
    yield from ("}", "")


def cpp_input(role: Role) -> str:
    """The type of an input."""
    named = {"text": "std::string_view", "string": "const std::string&"}
    named["tokens"] = "const std::vector<std::int32_t>&"
    return named.get(role.kind) or CPP_TYPES.get(role.type.name) or f"std::{role.type.name}"


def cpp_output(role: Role) -> str:
    """The type of a result."""
    if role.kind == "buffers_out":
        return CPP_BUFFERS[role.type.name]
    return CPP_TYPES.get(role.type.name) or f"std::{role.type.name}"


def cpp_argument(call: Call, role: Role) -> str:
    """The arguments of a role."""
    name = role.name
    match role.kind:
        case "handle":
            return "self()"
        case "text":
            return f'{name}.data() ? {name}.data() : "", {name}.size()'
        case "tokens":
            return f"{name}.data(), {name}.size()"
        case "string":
            how = "optional" if role.type.nullable else "c_string"
            return f'{how}({name}, "{call.name}: {name}")'
        case "value_out":
            return f"&{name}"
        case "buffers_out":
            return ", ".join(role.names)
    return name
