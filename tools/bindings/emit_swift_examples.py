"""Writes the calls of all operations that tests of the Swift package make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import specs_of
from cowmlx.programs.operations.row import Attribute, Operation
from tools.bindings import operations as table
from tools.bindings.emit_swift_operations import (
    COUNTS,
    case_of,
    has_receiver,
    name_of,
    own_name,
)
from tools.bindings.hosts import camel


def calls(generated: str) -> str:
    """Return the first example of each operation, for all operands and for arrays."""
    lines = [f"// {generated}", "// swift-format-ignore-file", "", "import CowMLX", ""]
    sync, async_ = [], []
    for family, rows in table.families():
        name = camel(re.sub(r"\W+", "_", family))
        for is_async in (False, True):
            lines += family_calls(f"{name}{'Async' * is_async}", rows, is_async)
        sync += [f"  try {name}(&examples, maker)"]
        async_ += [f"  try await {name}Async(&examples, maker)"]
    lines += [
        "/// Applies all operations.",
        "func applyAll<E: Examples>(_ examples: inout E) throws {",
    ]
    lines += [
        "  let maker = examples.maker",
        *sync,
        "}",
        "",
        "/// Applies all operations to arrays.",
    ]
    lines += ["func applyAllAsync(_ examples: inout ArrayExamples) async throws {"]
    lines += ["  let maker = examples.maker", *async_, "}", ""]
    return "\n".join(lines)


def family_calls(name: str, rows: Sequence[Operation], is_async: bool) -> Iterable[str]:
    """The function of a family."""
    await_ = "await " if is_async else ""
    if is_async:
        yield f"private func {name}("
        yield "  _ examples: inout ArrayExamples, _ maker: Runtime"
        yield ") async throws {"
    else:
        yield f"private func {name}<E: Examples>("
        yield "  _ examples: inout E, _ maker: E.Maker"
        yield ") throws {"
    for row in rows:
        example = row.examples[0]
        places = [each and f'examples.operand("{each}")' for each in example.inputs]
        receiver = f"try {places[0]}" if has_receiver(row) else "maker"
        given = ", ".join(call_arguments(row, places, example.attributes))
        yield "  do {"
        if has_receiver(row):
            yield f"    let operand = {receiver}"
            receiver = "operand"
        call = f"try {await_}{receiver}.{name_of(row)}({given})"
        yield f"    let made = {call}"
        count = len(row.outputs)
        listed = "made" if row.outputs_vary else "[made]"
        if count > 1 and not row.outputs_vary:
            listed = f"[{', '.join(f'made.{at}' for at in range(count))}]"
        yield f'    examples.add("{row.name}", {listed})'
        yield "  }"
    yield "}"
    yield ""


def call_arguments(
    row: Operation, places: Sequence[str | None], attributes: dict[str, object]
) -> Iterable[str]:
    """The arguments of a call, in the order of its parameters."""
    needed = len(table.needed_inputs(row))
    start = 1 if has_receiver(row) else 0
    if row.variadic:
        yield f"[{', '.join(str(each) for each in places)}]"
    else:
        yield from (str(each) for each in places[start:needed])
    is_first = not row.inputs[start:] if has_receiver(row) else not row.inputs
    for each in table.needed_attributes(row):
        if each.name in attributes:
            bare = is_first and each.kind in ("shape", "dtype")
            value = literal(each, attributes[each.name])
            yield value if bare else f"{own_name(table.parameter(row, each))}: {value}"
        is_first = False
    if COUNTS.get(row.name) == "results":
        yield f"results: {count_of(row)}"
    for place, each in zip(places[needed:], table.optional_inputs(row), strict=False):
        if place and not row.variadic:
            yield f"{own_name(each.name)}: {place}"
    for each in table.optional_attributes(row):
        if each.name in attributes:
            value = literal(each, attributes[each.name])
            yield f"{own_name(table.parameter(row, each))}: {value}"


def count_of(row: Operation) -> int:
    """How many results the first example has."""
    example = row.examples[0]
    given = attributes_of(row, example.attributes)
    return len(row.infer(row.arranged(specs_of(example)), given))


def literal(each: Attribute, value: object) -> str:
    """An attribute's value as Swift writes it."""
    if value is None:
        return "nil"
    if each.kind == "choice":
        return f".{case_of(str(value))}"
    if each.kind == "dtype":
        return f".{value}"
    if each.kind == "text":
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if each.kind == "pairs" and isinstance(value, list | tuple):
        return f"Pairs([{', '.join(f'({a}, {b})' for a, b in value)}])"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
