"""Output that matches a grammar: whatever else is asked for, and whatever is drawn."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import jsonschema
import pytest
from driver import KINDS, opened, prompt, text_of
from support import tiny_models
from support.callbacks import StatusError
from support.compiler import run as run_program
from support.library import Piece
from support.paths import ROOT
from support.signatures import (
    DONE,
    EINVAL,
    EUNSUPPORTED,
    FINISH_CANCELED,
    FINISH_CONTEXT,
    FINISH_LENGTH,
    FINISH_STOP,
    FINISH_STOP_TEXT,
    GRAMMAR_GBNF,
    GRAMMAR_JSON_SCHEMA,
    GRAMMAR_LARK,
    GRAMMAR_REGEX,
    OK,
    OVERFLOW_ROLL,
)

SCHEMAS: dict[str, dict[str, Any]] = {
    "flat": {
        "type": "object",
        "properties": {
            "animal": {"enum": ["cat", "dog", 'Größe "x"\n', 7, None]},
            "legs": {"type": "integer", "minimum": 2, "maximum": 8},
            "tame": {"type": "boolean"},
        },
        "required": ["animal", "legs", "tame"],
        "additionalProperties": False,
    },
    "optional": {
        "type": "object",
        "properties": {
            "a": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 20},
            "b": {"type": ["integer", "null"], "multipleOf": 5, "minimum": 0, "maximum": 999},
            "c": {"const": {"x": [1, "y"]}},
        },
        "additionalProperties": False,
    },
    "array": {
        "type": "array",
        "items": {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 6}]},
        "minItems": 1,
        "maxItems": 3,
    },
    "nested": {
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"$ref": "#/$defs/small"}, "y": {"$ref": "#/$defs/small"}},
                "required": ["x", "y"],
                "additionalProperties": False,
            },
            "small": {"type": "integer", "minimum": -9, "maximum": 9},
        },
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/point"}, "name": {"$ref": "#/$defs/name"}},
        "required": ["at"],
        "additionalProperties": False,
    },
    "recursive": {
        "$defs": {
            "list": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}},
                "required": ["next"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/list",
    },
    "string": {"type": "string", "minLength": 2, "maxLength": 8, "pattern": "^[A-Z][a-zé]+$"},
}
SCHEMAS["nested"]["$defs"]["name"] = {"type": "string", "maxLength": 8}
# What the library is given, and the same for Python's re.
REGEXES = {
    "yes|no": "yes|no",
    r"[0-9]{3}-[a-f]+?x": r"[0-9]{3}-[a-f]+x",
    r"(foo|bar){2,3}\.": r"(foo|bar){2,3}\.",
    r"\p{Lu}[a-zäöü]{2,5}/\\" + "\n": r"[^\W\d_a-z][a-zäöü]{2,5}/\\" + "\n",
    " {2}x": "  x",
    "(日本|🙂){2}": "(日本|🙂){2}",
}
LARK = r"""start: greeting " " NAME "!"
greeting: "Hello" | "Good" (" morning" | " day")
NAME: /[A-Z][a-z]{1,6}/
"""
LARK_REGEX = r"(Hello|Good( morning| day)) [A-Z][a-z]{1,6}!"
GBNF = r"""root ::= item ("," ws item){1,2} # a list
item ::= [a-c]+ | "\"" [^"\\\x00-\x1F\u007f]{1,4} "\"" | "\u0041\u00e9\U0001F642"
ws ::= " "?
"""
ITEM = r'([a-c]+|"[^"\\\x00-\x1f\x7f]{1,4}"|Aé🙂)'
GBNF_REGEX = rf"{ITEM}(, ?{ITEM}){{1,2}}"
SAMPLED = {"temperature": 1.0, "max_tokens": 400}
SEEDS = 34


def regex(text: str, **params: Any) -> dict[str, Any]:
    return {"grammar": text, "grammar_kind": GRAMMAR_REGEX, **params}


def schema(value: Any, **params: Any) -> dict[str, Any]:
    return {"grammar": json.dumps(value), "grammar_kind": GRAMMAR_JSON_SCHEMA, **params}


def sampled(lib, calf: int, name: str) -> dict[str, Any]:
    """The options of a generation that a schema bounds, and that ends."""
    params = schema(SCHEMAS[name], **SAMPLED)
    if name == "recursive":  # calf likes to repeat itself
        params["bias"] = dict.fromkeys(lib.tokenize(calf, " null"), 12.0)
    return params


def complete(lib, context: int, tokens: Sequence[int], **params: Any) -> str:
    """The text of a generation that a complete match ends."""
    lib.begin(context, tokens, **params)
    pieces = lib.drain(context)
    assert pieces[-1].finish == FINISH_STOP, text_of(pieces)
    return text_of(pieces)


def check_json(text: str, against: Any) -> None:
    jsonschema.Draft202012Validator(against).validate(json.loads(text))


def refused(lib, context: int, tokens: Sequence[int], status: int, **params: Any) -> str:
    """The message of a begin that a grammar makes fail."""
    with pytest.raises(StatusError) as error:
        lib.begin(context, tokens, **params)
    assert error.value.status == status
    return str(error.value)


@pytest.fixture(scope="module")
def question(lib, calf) -> list[int]:
    return lib.chat_prompt(calf, [{"role": "user", "content": "Tell me about a cat, as JSON."}])


@pytest.fixture(scope="module")
def endless(lib, once) -> int:
    """A tiny model that has no end token."""

    def fill(path):
        tiny_models.make(path, "llama", config={"eos_token_id": None})
        settings = json.loads((path / "tokenizer_config.json").read_text())
        del settings["eos_token"]
        (path / "tokenizer_config.json").write_text(json.dumps(settings))

    model = lib.load(once("tiny-endless", fill))
    assert lib.info(model)["end_tokens"] == []
    return model


# ---------------------------------------------------- What matches


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_sample_is_json_that_its_schema_accepts(lib, calf, context, question, name):
    """204 outputs in all."""
    params = sampled(lib, calf, name)
    texts = [complete(lib, context, question, **params, seed=seed) for seed in range(SEEDS)]
    for text in texts:
        check_json(text, SCHEMAS[name])
    assert len(set(texts)) > 2


@pytest.mark.parametrize("name", sorted(SCHEMAS.keys() - {"recursive"}))
def test_greedy_output_is_json_that_its_schema_accepts(lib, context, question, name):
    text = complete(lib, context, question, **schema(SCHEMAS[name]), max_tokens=400)
    check_json(text, SCHEMAS[name])


@pytest.mark.parametrize(("grammar", "pattern"), REGEXES.items())
def test_a_regex_matches_the_whole_output(lib, context, question, grammar, pattern):
    for seed in range(8):
        text = complete(lib, context, question, **regex(grammar), **SAMPLED, seed=seed)
        assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize(
    ("grammar", "kind", "pattern"),
    [(LARK, GRAMMAR_LARK, LARK_REGEX), (GBNF, GRAMMAR_GBNF, GBNF_REGEX)],
    ids=["lark", "gbnf"],
)
def test_rules_match_the_whole_output(lib, context, question, grammar, kind, pattern):
    params = {"grammar": grammar, "grammar_kind": kind, **SAMPLED}
    texts = {complete(lib, context, question, **params, seed=seed) for seed in range(12)}
    assert all(re.fullmatch(pattern, text) for text in texts), texts
    assert len(texts) > 3


def test_any_json_is_a_schema_too(lib, context, question):
    params = {"grammar": " true\n", "grammar_kind": GRAMMAR_JSON_SCHEMA, **SAMPLED}
    json.loads(complete(lib, context, question, **params, seed=1))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_cache_follows_a_grammar(lib, tiny, open_context, kind):
    context = open_context(tiny(kind))
    text = complete(lib, context, prompt(9), **regex("[a-m]{9,12} [0-9]{7}"), max_tokens=40)
    assert re.fullmatch("[a-m]{9,12} [0-9]{7}", text)


@pytest.mark.parametrize("tokenizer", ["bpe", "spm", "spm_unigram"])
def test_tokenizers_of_bytes_and_of_pieces_spell_any_text(lib, once, open_context, tokenizer):
    """Characters that have no token, too, and a leading space, which SentencePiece drops."""

    def fill(path):
        tiny_models.make(path, "llama", tokenizer=tokenizer)

    model = lib.load(once(f"tiny-llama-{tokenizer}", fill))
    context = open_context(model)
    pattern = " {1,2}[a-zß☃]{2,4}☃[A-Z]é🐄\n<\\|im_end\\|>"
    for seed in range(6):
        text = complete(lib, context, prompt(6), **regex(pattern), **SAMPLED, seed=seed)
        assert re.fullmatch(pattern, text), text
        text = complete(lib, context, prompt(6), **schema(SCHEMAS["flat"]), **SAMPLED, seed=seed)
        check_json(text, SCHEMAS["flat"])
    lib.free_model(model)


@pytest.mark.parametrize("tokenizer", ["unigram", "wordpiece"])
def test_tokenizers_that_join_by_rules_are_refused(lib, once, open_context, tokenizer):
    def fill(path):
        tiny_models.make(path, "llama", tokenizer=tokenizer)

    context = open_context(lib.load(once(f"tiny-llama-{tokenizer}", fill)))
    start = prompt(6, vocabulary=100)
    message = refused(lib, context, start, EUNSUPPORTED, **regex("a+"))
    assert "tokenizer" in message
    assert lib.generate(context, start, max_tokens=2).stats.generated_tokens == 2


# ---------------------------------------------------- Where it ends


def test_a_match_that_nothing_may_follow_ends_at_once(lib, calf, context, question):
    lib.begin(context, question, **regex("[ab]{4}"), max_tokens=50)
    pieces = lib.drain(context)
    assert pieces[-2].status == OK and pieces[-2].finish == FINISH_STOP
    assert not lib.is_end(calf, pieces[-2].token)
    assert pieces[-1].status == DONE and pieces[-1].finish == FINISH_STOP


def ends(lib, model: int) -> list[int]:
    return [end["id"] for end in lib.info(model)["end_tokens"]]


def test_an_end_token_comes_only_where_the_match_is_complete(lib, calf, context, question):
    """However likely it is."""
    bias = dict.fromkeys(ends(lib, calf), 1000.0)
    assert complete(lib, context, question, **regex("5{3,5}"), bias=bias) == "555"


def test_a_forbidden_end_token_makes_the_longest_match(lib, calf, context, question):
    bias = {token: float("-inf") for token in ends(lib, calf)}
    assert complete(lib, context, question, **regex("5{3,5}"), bias=bias) == "55555"


def test_without_an_end_token_a_complete_match_ends(lib, endless, open_context):
    context = open_context(endless)
    text = complete(lib, context, prompt(5), **regex("[a-c]{7}"), max_tokens=50)
    assert re.fullmatch("[a-c]{7}", text)
    text = complete(lib, context, prompt(5), **schema(SCHEMAS["flat"]), **SAMPLED)
    check_json(text, SCHEMAS["flat"])


def test_without_an_end_token_a_match_that_may_go_on_does(lib, endless, open_context):
    context = open_context(endless)
    lib.begin(context, prompt(5), **regex("[a-c]*"), max_tokens=20)
    pieces = lib.drain(context)
    assert pieces[-1].finish == FINISH_LENGTH
    assert re.fullmatch("[a-c]{20,}", text_of(pieces))


def test_the_empty_text_alone_needs_an_end_token(lib, endless, open_context, context, question):
    assert complete(lib, context, question, **regex("()")) == ""
    assert "end token" in refused(lib, open_context(endless), prompt(5), EINVAL, **regex("()"))


def test_the_last_token_that_was_asked_for_may_complete_it(lib, context, question):
    params = regex("[ab]{9}[cd]{9}")
    lib.begin(context, question, **params, max_tokens=50)
    needed = sum(piece.status == OK for piece in lib.drain(context))
    assert needed > 2
    lib.begin(context, question, **params, max_tokens=needed)
    assert lib.drain(context)[-1].finish == FINISH_STOP
    lib.begin(context, question, **params, max_tokens=needed - 1)
    pieces = lib.drain(context)
    assert pieces[-1].finish == FINISH_LENGTH
    assert re.fullmatch("[ab]{9}[cd]{0,8}", text_of(pieces))


def test_white_space_in_json_is_bounded(lib, calf, context, question):
    """A model that likes nothing better than white space still gets to the end."""
    bias = {token: 100.0 for text in " \n\t" for token in lib.tokenize(calf, text)}
    text = complete(lib, context, question, **schema(SCHEMAS["flat"]), bias=bias, max_tokens=1500)
    check_json(text, SCHEMAS["flat"])
    assert text.count("\t") + text.count(" ") > 15


@pytest.mark.parametrize("option", [{"whitespace_flexible": False}, {"whitespace_pattern": ""}])
def test_a_schema_may_choose_its_white_space(lib, calf, context, question, option):
    bias = {token: 100.0 for text in " \n\t" for token in lib.tokenize(calf, text)}
    shape = {"x-guidance": option, **SCHEMAS["nested"]}
    lib.begin(context, question, **schema(shape), bias=bias, max_tokens=12)
    assert text_of(lib.drain(context)).startswith('{"at":{"x":')


def test_no_special_token_matches_text(lib, calf, context, question):
    special = {*range(7), 1278, 1279}  # all that calf has
    for seed in range(10):
        params = regex("[^a]{6,10}", temperature=50.0, seed=seed)
        lib.begin(context, question, **params)
        tokens = {piece.token for piece in lib.drain(context)[:-1]} - set(ends(lib, calf))
        assert tokens and special.isdisjoint(tokens)


# ---------------------------------------------------- With other options


def test_a_stop_text_ends_a_match_early(lib, context, question):
    params = regex("[a-z]{5},[a-z]{5}", stop=[","])
    lib.begin(context, question, **params)
    pieces = lib.drain(context)
    assert pieces[-1].finish == FINISH_STOP_TEXT
    assert re.fullmatch("[a-z]{5}", text_of(pieces))


@pytest.mark.parametrize("wanted", ["yes", "no"])
def test_a_bias_chooses_among_what_matches(lib, calf, context, question, wanted):
    bias = dict.fromkeys(lib.tokenize(calf, wanted), 100.0)
    assert complete(lib, context, question, **regex("yes|no"), bias=bias) == wanted


def test_a_grammar_counts_for_more_than_a_bias(lib, calf, context, question):
    size = lib.info(calf)["vocabulary_size"]
    bias = {token: float("-inf") for token in range(size - 1)}
    assert complete(lib, context, question, **regex("yes"), bias=bias) == "yes"


def test_penalties_filters_and_logprobs_go_with_a_grammar(lib, context, question):
    params = {
        "repetition_penalty": 1.5,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "top_p": 0.9,
        "min_p": 0.01,
        "typical_p": 0.9,
        "top_k": 40,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.1,
        "logprobs": 3,
    }
    for seed in range(8):
        text = complete(
            lib, context, question, **regex("(ab){2,6}[0-9]{9}"), **params, **SAMPLED, seed=seed
        )
        assert re.fullmatch("(ab){2,6}[0-9]{9}", text)


def test_the_best_of_one_is_greedy(lib, context, question):
    params = schema(SCHEMAS["flat"], max_tokens=400)
    greedy = complete(lib, context, question, **params)
    assert complete(lib, context, question, **params, top_k=1, temperature=1.0, seed=5) == greedy


def test_logprobs_are_those_before_the_mask(lib, context, question):
    lib.begin(context, question, max_tokens=0)
    assert lib.next(context).status == DONE
    logits = lib.logits(context)
    top = max(logits)
    total = top + math.log(sum(math.exp(value - top) for value in logits))
    lib.begin(context, question, **regex("zzz"), logprobs=2)
    first = lib.next(context)
    assert first.logprob == pytest.approx(logits[first.token] - total, abs=1e-3)
    ranked = sorted(range(len(logits)), key=lambda token: -logits[token])
    assert [token for token, _ in lib.logprobs(context)] == ranked[:2]
    assert first.token != ranked[0]


def test_a_seed_gives_the_same_text_again(lib, context, question):
    params = schema(SCHEMAS["array"], **SAMPLED)
    for seed in range(5):
        once = complete(lib, context, question, **params, seed=seed)
        assert complete(lib, context, question, **params, seed=seed) == once


def test_a_rolling_window_keeps_the_place_in_a_grammar(lib, tiny, open_context):
    context = open_context(tiny("llama"), max_tokens=24, overflow=OVERFLOW_ROLL, keep_tokens=2)
    text = complete(lib, context, prompt(9), **regex("([a-z]{3}[0-9]){30}"), max_tokens=400)
    assert re.fullmatch("([a-z]{3}[0-9]){30}", text)
    assert lib.info(context)["dropped"] > 0


def test_a_full_window_ends_inside_a_match(lib, tiny, open_context):
    context = open_context(tiny("llama"), max_tokens=24)
    lib.begin(context, prompt(9), **regex("[a-z]{500}"), max_tokens=400)
    assert lib.drain(context)[-1].finish == FINISH_CONTEXT


def test_a_cancelled_match_leaves_nothing_behind(lib, context, question):
    lib.begin(context, question, **regex("[a-z]{50}"))
    for _ in range(3):
        assert lib.next(context).status == OK
    lib.cancel(context)
    assert lib.next(context).finish == FINISH_CANCELED
    plain = lib.generate(context, question, max_tokens=8)
    assert plain.text == lib.generate(context, question, max_tokens=8).text
    assert not re.fullmatch("[a-z]+", plain.text)


def test_contexts_follow_their_own_grammars_at_once(lib, calf, question):
    """Six threads, each with the text that its grammar gives alone."""
    tasks = [regex(text, **SAMPLED, seed=1) for text in REGEXES]
    tasks += [{**sampled(lib, calf, name), "seed": 2} for name in SCHEMAS]

    def run(params: dict[str, Any]) -> str:
        with opened(lib, calf) as context:
            return complete(lib, context, question, **params)

    alone = [run(params) for params in tasks]
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(run, tasks)) == alone


@pytest.mark.parametrize("drafting", ["looked up", "by a model"])
@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_drafts_match_too(lib, calf, context, question, name, drafting):
    """The same tokens as without, greedy and sampled; calf as its own draft is often right."""
    draft = {"draft_tokens": 4} if drafting == "looked up" else {"draft_tokens": 4, "draft": calf}
    for params in ({**sampled(lib, calf, name), "temperature": t, "seed": 3} for t in (0, 1.5)):
        plain = complete(lib, context, question, **params)
        assert complete(lib, context, question, **params, **draft) == plain
    if drafting == "by a model":
        stats = lib.stats(context)
        assert stats.accepted_tokens > stats.drafted_tokens // 2 > 0


def test_it_is_imported_by_the_first_grammar(tmp_path):
    """Hosts that want none do not wait for it."""
    program = """
import sys
from support.library import Library
from support.paths import CALF
lib = Library()
lib.start()
context = lib.context(lib.load(CALF))
lib.generate(context, [20, 21], max_tokens=3)
assert "llguidance" not in sys.modules
lib.generate(context, [20, 21], grammar="a{3}", grammar_kind=2)
assert "llguidance" in sys.modules
lib.stop()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = run_program([sys.executable, "-c", program], env=environment, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_it_keeps_of_a_tokenizer_goes_with_the_model(lib, folder):
    from cowmlx.generation import grammar

    def kept():
        gc.collect()
        return sum(isinstance(found, grammar._Tokens) for found in gc.get_objects())

    before = kept()
    model = lib.load(folder("llama"))
    with opened(lib, model) as context:
        complete(lib, context, prompt(5), **regex("a{3}"))
        complete(lib, context, prompt(5), **regex("b{3}"))
    assert kept() == before + 1
    lib.free_model(model)
    assert kept() == before


# ---------------------------------------------------- What is refused

BAD = {
    "not JSON": (GRAMMAR_JSON_SCHEMA, '{"type": ', "not JSON"),
    "no schema": (GRAMMAR_JSON_SCHEMA, "[]", "an object, true or false"),
    "unknown type": (GRAMMAR_JSON_SCHEMA, '{"type": "strin"}', "strin"),
    "unknown format": (GRAMMAR_JSON_SCHEMA, '{"type": "string", "format": "x"}', "format"),
    "unsupported keyword": (GRAMMAR_JSON_SCHEMA, '{"not": {}}', "not"),
    "unsatisfiable": (GRAMMAR_JSON_SCHEMA, '{"type": "integer", "minimum": 5, "maximum": 3}', "5"),
    "two values": (GRAMMAR_JSON_SCHEMA, '{}}, {"regex": "a"}', "not JSON"),
    "itself": (GRAMMAR_JSON_SCHEMA, '{"$ref": "#"}', "no text"),
    "no reference": (GRAMMAR_JSON_SCHEMA, '{"$ref": "#/a"}', "/a"),
    "parenthesis": (GRAMMAR_REGEX, "a(b", "unclosed group"),
    "look-around": (GRAMMAR_REGEX, "(?=a)b", "look-around"),
    "back reference": (GRAMMAR_REGEX, r"(a)\1", "backreferences"),
    "nothing": (GRAMMAR_REGEX, r"[^\s\S]", "no text"),
    "no start": (GRAMMAR_LARK, 'foo: "a"', "start"),
    "unknown rule": (GRAMMAR_LARK, "start: foo", "foo"),
    "endless": (GRAMMAR_LARK, "start: start", "no text"),
    "a list of grammars": (GRAMMAR_LARK, '{"grammars": [{"regex": "a"}]}', "expecting rule"),
    "embedded": (GRAMMAR_LARK, "start: %json {", "%json"),
    "no root": (GRAMMAR_GBNF, 'a ::= "b"', "root"),
    "unknown symbol": (GRAMMAR_GBNF, "root ::= b", "'b'"),
    "half a rule": (GRAMMAR_GBNF, "root :", "::="),
    "empty": (GRAMMAR_REGEX, "", "empty"),
    "blank": (GRAMMAR_LARK, " \n", "empty"),
}

# Each would take the library minutes, gigabytes or all of its stack.
HOSTILE = {
    "long": (GRAMMAR_REGEX, "a" * 70_000),
    "long schema": (GRAMMAR_JSON_SCHEMA, json.dumps({"const": "x" * 300_000})),
    "repetition": (GRAMMAR_REGEX, "a{1000000000}"),
    "product": (GRAMMAR_REGEX, "((a{100}){100}){100}"),
    "optional": (GRAMMAR_REGEX, "(a?){1000}a{1000}"),
    "nested regex": (GRAMMAR_REGEX, "(" * 30_000 + "a" + ")" * 30_000),
    "nested JSON": (GRAMMAR_JSON_SCHEMA, '{"items":' * 20_000 + "{}" + "}" * 20_000),
    "nested list": (GRAMMAR_JSON_SCHEMA, "[" * 100_000),
    "nested Lark": (GRAMMAR_LARK, "start: " + "(" * 1900 + '"a"' + ")" * 1900),
    "nested GBNF": (GRAMMAR_GBNF, "root ::= " + "(" * 1900 + '"a"' + ")" * 1900),
    "quotes in GBNF": (GRAMMAR_GBNF, 'root ::= "' + r"\"" * 30_000),
    "classes in GBNF": (GRAMMAR_GBNF, "root ::= " + "[" * 1900 + "a" * 60_000),
    "chain of references": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps(
            {
                "$ref": "#/$defs/0",
                "$defs": {f"{n}": {"items": {"$ref": f"#/$defs/{n + 1}"}} for n in range(5000)},
            }
        ),
    ),
    "chain of rules": (
        GRAMMAR_LARK,
        "start: r0\n" + "".join(f'r{n}: r{n + 1} | "x"\n' for n in range(4000)) + 'r4000: "y"',
    ),
    "chain of GBNF rules": (
        GRAMMAR_GBNF,
        "root ::= r0\n"
        + "".join(f'r{n} ::= r{n + 1} | "x"\n' for n in range(2500))
        + 'r2500 ::= "y"',
    ),
    "deep rules": (
        GRAMMAR_LARK,
        "start: r0\n"
        + "".join(f"r{n}: " + "(" * 28 + f"r{n + 1}" + ")*" * 28 + "\n" for n in range(400))
        + 'r400: "y"',
    ),
    "embedded chain": (GRAMMAR_LARK, "start: %json " + '{"items":' * 900 + "{}" + "}" * 900),
    "intersection": (
        GRAMMAR_LARK,
        "start: A\nA: " + " & ".join(f"/.*a{n}.*/" for n in range(40)),
    ),
    "patterns": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps({"type": "string", "allOf": [{"pattern": f"a{n}"} for n in range(40)]}),
    ),
    "pattern properties": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps({"patternProperties": {f"^p{n}$": {} for n in range(1000)}}),
    ),
    "properties": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps({"properties": {f"p{n}": {} for n in range(10_000)}}),
    ),
    "multiples": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps({"allOf": [{"multipleOf": n} for n in (7, 11, 13, 17, 19, 23, 29)]}),
    ),
    "integers": (GRAMMAR_JSON_SCHEMA, json.dumps({"minimum": -(10**300), "type": "integer"})),
}

