"""Writes methods of Swift for calls that need no form of the language's own.

They are those that tools/bindings/emit_methods.py describes, for Swift.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tools.bindings.call_table import Is
from tools.bindings.calls import Call, Role
from tools.bindings.emit_methods import buffer_of, by_hand, noun_of
from tools.bindings.emit_swift import camel, doc, safe

# Calls that wait and have callbacks: sequences make the calls that return at once.
LEFT_OUT = ("model_load", "context_generate", "context_chat")
NOUNS = ("model", "context", "program", "training")
TYPES = {"size_t": "Int", "bool": "Bool", "_Bool": "Bool", "float": "Float", "double": "Double"}
TYPES |= {"int32_t": "Int32", "int64_t": "Int64", "uint32_t": "UInt32", "uint64_t": "UInt64"}


def missing(calls: list[Call], folder: Path) -> dict[str, list[Call]]:
    """The calls that no source makes, by their noun."""
    code = by_hand(folder, "*.swift")
    if not code:  # a copy of the tree without the binding
        return {}
    made = set(re.findall(r"\bapi\.(\w+)\(", code))
    nouns: dict[str, list[Call]] = {}
    for call in calls:
        if call.name not in (*made, *LEFT_OUT) and Is.NO_ROLES not in call.properties:
            nouns.setdefault(noun_of(call), []).append(call)
    if unknown := nouns.keys() - set(NOUNS):
        raise ValueError(f"no class of Swift has generated methods of {sorted(unknown)}")
    return nouns


def methods(calls: list[Call], folder: Path, generated: str) -> str:
    """Return the text of Generated/Methods.swift."""
    lines = [f"// {generated}", "// swift-format-ignore-file", "", "import CCowMLX"]
    for noun, made in missing(calls, folder).items():
        lines += ["", f"extension {noun.capitalize()} {{"]
        for index, call in enumerate(made):
            lines += [""] * bool(index) + [f"  {line}".rstrip() for line in method(call)]
        lines += ["}"]
    return "\n".join([*lines, ""])


def method(call: Call) -> Iterable[str]:
    """One method."""
    noun, _, verb = call.name.partition("_")
    buffer = buffer_of(call)
    outputs = [role for role in call.outputs if role.kind == "value_out"]
    taken = [f"{safe(camel(role.name))}: {input_type(role)}" for role in call.inputs[1:]]
    results = [output_type(role) for role in call.outputs]
    named = [f"{camel(role.name)}: {output_type(role)}" for role in call.outputs]
    result = f" -> {results[0] if len(results) == 1 else '(' + ', '.join(named) + ')'}"
    yield from doc(call.function.summary)
    effects = f"async throws{result * bool(results)}"
    yield f"public func {safe(camel(verb))}({', '.join(taken)}) {effects} {{"
    yield "  try await call { (handle) throws(CowMLXError) in"
    if any(role.kind == "string" for role in call.inputs):
        yield f'    let lowering = Lowering("{noun.capitalize()}.{camel(verb)}")'
        yield "    defer { withExtendedLifetime(lowering) {} }"
    for role in call.inputs:
        if role.kind == "string":
            name = camel(role.name)
            yield f'    let {name}Text = try lowering.text("{name}", {safe(name)})'
    for role in outputs:
        yield f"    var {camel(role.name)} = {output_type(role)}({initial(role)})"
    given = ", ".join(argument(role) for role in call.roles)
    made = f"api.{call.name}({given})"
    if buffer is None:
        yield f"    try check({made})"
    else:
        is_text = buffer.type.name == "char"
        how = "text" if is_text else f"vector(1024, of: {TYPES[buffer.type.name]}.self)"
        if is_text and any(role.name == how for role in call.inputs):
            how = f"CowMLX.{how}"
        yield f"    let {camel(buffer.name)} = try {how} {{"
        yield f"      {made}"
        yield "    }"
    names = ", ".join(camel(role.name) for role in call.outputs)
    if names:
        yield f"    return {names if len(results) == 1 else f'({names})'}"
    yield "  }"
    yield "}"


def input_type(role: Role) -> str:
    """The type of an input."""
    named = {"text": "String", "tokens": "[Token]"}
    named["string"] = "String?" if role.type.nullable else "String"
    return named.get(role.kind) or TYPES[role.type.name]


def output_type(role: Role) -> str:
    """The type of a result."""
    if role.kind == "value_out":
        return TYPES[role.type.name]
    return "String" if role.type.name == "char" else f"[{TYPES[role.type.name]}]"


def initial(role: Role) -> str:
    """The value before the call."""
    return "false" if TYPES[role.type.name] == "Bool" else "0"


def argument(role: Role) -> str:
    """The arguments of a role."""
    name = safe(camel(role.name))
    match role.kind:
        case "handle":
            return "handle"
        case "text":
            return f"{name}, {name}.utf8.count"
        case "tokens":
            return f"{name}, {name}.count"
        case "string":
            return f"{camel(role.name)}Text"
        case "value_out":
            return f"&{camel(role.name)}"
        case "buffers_out":
            return "$0, $1, $2"
    return name
