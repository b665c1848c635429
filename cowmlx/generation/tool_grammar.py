"""Grammars of tool calls, in the notation that each of mlx-lm's parsers reads."""

from __future__ import annotations

import json
import keyword
import re

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generation import grammar_bounds as bounds
from cowmlx.generation.lark import LarkWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from cowmlx.models.features import ChatFormat
    from cowmlx.models.model import Model

# What a schema of a text may say where the text is written without quotes.
_PLAIN_TEXT = {"type", "enum", "const", "description", "title", "default", "examples", "$comment"}
_TYPES = {"string", "integer", "number", "boolean", "object", "array"}
_SHARED: tuple[str, ...] = ("$defs", "definitions")  # what references in a schema lead to
MAX_NAME = 256  # characters of a tool's name, or of an argument's
_WORD = r"\w+"
_DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_NAME = r"[\w.:/-]+"


class Tool:
    """A tool that is to be called.

    Attributes:
        name: what the model calls it by.
        parameters: the JSON schema of its arguments, an object's.
    """

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self.name = name
        self.parameters = parameters


def of_calls(model: Model, tools: list[Tool], *, once: bool) -> str:
    """Return a Lark grammar of calls in a model's own notation.

    Args:
        model: whose notation and tokens.
        tools: any of them.
        once: whether there is one call alone; otherwise there may be more.

    Raises:
        Unsupported: the notation is unknown, or cannot be held to the tools' schemas.
        InvalidArgument: a schema goes beyond what is supported.
    """
    format = model.chat_format
    form = _FORMS.get(format.parser or "")
    if form is None or not format.tool_start:
        known = f"the tool-call format {format.parser!r}" if format.parser else "none that is known"
        raise Unsupported(
            f"tool_choice: calls can be required of models whose format is one of "
            f"{', '.join(sorted(_FORMS))}; this model has {known}"
        )
    for tool in tools:
        if len(tool.name) > MAX_NAME:
            raise InvalidArgument(
                f"a name has {len(tool.name)} characters; at most {MAX_NAME} are supported"
            )
        bounds.check_schema(tool.parameters)
    writer = _Calls(model, format)
    writer.rule(form(writer, tools, once), "start")
    return writer.grammar()


class _Calls(LarkWriter):
    """Writes what calls in all notations are made of."""

    def __init__(self, model: Model, format: ChatFormat) -> None:
        super().__init__(model)
        self.parser = format.parser
        self.begin = self.literal(format.tool_start)
        self.end = self.literal(format.tool_end) if format.tool_end else ""
        self.end_text = format.tool_end

    def arguments(self, tool: Tool) -> str:
        """Return a JSON object that matches a tool's schema."""
        return self.json(tool.parameters)

    def name(self, tool: Tool, pattern: str = _NAME) -> str:
        """Return a tool's name, unless it would be misread."""
        if re.fullmatch(pattern, tool.name, re.ASCII) is None:
            self.refuse(f"the name {tool.name!r} cannot be written")
        return tool.name

    def properties(self, tool: Tool, pattern: str) -> list[tuple[str, dict[str, Any], bool]]:
        """Return name and schema of each argument, and whether it is required.

        Raises:
            Unsupported: the schema says more than that, or a name would be misread.
        """
        schema = tool.parameters
        for word in ("anyOf", "oneOf", "allOf", "not", "if", "$ref", "patternProperties"):
            if word in schema:
                self.refuse(f"{word} in the parameters of {tool.name!r} cannot be enforced")
        found, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(found, dict) or not isinstance(required, list):
            raise InvalidArgument(f"properties or required of {tool.name!r} is malformed")
        shared = {key: schema[key] for key in _SHARED if key in schema}
        result = []
        for key, value in found.items():
            if not isinstance(value, dict | bool):
                raise InvalidArgument(f"the schema of {key!r} of {tool.name!r} is malformed")
            written = len(key) <= MAX_NAME and re.fullmatch(pattern, key, re.ASCII)
            if not written or value is False:
                self.refuse(f"the argument {key!r} of {tool.name!r} cannot be written")
            inner = {**shared, **value} if isinstance(value, dict) else {}
            result.append((key, inner, key in required))
        unknown = [key for key in required if not isinstance(key, str) or key not in found]
        if unknown:
            self.refuse(f"{tool.name!r} requires {unknown[0]!r}, which is none of its properties")
        return result

    def choices(self, tool: Tool, key: str, schema: dict[str, Any], pattern: str) -> list[str]:
        """Return the texts that an argument may be; none if it may be any.

        Raises:
            Unsupported: its schema says more, or a text would be misread.
        """
        for word in schema:
            if word not in _PLAIN_TEXT and word not in _SHARED:
                self.refuse(f"{word} of the argument {key!r} of {tool.name!r} cannot be enforced")
        choices: Any = [schema["const"]] if "const" in schema else schema.get("enum", [])
        if not isinstance(choices, list) or (not choices and "enum" in schema):
            raise InvalidArgument(f"the enum of {key!r} of {tool.name!r} is malformed")
        for choice in choices:
            if not isinstance(choice, str) or re.fullmatch(pattern, choice) is None:
                self.refuse(f"the value {choice!r} of {key!r} of {tool.name!r} cannot be written")
        return list(choices)

    def refuse(self, what: str) -> NoReturn:
        """Raise Unsupported."""
        raise Unsupported(
            f"tool_choice: in this model's tool-call format {self.parser!r} {what}; leave "
            'tool_choice at "auto"'
        )

    def kind(self, tool: Tool, key: str, schema: dict[str, Any]) -> str:
        """Return the JSON type of an argument; there must be one alone."""
        kind = schema.get("type")
        if not isinstance(kind, str) or kind not in _TYPES:
            self.refuse(f"the argument {key!r} of {tool.name!r} must have one type, not {kind!r}")
        return kind


