"""Writes what Rust repeats: declarations of the public header, and methods that add operations.

Both are lists in macros, which the including file defines: the crate makes items of them, and its
tests compare them with the header and the table of operations.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from cowmlx.programs.operations.row import Attribute, Input, Operation
from tools.bindings import operations as table
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


TYPES = {
    "int": "i64",
    "float": "f64",
    "number": "Number",
    "bool": "bool",
    "text": "String",
    "axis": "i64",
    "axes": "IntList",
    "axis or axes": "Ints",
    "shape": "Dims",
    "dtype": "Dtype",
    "ints": "IntList",
    "int or ints": "Ints",
    "pairs": "Pairs",
}

# How many results an operation has where that varies; of svd and quantize, what options say.
COUNTS = {
    "split": "indices_or_sections.parts()",
    "unstack": "results",
    "meshgrid": "inputs.len()",
    "broadcast_arrays": "inputs.len()",
    "svd": 'if attributes.is_other("compute_uv", "true") { 1 } else { 3 }',
    "quantize": 'if attributes.is_other("mode", "affine") { 2 } else { 3 }',
}
KEYWORDS = ("where",)


def module(generated: str) -> str:
    """Return the text of bindings/rust/cowmlx/src/operations/generated.rs."""
    head = [f"// {generated}", "", "use super::*;", ""]
    families = [invocation(family, rows) for family, rows in table.families()]
    return "\n".join([*head, choices(), *families])


def invocation(family: str, rows: Sequence[Operation]) -> str:
    """Return the macro's invocation for a family."""
    of_values = [row for row in rows if has_receiver(row)]
    of_builder = [row for row in rows if not has_receiver(row)]
    lines = ["operations! {", "    values {"]
    lines += [textwrap.indent(method(row, family), " " * 8) for row in of_values]
    lines += ["    }", "    builder {"]
    lines += [textwrap.indent(method(row, family), " " * 8) for row in of_builder]
    return "\n".join([*lines, "    }", "}", ""])


def has_receiver(row: Operation) -> bool:
    """Say whether an operation is a method of its first input."""
    return bool(row.inputs) and not row.variadic


def method(row: Operation, family: str) -> str:
    """Return the entry of one operation."""
    numbers = table.takes_numbers(row, family)
    inputs = table.needed_inputs(row)
    inputs = inputs[1:] if has_receiver(row) else inputs
    takes = ", ".join(f"{input_.name}: {type_of_input(input_, numbers)}" for input_ in inputs)
    attributes = table.needed_attributes(row)
    asked = [
        f'"{attribute.name}" {name_of(attribute)}: {type_of(attribute)}' for attribute in attributes
    ]
    asked += ['"" results: usize'] if COUNTS.get(row.name) == "results" else []
    needed = ", ".join(asked)
    name = f"{row.name}_" if row.name in KEYWORDS else row.name
    head = f'"{row.name}" {name}({takes}; {needed}) -> ({results(row)})'
    lines = [*comment(table.about(row) + results_of(row)), *wrap(head)]
    return "\n".join([*lines, *options(row)])[:-1] + ";" if options(row) else "\n".join(lines) + ";"


def options(row: Operation) -> list[str]:
    """Return the lines of an operation's options, if it has any."""
    inputs = table.optional_inputs(row)
    attributes = table.optional_attributes(row)
    if not inputs and not attributes:
        return []
    camel = "".join(part.capitalize() for part in row.name.split("_"))
    lines = [f"    with {row.name}_with({camel}:{'' if inputs else ' ;'}"]
    for at, place in enumerate(inputs):
        about = place.about or f"The input `{place.name}`."
        lines += [
            *indented(comment(about)),
            f"        {at} {place.name}{',' * (at + 1 < len(inputs))}",
        ]
    lines += ["        ;"] if inputs else []
    for at, attribute in enumerate(attributes):
        comma = "," * (at + 1 < len(attributes))
        lines += [
            *indented(comment(attribute.about)),
            f'        "{attribute.name}" {name_of(attribute)}: {option_of(attribute)}{comma}',
        ]
    return [*lines, "    ) "]


def indented(lines: Sequence[str]) -> list[str]:
    """Return lines of an operation's options."""
    return [f"        {line}" for line in lines]


def results(row: Operation) -> str:
    """Return the results as the macro takes them."""
    if row.outputs_vary:
        return f"any |inputs, attributes| {COUNTS[row.name]}"
    return f"several {len(row.outputs)}" if len(row.outputs) > 1 else "one"


def results_of(row: Operation) -> str:
    """Return what is said of several results."""
    return f"; gives {', '.join(row.outputs)}" if len(row.outputs) > 1 else ""


def type_of_input(place: Input, numbers: bool) -> str:
    """Return the type of an input."""
    return "Values<'b>" if place.variadic else "Operand<'b>" if numbers else "Value<'b>"


def type_of(attribute: Attribute) -> str:
    """Return the type of an attribute that is given."""
    if attribute.kind == "choice":
        return table.choice_of(attribute).name
    return TYPES[attribute.kind]


def option_of(attribute: Attribute) -> str:
    """Return the type of an attribute that may be left out; null is None where that says more."""
    type_ = type_of(attribute)
    return f"Option<{type_}>" if attribute.takes_null and attribute.default is not None else type_


def name_of(attribute: Attribute) -> str:
    """Return the name of an attribute as Rust writes names."""
    return attribute.name.lower()


def comment(text: str) -> list[str]:
    """Return a text as a comment of documentation, of which nothing is markup."""
    for sign in "\\[]<>*_`":
        text = text.replace(sign, f"\\{sign}")
    return [f"/// {line}" for line in textwrap.wrap(text, 86, break_on_hyphens=False)]


def wrap(line: str) -> list[str]:
    """Return an entry on as many lines as it needs."""
    return textwrap.wrap(
        line, 90, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def choices() -> str:
    """Return the types of choices."""
    lines = ["choices! {"]
    for choice in table.choices():
        lines += [*(f"    {line}" for line in comment(choice.about)), f"    {choice.name} {{"]
        each = [
            f'        /// `"{text}"`\n        {variant(text)} = "{text}"' for text in choice.texts
        ]
        lines += [",\n".join(each), "    }"]
    return "\n".join([*lines, "}", ""])


def variant(text: str) -> str:
    """Return the name of one choice."""
    return text[0].upper() + text[1:]
