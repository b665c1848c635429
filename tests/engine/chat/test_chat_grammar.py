"""Grammars in a chat hold for what follows a model's thinking."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import scripted
from support.scripted import CHATML, THINKING
from support.signatures import (
    EVENT_END,
    EVENT_REASONING,
    EVENT_TEXT,
    FINISH_LENGTH,
    FINISH_STOP,
    FINISH_STOP_TEXT,
    GRAMMAR_JSON_SCHEMA,
    GRAMMAR_REGEX,
    PARSE_SPECIAL,
)

USER = [{"role": "user", "content": "Is it raining in Oslo?"}]
THINK = ["<think>", "</think>"]
SCHEMA = {
    "type": "object",
    "properties": {"rain": {"type": "boolean"}, "why": {"type": "string", "maxLength": 40}},
    "required": ["rain"],
    "additionalProperties": False,
}
JSON = {"grammar": json.dumps(SCHEMA), "grammar_kind": GRAMMAR_JSON_SCHEMA}
ANSWER = '{"rain": true}'
# A template that always opens thinking, whatever it is asked.
ALWAYS = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
# A template without a token behind a user's turn, as Mistral's and Llama 2's.
INSTRUCT = (
    "{% for message in messages %}{% if message.role == 'user' %}[INST] {{ message.content }} "
    "[/INST]{% else %} {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
# Markers that no token stands for alone but for their first part, as Gemma 4 has them.
CHANNEL = ["<|channel>", "<channel|>"]
# Markers of several tokens at both ends, as Kimi K3 has them.
XTML = ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"]


def kinds(chat):
    found = [event.kind for event in chat.events]
    return [kind for i, kind in enumerate(found) if i == 0 or kind != found[i - 1]]


@pytest.mark.parametrize("template", [THINKING, ALWAYS], ids=["switched", "always"])
@pytest.mark.parametrize("gap", ["", "\n", "\n\n"], ids=["", "a line", "two lines"])
def test_a_grammar_begins_behind_thinking_that_the_prompt_has_opened(lib, says, template, gap):
    context = says(f'Rain? {{"no": 1}}\n</think>{gap}{ANSWER}', template, THINK)
    chat = lib.chat(context, USER, **JSON)
    assert chat.said(EVENT_REASONING) == 'Rain? {"no": 1}'
    assert chat.said() == ANSWER
    assert kinds(chat) == [EVENT_REASONING, EVENT_TEXT, EVENT_END]
    assert chat.events[-1].finish == FINISH_STOP


@pytest.mark.parametrize("kind", ["spm", "spm_unigram"])
def test_tokenizers_of_pieces_think_too(lib, says, kind):
    context = says(f"Rain?\n</think>\n\n{ANSWER}", THINKING, THINK, kind=kind)
    chat = lib.chat(context, USER, **JSON)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("Rain?", ANSWER)
    assert chat.events[-1].finish == FINISH_STOP


@pytest.mark.parametrize(
    ("markers", "start", "end"),
    [
        (THINK, "<think>", "</think>"),
        (CHANNEL, "<|channel>thought", "<channel|>"),
        (XTML, "<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ],
    ids=["one token each", "text behind a token", "several tokens"],
)
def test_a_model_may_think_first_of_its_own_accord(lib, says, markers, start, end):
    context = says(f"{start}\nRain? Yes.\n{end}\n\n{ANSWER}", CHATML, markers)
    chat = lib.chat(context, USER, **JSON)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("Rain? Yes.", ANSWER)
    assert chat.events[-1].finish == FINISH_STOP


def test_a_model_that_does_not_think_answers_at_once(lib, says):
    chat = lib.chat(says(ANSWER, CHATML, THINK), USER, **JSON)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("", ANSWER)
    assert kinds(chat) == [EVENT_TEXT, EVENT_END]


def test_the_answer_matches_whatever_the_model_would_say(lib, says):
    """Behind the end of thinking the model wants no JSON; in front of it, nothing forces any."""
    chat = lib.chat(says("Rain?\n</think>\n\nIt rains.", THINKING, THINK), USER, **JSON)
    assert chat.said(EVENT_REASONING) == "Rain?"
    if chat.events[-1].finish == FINISH_STOP:
        assert set(json.loads(chat.said())) <= {"rain", "why"}
    else:
        assert chat.said().startswith("{")


def test_thinking_cannot_end_the_generation(lib, says):
    """The model wants to stop while it thinks, and still owes its answer."""
    chat = lib.chat(says("Rain?", THINKING, THINK), USER, max_tokens=40, **JSON)
    assert chat.events[-1].finish == FINISH_LENGTH
    assert chat.said() == ""


@pytest.mark.parametrize("rest", ["", "{", "x", "\n"])
def test_an_end_marker_that_comes_in_parts(lib, says, rest):
    """The model wants ordinary tokens, the last of which has more than the marker's end."""
    parts = ["</thi", "nk", f">{rest}"]
    context = says(f"Rain? </thin> {''.join(parts)}{ANSWER}", ALWAYS, [*THINK, *parts])
    chat = lib.chat(context, USER, **JSON)
    assert chat.said(EVENT_REASONING).startswith("Rain? </thin>")
    if not rest.strip():
        assert (chat.said(EVENT_REASONING), chat.said()) == ("Rain? </thin>", ANSWER)
    else:  # that token is not allowed, so the model continues as it can
        assert chat.said() == "" or chat.said().startswith("{")
        assert chat.events[-1].finish in (FINISH_STOP, FINISH_LENGTH)


