"""Text is split at markers in the same way, whatever pieces it comes in."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from support import tokenizers as kinds
from support.tool_samples import SAMPLES, TOOLS

from cowmlx.generated.constants import (
    EVENT_END,
    EVENT_REASONING,
    EVENT_TEXT,
    EVENT_THINKING_CUT,
    EVENT_TOOL_CALL,
    FINISH_LENGTH,
    FINISH_STOP,
)
from cowmlx.generation.chat import MAX_CALL, MAX_SPACE, ChatSplitter
from cowmlx.models.chat_format import ChatFormat
from cowmlx.networks import light_route
from cowmlx.text.tokenizer import Tokenizer


def form(parser=None, markers=("<think>", "</think>")):
    """What structures the answers of a model with these tokens."""
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_str(kinds.build("bpe")[0])
    backend.add_tokens([AddedToken(marker, normalized=False) for marker in markers])
    return ChatFormat(Tokenizer(backend, {}), parser)


def split(format, pieces, *, finish=FINISH_STOP, reasoning=False, fresh=False):
    """Kinds, names and texts, neighbours of a kind made one; a call is never made one."""
    splitter = ChatSplitter(format, TOOLS, reasoning=reasoning, fresh=fresh)
    events = [event for piece in pieces for event in splitter.add(piece)]
    events += splitter.finish(finish)
    assert [event.kind for event in events].count(EVENT_END) == 1
    assert (events[-1].kind, events[-1].finish) == (EVENT_END, finish)
    told = []
    for event in events[:-1]:
        assert event.text, "an event without text"
        if told and told[-1][0] == event.kind != EVENT_TOOL_CALL:
            told[-1] = (event.kind, "", told[-1][2] + event.text)
        else:
            told.append((event.kind, event.name, event.text))
    return told


def ways(text):
    """A text in two pieces, cut everywhere, and in single characters."""
    yield [text]
    yield list(text)
    yield from ([text[:at], text[at:]] for at in range(1, len(text)))


def direct(parser, text):
    """What a parser gives for an answer, as events."""
    module = light_route.import_module(f"tool_parsers.{parser}")
    body = text.removeprefix(module.tool_call_start).removesuffix(module.tool_call_end)
    calls = module.parse_tool_call(body, TOOLS)
    calls = calls if isinstance(calls, list) else [calls]
    return [
        (EVENT_TOOL_CALL, call["name"], json.dumps(call["arguments"], ensure_ascii=False))
        for call in calls
    ]


def test_there_is_a_sample_for_every_parser():
    import os

    names = os.listdir(os.path.join(light_route.package_folder(), "tool_parsers"))
    parsers = {name[:-3] for name in names if name.endswith(".py") and name != "__init__.py"}
    assert parsers == set(SAMPLES)


@pytest.mark.parametrize("parser", sorted(SAMPLES))
def test_every_parser_gives_what_it_gives_directly(parser):
    format, call = form(parser), SAMPLES[parser]
    rest = "\n\nDone < or <th" if format.tool_end else ""
    text = f"<think>\nWhy </thi <thinking> ?\n</think>\n\nLet me < look.\n{call}{rest}"
    expected = [
        (EVENT_REASONING, "", "Why </thi <thinking> ?"),
        (EVENT_TEXT, "", "Let me < look."),
        *direct(parser, call),
    ]
    if rest:
        expected.append((EVENT_TEXT, "", rest.strip()))
    for pieces in ways(text):
        assert split(format, pieces) == expected, pieces


@pytest.mark.parametrize("parser", sorted(SAMPLES))
def test_an_answer_cut_anywhere_loses_nothing(parser):
    """What came of it is text, a call, or the markers and space around them."""
    format, text = form(parser), f"Let me look. \n{SAMPLES[parser]}"
    for length in range(len(text)):
        told = split(format, list(text[:length]), finish=FINISH_LENGTH)
        assert [kind for kind, _, _ in told] in ([], [EVENT_TEXT])
        assert "".join(said for _, _, said in told) == text[:length]


@pytest.mark.parametrize("parser", sorted(SAMPLES))
def test_a_damaged_call_is_a_call_or_comes_whole(parser):
    """Text with a character changed: the parser alone decides, and it may fail in any way."""
    format = form(parser)
    start, end = format.tool_start, format.tool_end
    body = SAMPLES[parser].removeprefix(start).removesuffix(end)
    draw = random.Random(parser)
    texts = 0
    for at in range(len(body)):
        damaged = body[:at] + draw.choice('{}[]"<>(=:,\\ x0') + body[at + draw.choice([0, 1]) :]
        told = split(format, [f"Look: {start}{damaged}{end}"])
        if all(kind == EVENT_TEXT for kind, _, _ in told):
            texts += 1
            assert told == [(EVENT_TEXT, "", f"Look: {start}{damaged}{end}")]
        else:
            assert told[0] == (EVENT_TEXT, "", "Look:")
            assert all(isinstance(json.loads(said), dict) for _, name, said in told[1:] if name)
    tolerant = ("glm47", "laguna", "longcat", "minicpm5")  # they take nearly everything
    assert texts or parser in tolerant


def test_pieces_of_every_size_give_the_same():
    format = form("json_tools")
    call, broken = SAMPLES["json_tools"], "<tool_call> {no} </tool_call>"
    text = (
        f" a \n<think> b\n\n{call}\n </think> stray \n <think>\n{broken} c\n</think>\n{broken}\n"
        f"{call}{call} <think></think> </tool_call> d <think><think>e</think>\n"
    )
    whole = split(format, [text])
    assert [kind for kind, _, _ in whole].count(EVENT_TOOL_CALL) == 3
    for pieces in ways(text):
        assert split(format, pieces) == whole
    for seed in range(100):
        draw = random.Random(seed)
        cuts = sorted({0, len(text), *(draw.randrange(len(text)) for _ in range(seed))})
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
        assert split(format, pieces) == whole


def test_space_next_to_markers_goes_with_them_and_no_other():
    told = split(form(), [" \n a\n\n b \n<think> \n c \n\n d\n </think> \n\ne \n\n"])
    assert told == [
        (EVENT_TEXT, "", " \n a\n\n b"),
        (EVENT_REASONING, "", "c \n\n d"),
        (EVENT_TEXT, "", "e \n\n"),
    ]


@pytest.mark.parametrize("cut", [False, True])
def test_thinking_continues_behind_a_call(cut):
    splitter = ChatSplitter(form("json_tools"), TOOLS, reasoning=True, fresh=True)
    events = splitter.add(f"a\n{SAMPLES['json_tools']}\nb ")
    if cut:
        splitter.note_cut()
    events += splitter.add("</think>\n\nc") + splitter.finish(FINISH_STOP)
    assert [(event.kind, event.text) for event in events if event.kind != EVENT_TOOL_CALL] == [
        (EVENT_REASONING, "a"),
        (EVENT_REASONING, "b"),
        *([(EVENT_THINKING_CUT, "")] if cut else []),
        (EVENT_TEXT, "c"),
        (EVENT_END, ""),
    ]
    assert [event.kind for event in events][1] == EVENT_TOOL_CALL


def test_much_space_is_not_held_back():
    space = " " * (MAX_SPACE + 10)
    for pieces in ways(f"a{space}<think>b"):
        assert split(form(), pieces)[0] == (EVENT_TEXT, "", "a" + space[:10])
    assert ChatSplitter(form(), None, reasoning=False, fresh=False).add("a" + space)


def test_a_marker_that_changes_nothing_goes_alone():
    assert split(form(), ["a \n</think>\n b"]) == [(EVENT_TEXT, "", "a \n\n b")]
    told = split(form(), ["a \n<think> b"], reasoning=True)
    assert told == [(EVENT_REASONING, "", "a \n b")]


def test_space_behind_a_marker_at_the_end_of_the_prompt():
    assert split(form(), ["\n", "\na"], reasoning=True, fresh=True) == [(EVENT_REASONING, "", "a")]
    assert split(form(), ["\n", "\na"], reasoning=True) == [(EVENT_REASONING, "", "\n\na")]
    assert split(form(), [" \n a"], fresh=True) == [(EVENT_TEXT, "", "a")]


def test_a_model_without_markers_has_its_text_let_through_at_once():
    splitter = ChatSplitter(form(markers=()), None, reasoning=False, fresh=False)
    for piece in ("<think>", "\n", " </", "[TOOL_CALLS]"):
        assert [event.text for event in splitter.add(piece)] == [piece]


@pytest.mark.parametrize("parser", ["json_tools", "mistral"])
def test_a_call_of_megabytes_is_none(parser):
    format = form(parser)
    text = format.tool_start + "x" * (MAX_CALL + 10) + format.tool_end + "<think>y"
    whole = split(format, [text])
    assert whole == [(EVENT_TEXT, "", text[: -len("<think>y")]), (EVENT_REASONING, "", "y")]
    step = MAX_CALL // 7
    assert split(format, [text[at : at + step] for at in range(0, len(text), step)]) == whole


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"parameters": {"q": "a"}}, {"q": "a"}),
        ({"arguments": {"q": "a"}, "parameters": {"q": "b"}}, {"q": "a"}),
        ({"parameters": '{"q": "a"}'}, {"q": "a"}),
        ({}, {}),
    ],
)
def test_parameters_are_arguments_by_another_name(call, arguments):
    text = f"<tool_call>{json.dumps({'name': 'look', **call})}</tool_call>"
    assert split(form("json_tools"), [text]) == [(EVENT_TOOL_CALL, "look", json.dumps(arguments))]


@pytest.mark.parametrize("parser", ["qwen3_coder", "minimax_m2", "minicpm5", "glm47", "json_tools"])
@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("number", [3, 2**53 + 1, -(10**30) - 1, 3.5])
def test_numbers_of_every_size_are_exact(parser, kind, number):
    if kind == "integer" and number == 3.5:
        return
    schema = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": kind}}}
    tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
    format = form(parser)
    text = SAMPLES[parser].replace("3", repr(number))
    body = text.removeprefix(format.tool_start).removesuffix(format.tool_end)
    [(name, arguments)] = format.parse(body, tools)
    assert (name, json.loads(arguments)) == ("look", {"q": "a b", "n": number})


def test_a_call_in_json_is_read_once(monkeypatch):
    """Its large integers are exact."""
    json_tools = light_route.import_module("tool_parsers.json_tools")
    read, parse = [], json_tools.parse_tool_call
    monkeypatch.setattr(
        json_tools, "parse_tool_call", lambda text, tools: read.append(text) or parse(text, tools)
    )
    call = json.dumps({"name": "look", "arguments": {"n": 2**53 + 1}})
    assert form("json_tools").parse(call, TOOLS) == [("look", json.dumps({"n": 2**53 + 1}))]
    assert read == [call]


def test_elements_that_are_no_json_stay_as_they_are():
    format = form("qwen3_coder")
    call = "<function=look><parameter=q>{}</parameter></function>"
    for text in ("[</b>", '["a"] </b>', '{"a": "</b>"}', "[1"):
        assert format.parse(call.format(text), TOOLS) == [("look", json.dumps({"q": text}))]
    assert format.parse('<function=look><parameter=q>["</function>', TOOLS) is None


def nested(depth):
    return '{"name": "look", "arguments": {"q": ' + "[" * depth + "]" * depth + "}}"


def test_a_call_nested_as_deep_as_it_gets_is_a_call_or_text():
    format = form("json_tools")
    told = split(format, [f"<tool_call>{nested(100)}</tool_call>"])
    assert [kind for kind, _, _ in told] == [EVENT_TOOL_CALL]
    text = f"<tool_call>{nested(100_000)}</tool_call>"
    assert split(format, [text]) == [(EVENT_TEXT, "", text)]


@pytest.mark.parametrize("parser", ["pythonic", "glm47", "longcat"])
@pytest.mark.parametrize("part", ["-", "(", "[", "{", "a.", "a(", "1+", "not ", "lambda:", "f'"])
def test_python_nested_as_deep_as_it_gets_is_a_call_or_text(parser, part):
    """These parsers let Python read what a model said."""
    format = form(parser)
    body = SAMPLES[parser].removeprefix(format.tool_start).removesuffix(format.tool_end)
    text = format.tool_start + body.replace("3", part * 20_000 + "3") + format.tool_end
    told = split(format, [text])
    assert told == [(EVENT_TEXT, "", text)] or told[0][:2] == (EVENT_TOOL_CALL, "look")


def test_numbers_of_thousands_of_digits_are_text():
    text = f'<tool_call>{{"name": "look", "arguments": {{"n": {"9" * 5000}}}}}</tool_call>'
    assert split(form("json_tools"), [text]) == [(EVENT_TEXT, "", text)]