WIDE = r"[\w\W]"  # takes long to compile where case is ignored
# Each would take the library seconds, or minutes.
SLOW = {
    "required": (GRAMMAR_JSON_SCHEMA, json.dumps({"required": [f"p{n}" for n in range(20_000)]})),
    "lists in enum": (GRAMMAR_JSON_SCHEMA, json.dumps({"enum": [[n] for n in range(20_000)]})),
    "objects in enum": (GRAMMAR_JSON_SCHEMA, json.dumps({"items": {"enum": [{}] * 60_000}})),
    "numbers in enum": (GRAMMAR_JSON_SCHEMA, '{"enum": [' + "1," * 120_000 + "1]}"),
    "members in const": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps({"const": {f"p{n}": n for n in range(6000)}}),
    ),
    "a list in const": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps({"properties": {"a": {"const": {"b": [*range(30_000)]}}}}),
    ),
    "anyOf": (GRAMMAR_JSON_SCHEMA, json.dumps({"anyOf": [{"type": "array"}] * 10_000})),
    "embedded": (GRAMMAR_LARK, "start: %json " + json.dumps({"const": [[]] * 12_000})),
    "classes": (GRAMMAR_REGEX, f"(?i){WIDE * 200}"),
    "classes of flags": (GRAMMAR_REGEX, f"a(?s-u:b)(?xi:{WIDE * 200})"),
    "ranges": (GRAMMAR_REGEX, r"(?i)" + r"[\x00-\x{10ffff}]" * 200),
    "properties of characters": (GRAMMAR_REGEX, r"(?i)" + r"\pL" * 10_000),
    "classes in Lark": (GRAMMAR_LARK, f"start: A\nA: /(?i:{WIDE * 200})/"),
    "classes by a flag in Lark": (GRAMMAR_LARK, f"start: A B\nA: /{WIDE * 200}/si\nB: /b/"),
    "classes behind what is no regex": (
        GRAMMAR_LARK,
        f'start: "a\\"/" </b> A // "\nA: /\\/{WIDE * 200}/ix B: "/" # \'',
    ),
    "classes in a schema": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps({"patternProperties": {f"(?i){WIDE * 200}": True}}),
    ),
    "classes in a schema in Lark": (
        GRAMMAR_LARK,
        "start: %json " + json.dumps({"type": "string", "pattern": f"(?i){WIDE * 200}"}),
    ),
    "classes of a flag behind a space": (GRAMMAR_LARK, f"start: A\nA: /( ?i:{WIDE * 200})/x"),
}
MANY = "[a-z]" * 65
CLASSES = {
    "a path": (GRAMMAR_REGEX, f"https://example/items/{MANY}"),
    "brackets without a meaning": (GRAMMAR_REGEX, r"(?i)" + r"\[\\w" * 65),
    "a string": (GRAMMAR_LARK, f'start: "/x/items" A\nA: /{MANY}/'),
    "a comment": (GRAMMAR_LARK, f"start: A // (?i) /x/i\nA: /{MANY}/"),
    "another regex": (GRAMMAR_LARK, f"start: A B\nA: /{MANY}/\nB: /b/i"),
    "a path in GBNF": (GRAMMAR_GBNF, f'root ::= "a/items" {MANY}'),
}
LARGE = {
    "required": {"required": [f"p{n}" for n in range(2000)]},
    "enum": {"enum": [f"value {n}" for n in range(10_000)]},
    "objects in enum": {"enum": [{"n": n} for n in range(1000)]},
    "nullable": {
        "properties": {
            f"p{n}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for n in range(1500)
        },
        "required": [f"p{n}" for n in range(1500)],
    },
}