def test_length_inside_thinking_is_told_and_there_is_no_text(lib, says):
    context = says(f"Rain? Yes, it rains a lot.\n</think>\n\n{ANSWER}", THINKING, THINK)
    chat = lib.chat(context, USER, max_tokens=5, **JSON)
    assert kinds(chat) == [EVENT_REASONING, EVENT_END]
    assert chat.events[-1].finish == FINISH_LENGTH
    assert chat.stats.generated_tokens == 5


def test_a_stop_text_inside_thinking_ends_it_there(lib, says):
    context = says(f"Rain? Yes.\n</think>\n\n{ANSWER}", THINKING, THINK)
    chat = lib.chat(context, USER, stop=[" Yes"], **JSON)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("Rain?", "")
    assert chat.events[-1].finish == FINISH_STOP_TEXT


def test_thinking_is_closed_by_the_template_where_it_knows_how(lib, says):
    options = {"enable_thinking": False}
    context = says(ANSWER, THINKING, THINK, options=options)
    chat = lib.chat(context, USER, options=options, **JSON)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("", ANSWER)


@pytest.mark.parametrize("template", [ALWAYS, CHATML], ids=["opened", "not opened"])
def test_thinking_is_closed_in_the_prompt_where_the_template_does_not_know(lib, says, template):
    options = {"enable_thinking": False}
    context = says(ANSWER, template, THINK, options=options)
    chat = lib.chat(context, USER, options=options, **JSON)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("", ANSWER)


@pytest.mark.parametrize("template", [ALWAYS, CHATML, THINKING])
def test_a_closed_prompt_ends_with_empty_thinking(lib, tmp_path, template):
    model = lib.load(scripted.make(tmp_path / "model", template, THINK))
    try:
        prompt = lib.chat_prompt(model, USER, enable_thinking=False)
        text = lib.detokenize(model, prompt)
        assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
        assert lib.tokenize(model, text, PARSE_SPECIAL) == prompt
        unchanged = lib.chat_prompt(model, USER, enable_thinking=False, add_generation_prompt=False)
        assert "</think>" not in lib.detokenize(model, unchanged)
    finally:
        lib.free_model(model)


def test_without_a_grammar_closed_thinking_is_no_reasoning(lib, says):
    options = {"enable_thinking": False}
    context = says("It rains.", ALWAYS, THINK, options=options)
    chat = lib.chat(context, USER, options=options)
    assert (chat.said(EVENT_REASONING), chat.said()) == ("", "It rains.")


@pytest.mark.parametrize("template", [THINKING, CHATML], ids=["opened", "by the model"])
def test_markers_inside_json_are_text(lib, says, template):
    """They are spelled by ordinary tokens there, and no event is made of them."""
    answer = {"rain": True, "why": "</think> <tool_call> <think>"}
    context = says(
        f"{'' if template is THINKING else '<think>'}Rain?</think>",
        template,
        [*THINK, "<tool_call>", "</tool_call>"],
        settings={"tool_parser_type": "json_tools"},
    )
    grammar = json.dumps({"const": answer})
    chat = lib.chat(context, USER, grammar=grammar, grammar_kind=GRAMMAR_JSON_SCHEMA)
    assert chat.said(EVENT_REASONING) == "Rain?"
    assert json.loads(chat.said()) == answer


