"""Notations of tool calls that look like a function's."""

from __future__ import annotations

import keyword

from cowmlx.generation.tool_calls.writer import ANNOTATIONS, SHARED, CallWriter, Tool, repeated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_OF_ARRAYS = {*ANNOTATIONS, *SHARED, "type", "items"}
_WORD = r"\w+"
_DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"


def pythonic(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """``[name(key=value, ...)]``; JSON values are read there as they are."""
    calls = []
    for tool in tools:
        arguments = []
        for key, schema, needed in writer.properties(tool, r"[A-Za-z_]\w*"):
            if keyword.iskeyword(key):
                writer.refuse(f"the argument {key!r} of {tool.name!r} cannot be written")
            arguments.append((f"{writer.plain(key + '=')} {writer.json(schema)}", needed))
        name = writer.name(tool, _DOTTED)
        if any(map(keyword.iskeyword, name.split("."))):
            writer.refuse(f"the name {name!r} cannot be written")
        listed = writer.joined(arguments, '"," " "?')
        calls.append(f'{writer.plain(name + "(")} {listed} ")"')
    call = writer.any_of(calls)
    more = "" if once else f' ("," " "? {call})*'
    return f'{writer.begin} "[" {call}{more} "]" {writer.end}'


def _gemma(quote: str, nested: bool) -> Callable[[CallWriter, list[Tool], bool], str]:
    """``call:name{key:value,...}``, texts between quotes of their own."""

    def value(writer: CallWriter, tool: Tool, key: str, schema: dict[str, Any]) -> str:
        kind = writer.kind(tool, key, schema)
        if kind in ("integer", "number", "boolean"):
            return writer.json(schema)
        around = writer.literal(quote)
        if kind == "string":
            outside = (writer.end_text,) if nested else ("}", writer.end_text)
            choices = writer.choices(tool, key, schema, r"[^\0]*" if nested else r"[^\0}]*")
            if any(quote in choice for choice in choices):
                writer.refuse(f"a value of {key!r} of {tool.name!r} cannot be written")
            if choices:
                return f"{around} {writer.any_of(map(writer.plain, choices))} {around}"
            return f"{around} {writer.text_until(quote, outside)}"
        if not nested:
            writer.refuse(
                f"the argument {key!r} of {tool.name!r} is an {kind}: that cannot be written"
            )
        if kind == "object":
            return members(writer, Tool(tool.name, schema))
        items = schema.get("items")
        if not isinstance(items, dict) or not set(schema) <= _OF_ARRAYS:
            writer.refuse(f"the array {key!r} of {tool.name!r} cannot be enforced")
        shared = {key: schema[key] for key in SHARED if key in schema}
        item = writer.rule(value(writer, tool, key, {**shared, **items}))
        return f'"[" ({item} ("," {item})*)? "]"'

    def members(writer: CallWriter, tool: Tool) -> str:
        arguments = [
            (f"{writer.plain(key + ':')} {value(writer, tool, key, schema)}", needed)
            for key, schema, needed in writer.properties(tool, _WORD)
        ]
        return f'"{{" {writer.joined(arguments, chr(34) + "," + chr(34))} "}}"'

    def form(writer: CallWriter, tools: list[Tool], once: bool) -> str:
        pattern = r"[\w-]+" if nested else _WORD
        calls = (
            f"{writer.plain(f'call:{writer.name(tool, pattern)}')} {members(writer, tool)}"
            for tool in tools
        )
        whole = writer.rule(f"{writer.begin} {writer.any_of(calls)} {writer.end}")
        return repeated(whole, once)

    return form


function_gemma = _gemma("<escape>", nested=False)
gemma4 = _gemma('<|"|>', nested=True)