@pytest.mark.parametrize("name", SLOW)
def test_a_grammar_that_takes_long_is_refused_at_once(lib, context, question, name):
    kind, grammar = SLOW[name]
    since = monotonic()
    with pytest.raises(StatusError) as error:
        lib.begin(context, question, grammar=grammar, grammar_kind=kind)
    assert (error.value.status, error.value.reason) == (EINVAL, "limit_exceeded")
    assert error.value.details["needed"] > error.value.details["limit"]
    assert monotonic() - since < 5


@pytest.mark.parametrize("name", LARGE)
def test_a_large_schema_is_taken(lib, context, question, name):
    lib.begin(context, question, **schema(LARGE[name], max_tokens=1))
    assert lib.next(context).status == OK


@pytest.mark.parametrize("name", CLASSES)
def test_many_classes_that_mind_case_are_taken(lib, context, question, name):
    kind, grammar = CLASSES[name]
    lib.begin(context, question, grammar=grammar, grammar_kind=kind)
    assert lib.next(context).status == OK


def test_few_classes_ignore_case(lib, context, question):
    text = complete(lib, context, question, **regex(r"(?i)[a-c]{3}\W\d"), max_tokens=40)
    assert re.fullmatch(r"(?i)[a-c]{3}\W\d", text)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_grammar_is_refused_by_name(lib, context, question, name):
    kind, grammar, expected = BAD[name]
    message = refused(lib, context, question, EINVAL, grammar=grammar, grammar_kind=kind)
    assert "grammar" in message and expected in message
    assert "<" not in message and len(message) < 1000, "the library's state was dumped"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_refused(lib, context, question, name):
    """At once, or by the first token that follows it."""
    kind, grammar = HOSTILE[name]
    with pytest.raises(StatusError) as error:
        lib.generate(context, question, grammar=grammar, grammar_kind=kind, max_tokens=2)
    assert error.value.status == EINVAL
    assert "grammar" in str(error.value) and len(str(error.value)) < 1000