# --------------------------------------------------------- JSON between markers


def _object(writer: _Calls, tool: Tool) -> str:
    """``{"name": ..., "arguments": ...}``."""
    name = writer.plain(json.dumps(tool.name, ensure_ascii=False) + ",")
    space = '" "?'
    begin = f'"{{\\"name\\":" {space} {name} {space} "\\"arguments\\":" {space}'
    return writer.rule(f'{begin} {writer.arguments(tool)} "}}"')


def _json_tools(writer: _Calls, tools: list[Tool], once: bool) -> str:
    call = writer.any_of(_object(writer, tool) for tool in tools)
    whole = writer.rule(f'{writer.begin} "\\n"? {call} "\\n"? {writer.end}')
    return _repeated(whole, once)


def _mistral(writer: _Calls, tools: list[Tool], once: bool) -> str:
    """``name[ARGS]{...}``, or a list of objects, to the end of the answer."""
    arguments = writer.literal("[ARGS]")
    pattern = r"[\w-]+"
    headed = writer.any_of(
        f"{writer.plain(writer.name(tool, pattern))} {arguments} {writer.arguments(tool)}"
        for tool in tools
    )
    listed = writer.any_of(_object(writer, tool) for tool in tools)
    more = "" if once else f' ("," " "? {listed})*'
    again = "" if once else f" ({writer.begin}? {headed})*"
    return f'{writer.begin} ({headed}{again} | "[" {listed}{more} "]")'


def _kimi_k2(writer: _Calls, tools: list[Tool], once: bool) -> str:
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


def _kimi_k3(writer: _Calls, tools: list[Tool], once: bool) -> str:
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


# ------------------------------------------------------- An element per argument


