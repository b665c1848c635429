"""Writes the functions of Node.js, Go and Java that add operations to a program.

They pass on what they are given: attributes are objects by the table's names, and a number beside
a value takes its dtype.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Sequence

from cowmlx.programs.operations.row import Attribute, Operation
from tools.bindings import emit_go, hosts
from tools.bindings import operations as table

JS_TYPES = {
    "int": "number",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "text": "string",
    "axis": "number",
    "axes": "number[]",
    "axis or axes": "number | number[]",
    "shape": "(number | string)[]",
    "dtype": "string",
    "ints": "number[]",
    "int or ints": "number | number[]",
    "pairs": "number[][]",
}
TAKEN = ("var", "in", "new", "default", "function", "range", "type", "func", "map", "select")


def node(generated: str) -> str:
    """Return the text of bindings/node/lib/generated/operations.js."""
    needs = sorted({helper(row) for row in table.ROWS})
    head = [f"// {generated}", f'import {{ {", ".join(needs)} }} from "../builder.js";', ""]
    head += ['/** @typedef {import("../builder.js").Value} Value */']
    head += ['/** @typedef {import("../builder.js").Operand} Operand */', ""]
    return "\n".join([*head, *map(js_function, table.ROWS)])


def js_function(row: Operation) -> str:
    """One function of JavaScript."""
    params = [*(["builder"] if not row.inputs else []), *names(row)]
    optional = {input_.name for input_ in table.optional_inputs(row)}
    given = [f"{name} = null" if name.rstrip("_") in optional else name for name in params]
    kinds = ['{import("../builder.js").ProgramBuilder} builder'] if not row.inputs else []
    kinds += [f"{{{'Operand[]' if row.variadic else 'Operand'}}} {name}" for name in names(row)]
    if row.attributes:
        given.append("attributes" if required(row) else "attributes = {}")
        members = (
            f"{attribute.name}{'' if attribute in required(row) else '?'}: {js_type(attribute)}"
            for attribute in row.attributes
        )
        shown = "attributes" if required(row) else "[attributes]"
        kinds.append(f"{{{{{', '.join(members)}}}}} {shown}")
    if row.outputs_vary:
        given.append("results")
        kinds.append("{number} results  how many there will be")
    lines = ["/**", *(f" * {line}" for line in wrapped(comment(row)))]
    lines += [f" * @param {kind}" for kind in kinds]
    lines += [f" * @returns {{{'Value' if one(row) else 'Value[]'}}}", " */"]
    place = "builder, []" if not row.inputs else names(row)[0] if row.variadic else listed(row)
    rest = "".join([", attributes" if row.attributes else ", {}", results(row)])
    body = f'  return {helper(row)}("{row.name}", {place}{rest});'
    name = js_name(row.name)
    return "\n".join([*lines, f"export function {name}({', '.join(given)}) {{", body, "}", ""])


def helper(row: Operation) -> str:
    """The function that one of JavaScript calls: with a builder, or with its values' builder."""
    kind = "Node" if one(row) else "Nodes"
    return f"make{kind}" if not row.inputs else f"add{kind}"


def js_type(each: Attribute) -> str:
    """The type of an attribute."""
    if each.kind == "choice":
        return " | ".join(f'"{text}"' for text in each.choices)
    return JS_TYPES[each.kind] + (" | null" if each.takes_null else "")


def js_name(name: str) -> str:
    """A function's name."""
    return "var_" if name == "var" else hosts.camel(name)


def java(generated: str) -> str:
    """Return the text of Operations.java, the interface of the builder."""
    lines = [f"// {generated}", "package cowmlx;", "", "import java.util.List;"]
    lines += ["import java.util.Map;", "", "/** Operations of programs. */"]
    lines += ["interface Operations {"]
    lines += ["  ProgramBuilder.Node node(String operation, Map<String, ?> attributes,"]
    lines += ["      Object... operands);", ""]
    lines += ["  List<ProgramBuilder.Node> nodes(String operation, Map<String, ?> attributes,"]
    lines += ["      int results, Object... operands);"]
    for row in table.ROWS:
        lines += ["", *java_methods(row)]
    return "\n".join([*lines, "}", ""])


