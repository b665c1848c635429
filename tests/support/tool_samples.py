"""Answers with tool calls in the notations of mlx-lm's tool parsers, and what they mean."""

from __future__ import annotations

from typing import Any

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look something up.",
            "parameters": {
                "type": "object",
                "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
            },
        },
    }
]

_XTML = (
    '<|open|>call tool="look" index="1"<|sep|>'
    '<|open|>argument key="q" type="string"<|sep|>a b<|close|>argument<|sep|>'
    '<|open|>argument key="n" type="integer"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>'
)
_GLM = (
    "look\n<arg_key>q</arg_key>\n<arg_value>a b</arg_value>\n"
    "<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n"
)

SAMPLES: dict[str, str] = {
    "function_gemma": (
        "<start_function_call>call:look{q:<escape>a b<escape>,n:3}<end_function_call>"
    ),
    "gemma4": '<|tool_call>call:look{q:<|"|>a b<|"|>,n:3}<tool_call|>',
    "glm47": f"<tool_call>{_GLM}</tool_call>",
    "json_tools": (
        '<tool_call>\n{"name": "look", "arguments": {"q": "a b", "n": 3}}\n</tool_call>'
    ),
    "kimi_k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0"
        '<|tool_call_argument_begin|>{"q": "a b", "n": 3}<|tool_call_end|>'
        '<|tool_call_begin|>functions.look:1<|tool_call_argument_begin|>{"q": "c", "n": 4}'
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "kimi_k3": f"<|open|>tools<|sep|>{_XTML}<|close|>tools<|sep|>",
    "laguna": f"<tool_call>{_GLM}</tool_call>",
    "longcat": (
        "<longcat_tool_call>look\n<longcat_arg_key>q</longcat_arg_key>\n"
        "<longcat_arg_value>a b</longcat_arg_value>\n<longcat_arg_key>n</longcat_arg_key>\n"
        "<longcat_arg_value>3</longcat_arg_value>\n</longcat_tool_call>"
    ),
    "minicpm5": (
        '<function name="look"><param name="q">a b</param><param name="n">3</param></function>'
    ),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="look">\n<parameter name="q">a b</parameter>\n'
        '<parameter name="n">3</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "mistral": '[TOOL_CALLS]look[ARGS]{"q": "a b", "n": 3}',
    "muse_spark": (
        '<atem:function_calls>\n<atem:invoke name="look">\n'
        '<atem:parameter name="q">a b</atem:parameter>\n'
        '<atem:parameter name="n">3</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
    ),
    "pythonic": '<|tool_call_start|>[look(q="a b", n=3)]<|tool_call_end|>',
    "qwen3_coder": (
        "<tool_call>\n<function=look>\n<parameter=q>\na b\n</parameter>\n"
        "<parameter=n>\n3\n</parameter>\n</function></tool_call>"
    ),
}

CALLS: dict[str, list[tuple[str, Any]]] = {
    parser: [("look", {"q": "a b", "n": 3})] for parser in SAMPLES
}
CALLS["kimi_k2"].append(("look", {"q": "c", "n": 4}))

USER = [{"role": "user", "content": "Is it raining in Oslo?"}]
THINK = ["<think>", "</think>"]
CALL_MARKERS = ["<tool_call>", "</tool_call>"]
JSON_TOOLS = {"tool_parser_type": "json_tools"}
# What each notation writes as single tokens, where a model has them.
MARKERS = {
    "function_gemma": ["<start_function_call>", "<end_function_call>", "<escape>"],
    "gemma4": ["<|tool_call>", "<tool_call|>", '<|"|>'],
    "glm47": [*CALL_MARKERS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
    "json_tools": CALL_MARKERS,
    "kimi_k2": [
        f"<|tool_call{part}|>"
        for part in ("s_section_begin", "s_section_end", "_begin", "_argument_begin", "_end")
    ],
    "kimi_k3": ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"],
    "laguna": CALL_MARKERS,
    "longcat": ["<longcat_tool_call>", "</longcat_tool_call>", "<longcat_arg_key>"],
    "minicpm5": ["<function", "</function>", "</param>"],
    "minimax_m2": ["<minimax:tool_call>", "</minimax:tool_call>"],
    "mistral": ["[TOOL_CALLS]", "[ARGS]"],
    "muse_spark": ["<atem:function_calls>", "</atem:function_calls>"],
    "pythonic": ["<|tool_call_start|>", "<|tool_call_end|>"],
    "qwen3_coder": CALL_MARKERS,
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
                "wet": {"type": "boolean"},
            },
            "required": ["unit", "days", "wet"],
            "additionalProperties": False,
        },
    },
}
# XTML writes the arguments as one object; what the model wants is not always what it may say.
ONE_OBJECT = (
    '<|open|>tools<|sep|><|open|>call tool="look" index="1"<|sep|><|open|>json type="object"<|sep|>'
    '{"q": "a b", "n": 3}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
)


def sample(parser: str) -> str:
    return ONE_OBJECT if parser == "kimi_k3" else SAMPLES[parser]
