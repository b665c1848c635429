"""Structs and constants as the compiler, ctypes and Cython see them."""

from __future__ import annotations

import re
from ctypes import sizeof

from support import signatures
from support.compiler import compile_c, run
from support.paths import ROOT
from support.signatures import STRUCTS

PXD = ROOT / "cowmlx/generated/cow_mlx.pxd"

CONSTANTS = {
    name: value
    for name, value in vars(signatures).items()
    if name.isupper() and isinstance(value, int)
}


def test_ctypes_structs_are_laid_out_like_the_compiler_s(tmp_path):
    lines = ["#include <stdio.h>", '#include "cow_mlx.h"', "int main(void) {"]
    expected = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {sizeof(struct)}")
        for field, _ in struct._fields_:
            place = f"offsetof({name}, {field}), sizeof((({name}*)0)->{field})"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", {place});')
            descriptor = getattr(struct, field)
            expected.append(f"{name}.{field} {descriptor.offset} {descriptor.size}")
    for name, value in CONSTANTS.items():
        kind = "%zu" if name == "NUL" else "%d"
        lines.append(f'printf("{name} {kind}\\n", COW_MLX_{name});')
        expected.append(f"{name} {value}")
    source = tmp_path / "layout.c"
    source.write_text("\n".join([*lines, "return 0;", "}"]))
    program = compile_c([source], tmp_path / "layout")
    assert run([program]).stdout.splitlines() == expected


def c_type(declarator: str) -> tuple[str, str]:
    """The name that a line of the .pxd declares, and its type in C."""
    line = re.sub(r" noexcept( nogil)?$", "", declarator).replace("cbool", "bool")
    pointer = re.fullmatch(r"(.*) \(\*(\w+)\)\((.*)\)", line)
    if pointer:
        result, name, params = pointer.groups()
        return name, f"{result} (*)({params or 'void'})"
    type_, name = line.rsplit(" ", 1)
    return name, type_


def test_cython_declarations_are_those_of_the_headers(tmp_path):
    """Cython believes the .pxd; the C compiler compares it with the headers."""
    text = re.sub(r"\(\n\s+", "(", PXD.read_text())
    checks = ['#include "bridge.h"']
    same = '_Static_assert(_Generic(({value}), {type}: 1, default: 0), "{name}");'
    struct = ""
    enum = False
    for line in text.split('"bridge.h" nogil:')[1].splitlines():
        word = line.strip()
        if not word:
            continue
        if re.match(r" {8}\S", line) and enum:
            checks.append(f"int constant_{word} = (int){word};")
        elif re.match(r" {8}\S", line):
            name, type_ = c_type(word)
            value = f"((struct {struct}*)0)->{name}"
            checks.append(same.format(value=value, type=type_, name=f"{struct}.{name}"))
        elif opened := re.match(r"(?:ctypedef )?(struct|enum)(?: (\w+))?:$", word):
            enum, struct = opened[1] == "enum", opened[2] or ""
        elif word.startswith("ctypedef"):
            name, type_ = c_type(word.removeprefix("ctypedef "))
            checks.append(same.format(value=f"({name})0", type=type_, name=name))
        elif word.startswith("enum: "):
            name = word.removeprefix("enum: ")
            checks.append(f"int constant_{name} = (int){name};")
    assert len(checks) > 150
    source = tmp_path / "pxd.c"
    source.write_text("\n".join(checks))
    compile_c([source], tmp_path / "pxd.o", "-c")