def java_methods(row: Operation) -> Iterator[str]:
    """The methods of one operation: without attributes, too, if none is needed."""
    if row.attributes and not required(row):
        yield from java_method(row, with_attributes=False)
        yield ""
    yield from java_method(row, with_attributes=bool(row.attributes))


def java_method(row: Operation, with_attributes: bool) -> Iterator[str]:
    """One method of Java."""
    kind = "List<?>" if row.variadic else "Object"
    given = [f"{kind} {name}" for name in names(row)]
    given += ["Map<String, ?> attributes"] if with_attributes else []
    given += ["int results"] if row.outputs_vary else []
    result = "ProgramBuilder.Node" if one(row) else "List<ProgramBuilder.Node>"
    yield "  /**"
    said = html.escape(comment(row, with_attributes), quote=False).replace("@", "{@literal @}")
    yield from (f"   * {line}" for line in wrapped(said))
    yield "   */"
    yield f"  default {result} {hosts.camel(row.name)}({', '.join(given)}) {{"
    operands = names(row)
    if row.variadic:
        operands = [f'Given.given({operands[0]}, "{operands[0]}").toArray()']
    call = [
        "attributes" if with_attributes else "Map.of()",
        *([results(row)[2:]] if results(row) else []),
    ]
    call += operands
    if operands == names(row) and len(operands) == 1:
        call[-1] = f"new Object[] {{{operands[0]}}}"  # it may be null
    yield f'    return {"node" if one(row) else "nodes"}("{row.name}", {", ".join(call)});'
    yield "  }"


def go(generated: str) -> str:
    """Return the text of bindings/go/operations.go, methods of the builder."""
    note = generated[1:].replace("; do not edit.", ". DO NOT EDIT.")
    return f"// Code g{note}\n\npackage cowmlx\n" + "".join(map(go_method, table.ROWS))


def go_method(row: Operation) -> str:
    """One method of Go."""
    kind = "[]any" if row.variadic else "any"
    given = [f"{', '.join(names(row))} {kind}"] if row.inputs else []
    given += ["attributes map[string]any"] if row.attributes else []
    given += ["results int"] if row.outputs_vary else []
    name = emit_go.pascal(row.name)
    text = wrapped(f"{name}: {comment(row)}")
    call = [
        "attributes" if row.attributes else "nil",
        *([results(row)[2:]] if results(row) else []),
    ]
    call += [f"{names(row)[0]}..."] if row.variadic else names(row)
    result = "*Node" if one(row) else "[]*Node"
    return "\n".join(
        [
            "",
            *(f"// {line}" for line in text),
            f"func (builder *ProgramBuilder) {name}({', '.join(given)}) {result} {{",
            f'\treturn builder.{"Node" if one(row) else "Nodes"}("{row.name}", {", ".join(call)})',
            "}",
            "",
        ]
    )


def names(row: Operation) -> list[str]:
    """The names of an operation's inputs as parameters."""
    return [f"{input_.name}_" if input_.name in TAKEN else input_.name for input_ in row.inputs]


def listed(row: Operation) -> str:
    """Its inputs as a list."""
    return f"[{', '.join(names(row))}]"


def one(row: Operation) -> bool:
    """Whether an operation has one result."""
    return len(row.outputs) == 1 and not row.outputs_vary


def results(row: Operation) -> str:
    """The argument that says how many results there are, if there are several."""
    return "" if one(row) else ", results" if row.outputs_vary else f", {len(row.outputs)}"


def required(row: Operation) -> Sequence[Attribute]:
    """The attributes that have to be given."""
    return table.needed_attributes(row)


def comment(row: Operation, with_attributes: bool = True) -> str:
    """The comment of an operation."""
    results_ = f"; gives {', '.join(row.outputs)}" if len(row.outputs) > 1 else ""
    named = ", ".join(f"{attribute.name} ({attribute.kind})" for attribute in row.attributes)
    known = f". Attributes: {named}" if named and with_attributes else ""
    return f"{table.about(row)}{results_}{known}.".replace("*/", "* /")


def wrapped(text: str) -> list[str]:
    """A comment's lines."""
    return textwrap.wrap(text, 92, break_long_words=False, break_on_hyphens=False)
