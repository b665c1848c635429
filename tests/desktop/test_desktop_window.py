"""examples/desktop: the window has room for its parts, whatever its size and the text."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.xdist_group("desktop")

SHORT = "What does a cow say?"
LONG = "cow" * 60 + " https://example.org/" + "very-long-path/" * 8 + "x" * 90
KEPT = {"role": "user", "content": LONG}, {"role": "assistant", "content": LONG, "whole": True}


@pytest.fixture
def kept(tmp_path) -> None:
    """A conversation of long words that was kept."""
    folder = tmp_path / "data/cowmlx-desktop/conversations"
    folder.mkdir(parents=True)
    record = {"version": 1, "title": LONG, "messages": KEPT}
    (folder / "kept.json").write_text(json.dumps(record))


def width_of(widget) -> int:
    """In pixels."""
    left, _, right, _ = widget.box
    return right - left


@pytest.mark.parametrize("width", [400, 480, 600])
def test_a_narrow_window_has_room_to_type_and_nothing_beyond_its_edge(start, model, kept, width):
    app = start(model, "--epochs=10000")
    app.resize(width, 500)
    app.lacks("list item")
    conversation = app.see(lambda: app.find("text box"), "the entry")[0]
    app.see(lambda: width_of(conversation) > width / 2, "room to type")

    app.press("F9")  # the list instead of the page, with the keys
    rows = app.see(lambda: app.find("list item")[1:], "the rows of what was kept")
    app.lacks("text box")
    assert width_of(rows[0]) > width / 2
    app.press("Down")
    app.lacks("list item")
    app.label(LONG)
    app.see(lambda: [entry for entry in app.find("text box") if entry.focused], "the keys")

    app.press("F2")  # a title is in the list
    title = app.one("text box", "Title")
    app.see(lambda: title.focused, "the title in an entry")
    app.press("Escape")
    app.lacks("list item")

    app.press("ctrl+l")
    app.press("alt+l", window="Learn from a conversation")
    app.label("Learning: step")
    window = app.see(lambda: app.find("window"), "the window")[0]
    edge = window.box[2]
    assert [shown.role for shown in window.inside if shown.box[2] > edge] == []

    app.resize(900, 500)
    app.see(lambda: app.find("list item"), "the list, beside the page")
    app.one("text box")


def test_the_list_can_be_hidden_in_a_wide_window(start, model):
    app = start(model)
    entry = app.conversation().entry
    beside = width_of(entry)
    app.press("F9")
    app.lacks("list item")
    app.see(lambda: width_of(entry) > beside, "more room")
    app.resize(480, 500)
    app.resize(900, 600)
    app.see(lambda: width_of(entry) > beside, "no list again")
    app.click(app.one("button", "Conversations"))
    app.see(lambda: width_of(entry) == beside, "both")


def test_a_question_is_as_wide_as_its_text_and_its_buttons_are_below(start, model, kept):
    app = start(model)
    conversation = app.conversation()
    conversation.answer(SHORT)
    page = conversation.transcript.box
    question = app.one("group", "Question")
    assert width_of(question) < width_of(page) / 2
    assert question.box[2] > page.box[2] - 40
    text = next(widget for widget in question.inside if widget.role == "label")
    buttons = [widget for widget in question.inside if widget.role == "button"]
    assert len(buttons) == 2
    assert all(button.box[1] >= text.box[3] for button in buttons)

    app.click(app.see(lambda: app.find("list item")[1:], "what was kept")[0])
    app.see(lambda: app.find("group", "Question")[1:], "the long question")
    question = app.see(lambda: [q for q in app.find("group", "Question") if q.box[3] > 0], "it")[-1]
    page = app.conversation(1).transcript.box
    app.see(lambda: width_of(question) > width_of(page) / 2, "more than half of the page")
    assert width_of(question) < width_of(page) - 40
