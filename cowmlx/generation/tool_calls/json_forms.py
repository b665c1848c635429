"""Notations of tool calls whose arguments are a JSON object."""

from __future__ import annotations

import json

from cowmlx.generation.tool_calls.writer import CallWriter, Tool, repeated


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
