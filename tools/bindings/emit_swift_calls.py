"""Writes the C target of the Swift package: the header as one file, and a table of its calls.

The table is filled at run time (bindings/swift/Sources/CCowMLX/loader.c). Before that it has
functions that load the library and then make the call.
"""

from __future__ import annotations

from collections.abc import Iterable

from tools.bindings.calls import PREFIX
from tools.bindings.header import Function, Header, Type, text_of

GUARD = "#define COW_MLX_H\n"
INCLUDES = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
# Results of calls that have no status, if there is no library.
WITHOUT = {"version": '""', "status_name": '"UNKNOWN"'}
# Calls that never load the library: without one they say why the last load failed.
FAILURES = {
    "error_message": "cowmlx_load_message()",
    "error_details": "cowmlx_load_details(buffer, capacity, length)",
}


def files(public: Header, generated: str) -> dict[str, str]:
    """The text of each file, by its path in the target."""
    return {
        "include/cow_mlx.h": header(public, generated),
        "include/calls.h": table(public, generated),
        "unloaded.c": unloaded(public, generated),
    }


def header(public: Header, generated: str) -> str:
    """The public header without parts."""
    top, guard, rest = text_of(public.path).partition(GUARD)
    assert guard, "cow_mlx.h has another guard"
    return f"/* {generated} */\n{top}{guard}\n{INCLUDES}\n{rest.lstrip()}"


def table(public: Header, generated: str) -> str:
    """The struct of all calls."""
    lines = [f"/* {generated} */", "#ifndef COW_MLX_CALLS_H", "#define COW_MLX_CALLS_H", ""]
    lines += ['#include "cow_mlx.h"', ""]
    lines += ["/* The calls by their names without cow_mlx_. */", "typedef struct cow_mlx_calls {"]
    lines += [f"  __typeof__({each.name})* _Nonnull {short(each)};" for each in public.functions]
    return "\n".join([*lines, "} cow_mlx_calls;", "", "#endif", ""])


def unloaded(public: Header, generated: str) -> str:
    """The functions that load the library, and the names of all."""
    lines = [f"/* {generated} */", "/* clang-format off */", '#include "loader.h"', ""]
    lines += ["#include <string.h>"]
    for each in public.functions:
        lines += stub(each)
    lines += ["", "const cow_mlx_calls cowmlx_unloaded = {"]
    lines += [f"    .{short(each)} = {short(each)}," for each in public.functions]
    lines += ["};", "", "const struct cowmlx_symbol cowmlx_symbols[] = {"]
    lines += [
        f'    {{"{each.name}", offsetof(cow_mlx_calls, {short(each)})}},'
        for each in public.functions
    ]
    return "\n".join([*lines, "    {NULL, 0},", "};", ""])


def stub(function: Function) -> Iterable[str]:
    """The function that stands for a call."""
    name, result = short(function), spell(function.signature.result)
    given = ", ".join(name for name, _ in function.signature.params)
    taken = ", ".join(f"{spell(t)} {name}" for name, t in function.signature.params) or "void"
    call = f"cow_mlx_loaded()->{name}({given})"
    yield ""
    yield f"static {result} {name}({taken}) {{"
    if name in FAILURES:
        yield f"  return {FAILURES[name]};"
    elif name.endswith("_params_init"):
        yield "  if (cowmlx_load() == COW_MLX_OK)"
        yield f"    {call};"
        yield "  else if (params)"
        yield "    memset(params, 0, size < sizeof *params ? size : sizeof *params);"
    elif result == f"{PREFIX}status":
        yield "  cow_mlx_status status = cowmlx_load();"
        yield f"  return status == COW_MLX_OK ? {call} : status;"
    else:
        yield f"  return cowmlx_load() == COW_MLX_OK ? {call} : {WITHOUT.get(name, 0)};"
    yield "}"


def short(function: Function) -> str:
    """A function's name without the library's prefix."""
    return function.name.removeprefix(PREFIX)


def spell(type_: Type) -> str:
    """A type in C."""
    name = f"struct {type_.name}" if type_.name.startswith("DL") else type_.name
    return f"{'const ' if type_.const else ''}{name}{''.join(type_.pointers)}"
