"""examples/desktop: messages are copied, edited and answered again."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.xdist_group("desktop")

SUM, CAPITAL, COW = "What is 3 + 4?", "What is the capital of France?", "What does a cow say?"
COPY, EDIT, RETRY = "Copy message", "Edit and ask again", "Answer again"


def lines(conversation) -> list[str]:
    """What was said, a line for each message: the model's answers here have one."""
    return conversation.transcript.text.split("\n")


def click(app, name: str, index: int) -> None:
    """Click one of the buttons of this name, once it can be."""

    def usable():
        found = app.find("button", name)
        return found[index] if len(found) > index and found[index].sensitive else None

    app.click(app.see(usable, f"the {name} button {index}"))


def test_messages_are_copied_edited_and_answered_again(start, model, terminal_chat):
    app = start(model)
    conversation = app.conversation()
    first = conversation.answer(SUM)
    conversation.answer(CAPITAL)

    click(app, COPY, 1)  # of the first answer
    app.click(conversation.entry)
    app.press("ctrl+v")
    app.see(lambda: conversation.entry.text == first, "the answer in the entry")

    click(app, EDIT, 0)
    app.see(lambda: conversation.entry.text == SUM, "the question in the entry")
    app.press("Escape")
    app.see(lambda: conversation.entry.text == first, "what was in the entry before")
    app.press("ctrl+a")
    app.press("Delete")

    click(app, EDIT, 1)
    app.see(lambda: conversation.entry.text == CAPITAL, "the question in the entry")
    app.press("ctrl+a")
    conversation.ask(COW)
    conversation.wait_status("tokens/s")
    expected = terminal_chat(SUM, COW)
    assert lines(conversation) == [SUM, expected[0], COW, expected[1]]

    said = conversation.transcript.text
    click(app, RETRY, 0)
    app.press("Escape", window=RETRY)  # it would delete what follows
    app.lacks("label", "Answer this question again?")
    assert conversation.transcript.text == said
    click(app, RETRY, 0)
    app.press("alt+a", window=RETRY)
    app.see(lambda: len(lines(conversation)) == 2, "the conversation, cut")
    reused = re.search(r"context, (\d+) reused", conversation.wait_status("tokens/s"))
    assert int(reused[1]) > 0
    assert lines(conversation) == [SUM, expected[0]]
    app.press("Shift_L")  # the keys go back to the window
    conversation.answer(COW)
    assert lines(conversation) == [SUM, expected[0], COW, expected[1]]
    reused = conversation.status.name.split(", ")[-1]
    click(app, RETRY, 1)  # the last one: nothing follows
    app.see(lambda: not conversation.status.name.endswith(reused), "another answer")
    conversation.wait_status("tokens/s")
    assert lines(conversation) == [SUM, expected[0], COW, expected[1]]


def test_an_edited_question_without_an_answer_changes_nothing(start, endless):
    app = start(endless(context_length=64), "--max-tokens=8")
    conversation = app.conversation()
    conversation.answer(SUM)
    conversation.answer("And?")
    said = conversation.transcript.text
    click(app, EDIT, 0)
    app.see(lambda: conversation.entry.text == SUM, "the question in the entry")
    app.press("ctrl+a")
    conversation.enter("cow " * 80)
    assert "64" in conversation.wait_status("context_chat")
    assert conversation.transcript.text == said
    app.see(lambda: conversation.entry.text.startswith("cow cow"), "the question in the entry")
    app.press("Escape")
    app.see(lambda: not conversation.entry.text, "an empty entry")
    assert conversation.transcript.text == said
