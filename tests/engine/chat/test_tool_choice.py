"""Chats in which a tool has to be called, may not be, or is the model's choice."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from support.callbacks import StatusError
from support.scripted import CHATML, THINKING
from support.signatures import (
    EINVAL,
    EUNSUPPORTED,
    EVENT_REASONING,
    FINISH_LENGTH,
    FINISH_STOP,
    GRAMMAR_REGEX,
)
from support.tool_samples import (
    CALL_MARKERS,
    CALLS,
    JSON_TOOLS,
    MARKERS,
    SAMPLES,
    THINK,
    TOOLS,
    USER,
    WEATHER,
    sample,
)

CALL = '<tool_call>\n{"name": "look", "arguments": {"q": "a b", "n": 3}}\n</tool_call>'
NAMED = {"type": "function", "function": {"name": "look"}}
NOTHING = {"type": "function", "function": {"name": "get_time"}}


def settings(parser: str) -> dict[str, Any]:
    return {"tool_parser_type": parser}


def refused(lib, context, status, **options) -> str:
    params = options.pop("params", {})
    with pytest.raises(StatusError) as error:
        lib.chat(context, USER, options=options, **params)
    assert error.value.status == status, error.value.message
    return error.value.message


@pytest.mark.parametrize(
    ("parser", "marked"),
    [
        (parser, marked)
        for parser in sorted(SAMPLES)
        for marked in (True, False)
        if marked or parser != "kimi_k3"  # XTML is known by its tokens alone
    ],
)
def test_a_model_s_own_call_is_one_that_may_be_required(lib, says, parser, marked):
    """In every notation, with markers that are tokens and with markers that are not."""
    markers = MARKERS[parser] if marked else []
    context = says(sample(parser), CHATML, markers, settings=settings(parser))
    options = {"tools": TOOLS, "tool_choice": "required"}
    chat = lib.chat(context, USER, options=options)
    assert chat.calls == CALLS[parser], chat.events
    assert (chat.said().strip(), chat.events[-1].finish) == ("", FINISH_STOP)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("parser", sorted(SAMPLES))
def test_whatever_is_drawn_is_a_call_that_matches(lib, says, parser, seed):
    """A model that would say anything says a call that its own parser reads."""
    context = says("It rains.", CHATML, MARKERS[parser], settings=settings(parser))
    options = {"tools": [WEATHER], "tool_choice": "get_weather"}
    chat = lib.chat(context, USER, options=options, temperature=2.0, seed=seed, max_tokens=900)
    assert [name for name, _ in chat.calls] == ["get_weather"], chat.events
    jsonschema.validate(chat.calls[0][1], WEATHER["function"]["parameters"])
    assert (chat.said(), chat.events[-1].finish) == ("", FINISH_STOP)


NESTED = {
    "type": "object",
    "$defs": {"side": {"type": "string", "enum": ["a", 'b "c"']}},
    "properties": {
        "optional": {"type": "integer"},
        "sizes": {"type": "array", "items": {"type": "integer", "enum": [1, 20]}},
        "at": {
            "type": "object",
            "properties": {"x": {"type": "number", "enum": [0.5, -3]}, "y": {"type": "boolean"}},
            "required": ["y"],
            "additionalProperties": False,
        },
        "side": {"type": "string", "enum": ["left", "top right"]},
        "last": {"type": "boolean"},
    },
    "required": ["at", "side"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("parser", sorted(set(SAMPLES) - {"function_gemma"}))
def test_nested_and_optional_arguments_match(lib, says, parser, seed):
    """Function Gemma's notation has no place for them."""
    context = says("It rains.", CHATML, MARKERS[parser], settings=settings(parser))
    tools = [WEATHER, {"name": "draw", "parameters": NESTED}]
    options = {"tools": tools, "tool_choice": "draw"}
    chat = lib.chat(context, USER, options=options, temperature=2.0, seed=seed, max_tokens=900)
    assert [name for name, _ in chat.calls] == ["draw"], chat.events
    jsonschema.validate(chat.calls[0][1], NESTED)
    assert (chat.said(), chat.events[-1].finish) == ("", FINISH_STOP)


