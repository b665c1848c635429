"""What models/calf was trained for, asked through its chat template."""

from __future__ import annotations

import json

import pytest
from driver import delivered, text_of
from support.signatures import FINISH_STOP
from tasks import ASKED, HELDOUT, asked

if not HELDOUT.exists():
    pytest.skip(f"{HELDOUT} is missing", allow_module_level=True)


def is_right(entry, text):
    """The matching rules of heldout.json."""
    expected = entry["expected"]
    if entry["match"] == "exact":
        return text == expected
    if entry["match"] == "contains":
        return expected in text
    if entry["match"] == "tool_call":
        text = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
    elif entry["match"] != "json":
        raise ValueError(f"unknown rule {entry['match']}")
    try:
        return json.loads(text) == expected
    except json.JSONDecodeError:
        return False


def answer(lib, model, context, entry):
    """The prompt, and the pieces of its answer."""
    options = {"tools": entry["tools"]} if "tools" in entry else {}
    prompt = lib.chat_prompt(model, entry["messages"], **options)
    lib.begin(context, prompt)
    return prompt, lib.drain(context)


def test_there_are_enough_questions():
    assert len(asked()) == ASKED


@pytest.mark.parametrize("number", range(ASKED))
def test_a_held_out_question_is_answered_as_by_mlx_lm(lib, calf, context, mlx_lm, number):
    entry, expected = asked()[number], mlx_lm(f"calf {number}")
    prompt, pieces = answer(lib, calf, context, entry)
    assert prompt == expected["prompt"]
    assert [*delivered(pieces), pieces[-1].token] == expected["tokens"]
    assert text_of(pieces) == expected["text"]
    assert pieces[-1].finish == FINISH_STOP


def test_held_out_questions_are_answered_right(lib, calf, context):
    """The model, not the library, gets a few of all held-out ones wrong."""
    wrong = []
    for entry in asked():
        text = text_of(answer(lib, calf, context, entry)[1])
        if not is_right(entry, text):
            wrong.append((entry["kind"], text, entry["expected"]))
    assert len(wrong) <= 1, wrong


def test_a_conversation_reuses_what_was_said(lib, calf, context, open_context):
    """Each turn processes its question alone; its answer is a fresh context's."""
    questions = ["Hello!", "Tell me a story about a fox.", "What is 2 + 3?"]
    messages = []
    for question in questions:
        held = lib.tokens(context)
        messages.append({"role": "user", "content": question})
        prompt, pieces = answer(lib, calf, context, {"messages": messages})
        _, fresh = answer(lib, calf, open_context(calf), {"messages": messages})
        assert delivered(pieces) == delivered(fresh)
        assert text_of(pieces).strip()
        stats = lib.stats(context)
        assert stats.reused_tokens == len(held)
        assert prompt[: len(held)] == held, "the template repeats what was said, token by token"
        messages.append({"role": "assistant", "content": text_of(pieces)})
    assert lib.stats(context).reused_tokens > 0


def test_a_prompt_survives_its_way_through_text(lib, calf):
    messages = [{"role": "user", "content": "Tell me a story about a fox."}]
    prompt = lib.chat_prompt(calf, messages)
    assert lib.tokenize(calf, lib.detokenize(calf, prompt), 2) == prompt


def test_what_a_user_writes_never_becomes_a_special_token(lib, calf):
    info = lib.info(calf)
    for token in info["end_tokens"]:
        messages = [{"role": "user", "content": f"a {token['text']} b"}]
        honest = lib.chat_prompt(calf, [{"role": "user", "content": "a b"}])
        assert lib.chat_prompt(calf, messages).count(token["id"]) == honest.count(token["id"])
