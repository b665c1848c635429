"""The notations of tool calls that mlx-lm's parsers read."""

from __future__ import annotations

import json
import keyword
import re

from cowmlx.generation.grammar_bounds import ANNOTATIONS
from cowmlx.generation.tool_calls.writer import (
    NAME,
    SHARED,
    CallWriter,
    Tool,
    repeated,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def object_call(writer: CallWriter, tool: Tool) -> str:
    """``{"name": ..., "arguments": ...}``."""
    name = writer.plain(json.dumps(tool.name, ensure_ascii=False) + ",")
    space = '" "?'
    begin = f'"{{\\"name\\":" {space} {name} {space} "\\"arguments\\":" {space}'
    return writer.rule(f'{begin} {writer.arguments(tool)} "}}"')


def json_tools(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """The object between markers, as Hermes and Qwen write it."""
    call = writer.any_of(object_call(writer, tool) for tool in tools)
    whole = writer.rule(f'{writer.begin} "\\n"? {call} "\\n"? {writer.end}')
    return repeated(whole, once)


def mistral(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """``name[ARGS]{...}``, or a list of objects, to the end of the answer."""
    arguments = writer.literal("[ARGS]")
    pattern = r"[\w-]+"
    headed = writer.any_of(
        f"{writer.plain(writer.name(tool, pattern))} {arguments} {writer.arguments(tool)}"
        for tool in tools
    )
    listed = writer.any_of(object_call(writer, tool) for tool in tools)
    more = "" if once else f' ("," " "? {listed})*'
    again = "" if once else f" ({writer.begin}? {headed})*"
    return f'{writer.begin} ({headed}{again} | "[" {listed}{more} "]")'


def kimi_k2(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """``functions.name:0`` and the object, in a section of calls."""
    begin, inside, end = (
        writer.literal(f"<|tool_call_{part}|>") for part in ("begin", "argument_begin", "end")
    )
    number = "/[0-9]{1,3}/"
    named = writer.any_of(
        f"{writer.plain('functions.' + writer.name(tool) + ':')} {number} "
        f"{inside} {writer.arguments(tool)}"
        for tool in tools
    )
    call = writer.rule(f"{begin} {named} {end}")
    return f"{writer.begin} {call}{'' if once else '+'} {writer.end}"


def kimi_k3(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """XTML, with all arguments in one block of JSON."""
    begin = writer.literal('"<|sep|><|open|>json type="object"<|sep|>')
    end = writer.literal("<|close|>json<|sep|><|close|>call<|sep|>")
    number = "/[0-9]{1,3}/"
    calls = []
    for tool in tools:
        name = tool.name.replace("&", "&amp;").replace('"', "&quot;")
        opened = writer.literal(f'<|open|>call tool="{name}" index="')
        calls.append(f"{opened} {number} {begin} {writer.arguments(tool)} {end}")
    return f"{writer.begin} {writer.any_of(calls)}{'' if once else '+'} {writer.end}"


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
    """``call:name{key:value,...}``, texts between special quotes."""

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


class Elements:
    """How arguments are written as elements.

    Attributes:
        before, after: around an argument's value; the key takes the place of ``{}``, and line
            breaks may be left out.
        keys: a pattern that they must match.
        line: whether JSON values may stand on separate lines.
        outer: texts that no value may hold.
        misread: a pattern of values that parsers take for something else.
        quoted: whether a text may be a JSON string.
    """

    def __init__(
        self,
        before: str,
        after: str,
        *,
        keys: str = NAME,
        line: bool = False,
        outer: tuple[str, ...] = (),
        misread: str = "",
        quoted: bool = False,
    ) -> None:
        self.before = before
        self.after = after
        self.keys = keys
        self.line = line
        self.outer = outer
        self.misread = misread
        self.quoted = quoted

    def write(self, writer: CallWriter, tool: Tool) -> str:
        """Return the arguments of a tool."""
        parts = self.parts(writer, tool)
        return " ".join(part if needed else f"{part}?" for part, needed in parts)

    def parts(self, writer: CallWriter, tool: Tool) -> list[tuple[str, bool]]:
        """Return each argument of a tool, and whether it must be there."""
        parts = []
        for key, schema, needed in writer.properties(tool, self.keys):
            value = self._value(writer, tool, key, schema)
            before = ' "\\n"? '.join(map(writer.literal, self.before.format(key).split("\n")))
            parts.append((writer.rule(f'{before} {value} "\\n"?'), needed))
        return parts

    def _value(self, writer: CallWriter, tool: Tool, key: str, schema: dict[str, Any]) -> str:
        after = writer.literal(self.after)
        line = '"\\n"?' if self.line else ""
        if writer.kind(tool, key, schema) != "string":
            return f"{line} {writer.json(schema)} {line} {after}"
        if self.quoted and not writer.is_any_text(schema):
            return f"{writer.json(schema)} {after}"
        outside = (*self.outer, writer.end_text)
        choices = writer.choices(tool, key, schema, r"\S|\S.*\S")
        if choices:
            for choice in choices:
                misread = self.misread and re.fullmatch(self.misread, choice)
                if misread or any(text and text in choice for text in (*outside, self.after)):
                    writer.refuse(f"the value {choice!r} of {key!r} cannot be written")
            return f"{line} ({writer.any_of(map(writer.plain, choices))}) {line} {after}"
        free = writer.text_until(self.after, outside, self.misread)
        return f"({free} | {writer.json(schema)} {after})" if self.quoted else free


_NO_ARGUMENTS: dict[str, object] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
_NULL = r"\s*(?i:null)\s*"
_QWEN = Elements(
    "<parameter={}>",
    "</parameter>",
    line=True,
    outer=("</function>",),
    misread=r"\n?(?i:null)\n?",
)
_GLM = Elements("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>", outer=("<arg_key>",))
_LONGCAT = Elements(
    "<longcat_arg_key>{}</longcat_arg_key>\n<longcat_arg_value>",
    "</longcat_arg_value>",
    outer=("<longcat_arg_key>",),
)
_MINIMAX = Elements('<parameter name="{}">', "</parameter>", outer=("</invoke>",), misread=_NULL)
_MINICPM = Elements('<param name="{}">', "</param>", misread=_NULL)
_MUSE = Elements(
    '<atem:parameter name="{}">',
    "</atem:parameter>",
    outer=("</atem:invoke>",),
    misread=r'\s*([-0-9"\[{](?s:.*)|true|false|null|NaN|Infinity)\s*',
    quoted=True,
)


def qwen3_coder(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """``<function=name>`` around the elements, each call between markers."""
    calls = (
        f'{writer.plain("<function=" + writer.name(tool) + ">")} "\\n"? '
        f'{_QWEN.write(writer, tool)} "</function>"'
        for tool in tools
    )
    whole = writer.rule(f'{writer.begin} "\\n"? {writer.any_of(calls)} "\\n"? {writer.end}')
    return repeated(whole, once)


def glm47(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """The name in front of the elements, each call between markers."""
    calls = (
        f'{writer.plain(writer.name(tool))} "\\n"? {_GLM.write(writer, tool)}' for tool in tools
    )
    return repeated(writer.rule(f"{writer.begin} {writer.any_of(calls)} {writer.end}"), once)


def longcat(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """Elements, or a JSON object where there is no argument: the parser needs one of them."""
    calls = []
    for tool in tools:
        parts = _LONGCAT.parts(writer, tool)
        if parts:
            calls.append(
                f'{writer.plain(writer.name(tool))} "\\n"? {writer.joined(parts, "", empty=False)}'
            )
        if not any(needed for _, needed in parts):
            calls.append(object_call(writer, Tool(tool.name, _NO_ARGUMENTS)))
    return repeated(writer.rule(f"{writer.begin} {writer.any_of(calls)} {writer.end}"), once)


def _invoked(tag: str, elements: Elements) -> Callable[[CallWriter, list[Tool], bool], str]:
    """Calls as elements with a name, in one section."""

    def form(writer: CallWriter, tools: list[Tool], once: bool) -> str:
        closed = writer.plain(f"</{tag}>")
        calls = (
            f"{writer.plain(f'<{tag} name={json.dumps(writer.name(tool))}>')} "
            f'"\\n"? {elements.write(writer, tool)} {closed} "\\n"?'
            for tool in tools
        )
        many = "" if once else "+"
        return f'{writer.begin} "\\n"? {writer.any_of(calls)}{many} {writer.end}'

    return form


minimax_m2 = _invoked("invoke", _MINIMAX)
muse_spark = _invoked("atem:invoke", _MUSE)


def minicpm5(writer: CallWriter, tools: list[Tool], once: bool) -> str:
    """``<function name="name">`` around the elements; these are the markers."""
    calls = (
        f"{writer.plain(json.dumps(writer.name(tool)) + '>')} {_MINICPM.write(writer, tool)}"
        for tool in tools
    )
    return repeated(writer.rule(f"{writer.begin} {writer.any_of(calls)} {writer.end}"), once)
