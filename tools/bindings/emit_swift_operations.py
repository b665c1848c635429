"""Writes the operations of the Swift package: methods of arrays and of values of programs.

One protocol, Operand, has them for both. Arrays have an async version of each, too, which Swift
takes in asynchronous code.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cowmlx.programs.operations.row import REQUIRED, Attribute, Operation
from tools.bindings import operations as table
from tools.bindings.emit_swift import camel, doc

TYPES = {
    "int": "Int",
    "float": "Double",
    "number": "Number",
    "bool": "Bool",
    "text": "String",
    "axis": "Int",
    "axes": "[Int]",
    "axis or axes": "Ints",
    "shape": "Shape",
    "dtype": "DType",
    "ints": "[Int]",
    "int or ints": "Ints",
    "pairs": "Pairs",
}
# How many results an operation has where that varies.
COUNTS = {
    "split": "indicesOrSections.parts",
    "unstack": "results",
    "meshgrid": "arrays.count",
    "broadcast_arrays": "arrays.count",
    "svd": "computeUv ? 3 : 1",
    "quantize": "mode == .affine ? 3 : 2",
}
KEYWORDS = {"var", "repeat", "where", "any", "in", "is", "as", "default"}
OPERATORS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    ".==": "equal",
    ".!=": "notEqual",
    ".<": "less",
    ".<=": "lessEqual",
    ".>": "greater",
    ".>=": "greaterEqual",
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method: how it is declared, and how it is passed on."""

    declared: str
    given: str


def files(generated: str) -> dict[str, str]:
    """The text of each file, by its name."""
    head = f"// {generated}\n// swift-format-ignore-file\n\n"
    families = [(family, row) for family, rows in table.families() for row in rows]
    return {
        "Choices.swift": head + choices(),
        "Operations.swift": head + extensions(families, is_async=False),
        "AsyncOperations.swift": head + extensions(families, is_async=True),
        "Operators.swift": head + operators(),
    }


def safe(name: str) -> str:
    """A name where a keyword needs quotation."""
    return f"`{name}`" if name in KEYWORDS else name


def choices() -> str:
    """The types of texts that attributes take."""
    lines: list[str] = []
    for choice in table.choices():
        lines += [
            *doc(choice.about),
            f"public enum {choice.name}: String, Sendable, CaseIterable {{",
        ]
        for text in choice.texts:
            lines += [f'  /// `"{text}"`', f'  case {case_of(text)} = "{text}"']
        lines += ["}", "", f"extension {choice.name}: AttributeValue {{"]
        lines += ["  var attribute: String { jsonText(rawValue) }", "}", ""]
    return "\n".join(lines)


def case_of(text: str) -> str:
    """The case of a choice."""
    return safe(text if text != "none" else "unreduced").lower()


def extensions(families: Sequence[tuple[str, Operation]], is_async: bool) -> str:
    """The methods of operands and of makers."""
    of_values = [each for each in families if has_receiver(each[1])]
    of_makers = [each for each in families if not has_receiver(each[1])]
    lines = [f"extension {'NDArray' if is_async else 'Operand'} {{"]
    for at, (family, row) in enumerate(of_values):
        lines += [""] * bool(at) + [*methods(row, family, is_async)]
    lines += ["}", "", f"extension {'Runtime' if is_async else 'OperationMaker'} {{"]
    for at, (family, row) in enumerate(of_makers):
        lines += [""] * bool(at) + [*methods(row, family, is_async)]
    return "\n".join([*lines, "}", ""])


def has_receiver(row: Operation) -> bool:
    """Say whether an operation is a method of its first input."""
    return bool(row.inputs) and not row.variadic


def methods(row: Operation, family: str, is_async: bool) -> Iterable[str]:
    """The methods of one operation: with numbers for inputs, too, where these are taken."""
    yield from method(row, is_async)
    if not table.takes_numbers(row, family):
        return
    others = [each.name for each in table.needed_inputs(row)[1:]]
    for number in others:
        yield ""
        yield from with_numbers(row, others, [number], is_async)
    if len(others) > 1:
        yield ""
        yield from with_numbers(row, others, others, is_async)


