"""Writes the functions of C++ that add operations to a program."""

from __future__ import annotations

import json
import textwrap

from cowmlx.programs.operations.row import REQUIRED, Attribute, Operation
from tools.bindings import operations as table

TYPES = {
    "int": "std::int64_t",
    "float": "double",
    "number": "Number",
    "bool": "bool",
    "text": "std::string",
    "axis": "std::int64_t",
    "axes": "IntList",
    "axis or axes": "Ints",
    "shape": "Dims",
    "dtype": "Dtype",
    "ints": "IntList",
    "int or ints": "Ints",
    "pairs": "Pairs",
}
BY_VALUE = ("std::int64_t", "double", "bool", "Dtype")
NULLABLE = ("IntList", "Ints")  # these have a form for nothing
LIST = "std::vector<std::int64_t>"

# How many results an operation has where that varies.
COUNTS = {
    "split": "detail::parts(indices_or_sections)",
    "unstack": "results",
    "meshgrid": "arrays.size()",
    "broadcast_arrays": "arrays.size()",
    "svd": "compute_uv ? 3 : 1",
    "quantize": "mode == QuantizeMode::affine ? 3 : 2",
}


def header(generated: str) -> str:
    """Return the text of bindings/cpp/cow_mlx/operations.hpp."""
    guard = "COW_MLX_OPERATIONS_HPP"
    families = []
    for family, rows in table.families():
        families += [f"/* ---- {family} */", "", *(function(row, family) for row in rows)]
    return "\n".join(
        [
            "/* All operations of programs. See cow_mlx.hpp.",
            f" * {generated} */",
            "/* clang-format off */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            '#include "program_builder.hpp"',
            "",
            "namespace cowmlx {",
            "namespace op {",
            "",
            choices(),
            "",
            *families,
            "",
            "}  // namespace op",
            "}  // namespace cowmlx",
            "",
            f"#endif /* {guard} */",
            "",
        ]
    )


def choices() -> str:
    """Return the types of choices, each with the texts that it stands for."""
    lines = []
    for choice in table.choices():
        names = ", ".join(choice.texts)
        texts = ", ".join(json.dumps(text) for text in choice.texts)
        lines += [
            *comment(choice.about),
            f"enum class {choice.name} {{ {names} }};",
            f"inline const char* name_of({choice.name} value) {{",
            f"  static const char* const names[] = {{{texts}}};",
            "  return names[static_cast<int>(value)];",
            "}",
        ]
    return "\n".join(lines)


def function(row: Operation, family: str) -> str:
    """Return the function of one operation."""
    numbers = table.takes_numbers(row, family)
    params, inputs = [], []
    if not row.inputs:
        params.append("const ProgramBuilder& builder")
    for place in table.needed_inputs(row):
        kind = "Values" if place.variadic else "Operand" if numbers else "Value"
        params.append(f"const {kind}& {place.name}")
        inputs.append(place.name)
    params += [declared(row, attribute) for attribute in table.needed_attributes(row)]
    if COUNTS.get(row.name) == "results":
        params.append("std::size_t results")
    for place in table.optional_inputs(row):
        params.append(f"const std::optional<Value>& {place.name} = {{}}")
        inputs.append(place.name)
    for attribute in table.optional_attributes(row):
        params.append(f"{declared(row, attribute)} = {default(attribute)}")
    attributes = "".join(setter(row, attribute) for attribute in row.attributes)
    given = f"{{{', '.join(inputs)}}}"
    if row.variadic:
        given = f"{{{inputs[0]}.begin(), {inputs[0]}.end()}}"
    count = COUNTS[row.name] if row.outputs_vary else str(len(row.outputs))
    last = "" if row.inputs else ", Emitter::graph_of(builder)"
    made = f"Attributes(){attributes}" if attributes else "{}"
    node = f'Emitter::node("{row.name}", {given}, {made}, {count}{last})'
    if row.outputs_vary:
        result = "Values"
    elif len(row.outputs) > 1:
        result = f"std::array<Value, {count}>"
        node = f"Emitter::several({node}, std::make_index_sequence<{count}>())"
    else:
        result = "Value"
        node += "[0]"
    lines = comment(table.about(row) + results(row))
    head, body = f"inline {result} {row.name}({', '.join(params)}) {{", f"return {node};"
    if len(head) + len(body) < 98:
        return "\n".join([*lines, f"{head} {body} }}"])
    return "\n".join([*lines, *wrap(head, "    "), *wrap(f"  {body}", "      "), "}"])


def results(row: Operation) -> str:
    """Return what is said of several results."""
    return f" @return {', '.join(row.outputs)}" if len(row.outputs) > 1 else ""


def comment(text: str) -> list[str]:
    """Return a text as a comment."""
    return textwrap.wrap(
        f"/** {text.replace('*/', '* /')} */", 100, subsequent_indent=" * ", break_on_hyphens=False
    )


def wrap(line: str, indent: str) -> list[str]:
    """Return a line of code on as many as it needs."""
    return textwrap.wrap(
        line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def declared(row: Operation, attribute: Attribute) -> str:
    """Return an attribute as a parameter."""
    kind = type_of(attribute)
    if attribute.takes_null and kind not in NULLABLE:
        kind = f"std::optional<{kind}>"
    by_value = kind in BY_VALUE or attribute.kind == "choice"
    return f"{kind if by_value else f'const {kind}&'} {table.parameter(row, attribute)}"


def type_of(attribute: Attribute) -> str:
    """Return the type of an attribute that is there."""
    if attribute.kind == "choice":
        return table.choice_of(attribute).name
    type_ = TYPES[attribute.kind]
    return LIST if type_ == "IntList" and not attribute.takes_null else type_


def default(attribute: Attribute) -> str:
    """Return the value of an attribute that is left out."""
    value = attribute.default
    assert value is not REQUIRED
    if value is None:
        return "{}"
    if attribute.kind == "choice":
        return f"{type_of(attribute)}::{value}"
    if attribute.kind == "dtype":
        return f"Dtype::{'boolean' if value == 'bool' else value}"
    if isinstance(value, tuple):
        return f"{{{', '.join(map(str, value))}}}"
    return json.dumps(value)


def setter(row: Operation, attribute: Attribute) -> str:
    """Return the call that writes an attribute; what has no value and null as default is not."""
    method = "set_given" if attribute.default is None else "set"
    return f'.{method}("{attribute.name}", {table.parameter(row, attribute)})'
