"""Grammars that begin at a trigger; calls of tools that are the model's choice match, too."""

from __future__ import annotations

import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest
from support import async_calls, scripted
from support.callbacks import StatusError
from support.compiler import run as run_program
from support.paths import ROOT
from support.scripted import CHATML, THINKING
from support.signatures import (
    EINVAL,
    EVENT_REASONING,
    FINISH_STOP,
    GRAMMAR_JSON_SCHEMA,
    GRAMMAR_REGEX,
    PARSE_SPECIAL,
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

from cowmlx.generation import tool_calls
from cowmlx.generation.grammar import Constraint

# The model wants a wrong type, a value that is not in the schema, and another end.
WRONG = '<tool_call>\n{"name": "get_weather", "arguments": {"unit": 7, "days": "x", "no": 1}}\n'
SCHEMA = {
    "type": "object",
    "properties": {"rain": {"type": "boolean"}},
    "required": ["rain"],
    "additionalProperties": False,
}
HELD = sorted(set(SAMPLES) - tool_calls.REQUIRED_ONLY)
FENCED = {
    "grammar": json.dumps(SCHEMA),
    "grammar_kind": GRAMMAR_JSON_SCHEMA,
    "grammar_triggers": ["```json\n"],
}


@pytest.fixture
def question(lib, calf):
    return lib.chat_prompt(calf, [{"role": "user", "content": "What is the number?"}])


def settings(parser):
    return {"tool_parser_type": parser}


@pytest.mark.parametrize("parser", HELD)
def test_a_call_that_matches_stays_as_it_is(lib, says, parser):
    """In every notation, behind text and in front of text, where a call has an end."""
    behind = "" if parser == "mistral" else " Well."
    context = says(
        f"Let me see.{sample(parser)}{behind}", CHATML, MARKERS[parser], settings=settings(parser)
    )
    chat = lib.chat(context, USER, options={"tools": TOOLS})
    assert chat.calls == CALLS[parser], chat.events
    assert chat.said() == f"Let me see.{behind.strip()}"
    assert chat.events[-1].finish == FINISH_STOP


@pytest.mark.parametrize("parser", HELD)
def test_arguments_match_from_the_marker_on(lib, says, parser):
    """Behind its marker the model wants no call at all."""
    marker = re.match(r"\[TOOL_CALLS\]|<function name=|(<[^>]*>)+", sample(parser))
    start = {
        "minicpm5": "<function name=",
        "pythonic": "<|tool_call_start|>",
    }.get(parser, marker[0].split(">")[0] + ("" if parser == "mistral" else ">"))
    context = says(f"So. {start} It rains.", CHATML, MARKERS[parser], settings=settings(parser))
    chat = lib.chat(context, USER, options={"tools": [WEATHER]}, max_tokens=900)
    assert chat.said().strip().startswith("So.")
    assert [name for name, _ in chat.calls][:1] == ["get_weather"], chat.events
    jsonschema.validate(chat.calls[0][1], WEATHER["function"]["parameters"])


def test_without_tools_nothing_is_bound(lib, says):
    context = says(WRONG, CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    free = lib.chat(context, USER)
    assert '"unit": 7' in free.said()
    chat = lib.chat(context, USER, options={"tools": [WEATHER], "tool_choice": "none"})
    assert not chat.calls


@pytest.mark.parametrize("spelled", [True, False], ids=["one token", "in parts"])
def test_the_marker_may_come_in_parts(lib, says, spelled):
    markers = CALL_MARKERS if spelled else ["</tool_call>"]
    context = says(f"Now. {WRONG}", CHATML, markers, settings=JSON_TOOLS)
    chat = lib.chat(context, USER, options={"tools": [WEATHER]}, max_tokens=600)
    jsonschema.validate(chat.calls[0][1], WEATHER["function"]["parameters"])


def test_a_schema_that_the_notation_cannot_write_binds_nothing(lib, says):
    """As before: the call is the model's own."""
    odd = {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {
                "type": "object",
                "properties": {"q": {"type": ["string", "null"]}, "n": {}},
            },
        },
    }
    context = says(
        SAMPLES["qwen3_coder"], CHATML, MARKERS["qwen3_coder"], settings=settings("qwen3_coder")
    )
    chat = lib.chat(context, USER, options={"tools": [odd]})
    assert [name for name, _ in chat.calls] == ["look"]


@pytest.mark.parametrize("schema", [{"type": "string", "pattern": "(?=x)y"}, {"not": {}}], ids=str)
def test_a_schema_that_does_not_compile_binds_nothing_and_the_log_says_why(schema):
    program = f"""
from support.library import Library
from support.paths import CALF
lines = []
lib = Library()
lib.start(log=lambda level, text: lines.append(text.decode()))
context = lib.context(lib.load(CALF))
parameters = {{"type": "object", "properties": {{"city": {schema}}}}}
tool = {{"name": "get_weather", "parameters": parameters}}
chat = lib.chat(
    context,
    [{{"role": "user", "content": "What is the weather in Rome?"}}],
    options={{"tools": [tool]}},
)
print(chat.calls)
print([line for line in lines if "not held to their schemas" in line])
lib.stop()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = run_program([sys.executable, "-c", program], env=environment, cwd=ROOT)
    calls, lines = done.stdout.splitlines()
    assert calls == "[('get_weather', {'city': 'Rome'})]"
    assert "grammar: " in lines and lines.count("held to their schemas") == 1


def test_a_schema_that_does_not_compile_is_compiled_once(lib, says, monkeypatch):
    compiled, made = [], Constraint.__init__

    def count(self, model, source, **options):
        compiled.append(source)
        made(self, model, source, **options)

    monkeypatch.setattr(Constraint, "__init__", count)
    parameters = {"type": "object", "properties": {"city": {"not": {}}}}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
    context = says("It rains.", CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    for _ in range(2):
        lib.reset(context)
        assert lib.chat(context, USER, options={"tools": [tool]}).said() == "It rains."
    assert len(compiled) == 1


def test_a_budget_of_thinking_and_a_call(lib, says):
    context = says(
        f"a b c d e f</think>{WRONG}", THINKING, [*THINK, *CALL_MARKERS], settings=JSON_TOOLS
    )
    for budget in (2, 50):
        chat = lib.chat(
            context,
            USER,
            options={"tools": [WEATHER]},
            thinking_tokens=budget,
            max_tokens=600,
        )
        assert chat.said(EVENT_REASONING).strip()
        jsonschema.validate(chat.calls[0][1], WEATHER["function"]["parameters"])


def test_a_text_begins_the_host_s_grammar(lib, says):
    context = says("Well:\n```json\nno JSON at all, but words", CHATML)
    text = lib.chat(context, USER, max_tokens=60, **FENCED).said()
    before, _, behind = text.partition("```json\n")
    assert before == "Well:\n"
    assert json.loads(behind)["rain"] in (True, False)


def test_without_the_trigger_all_text_is_free(lib, says):
    context = says("It rains. {No JSON}", CHATML)
    chat = lib.chat(context, USER, **FENCED)
    assert (chat.said(), chat.events[-1].finish) == ("It rains. {No JSON}", FINISH_STOP)


@pytest.mark.parametrize("trigger", ["{", "ab", "b", " ab", "日", "yes no "])
def test_a_match_begins_with_a_token(lib, calf, context, question, trigger):
    """Tokens that hold a trigger and more are not allowed, so every match is whole."""
    params = {"grammar": "(1|22){3}", "grammar_kind": GRAMMAR_REGEX, "grammar_triggers": [trigger]}
    bias = dict.fromkeys(lib.tokenize(calf, trigger), 9.0)
    for seed in range(4):
        begun = {"temperature": 1.5, "seed": seed, "max_tokens": 60, "bias": bias, **params}
        text = lib.generate(context, question, **begun).text
        _, found, behind = text.partition(trigger)
        if found and lib.stats(context).generated_tokens < 60:
            assert re.fullmatch("(1|22){3}", behind), text


def test_triggers_inside_thinking_do_not_count(lib, says):
    context = says("I say ```json\n or so.</think>```json\nwords", THINKING, THINK)
    chat = lib.chat(context, USER, max_tokens=300, **FENCED)
    assert "or so." in chat.said(EVENT_REASONING)
    assert json.loads(chat.said().partition("```json\n")[2])["rain"] in (True, False)


@pytest.mark.parametrize("draft_tokens", [0, 4])
def test_in_a_batch_or_with_drafts_the_tokens_are_the_same(lib, says, draft_tokens):
    context = says(f"So. So. So. {WRONG}", CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    tasks = [
        {"options": {"tools": [WEATHER]}, "temperature": 1.0, "seed": seed, "max_tokens": 80}
        for seed in range(2)
    ] + [{"max_tokens": 60}, {"max_tokens": 60, **FENCED, "grammar_triggers": ["So. S"]}]
    alone = [lib.chat(context, USER, **task).events for task in tasks]
    contexts = [context, *(lib.fork(context) for _ in tasks[1:])]
    try:
        with ThreadPoolExecutor(len(tasks)) as pool:
            chats = list(
                pool.map(
                    lambda own: lib.chat(own[0], USER, draft_tokens=draft_tokens, **own[1]),
                    zip(contexts, tasks, strict=True),
                )
            )
        assert [chat.events for chat in chats] == alone
        if not draft_tokens:
            assert any(lib.info(own)["batched"] for own in contexts)
    finally:
        for other in contexts[1:]:
            lib.free(other)


def test_a_cancel_a_fork_and_a_file_inside_a_call(lib, says, tmp_path):
    context = says(f"So. {WRONG}", CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    options = {"tools": [WEATHER]}
    seen = []

    def three(event):
        seen.append(event)
        return False

    whole = lib.chat(context, USER, options=options, max_tokens=80)
    held = lib.tokens(context)
    with pytest.raises(StatusError):
        lib.chat(context, USER, three, options=options, max_tokens=80)
    part = lib.tokens(context)
    assert held[: len(part)] == part
    lib.save(context, tmp_path / "state")
    fork = lib.fork(context)
    lib.restore(context, tmp_path / "state")
    for own in (context, fork):
        assert lib.tokens(own) == part
        again = lib.chat(own, USER, options=options, max_tokens=80)
        assert again.events == whole.events
    lib.free(fork)


@pytest.mark.parametrize("kind", [GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX], ids=["schema", "regex"])
def test_markers_inside_json_behind_a_trigger_are_text(lib, says, kind):
    """Not so behind the trigger of a regex, whose match may have markers."""
    answer = {"why": "a <think>b</think> <tool_call>c</tool_call>"}
    context = says("So. JSON: It rains.", CHATML, [*THINK, *CALL_MARKERS], settings=JSON_TOOLS)
    grammar = json.dumps({"const": answer})
    if kind == GRAMMAR_REGEX:
        grammar = re.escape(grammar)
    params = {"grammar": grammar, "grammar_kind": kind, "grammar_triggers": ["JSON:"]}
    chat = lib.chat(context, USER, **params)
    assert chat.events[-1].finish == FINISH_STOP
    if kind == GRAMMAR_JSON_SCHEMA:
        before, _, rest = chat.said().partition("JSON:")
        assert (before, json.loads(rest), chat.said(EVENT_REASONING)) == ("So. ", answer, "")
    else:
        assert chat.said(EVENT_REASONING) == "b"


def test_no_token_continues_behind_a_trigger_that_is_a_token_too(lib, tmp_path):
    """The model wants to spell it in parts, the last of which has more than its end."""
    parts = ["So. ", "<g", "o>x"]
    folder = scripted.make(tmp_path / "model", CHATML, ["<go>", *parts])
    for wanted in (False, True):  # the second time it knows what to say
        model = lib.load(folder)
        prompt = lib.chat_prompt(model, USER)
        tokens = [token for part in parts for token in lib.tokenize(model, part, PARSE_SPECIAL)]
        assert len(tokens) == len(parts)
        if not wanted:
            lib.free_model(model)
            scripted.tell(folder, len(prompt), tokens)
    context = lib.context(model)
    params = {"grammar": "yes|no", "grammar_kind": GRAMMAR_REGEX, "grammar_triggers": ["<go>"]}
    assert lib.chat(context, USER, max_tokens=9).said().startswith("So. <go>x")
    said = lib.chat(context, USER, max_tokens=9, **params).said()
    assert said.startswith("So. <g") and "<go>x" not in said
    lib.free_model(model)


def test_events_that_the_host_takes_are_the_same(lib, says):
    context = says(f"So. {WRONG}", CHATML, CALL_MARKERS, settings=JSON_TOOLS)
    params = {"options": {"tools": [WEATHER]}, "max_tokens": 80}
    expected = lib.chat(context, USER, **params).events
    async_calls.chat(lib, context, USER, **params)
    assert async_calls.events(lib, context) == expected


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"grammar_triggers": ["x"]}, "grammar_triggers is given, but grammar is NULL"),
        ({**FENCED, "grammar_triggers": [""]}, "grammar_triggers[0] is empty"),
        ({**FENCED, "grammar_triggers": ["x"] * 17}, "grammar_trigger_count is 17"),
        ({**FENCED, "grammar_triggers": ["x" * 257]}, "at most 256 bytes"),
        ({**FENCED, "grammar": "{"}, "grammar: not JSON"),
    ],
)
def test_what_is_wrong_is_named(lib, context, question, params, named):
    held = lib.tokens(context)
    with pytest.raises(StatusError) as error:
        lib.begin(context, question, **params)
    assert error.value.status == EINVAL
    assert named in error.value.message
    assert lib.tokens(context) == held