def test_a_reference_to_elsewhere_is_not_fetched(lib, context, question):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        message = refused(lib, context, question, EINVAL, **schema({"$ref": address}))
        assert address in message
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_refused_grammar_changes_nothing(lib, calf, context, question):
    """What was under way continues."""
    with opened(lib, calf) as other:
        expected = complete(lib, other, question, **schema(SCHEMAS["flat"]))
    lib.begin(context, question, **schema(SCHEMAS["flat"]))
    pieces: list[Piece] = [lib.next(context) for _ in range(3)]
    held = lib.tokens(context)
    refused(lib, context, question, EINVAL, **regex("("))
    refused(lib, context, question, EINVAL, **regex("a"), draft_tokens=65)
    assert lib.tokens(context) == held
    assert text_of([*pieces, *lib.drain(context)]) == expected


def test_a_grammar_that_becomes_too_complex_ends_its_own_generation(lib, calf, context, question):
    """A row of the parser is known to be too long once a token was taken."""
    words = " | ".join(f'"w{n}"' for n in range(3000))
    with opened(lib, calf) as other:
        lib.begin(other, question, **regex("[a-z]{20}"))
        assert lib.next(other).status == OK
        lib.begin(context, question, grammar=f"start: {words}", grammar_kind=GRAMMAR_LARK)
        with pytest.raises(StatusError) as error:
            lib.drain(context)
        assert error.value.status == EINVAL
        assert "grammar" in str(error.value)
        assert lib.drain(other)[-1].finish == FINISH_STOP
    assert complete(lib, context, question, **regex("yes|no")) in ("yes", "no")