def result_of(row: Operation, made: str) -> str:
    """The type of the result."""
    if row.outputs_vary:
        return f"[{made}]"
    if len(row.outputs) == 1:
        return made
    return "(" + ", ".join(f"{safe(camel(name))}: {made}" for name in row.outputs) + ")"


def comment(row: Operation) -> Iterable[str]:
    """The comment of a method."""
    formula = re.sub(r"\s+", " ", row.formula).strip()
    text = row.summary.rstrip(".").replace("*", "\\*")
    yield from doc(f"{text}: `{formula}`." if formula else f"{text}.", "  ")
    told = [(table.parameter(row, each), each.about) for each in row.attributes]
    told += [(each.name, each.about) for each in table.optional_inputs(row) if each.about]
    if COUNTS.get(row.name) == "results":
        told += [("results", "How many there are.")]
    if told:
        yield "  ///"
        yield "  /// - Parameters:"
        for name, about in told:
            about = about.replace("null", "nil").replace("*", "\\*")
            yield from (
                f"  ///   {'  ' * bool(at)}{line}"
                for at, line in enumerate(
                    textwrap.wrap(f"- {own_name(name)}: {about}", 88, break_on_hyphens=False)
                )
            )


def own_name(name: str) -> str:
    """A parameter's name."""
    return camel(name)


def parameters(row: Operation, made: str) -> list[Parameter]:
    """The parameters behind the receiver."""
    found = []
    needed = table.needed_inputs(row)
    for each in needed[1:] if has_receiver(row) else needed:
        type_ = f"[{made}]" if each.variadic else made
        name = own_name(each.name)
        found.append(Parameter(f"_ {safe(name)}: {type_}", safe(name)))
    for each in table.needed_attributes(row):
        name = own_name(table.parameter(row, each))
        bare = not found and each.kind in ("shape", "dtype")
        shown = f"_ {safe(name)}" if bare else safe(name)
        value = safe(name) if bare else f"{name}: {safe(name)}"
        found.append(Parameter(f"{shown}: {type_of(each)}{default_of(each)}", value))
    if COUNTS.get(row.name) == "results":
        found.append(Parameter("results: Int", "results: results"))
    for each in table.optional_inputs(row):
        name = own_name(each.name)
        found.append(Parameter(f"{safe(name)}: {made}? = nil", f"{name}: {safe(name)}"))
    for each in table.optional_attributes(row):
        name = own_name(table.parameter(row, each))
        declared = f"{safe(name)}: {type_of(each)}{default_of(each)}"
        found.append(Parameter(declared, f"{name}: {safe(name)}"))
    return found


def type_of(each: Attribute) -> str:
    """The type of an attribute."""
    type_ = table.choice_of(each).name if each.kind == "choice" else TYPES[each.kind]
    return type_ + "?" * each.takes_null


def default_of(each: Attribute) -> str:
    """The default of an attribute, as Swift writes it."""
    value = each.default
    if value is REQUIRED:
        return ""
    if value is None:
        return " = nil"
    if each.kind == "choice":
        return f" = .{case_of(value)}"
    if each.kind == "dtype":
        return f" = .{value}"
    if isinstance(value, bool):
        return f" = {str(value).lower()}"
    if isinstance(value, tuple | list):
        return f" = [{', '.join(map(str, value))}]"
    return f" = {value}"


def name_of(row: Operation) -> str:
    """The method's name."""
    return camel(row.name)


