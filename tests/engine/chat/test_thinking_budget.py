"""Thinking is closed when its tokens are used up, and the answer follows."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from driver import text_of
from support import async_calls, scripted
from support.callbacks import StatusError
from support.scripted import CHATML, THINKING
from support.signatures import (
    EINVAL,
    EUNSUPPORTED,
    EVENT_END,
    EVENT_REASONING,
    EVENT_TEXT,
    EVENT_THINKING_CUT,
    FINISH_LENGTH,
    FINISH_STOP,
    GRAMMAR_JSON_SCHEMA,
    PARSE_SPECIAL,
)

USER = [{"role": "user", "content": "Is it raining in Oslo?"}]
THINK = ["<think>", "</think>"]
MARKERS = {
    "one token each": (THINK, "<think>", "</think>"),
    "several tokens": (
        ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"],
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
    ),
}
LONG = "a b c d e f g h i j k l m n o p"
SCHEMA = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}
JSON = {"grammar": json.dumps(SCHEMA), "grammar_kind": GRAMMAR_JSON_SCHEMA}


def kinds(chat):
    found = [event.kind for event in chat.events]
    return [kind for i, kind in enumerate(found) if i == 0 or kind != found[i - 1]]


def answer(lib, context, chat):
    """The generated tokens."""
    return lib.tokens(context)[chat.stats.prompt_tokens :]


@pytest.fixture
def ids(lib, tmp_path):
    """The tokens of a text, by a model with these markers."""

    def ids(text, markers=THINK):
        model = lib.load(scripted.make(tmp_path / f"ids {len(text)}", CHATML, markers))
        try:
            return lib.tokenize(model, text, PARSE_SPECIAL)
        finally:
            lib.free_model(model)

    return ids


@pytest.mark.parametrize("budget", [0, 1, 5])
@pytest.mark.parametrize("template", [THINKING, CHATML], ids=["opened", "by the model"])
def test_thinking_is_cut_and_the_answer_follows(lib, says, ids, template, budget):
    """The model says what belongs to a position, so all but the marker's place is as without."""
    start = "" if template is THINKING else "<think>"
    context = says(f"{start}{LONG}</think>It rains.", template, THINK)
    whole = answer(lib, context, lib.chat(context, USER))
    cut = lib.chat(context, USER, thinking_tokens=budget)
    at = budget + bool(start)
    assert answer(lib, context, cut) == [*whole[:at], *ids("</think>"), *whole[at + 1 :]]
    expected = [EVENT_REASONING, EVENT_THINKING_CUT, EVENT_TEXT, EVENT_END]
    assert kinds(cut) == (expected if budget else expected[1:])
    assert cut.said().endswith("It rains.")
    assert cut.events[-1].finish == FINISH_STOP


@pytest.mark.parametrize("budget", [-1, 100])
def test_within_the_budget_nothing_changes(lib, says, budget):
    context = says(f"{LONG}</think>It rains.", THINKING, THINK)
    whole = answer(lib, context, lib.chat(context, USER))
    chat = lib.chat(context, USER, thinking_tokens=budget)
    assert answer(lib, context, chat) == whole
    assert kinds(chat) == [EVENT_REASONING, EVENT_TEXT, EVENT_END]


@pytest.mark.parametrize("more", [1, 2, 3])
@pytest.mark.parametrize(("markers", "start", "end"), MARKERS.values(), ids=MARKERS)
def test_a_marker_that_has_begun_is_not_cut(lib, says, ids, markers, start, end, more):
    context = says(f"{start}abcd{end}It rains.", CHATML, markers)
    whole = lib.chat(context, USER)
    expected = answer(lib, context, whole)
    chat = lib.chat(context, USER, thinking_tokens=len(ids("abcd", markers)) + more)
    assert answer(lib, context, chat) == expected
    assert chat.events == whole.events


@pytest.mark.parametrize("again", [" so", "<|close|>", "think"])
def test_a_marker_that_breaks_off_is_cut(lib, says, ids, again):
    markers, start, end = MARKERS["several tokens"]
    context = says(f"{start}abcd<|close|>{again} e f g h i j{end}It rains.", CHATML, markers)
    budget = len(ids("abcd", markers)) + 1
    chat = lib.chat(context, USER, thinking_tokens=budget)
    assert kinds(chat) == [EVENT_REASONING, EVENT_THINKING_CUT, EVENT_TEXT, EVENT_END]
    assert "h i j" not in chat.said(EVENT_REASONING)


