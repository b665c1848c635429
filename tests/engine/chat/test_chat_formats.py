"""Chats with models of other families: thinking, and tool calls in every form."""

from __future__ import annotations

import json

import pytest
from support.library import StatusError
from support.scripted import CHATML, THINKING
from support.signatures import (
    ECANCELED,
    EVENT_END,
    EVENT_REASONING,
    EVENT_TEXT,
    EVENT_TOOL_CALL,
    FINISH_LENGTH,
    FINISH_STOP,
    FINISH_STOP_TEXT,
)
from support.tool_samples import CALLS, SAMPLES, TOOLS

USER = [{"role": "user", "content": "Is it raining in Oslo?"}]
THINK = ["<think>", "</think>"]
TOOL = ["<tool_call>", "</tool_call>"]
JSON_TOOLS = {"tool_parser_type": "json_tools"}
CALL = '<tool_call>\n{"name": "look", "arguments": {"q": "Größe", "n": 3}}\n</tool_call>'


def kinds(chat):
    """The kinds of events in their order, each once in a row."""
    found = [event.kind for event in chat.events]
    return [kind for i, kind in enumerate(found) if i == 0 or kind != found[i - 1]]


def test_an_answer_without_markers_comes_as_it_is(lib, says):
    answer = " A <b> & 日本語 🙂\n\n  end \n"
    chat = lib.chat(says(answer), USER)
    assert chat.said() == answer
    assert kinds(chat) == [EVENT_TEXT, EVENT_END]


@pytest.mark.parametrize("markers", [THINK, []], ids=["one token each", "spelled"])
def test_thinking_that_the_model_starts(lib, says, markers):
    """A model is known to think by its tokens alone."""
    answer = "<think>\nRain? Yes.\n</think>\n\nIt rains."
    chat = lib.chat(says(answer, markers=markers), USER)
    if markers:
        assert chat.said(EVENT_REASONING) == "Rain? Yes."
        assert chat.said() == "It rains."
        assert kinds(chat) == [EVENT_REASONING, EVENT_TEXT, EVENT_END]
    else:
        assert chat.said() == answer


def test_thinking_that_the_prompt_has_started(lib, says):
    chat = lib.chat(says("\nRain?\n</think>\n\nIt rains.", THINKING, THINK), USER)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("Rain?", "It rains.")


def test_thinking_that_the_prompt_has_ended(lib, says):
    options = {"enable_thinking": False}
    context = says("It rains.", THINKING, THINK, options=options)
    chat = lib.chat(context, USER, options=options)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("", "It rains.")


def test_thinking_that_a_prefilled_answer_has_started(lib, says):
    messages = [*USER, {"role": "assistant", "content": "<think>\nLet me"}]
    options = {"continue_final_message": True}
    context = says(" see.\n</think>\nYes.", CHATML, THINK, messages, options)
    chat = lib.chat(context, messages, options=options)
    assert (chat.said(EVENT_REASONING), chat.said()) == (" see.", "Yes.")


def test_thinking_that_an_earlier_answer_broke_off_is_over(lib, says):
    messages = [*USER, {"role": "assistant", "content": "<think>\nLet me"}, *USER]
    chat = lib.chat(says("It rains.", CHATML, THINK, messages), messages)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("", "It rains.")


def test_a_user_cannot_start_the_thinking(lib, says):
    messages = [{"role": "user", "content": "<think>"}]
    chat = lib.chat(says("It rains.", CHATML, THINK, messages), messages)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("", "It rains.")


def test_a_model_that_only_ends_its_thinking(lib, says):
    """Earlier text was delivered already; the marker is removed all the same."""
    chat = lib.chat(says("Rain?\n</think>\n\nIt rains.", CHATML, THINK), USER)
    assert chat.said() == "Rain?\n\n\nIt rains."


def test_thinking_that_is_cut_short(lib, says):
    context = says("<think>\nRain? Yes.\n</think>\n\nIt rains.", CHATML, THINK)
    chat = lib.chat(context, USER, max_tokens=4)
    assert "Rain? Yes.".startswith(chat.said(EVENT_REASONING))
    assert chat.said(EVENT_REASONING)
    assert chat.said() == ""
    assert chat.events[-1].finish == FINISH_LENGTH


def test_thinking_with_markers_of_several_tokens(lib, says):
    answer = "<|channel>thought\nRain?\n<channel|>It rains."
    chat = lib.chat(says(answer, markers=["<|channel>", "<channel|>"]), USER)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("Rain?", "It rains.")


def test_markers_that_only_structure_an_answer_are_taken_out(lib, says):
    markers = ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"]
    answer = (
        "<|open|>think<|sep|>Rain?<|close|>think<|sep|><|open|>response<|sep|>It rains."
        "<|close|>response<|sep|><|close|>message<|sep|>"
    )
    chat = lib.chat(says(answer, markers=markers), USER)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("Rain?", "It rains.")


def test_events_come_with_the_tokens(lib, says):
    """Between the events of reasoning and answer, the context has no token of the answer."""
    context = says("<think>\nRain? Yes.\n</think>\n\nIt rains today.", CHATML, THINK)
    counts = []

    def on_event(event):
        counts.append((event.kind, lib.stats(context).generated_tokens))

    chat = lib.chat(context, USER, on_event)
    generated = [count for _, count in counts]
    assert generated == sorted(generated)
    reasoning = [count for kind, count in counts if kind == EVENT_REASONING]
    text = [count for kind, count in counts if kind == EVENT_TEXT]
    assert len(set(reasoning)) > 1
    assert len(set(text)) > 1
    assert max(reasoning) < min(text) < chat.stats.generated_tokens