class _Elements:
    """How arguments are written as elements.

    Attributes:
        before, after: around an argument's value; the key takes the place of ``{}``, and line
            breaks may be left out.
        keys: what they may be made of.
        line: whether values that are JSON may have lines of their own.
        outer: texts that no value may hold.
        misread: a pattern of values that parsers take for something else.
        quoted: whether a text may be a JSON string.
    """

    def __init__(
        self,
        before: str,
        after: str,
        *,
        keys: str = _NAME,
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

    def write(self, writer: _Calls, tool: Tool) -> str:
        """Return the arguments of a tool."""
        parts = self.parts(writer, tool)
        return " ".join(part if needed else f"{part}?" for part, needed in parts)

    def parts(self, writer: _Calls, tool: Tool) -> list[tuple[str, bool]]:
        """Return each argument of a tool, and whether it must be there."""
        parts = []
        for key, schema, needed in writer.properties(tool, self.keys):
            value = self._value(writer, tool, key, schema)
            before = ' "\\n"? '.join(map(writer.literal, self.before.format(key).split("\n")))
            parts.append((writer.rule(f'{before} {value} "\\n"?'), needed))
        return parts

    def _value(self, writer: _Calls, tool: Tool, key: str, schema: dict[str, Any]) -> str:
        after = writer.literal(self.after)
        line = '"\\n"?' if self.line else ""
        if writer.kind(tool, key, schema) != "string":
            return f"{line} {writer.json(schema)} {line} {after}"
        json_text = f"{writer.json(schema)} {after}"
        if self.quoted and not set(schema) <= {*_PLAIN_TEXT} - {"enum", "const"}:
            return json_text
        outside = (*self.outer, writer.end_text)
        choices = writer.choices(tool, key, schema, r"\S|\S.*\S")
        if choices:
            for choice in choices:
                misread = self.misread and re.fullmatch(self.misread, choice)
                if misread or any(text and text in choice for text in (*outside, self.after)):
                    writer.refuse(f"the value {choice!r} of {key!r} cannot be written")
            return f"{line} ({writer.any_of(map(writer.plain, choices))}) {line} {after}"
        free = writer.text_until(self.after, outside, self.misread)
        return f"({free} | {json_text})" if self.quoted else free


_NO_ARGUMENTS: dict[str, object] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
_NULL = r"\s*(?i:null)\s*"
_QWEN = _Elements(
    "<parameter={}>",
    "</parameter>",
    line=True,
    outer=("</function>",),
    misread=r"\n?(?i:null)\n?",
)
_GLM = _Elements("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>", outer=("<arg_key>",))
_LONGCAT = _Elements(
    "<longcat_arg_key>{}</longcat_arg_key>\n<longcat_arg_value>",
    "</longcat_arg_value>",
    outer=("<longcat_arg_key>",),
)
_MINIMAX = _Elements('<parameter name="{}">', "</parameter>", outer=("</invoke>",), misread=_NULL)
_MINICPM = _Elements('<param name="{}">', "</param>", misread=_NULL)
_MUSE = _Elements(
    '<atem:parameter name="{}">',
    "</atem:parameter>",
    outer=("</atem:invoke>",),
    misread=r'\s*([-0-9"\[{](?s:.*)|true|false|null|NaN|Infinity)\s*',
    quoted=True,
)


def _qwen3_coder(writer: _Calls, tools: list[Tool], once: bool) -> str:
    calls = (
        f'{writer.plain("<function=" + writer.name(tool) + ">")} "\\n"? '
        f'{_QWEN.write(writer, tool)} "</function>"'
        for tool in tools
    )
    whole = writer.rule(f'{writer.begin} "\\n"? {writer.any_of(calls)} "\\n"? {writer.end}')
    return _repeated(whole, once)


def _glm47(writer: _Calls, tools: list[Tool], once: bool) -> str:
    calls = (
        f'{writer.plain(writer.name(tool, _NAME))} "\\n"? {_GLM.write(writer, tool)}'
        for tool in tools
    )
    return _repeated(writer.rule(f"{writer.begin} {writer.any_of(calls)} {writer.end}"), once)


def _longcat(writer: _Calls, tools: list[Tool], once: bool) -> str:
    """Elements, or a JSON object where there is no argument: the parser needs one of them."""
    calls = []
    for tool in tools:
        parts = _LONGCAT.parts(writer, tool)
        if parts:
            calls.append(
                f'{writer.plain(writer.name(tool))} "\\n"? {writer.joined(parts, "", empty=False)}'
            )
        if not any(needed for _, needed in parts):
            calls.append(_object(writer, Tool(tool.name, _NO_ARGUMENTS)))
    return _repeated(writer.rule(f"{writer.begin} {writer.any_of(calls)} {writer.end}"), once)


def _invoked(tag: str, elements: _Elements) -> Callable[[_Calls, list[Tool], bool], str]:
    """Calls as elements with a name, in one section."""

    def form(writer: _Calls, tools: list[Tool], once: bool) -> str:
        closed = writer.plain(f"</{tag}>")
        calls = (
            f"{writer.plain(f'<{tag} name={json.dumps(writer.name(tool))}>')} "
            f'"\\n"? {elements.write(writer, tool)} {closed} "\\n"?'
            for tool in tools
        )
        many = "" if once else "+"
        return f'{writer.begin} "\\n"? {writer.any_of(calls)}{many} {writer.end}'

    return form


def _minicpm5(writer: _Calls, tools: list[Tool], once: bool) -> str:
    calls = (
        f"{writer.plain(json.dumps(writer.name(tool)) + '>')} {_MINICPM.write(writer, tool)}"
        for tool in tools
    )
    return _repeated(writer.rule(f"{writer.begin} {writer.any_of(calls)} {writer.end}"), once)


# --------------------------------------------------------------- Like functions


def _pythonic(writer: _Calls, tools: list[Tool], once: bool) -> str:
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


def _gemma(quote: str, nested: bool) -> Callable[[_Calls, list[Tool], bool], str]:
    """``call:name{key:value,...}``, texts between quotes of their own."""

    def value(writer: _Calls, tool: Tool, key: str, schema: dict[str, Any]) -> str:
        kind = writer.kind(tool, key, schema)
        if kind in ("integer", "number", "boolean"):
            return writer.json(schema)
        opened, closed = writer.literal(quote), writer.literal(quote)
        if kind == "string":
            outside = (writer.end_text,) if nested else ("}", writer.end_text)
            choices = writer.choices(tool, key, schema, r"[^\0]*" if nested else r"[^\0}]*")
            if any(quote in choice for choice in choices):
                writer.refuse(f"a value of {key!r} of {tool.name!r} cannot be written")
            if choices:
                return f"{opened} {writer.any_of(map(writer.plain, choices))} {closed}"
            return f"{opened} {writer.text_until(quote, outside)}"
        if not nested:
            writer.refuse(f"the argument {key!r} of {tool.name!r} is an {kind}, which cannot be")
        if kind == "object":
            return members(writer, Tool(tool.name, schema))
        items = schema.get("items")
        if not isinstance(items, dict) or {"minItems", "maxItems", "prefixItems"} & set(schema):
            writer.refuse(f"the array {key!r} of {tool.name!r} cannot be enforced")
        shared = {key: schema[key] for key in _SHARED if key in schema}
        item = writer.rule(value(writer, tool, key, {**shared, **items}))
        return f'"[" ({item} ("," {item})*)? "]"'

    def members(writer: _Calls, tool: Tool) -> str:
        arguments = [
            (f"{writer.plain(key + ':')} {value(writer, tool, key, schema)}", needed)
            for key, schema, needed in writer.properties(tool, _WORD)
        ]
        return f'"{{" {writer.joined(arguments, chr(34) + "," + chr(34))} "}}"'

    def form(writer: _Calls, tools: list[Tool], once: bool) -> str:
        pattern = r"[\w-]+" if nested else _WORD
        calls = (
            f"{writer.plain(f'call:{writer.name(tool, pattern)}')} {members(writer, tool)}"
            for tool in tools
        )
        whole = writer.rule(f"{writer.begin} {writer.any_of(calls)} {writer.end}")
        return _repeated(whole, once)

    return form


def _repeated(call: str, once: bool) -> str:
    """Return a call, or several with a line break between."""
    return call if once else f'{call} ("\\n"? {call})* "\\n"?'


_FORMS: dict[str, Callable[[_Calls, list[Tool], bool], str]] = {
    "function_gemma": _gemma("<escape>", nested=False),
    "gemma4": _gemma('<|"|>', nested=True),
    "glm47": _glm47,
    "json_tools": _json_tools,
    "kimi_k2": _kimi_k2,
    "kimi_k3": _kimi_k3,
    "laguna": _glm47,
    "longcat": _longcat,
    "minicpm5": _minicpm5,
    "minimax_m2": _invoked("invoke", _MINIMAX),
    "mistral": _mistral,
    "muse_spark": _invoked("atem:invoke", _MUSE),
    "pythonic": _pythonic,
    "qwen3_coder": _qwen3_coder,
}