@pytest.mark.parametrize(("markers", "start", "end"), MARKERS.values(), ids=MARKERS)
def test_a_text_closes_the_thinking(lib, says, markers, start, end):
    context = says(f"{start}{LONG}{end}It rains.", CHATML, markers)
    for text in ("\nI must answer.", f"\nI must answer.{end}", f"\nI must answer.{end}\n\n"):
        chat = lib.chat(context, USER, thinking_tokens=3, thinking_end_text=text)
        assert LONG.startswith(chat.said(EVENT_REASONING).removesuffix("\nI must answer."))
        assert chat.said(EVENT_REASONING).endswith("\nI must answer.")
        assert kinds(chat) == [EVENT_REASONING, EVENT_THINKING_CUT, EVENT_TEXT, EVENT_END]


def test_options_of_a_chat_replace_the_params(lib, says):
    context = says(f"{LONG}</think>It rains.", THINKING, THINK)
    by_params = lib.chat(context, USER, thinking_tokens=2, thinking_end_text="!")
    options = {"thinking_tokens": 2, "thinking_end_text": "!"}
    assert lib.chat(context, USER, options=options).events == by_params.events
    given = {"thinking_tokens": 5, "thinking_end_text": "?"}
    assert lib.chat(context, USER, options=options, **given).events == by_params.events
    free = lib.chat(context, USER, options={"thinking_tokens": -1}, thinking_tokens=2)
    assert EVENT_THINKING_CUT not in kinds(free)


@pytest.mark.parametrize("template", [THINKING, CHATML], ids=["opened", "by the model"])
@pytest.mark.parametrize("budget", [0, 4])
def test_a_grammar_holds_behind_thinking_that_is_cut(lib, says, template, budget):
    start = "" if template is THINKING else "<think>"
    context = says(f"{start}{LONG}</think>\n\n", template, THINK)
    for end in (None, "\nSo:\n</think>\n\n"):
        chat = lib.chat(
            context, USER, thinking_tokens=budget, thinking_end_text=end, max_tokens=200, **JSON
        )
        assert EVENT_THINKING_CUT in kinds(chat)
        assert chat.said().lstrip().startswith("{")
        if chat.events[-1].finish == FINISH_STOP:
            assert json.loads(chat.said())["rain"] in (True, False)


def test_each_thinking_counts(lib, says, ids):
    """The model thinks twice; the budget is used up in the second thinking."""
    context = says(f"<think>a b</think>So.<think>{LONG}</think>It rains.", CHATML, THINK)
    whole = answer(lib, context, lib.chat(context, USER))
    first = len(ids("a b"))
    cut = lib.chat(context, USER, thinking_tokens=first + 2)
    at = len(ids("<think>a b</think>So.<think>")) + 2
    assert answer(lib, context, cut) == [*whole[:at], *ids("</think>"), *whole[at + 1 :]]


def test_length_ends_the_closing_text_too(lib, says):
    context = says(f"{LONG}</think>It rains.", THINKING, THINK)
    ending = {"thinking_tokens": 2, "thinking_end_text": "that is enough for today"}
    chat = lib.chat(context, USER, max_tokens=4, **ending)
    assert chat.stats.generated_tokens == 4
    assert chat.events[-1].finish == FINISH_LENGTH
    assert kinds(chat) == [EVENT_REASONING, EVENT_THINKING_CUT, EVENT_END]


def test_a_raw_prompt_has_a_budget(lib, says, ids):
    context = says(f"{LONG}</think>It rains.", THINKING, THINK)
    chat = lib.chat(context, USER, thinking_tokens=3)
    held = lib.tokens(context)
    prompt = held[: chat.stats.prompt_tokens]
    lib.begin(context, prompt, thinking_tokens=3, max_tokens=8)
    pieces = [piece.token for piece in lib.drain(context)[:8]]
    assert pieces == held[len(prompt) :][:8]
    assert pieces[3:4] == ids("</think>")


@pytest.mark.parametrize("draft_tokens", [0, 3])
@pytest.mark.parametrize("trigger", ["</think>", "</think>\n", "nough."])
def test_a_trigger_in_the_closing_text_begins_the_grammar(lib, says, trigger, draft_tokens):
    """The rest of the closing text is not generated: the grammar would refuse it."""
    context = says(f"{LONG}</think>It rains.", THINKING, THINK)
    lib.chat(context, USER, max_tokens=1)
    prompt = lib.tokens(context)[: lib.stats(context).prompt_tokens]
    ending = {"thinking_tokens": 2, "thinking_end_text": "Enough.</think>\n\n"}
    grammar = {**JSON, "grammar": json.dumps({**SCHEMA, "additionalProperties": False})}
    params = {**ending, **grammar, "grammar_triggers": [trigger], "draft_tokens": draft_tokens}
    lib.begin(context, prompt, max_tokens=200, **params)
    pieces = lib.drain(context)
    _, found, behind = text_of(pieces).partition(trigger)
    assert found
    assert pieces[-1].finish == FINISH_STOP
    assert json.loads(behind)["rain"] in (True, False)