def test_whitespace_that_the_grammar_asks_for_is_not_taken_for_the_marker_s(lib, says):
    context = says("Rain?\n</think>\n\n  yes", THINKING, THINK)
    chat = lib.chat(context, USER, grammar=" {2}(yes|no)", grammar_kind=GRAMMAR_REGEX)
    assert chat.said() in ("  yes", "  no")


def test_a_call_marker_inside_thinking_does_not_end_it(lib, says):
    context = says(
        f"I could <tool_call> now.\n</think>\n\n{ANSWER}",
        THINKING,
        [*THINK, "<tool_call>", "</tool_call>"],
        settings={"tool_parser_type": "json_tools"},
    )
    chat = lib.chat(context, USER, **JSON)
    assert chat.said(EVENT_REASONING) == "I could <tool_call> now."
    assert chat.said() == ANSWER


def test_an_answer_that_the_host_has_begun_is_gone_on_with_at_once(lib, says):
    messages = [*USER, {"role": "assistant", "content": '{"rain":'}]
    options = {"continue_final_message": True}
    context = says(" true", CHATML, THINK, messages, options)
    chat = lib.chat(
        context, messages, options=options, grammar=" (true|false)", grammar_kind=GRAMMAR_REGEX
    )
    assert chat.said() == " true"


def test_drafts_match_behind_thinking(lib, says):
    context = says(f"Rain? Rain? Rain?\n</think>\n\n{ANSWER}", THINKING, THINK)
    plain = lib.chat(context, USER, **JSON)
    drafted = lib.chat(context, USER, draft_tokens=4, **JSON)
    assert drafted.events == plain.events
    assert drafted.stats.drafted_tokens > 0


def test_a_raw_prompt_is_followed_by_the_grammar_from_its_first_token(lib, says):
    context = says(ANSWER, CHATML, THINK)
    told = lib.chat(context, USER, **JSON)
    prompt = lib.tokens(context)[: told.stats.prompt_tokens]
    assert lib.generate(context, prompt, **JSON).text == ANSWER


def test_several_contexts_think_and_answer_in_one_batch(lib, says, open_context):
    thought = "Rain? It is a wet place, so it may well rain."
    first = says(f"{thought}\n</think>\n\n{ANSWER}", THINKING, THINK)
    others = [lib.fork(first) for _ in range(3)]
    try:
        with ThreadPoolExecutor(4) as pool:
            chats = list(
                pool.map(lambda context: lib.chat(context, USER, **JSON), [first, *others])
            )
    finally:
        for context in others:
            lib.free(context)
    assert {(chat.said(EVENT_REASONING), chat.said()) for chat in chats} == {(thought, ANSWER)}


@pytest.mark.parametrize("seed", range(8))
def test_drawn_tokens_match_too(lib, says, seed):
    context = says(f"Rain? Yes.\n</think>\n\n{ANSWER}", THINKING, THINK)
    chat = lib.chat(context, USER, temperature=3.0, seed=seed, max_tokens=300, **JSON)
    if chat.events[-1].finish == FINISH_STOP:
        assert set(json.loads(chat.said())) <= {"rain", "why"}
    else:
        assert chat.events[-1].finish == FINISH_LENGTH


@pytest.mark.parametrize("markers", [THINK, CHANNEL], ids=["one token", "text behind a token"])
def test_a_marker_in_a_question_opens_no_thinking(lib, says, markers):
    """The template does not write the marker, and no token ends the user's turn."""
    messages = [{"role": "user", "content": f"What does {markers[0]}thought mean?"}]
    context = says("It is a tag.", INSTRUCT, markers, messages)
    chat = lib.chat(context, messages, grammar="yes|no", grammar_kind=GRAMMAR_REGEX, max_tokens=30)
    assert kinds(chat) == [EVENT_TEXT, EVENT_END]
    assert chat.said() in ("yes", "no")