def head(row: Operation, declared: Iterable[str], made: str, is_async: bool) -> list[str]:
    """The first lines of a method."""
    failure = "CowMLXError" if is_async else ("Failure" if has_receiver(row) else "Made.Failure")
    effects = f"{'async ' if is_async else ''}throws({failure})"
    start, taken = f"  public func {safe(name_of(row))}", list(declared)
    end = f" {effects} -> {result_of(row, made)} {{"
    line = f"{start}({', '.join(taken)}){end}"
    if len(line) <= 100:
        return [line]
    last = len(taken) - 1
    return [
        f"{start}(",
        *textwrap.wrap(
            " ".join(f"{each}{',' * (at < last)}" for at, each in enumerate(taken)),
            96,
            initial_indent="    ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        ),
        f"  ){end}",
    ]


def made_of(row: Operation, is_async: bool) -> str:
    """The type of operands."""
    return "NDArray" if is_async else ("Self" if has_receiver(row) else "Made")


def method(row: Operation, is_async: bool) -> Iterable[str]:
    """One method."""
    made = made_of(row, is_async)
    taken = parameters(row, made)
    yield from comment(row)
    yield from head(row, [each.declared for each in taken], made, is_async)
    if is_async:
        given = ", ".join(each.given for each in taken)
        yield from off_the_pool(f"{safe(name_of(row))}({given})")
    else:
        yield from body(row)
    yield "  }"


def off_the_pool(call: str) -> Iterable[str]:
    """The body of an async method."""
    yield "    try await blocking { [self] () throws(CowMLXError) in"
    yield f"      try {call}"
    yield "    }"


def body(row: Operation) -> Iterable[str]:
    """The body of a method."""
    names = [safe(own_name(each.name)) for each in row.inputs]
    maker = "maker." if has_receiver(row) else ""
    if has_receiver(row):
        names[0] = "self"
    inputs = names[0] if row.variadic else f"[{', '.join(names)}]"
    attributes = ", ".join(
        f'"{each.name}": {safe(own_name(table.parameter(row, each)))}' for each in row.attributes
    )
    count = COUNTS.get(row.name) if row.outputs_vary else len(row.outputs)
    results = f", results: {count}" if count != 1 else ""
    call = f'{maker}made("{row.name}", {inputs}, [{attributes or ":"}]{results})'
    if count == 1 or row.outputs_vary:
        yield from wrapped(f"try {call}")
        return
    yield from wrapped(f"let made = try {call}")
    yield f"    return ({', '.join(f'made[{at}]' for at in range(len(row.outputs)))})"


def wrapped(line: str) -> Iterable[str]:
    """A statement, on as many lines as it needs."""
    return textwrap.wrap(
        line,
        100,
        initial_indent="    ",
        subsequent_indent="      ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def with_numbers(
    row: Operation, others: Sequence[str], numbers: Sequence[str], is_async: bool
) -> Iterable[str]:
    """The method that takes numbers for inputs, which take the type of another."""
    made = made_of(row, is_async)
    rest = parameters(row, made)[len(others) :]
    beside = next((own_name(name) for name in others if name not in numbers), "self")
    taken = [
        f"_ {own_name(name)}: {'some ArrayNumber' if name in numbers else made}" for name in others
    ]
    yield from comment(row)
    yield from head(row, [*taken, *(each.declared for each in rest)], made, is_async)
    if is_async:
        given = [own_name(name) for name in others]
    else:
        given = [
            f"{beside}.constant({own_name(name)})" if name in numbers else own_name(name)
            for name in others
        ]
    call = f"{safe(name_of(row))}({', '.join([*given, *(each.given for each in rest)])})"
    if is_async:
        yield from off_the_pool(call)
    else:
        yield f"    try {call}"
    yield "  }"


def operators() -> str:
    """The operators of operands, and those of arrays in asynchronous code."""
    lines = ["extension Operand {"]
    lines += operators_of("Self", "throws(Failure)", "try ")
    lines += ["}", "", "extension NDArray {"]
    # Swift prefers operators of a type to those of its protocols, whatever the context.
    lines += operators_of("NDArray", "throws(CowMLXError)", "try ")
    lines += [""]
    lines += operators_of("NDArray", "async throws(CowMLXError)", "try await ")
    return "\n".join([*lines, "}", ""])


def operators_of(made: str, effects: str, made_by: str) -> Iterable[str]:
    """The operators between operands, and with numbers on either side."""
    for sign, name in OPERATORS.items():
        row = next(row for row in table.ROWS if camel(row.name) == name)
        about = [*doc(f"{row.summary.rstrip('.')}.", "  ")]
        numbers = "some ArrayNumber"
        constant = "number" if "async" in effects else "constant"
        for left, right, call in (
            (made, made, f"a.{name}(b)"),
            (made, numbers, f"a.{name}(b)"),
            (numbers, made, f"b.{constant}(a).{name}(b)"),
        ):
            yield from about
            yield f"  public static func {sign} (a: {left}, b: {right}) {effects} -> {made} {{"
            yield from (f"    {made_by}{call}", "  }", "")
    yield "  /// The array with the other sign."
    yield f"  public static prefix func - (a: {made}) {effects} -> {made} {{"
    yield from (f"    {made_by}a.negative()", "  }")