@pytest.mark.parametrize("draft_tokens", [0, 3])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.5, "seed": 3}], ids=["best", "sampled"])
def test_in_a_batch_or_with_drafts_the_tokens_are_the_same(lib, says, sampling, draft_tokens):
    context = says(f"<think>{LONG}</think>It rains.", CHATML, THINK)
    given = [dict(thinking_tokens=n, max_tokens=40, **sampling) for n in (-1, 0, 1, 3, 5)]
    alone = [lib.chat(context, USER, **params).events for params in given]
    contexts = [context, *(lib.fork(context) for _ in given[1:])]
    try:
        with ThreadPoolExecutor(len(given)) as pool:
            chats = pool.map(
                lambda own: lib.chat(own[0], USER, draft_tokens=draft_tokens, **own[1]),
                zip(contexts, given, strict=True),
            )
            assert [chat.events for chat in chats] == alone
    finally:
        for other in contexts[1:]:
            lib.free(other)


@pytest.mark.parametrize("taken", range(1, 7))
def test_a_cancel_and_a_fork_in_every_state(lib, says, tmp_path, taken):
    """The context, its fork and its file continue as a fresh prompt of the same tokens."""
    context = says(f"{LONG}</think>It rains.", THINKING, THINK)
    budget = {"thinking_tokens": 3, "thinking_end_text": "Now.", "max_tokens": 12}
    prompt = lib.tokens(context)[: lib.chat(context, USER, max_tokens=1).stats.prompt_tokens]
    prompt = lib.tokens(context)[: lib.stats(context).prompt_tokens]
    lib.begin(context, prompt, **budget)
    whole = [piece.token for piece in lib.drain(context)]
    lib.begin(context, prompt, **budget)
    assert [lib.next(context).token for _ in range(taken)] == whole[:taken]
    fork = lib.fork(context)
    lib.save(context, tmp_path / "state")
    lib.cancel(context)
    held = [*prompt, *whole[:taken]]
    assert lib.tokens(context) == lib.tokens(fork) == held
    lib.restore(context, tmp_path / "state")
    assert lib.tokens(context) == held
    goes_on = []
    for own in (context, fork):
        lib.begin(own, held, max_tokens=4)
        goes_on.append([piece.token for piece in lib.drain(own)])
    lib.free(fork)
    assert goes_on[0] == goes_on[1]


def test_events_that_the_host_takes_say_it_too(lib, says):
    context = says(f"{LONG}</think>It rains.", THINKING, THINK)
    expected = lib.chat(context, USER, thinking_tokens=3).events
    async_calls.chat(lib, context, USER, thinking_tokens=3)
    assert async_calls.events(lib, context) == expected


def refused(lib, context, status, options=None, **params):
    held = lib.tokens(context)
    with pytest.raises(StatusError) as error:
        lib.chat(context, USER, options=options, **params)
    assert error.value.status == status
    assert lib.tokens(context) == held
    return error.value.message


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"thinking_end_text": "x"}, "thinking_tokens is -1"),
        ({"thinking_tokens": 1, "thinking_end_text": ""}, "thinking_end_text is empty"),
        ({"thinking_tokens": 1, "thinking_end_text": "</think> so"}, "has text behind '</think>'"),
        ({"thinking_tokens": 1, "thinking_end_text": "x" * 4097}, "at most 4096 bytes"),
        ({"options": {"thinking_tokens": "1"}}, "must be a whole number, not a string"),
        ({"options": {"thinking_tokens": True}}, "must be a whole number, not a boolean"),
        ({"options": {"thinking_tokens": -2}}, "thinking_tokens is -2"),
        ({"options": {"thinking_end_text": 1}}, "thinking_end_text must be a string"),
    ],
)
def test_what_is_wrong_is_named(lib, says, params, named):
    assert named in refused(lib, says("a</think>b", THINKING, THINK), EINVAL, **params)


def test_a_model_without_markers_refuses_it(lib, context):
    message = refused(lib, context, EUNSUPPORTED, thinking_tokens=4)
    assert "this model marks no thinking" in message


def test_a_grammar_from_the_first_token_excludes_it(lib, says):
    context = says("a</think>b", THINKING, THINK)
    with pytest.raises(StatusError) as error:
        lib.begin(context, [11, 12], thinking_tokens=4, **JSON)
    assert error.value.status == EUNSUPPORTED
    assert "grammar and thinking_tokens" in error.value.message
