"""examples/desktop: the model learns from a conversation, while others go on."""

from __future__ import annotations

import re

import pytest
from support import scripted
from support.signatures import PARSE_SPECIAL

pytestmark = pytest.mark.xdist_group("desktop")

LEARN, CANCEL = "Learn from this conversation", "Cancel learning"
NAME, ASKED = "My name is Ben.", "What is my name?"
SUM = "What is 3 + 4?"
STEPS = 10_000  # of a lesson that does not end by itself here


def learn(app, what: str) -> None:
    """Let the model learn from the conversation in front, and wait until it has."""
    app.click(app.see(lambda: usable(app), "the button to learn"))
    agree(app)
    app.label(f"Answers use what was learned from {what}")


def agree(app) -> None:
    """Say that it shall learn."""
    app.press("alt+l", window="Learn from a conversation")


def usable(app):
    """The button to learn, where it can be clicked."""
    return next((found for found in app.find("button", LEARN) if found.sensitive), None)


def step(app) -> int:
    """The step that the window shows."""
    shown = app.label("Learning: step")
    return int(re.fullmatch(rf"Learning: step (\d+) of {STEPS}, \d+ s left", shown)[1])


def test_what_was_learnt_answers_in_all_conversations(start, model):
    app = start(model)
    first = app.conversation()
    first.answer(NAME)
    trained = first.answer(ASKED)
    app.press("ctrl+n")
    untaught = app.conversation(1).answer(ASKED)
    assert untaught != trained

    app.click(first.row)
    app.see(lambda: first.entry.focused, "the first conversation in front")
    learn(app, "2 questions")
    app.lacks("progress bar")
    app.lacks("button", CANCEL)
    app.press("ctrl+n")
    assert app.conversation(2).answer(ASKED) == trained
    app.click(first.row)
    first.ask(ASKED)
    first.wait_status("context, 0 reused")  # other weights had computed the rest


def test_learning_shows_how_far_it_is_while_answers_go_on_and_can_be_canceled(start, model):
    app = start(model, f"--epochs={STEPS}")
    first = app.conversation()
    trained = first.answer(NAME)
    app.press("ctrl+l")
    agree(app)
    bar = app.one("progress bar", "Learning")
    assert not app.one("button", LEARN).sensitive
    begun = step(app)
    app.see(lambda: bar.value > 0, "progress")

    app.press("ctrl+n")
    second = app.conversation(1)
    assert "7" in second.answer(SUM)
    app.see(lambda: step(app) > begun, "another step")
    far = bar.value
    app.see(lambda: bar.value > far, "more progress")

    app.click(app.one("button", CANCEL))
    app.label("Learning was canceled, and nothing was learned")
    app.lacks("progress bar")
    app.lacks("button", CANCEL)
    assert usable(app)
    assert second.answer(NAME) == trained
    assert "context, 0 reused" not in second.status.name  # it has the weights that it had


def test_a_key_alone_teaches_nothing(start, model):
    app = start(model, f"--epochs={STEPS}")
    app.conversation().answer(SUM)
    app.press("ctrl+l")
    app.label("Learn from this conversation?")
    app.press("Escape", window="Learn from a conversation")
    app.lacks("label", "Learn from this conversation?")
    app.lacks("button", CANCEL)
    assert usable(app)


def test_a_lesson_has_what_was_learnt_before_and_nothing_twice(start, model):
    app = start(model, "--epochs=1")
    first = app.conversation()
    first.answer(SUM)
    learn(app, "1 question")
    first.answer(NAME)
    learn(app, "2 questions")
    app.press("ctrl+n")
    app.conversation(1).answer(ASKED)
    learn(app, "3 questions")


def test_what_cannot_be_learnt_is_told(lib, start, tmp_path):
    folder = tmp_path / "unteachable"
    refusal = "{% if message.role == 'assistant' %}{{ raise_exception('no answers') }}{% endif %}"
    template = scripted.CHATML.replace("{% endfor %}", refusal + "{% endfor %}")
    scripted.make(folder, template, ["<|im_start|>", "<|im_end|>"])
    model = lib.load(folder)
    end = lib.info(model)["end_tokens"][0]["text"]
    prompt = lib.chat_prompt(model, [{"role": "user", "content": "Rain?"}])
    scripted.tell(folder, len(prompt), lib.tokenize(model, f"No.{end}", PARSE_SPECIAL))
    lib.free_model(model)

    app = start(folder)
    conversation = app.conversation()
    app.press("ctrl+l")
    app.label("There is nothing to learn before a question has got its whole answer")
    assert conversation.answer("Rain?") == "No."
    app.press("ctrl+l")
    agree(app)
    assert "line 1" in app.label("no answers")
    assert usable(app)
    app.lacks("progress bar")


def test_closing_the_window_while_the_model_learns_ends_the_app_cleanly(start, model):
    app = start(model, f"--epochs={STEPS}")
    app.conversation().answer(SUM)
    app.press("ctrl+l")
    agree(app)
    app.label("Learning: step")
    app.press("ctrl+q")
    assert app.end() == (0, "")
