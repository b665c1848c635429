"""examples/desktop: a user types and clicks, and looks at what the window shows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from xsession import wait_for

pytestmark = pytest.mark.xdist_group("desktop")

STORY = "Tell me a story about a fox."
OTHER_STORY = "Tell me a story about a dog."


@pytest.fixture
def gate(monkeypatch, session, tmp_path) -> Iterator[Callable[[], None]]:
    """Keeps the app's call that loads a model waiting; gives a function that lets it go on."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    monkeypatch.setitem(session.environment, "COWMLX_TEST_GATE", str(path))
    with ExitStack() as opened:
        yield lambda: opened.callback(os.close, os.open(path, os.O_RDWR))


def test_a_progress_bar_shows_until_the_model_is_loaded(start, gated_program, gate, model):
    app = start(model, program=gated_program)
    assert app.one("progress bar").value == 0
    app.label("Loading the model")
    app.lacks("text box")
    gate()
    app.conversation()
    app.lacks("progress bar")


def test_closing_the_window_while_a_model_loads_ends_the_app_cleanly(
    start, gated_program, gate, model
):
    app = start(model, program=gated_program)
    app.one("progress bar")
    app.press("ctrl+q")
    wait_for(app.has_closed, "no window")
    gate()
    assert app.end() == (0, "")


def test_a_look_in_vain_tells_what_the_window_shows_and_what_was_printed(start, tmp_path):
    app = start(tmp_path)
    message = app.label(str(tmp_path))

    def look() -> None:
        raise AssertionError("nothing there")

    with pytest.raises(AssertionError) as caught:
        app.see(look, "anything")
    said = str(caught.value)
    assert said.startswith("nothing there\nit shows:\n")
    assert f"label: {message}" in said.replace("\n  ", "\n")
    assert said.endswith("\nit printed:\n")


def test_an_app_that_ended_is_quoted(start):
    with pytest.raises(AssertionError, match=r"(?s)ended with 2.*it printed:\n.*--no-such-option"):
        start("--no-such-option").one("window")


def test_a_folder_without_a_model_is_told_and_another_can_be_opened(start, tmp_path, model):
    app = start(tmp_path)
    assert app.label(str(tmp_path)).endswith(f"{tmp_path} has no config.json")
    app.click(app.one("button", "Open a Model…"))
    app.type(str(model), window="Choose a model folder")
    app.press("Return", window="Choose a model folder")
    app.conversation()


def test_answers_are_those_of_the_terminal_chat(start, model, terminal_chat):
    questions = [STORY, "What is 3 + 4?"]
    conversation = start(model).conversation()
    for question in questions:
        conversation.ask(question)
        conversation.wait_status("tokens/s")
    answers = terminal_chat(*questions)
    said = [line for turn in zip(questions, answers, strict=True) for line in turn]
    assert conversation.transcript.text.split("\n") == said


def test_the_next_turn_reuses_what_the_context_holds(start, model):
    conversation = start(model).conversation()
    conversation.ask(STORY)
    held = re.search(r"(\d+) tokens in the context, 0 reused", conversation.wait_status("tokens/s"))
    conversation.ask("What is 3 + 4?")
    reused = re.search(r"(\d+) reused", conversation.wait_status("tokens/s"))
    assert int(reused[1]) >= int(held[1]) - 1


def test_reasoning_and_tool_calls_stand_apart_from_the_answer(says, start):
    said = '<think>Outside?</think>I look.<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    markers = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    folder = says("Rain?", said, *markers, tool_parser_type="json_tools")
    conversation = start(folder).conversation()
    conversation.ask("Rain?")
    conversation.wait_status("tokens/s")
    shown = ["Rain?", "Outside?", "I look.", "look({})"]
    assert conversation.transcript.text.split("\n") == shown


def test_blank_input_is_not_sent(start, model):
    conversation = start(model).conversation()
    conversation.enter("   ")
    assert not conversation.button.sensitive
    conversation.enter("What is 3 + 4?")
    conversation.wait_status("tokens/s")
    assert conversation.transcript.text.split("\n")[0] == "What is 3 + 4?"


def test_two_conversations_stream_at_once_and_one_can_be_stopped(start, endless):
    app = start(endless(), "--max-tokens=99000")
    first = app.conversation()
    first.ask(STORY)
    app.click(app.one("button", "New conversation"))
    second = app.conversation(1)
    second.ask(OTHER_STORY)
    for conversation in (first, second, first, second):
        conversation.wait_growth()

    app.click(first.row)
    app.see(lambda: first.entry.focused, "the first conversation in front")
    app.click(first.button)
    first.wait_status("Stopped. ")
    said = first.transcript.text
    second.wait_growth()
    assert first.transcript.text == said
    assert second.status.name == "Answering…"
    assert first.button.name == "Send"
    assert second.button.name == "Stop"


def test_the_window_answers_its_user_while_the_model_answers(start, endless):
    app = start(endless(), "--max-tokens=99000")
    conversation = app.conversation()
    conversation.ask(STORY)
    conversation.wait_growth()
    conversation.enter("And then?")
    app.see(lambda: conversation.entry.text == "And then?", "what was typed")
    conversation.wait_growth()
    app.press("Escape")
    conversation.wait_status("Stopped. ")
    assert conversation.entry.text == "And then?"


def test_a_conversation_that_was_stopped_goes_on(start, endless):
    app = start(endless(), "--max-tokens=99000")
    conversation = app.conversation()
    conversation.ask(STORY)
    conversation.wait_growth()
    app.press("Escape")
    conversation.wait_status("Stopped. ")
    said = conversation.transcript.text
    conversation.ask("Go on.")
    conversation.wait_growth()
    assert conversation.transcript.text.startswith(f"{said}\nGo on.\n")


def test_a_conversation_can_be_closed_while_others_go_on(start, endless):
    app = start(endless(), "--max-tokens=99000")
    first = app.conversation()
    first.ask(STORY)
    app.press("ctrl+n")
    app.conversation(1).ask(OTHER_STORY)
    first.wait_growth()
    app.press("ctrl+w")
    app.see(lambda: len(app.find("group", "Transcript")) == 1, "one conversation")
    first.wait_growth()


def test_a_full_context_is_told_and_the_question_comes_back(start, endless):
    conversation = start(endless(context_length=64)).conversation()
    conversation.ask(STORY)
    conversation.wait_status("start a new conversation")
    said = conversation.transcript.text
    conversation.enter("And then?")
    assert "64" in conversation.wait_status("context_chat")
    assert conversation.transcript.text == said
    assert conversation.entry.text == "And then?"


def test_closing_the_window_while_two_conversations_stream_ends_the_app_cleanly(start, endless):
    app = start(endless(), "--max-tokens=99000")
    first = app.conversation()
    first.ask(STORY)
    app.press("ctrl+n")
    second = app.conversation(1)
    second.ask(OTHER_STORY)
    first.wait_growth()
    second.wait_growth()
    app.press("ctrl+q")
    assert app.end() == (0, "")