@pytest.mark.parametrize("parser", sorted(SAMPLES))
def test_a_tool_without_parameters(lib, says, parser):
    context = says("It rains.", CHATML, MARKERS[parser], settings=settings(parser))
    tool = {
        "type": "function",
        "function": {
            "name": "get_time",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    }
    chat = lib.chat(context, USER, options={"tools": [tool], "tool_choice": "get_time"})
    assert chat.calls == [("get_time", {})], chat.events


@pytest.mark.parametrize("parser", sorted(SAMPLES))
def test_a_call_comes_behind_thinking(lib, says, parser):
    context = says(
        f"I look.\n</think>\n\n{sample(parser)}",
        THINKING,
        [*THINK, *MARKERS[parser]],
        settings=settings(parser),
    )
    chat = lib.chat(context, USER, options={"tools": TOOLS, "tool_choice": "required"})
    assert (chat.said(EVENT_REASONING), chat.calls) == ("I look.", CALLS[parser])


@pytest.mark.parametrize("choice", ["look", NAMED], ids=["name", "OpenAI's form"])
def test_a_named_tool_is_called_once(lib, says, choice):
    context = says(f"{CALL}\n{CALL}", CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    tools = [WEATHER, *TOOLS]
    chat = lib.chat(context, USER, options={"tools": tools, "tool_choice": choice})
    assert chat.calls == [("look", {"q": "a b", "n": 3})]
    every = lib.chat(context, USER, options={"tools": tools, "tool_choice": "required"})
    assert every.calls == [("look", {"q": "a b", "n": 3})] * 2


def test_a_tool_that_the_model_would_not_call_is_called(lib, says):
    context = says(CALL, CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    options = {"tools": [*TOOLS, WEATHER], "tool_choice": "get_weather"}
    chat = lib.chat(context, USER, options=options, max_tokens=900)
    jsonschema.validate(chat.calls[0][1], WEATHER["function"]["parameters"])
    assert (chat.calls[0][0], chat.said()) == ("get_weather", "")


def test_tools_without_function_around_them_are_tools(lib, says):
    """Calls of them have arguments of their types, too."""
    context = says(SAMPLES["qwen3_coder"], CHATML, CALL_MARKERS, settings=settings("qwen3_coder"))
    for choice in ("auto", "required", "look"):
        options = {"tools": [TOOLS[0]["function"]], "tool_choice": choice}
        assert lib.chat(context, USER, options=options).calls == CALLS["qwen3_coder"]


def test_none_offers_no_tools_and_takes_nothing_for_a_call(lib, calf, says):
    question = [{"role": "user", "content": "What is the weather in Rome?"}]
    plain = lib.chat_prompt(calf, question)
    assert lib.chat_prompt(calf, question, tools=TOOLS, tool_choice="none") == plain
    assert lib.chat_prompt(calf, question, tools=TOOLS, tool_choice="auto") != plain
    context = says(f"One. \n{CALL}\n Two.", CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    chat = lib.chat(context, USER, options={"tools": TOOLS, "tool_choice": "none"})
    assert (chat.calls, chat.said()) == ([], f"One. \n{CALL}\n Two.")


def test_auto_is_what_is_without_it(lib, says):
    context = says(f"One.\n{CALL}", CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    told = [
        lib.chat(context, USER, options={"tools": TOOLS, **choice}).events
        for choice in ({}, {"tool_choice": "auto"}, {"tool_choice": None})
    ]
    assert told[0] == told[1] == told[2]
    assert [event.name for event in told[0][-2:]] == ["look", ""]


def test_a_template_that_reads_the_choice_is_told(lib, says):
    template = CHATML + "{{ tool_choice }}"
    options = {"tools": TOOLS, "tool_choice": "required"}
    context = says(CALL, template, CALL_MARKERS, options=options, settings=JSON_TOOLS)
    assert len(lib.chat(context, USER, options=options).calls) == 1


TAGS = {
    "glm47": ["</arg_value>", "<arg_key>"],
    "laguna": ["</arg_value>"],
    "longcat": ["</longcat_arg_value>"],
    "minicpm5": ["</param>"],
    "minimax_m2": ["</parameter>", "</invoke>"],
    "muse_spark": ["</atem:parameter>", "</atem:invoke>"],
    "qwen3_coder": ["</parameter>", "</function>"],
}


@pytest.mark.parametrize("parser", TAGS)
def test_tags_inside_arrays_and_objects_do_not_end_them(lib, says, parser):
    for tag in (*TAGS[parser], MARKERS[parser][1]):
        text = f'a {tag} "b" \\ {tag}'
        list_of = {"type": "array", "items": {"const": text}, "minItems": 1, "maxItems": 1}
        object_of = {"type": "object", "properties": {"x": {"const": text}}, "required": ["x"]}
        object_of["additionalProperties"] = False
        schema = {"type": "object", "properties": {"q": list_of, "r": object_of, "s": list_of}}
        schema |= {"required": ["q", "r", "s"], "additionalProperties": False}
        if parser == "muse_spark":
            schema["properties"]["q"] = {"type": "string", "const": text}
        tools = [{"name": "look", "parameters": schema}]
        context = says("It rains.", CHATML, MARKERS[parser], settings=settings(parser))
        options = {"tools": tools, "tool_choice": "look"}
        chat = lib.chat(context, USER, options=options, max_tokens=900)
        q = text if parser == "muse_spark" else [text]
        assert chat.calls == [("look", {"q": q, "r": {"x": text}, "s": [text]})], chat.events


@pytest.mark.parametrize("parser", ["json_tools", "pythonic"])
def test_an_end_marker_inside_an_argument_does_not_end_a_call(lib, says, parser):
    end = MARKERS[parser][1]
    schema: dict[str, Any] = {"type": "object", "properties": {"q": {"const": f"a {end} b {end}"}}}
    schema |= {"required": ["q"], "additionalProperties": False}
    tools = [{"name": "look", "parameters": schema}]
    context = says("It rains.", CHATML, MARKERS[parser], settings=settings(parser))
    chat = lib.chat(context, USER, options={"tools": tools, "tool_choice": "look"})
    assert chat.calls[0][1]["q"] == f"a {end} b {end}"
    assert chat.said() == ""


# calf, for real.

ROME = [{"role": "user", "content": "What is the weather in Rome?"}]
FOX = [{"role": "user", "content": "What colour is a fox?"}]
CITY = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_calf_calls_what_it_would_call_anyway(lib, context, choice):
    free = lib.chat(context, ROME, options={"tools": [CITY]})
    chat = lib.chat(context, ROME, options={"tools": [CITY], "tool_choice": choice})
    assert chat.calls == free.calls == [("get_weather", {"city": "Rome"})]


def test_calf_calls_a_tool_where_it_would_rather_answer(lib, context):
    options = {"tools": [CITY, WEATHER]}
    assert lib.chat(context, FOX, options=options).said() == "A fox is red."
    chat = lib.chat(context, FOX, options={**options, "tool_choice": "required"})
    assert chat.said() == ""
    assert {name for name, _ in chat.calls} == {"get_weather"}


@pytest.mark.parametrize("seed", range(5))
def test_calf_gives_arguments_that_match(lib, context, seed):
    options = {
        "tools": [
            CITY,
            NOTHING,
            {**WEATHER, "function": {**WEATHER["function"], "name": "forecast"}},
        ],
        "tool_choice": "forecast",
    }
    chat = lib.chat(context, ROME, options=options, temperature=1.5, seed=seed)
    assert [name for name, _ in chat.calls] == ["forecast"], chat.events
    jsonschema.validate(chat.calls[0][1], WEATHER["function"]["parameters"])


def test_calf_says_so_where_its_call_is_cut_short(lib, context):
    chat = lib.chat(
        context, ROME, options={"tools": [CITY], "tool_choice": "required"}, max_tokens=4
    )
    assert (chat.calls, chat.events[-1].finish) == ([], FINISH_LENGTH)
    assert chat.said().startswith("<tool_call>")


# What is refused.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tools": [], "tool_choice": "required"}, "there are no tools"),
        ({"tool_choice": "look"}, "'look', but there are no tools"),
        ({"tools": TOOLS, "tool_choice": "lock"}, "the tools are 'look'"),
        ({"tools": TOOLS, "tool_choice": 3}, "tool_choice is a number"),
        ({"tools": TOOLS, "tool_choice": True}, "tool_choice is a boolean"),
        ({"tools": TOOLS, "tool_choice": ""}, "it can be"),
        ({"tools": TOOLS, "tool_choice": {"name": "look"}}, "it can be"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": 3}}, "it can be"),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, "tools[0] is no function"),
        (
            {"tools": [{"name": "a", "parameters": 3}], "tool_choice": "required"},
            "tools[0].parameters must be",
        ),
        (
            {"tools": [{"name": "a", "parameters": {"type": "array"}}], "tool_choice": "a"},
            "tools[0].parameters must be",
        ),
        (
            {
                "tools": [{"name": "a", "parameters": {"properties": {"x": {"pattern": "("}}}}],
                "tool_choice": "a",
            },
            "the parameters of the tools cannot be enforced",
        ),
        (
            {
                "tools": [{"name": "a", "parameters": {"properties": {"x": {"$ref": "#/no"}}}}],
                "tool_choice": "a",
            },
            "the parameters of the tools cannot be enforced",
        ),
    ],
)
def test_a_choice_that_cannot_be_met_is_refused(lib, context, options, named):
    assert named in refused(lib, context, EINVAL, **options)


def test_a_grammar_and_a_call_exclude_each_other(lib, context):
    params = {"grammar": "yes", "grammar_kind": GRAMMAR_REGEX}
    message = refused(lib, context, EINVAL, tools=TOOLS, tool_choice="look", params=params)
    assert "tool_choice" in message
    chat = lib.chat(context, ROME, options={"tools": TOOLS, "tool_choice": "auto"}, **params)
    assert chat.said() == "yes"


def test_drafts_make_the_same_call(lib, says):
    context = says(CALL, CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    options = {"tools": TOOLS, "tool_choice": "look"}
    plain = lib.chat(context, USER, options=options)
    drafted = lib.chat(context, USER, options=options, draft_tokens=4)
    assert drafted.events == plain.events


def test_a_model_without_a_format_is_named(lib, says):
    context = says("It rains.")
    message = refused(lib, context, EUNSUPPORTED, tools=TOOLS, tool_choice="required")
    assert "json_tools" in message
    assert "none that is known" in message


_HOSTILE: list[Any] = [
    {"properties": 3},
    {"properties": {"a": 3}},
    {"properties": {"a": False}},
    {"properties": {"a": True}},
    {"properties": {"a": {"type": 3}}},
    {"properties": {"a": {"type": "string", "enum": 3}}},
    {"properties": {"a": {"type": "string", "enum": []}}},
    {"properties": {"a": {"type": "string", "enum": ["", "x\0"]}}},
    {"properties": {"a": {"type": "string", "const": {}}}},
    {"properties": {"a": {"type": "array", "items": [3]}}},
    {"properties": {"a": {"type": "object", "properties": {"b": [3]}}}},
    {"properties": {"</tool_call>": {"type": "string"}}},
    {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"properties": {}, "required": 3},
    {"properties": {}, "required": ["a", 3, {}]},
    {"properties": {}, "$defs": 3},
    {"x-guidance": 3},
    {"anyOf": []},
    {"properties": {f"p{i}": {"type": "string"} for i in range(600)}},
]


@pytest.mark.parametrize("parser", sorted(SAMPLES))
def test_malformed_tools_are_refused_or_do_not_matter(lib, says, parser):
    context = says("It rains.", CHATML, MARKERS[parser], settings=settings(parser))
    names = ["look", "a b", '"', "</tool_call>", "a\0b", "\U0001f642", "class", "x" * 70_000]
    tools = [{"name": "look", "parameters": {"type": "object", **each}} for each in _HOSTILE]
    for tool in [*tools, *({"name": name, "parameters": {}} for name in names)]:
        try:
            options = {"tools": [tool], "tool_choice": "required"}
            lib.chat(context, USER, options=options, max_tokens=3)
        except StatusError as error:
            assert error.status in (EINVAL, EUNSUPPORTED), (tool, error.message)
            assert error.message.startswith(("context_chat: tool_choice", "context_chat: tools[0]"))


@pytest.mark.parametrize(
    ("parser", "schema", "named"),
    [
        ("qwen3_coder", {"x": {"type": "string", "pattern": "a+"}}, "pattern"),
        ("qwen3_coder", {"x": {"type": ["string", "null"]}}, "one type"),
        ("qwen3_coder", {"x y": {"type": "string"}}, "'x y'"),
        ("glm47", {"x": {"type": "string", "enum": [3]}}, "3"),
        ("minimax_m2", {"x": {"type": "string", "enum": ["null"]}}, "'null'"),
        ("function_gemma", {"x": {"type": "object"}}, "an object"),
        ("gemma4", {"x": {"type": "array"}}, "array"),
        ("gemma4", {"x": {"type": "array", "items": {"type": "number"}, "minItems": 1}}, "array"),
        ("gemma4", {"x": {"type": "object", "minProperties": 1}}, "minProperties"),
        ("pythonic", {"class": {"type": "string"}}, "'class'"),
    ],
)
def test_what_a_format_cannot_hold_is_named(lib, says, parser, schema, named):
    context = says("It rains.", CHATML, MARKERS[parser], settings=settings(parser))
    tools = [{"name": "look", "parameters": {"type": "object", "properties": schema}}]
    message = refused(lib, context, EUNSUPPORTED, tools=tools, tool_choice="required")
    assert parser in message
    assert named in message
    # The same tools are offered where nothing has to be enforced.
    lib.chat(context, USER, options={"tools": tools, "tool_choice": "auto"}, max_tokens=2)