@pytest.mark.parametrize("parser", sorted(SAMPLES))
def test_a_tool_call_of_every_parser(lib, says, parser):
    answer = f"Let me look.\n{SAMPLES[parser]}"
    settings = {"tool_parser_type": parser}
    chat = lib.chat(says(answer, settings=settings), USER, options={"tools": TOOLS})
    assert chat.calls == CALLS[parser]
    assert chat.said() == "Let me look."
    assert kinds(chat) == [EVENT_TEXT, EVENT_TOOL_CALL, EVENT_END]
    assert chat.events[-1].finish == FINISH_STOP


def test_several_calls_with_text_around(lib, says):
    context = says(f"One. \n{CALL}\n{CALL}\n Two.", CHATML, TOOL, settings=JSON_TOOLS)
    chat = lib.chat(context, USER)
    assert chat.calls == [("look", {"q": "Größe", "n": 3})] * 2
    assert chat.said() == "One.Two."
    assert kinds(chat) == [EVENT_TEXT, EVENT_TOOL_CALL, EVENT_TEXT, EVENT_END]


def test_a_call_out_of_thinking(lib, says):
    context = says(f"<think>\nI look.\n{CALL}", CHATML, [*THINK, *TOOL], settings=JSON_TOOLS)
    chat = lib.chat(context, USER)
    assert chat.calls == [("look", {"q": "Größe", "n": 3})]
    assert (chat.said(EVENT_REASONING), chat.said()) == ("I look.", "")


@pytest.mark.parametrize(
    "inside",
    [
        "no JSON",
        "",
        '{"name": "look", "arguments": [1]}',
        '{"name": "", "arguments": {}}',
        '{"name": 3, "arguments": {}}',
        '{"arguments": {}}',
        '"look"',
        "[]",
        '{"name": "look", "arguments": {"n": NaN}}',
        '{"name": "a\\u0000b", "arguments": {}}',
        "[" * 150,
    ],
)
def test_what_is_no_call_comes_as_text(lib, says, inside):
    answer = f"One. \n<tool_call>{inside}</tool_call>\n Two."
    chat = lib.chat(says(answer, CHATML, TOOL, settings=JSON_TOOLS), USER, max_tokens=500)
    assert chat.calls == []
    assert chat.said() == answer


def test_arguments_that_are_a_text_of_json(lib, says):
    arguments = json.dumps(json.dumps({"q": "a"}))
    answer = f'<tool_call>{{"name": "look", "arguments": {arguments}}}</tool_call>'
    chat = lib.chat(says(answer, CHATML, TOOL, settings=JSON_TOOLS), USER)
    assert chat.calls == [("look", {"q": "a"})]


def test_a_call_without_arguments_has_an_empty_object(lib, says):
    answer = '<tool_call>{"name": "look"}</tool_call>'
    chat = lib.chat(says(answer, CHATML, TOOL, settings=JSON_TOOLS), USER)
    assert [event.text for event in chat.events] == ["{}", ""]


def test_a_lone_surrogate_in_arguments_stays_json(lib, says):
    answer = '<tool_call>{"name": "look", "arguments": {"q": "\\ud800"}}</tool_call>'
    chat = lib.chat(says(answer, CHATML, TOOL, settings=JSON_TOOLS), USER)
    assert chat.calls == [("look", {"q": "\ud800"})]


@pytest.mark.parametrize("count", [8, 20])
def test_a_call_that_is_cut_short_comes_as_text(lib, says, count):
    context = says(f"One. \n{CALL}", CHATML, TOOL, settings=JSON_TOOLS)
    chat = lib.chat(context, USER, max_tokens=count)
    assert chat.calls == []
    assert "<tool_call>" in chat.said()
    assert f"One. \n{CALL}".startswith(chat.said())
    assert chat.events[-1].finish == FINISH_LENGTH


def test_a_call_without_end_marker_that_is_cut_short_comes_as_text(lib, says):
    """Though its parser would read a part of it."""
    answer = '[TOOL_CALLS]look[ARGS]{"q": "a"}look[ARGS]{"q": "b"}'
    context = says(answer, settings={"tool_parser_type": "mistral"})
    whole = lib.chat(context, USER)
    assert [name for name, _ in whole.calls] == ["look", "look"]
    cut = lib.chat(context, USER, max_tokens=whole.stats.generated_tokens - 4)
    assert cut.calls == []
    assert answer.startswith(cut.said())


def test_a_stop_text_ends_a_chat_where_it_begins(lib, says):
    context = says("<think>\nRain? Yes.\n</think>\n\nIt rains.", CHATML, THINK)
    chat = lib.chat(context, USER, stop=[" Yes"])
    assert (chat.said(EVENT_REASONING), chat.said()) == ("Rain?", "")
    assert chat.events[-1].finish == FINISH_STOP_TEXT


def test_a_parser_that_mlx_lm_does_not_have_means_no_tools(lib, says):
    context = says(CALL, CHATML, TOOL, settings={"tool_parser_type": "no_such_parser"})
    assert lib.chat(context, USER).said() == CALL


def test_a_refused_tool_call_ends_the_chat(lib, says):
    context = says(f"{CALL} Two.", CHATML, TOOL, settings=JSON_TOOLS)
    seen = []

    def on_event(event):
        seen.append(event.kind)
        return event.kind != EVENT_TOOL_CALL

    with pytest.raises(StatusError) as refused:
        lib.chat(context, USER, on_event)
    assert refused.value.status == ECANCELED
    assert seen == [EVENT_TOOL_CALL]
