"""Broken grammars of every kind: each gives a status and a message, none a crash or a wait."""

from __future__ import annotations

import random

import pytest
from support.callbacks import StatusError
from support.signatures import (
    EINVAL,
    GRAMMAR_GBNF,
    GRAMMAR_JSON_SCHEMA,
    GRAMMAR_LARK,
    GRAMMAR_REGEX,
)

SEEDS = {
    GRAMMAR_JSON_SCHEMA: """{"$defs": {"n": {"type": ["integer", "null"], "minimum": -3, "maximum":
40}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"type": "string",
"pattern": "^[a-z]+é$", "maxLength": 9}, "c": {"type": "array", "items": {"anyOf": [{"const": 1},
{"enum": ["x", true, 2.5]}]}, "minItems": 1, "maxItems": 3}}, "required": ["a"],
"additionalProperties": false}""",
    GRAMMAR_REGEX: r"([a-f]{2,5}|\d+\.\d*)?(?i:Foo|(?:bar)+?)[^\s\"]{0,3}\p{Lu}\x41é🙂$",
    GRAMMAR_LARK: """%import common.INT
start: (item "," )* item | "<" tail? ">"  // a comment
item: INT | /[a-z]+é/ | %json {"type": "boolean"}
tail: C | "x" ~ 2..4
A: /.*a.*/
C: A & ~B
B: "b"i /[0-9]{1,3}/
""",
    GRAMMAR_GBNF: r"""root ::= (item "," ws)* item # a comment
item ::= [a-zé] [^0-9"\\]{0,4} | "\"" "\u00e9\x41\U0001F642" | ws
ws ::= [ \t\n]? | "-"+
""",
}
ALPHABET = "abz019 \n\t\\\"'/()[]{}<>|&~*+?.,:;=%$#@^-_é🙂\x7f\u2028"


def truncated(draw: random.Random, text: str) -> str:
    return text[: draw.randrange(len(text))]


def flipped(draw: random.Random, text: str) -> str:
    """Bits of its bytes, wherever that leaves valid UTF-8 without a zero."""
    data = bytearray(text.encode())
    for _ in range(draw.randrange(1, 6)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return data.decode(errors="ignore").replace("\0", "")


def exchanged(draw: random.Random, text: str) -> str:
    """Pieces of itself and characters that mean something, at other places."""
    for _ in range(draw.randrange(1, 5)):
        place, start = draw.randrange(len(text)), draw.randrange(len(text))
        piece = draw.choice([draw.choice(ALPHABET), text[start : start + draw.randrange(1, 12)]])
        text = text[:place] + piece + text[place + draw.randrange(3) :]
    return text


def anything(draw: random.Random, text: str) -> str:
    return "".join(draw.choice(ALPHABET) for _ in range(draw.randrange(1, 60)))


@pytest.mark.parametrize("change", [truncated, flipped, exchanged, anything])
@pytest.mark.parametrize("kind", SEEDS, ids=["schema", "regex", "lark", "gbnf"])
def test_every_grammar_gives_a_status(lib, context, kind, change):
    """320 in all; those that compile generate a little."""
    draw = random.Random(f"{kind} {change.__name__}")
    tokens = [20, 21, 22]
    for round_ in range(20):
        grammar = change(draw, SEEDS[kind])
        params = {"temperature": 5.0, "seed": round_, "max_tokens": 6}
        try:
            lib.generate(context, tokens, grammar=grammar, grammar_kind=kind, **params)
        except StatusError as error:
            assert error.status == EINVAL, grammar
            assert "grammar" in str(error)
    assert lib.generate(context, tokens, max_tokens=2).stats.generated_tokens == 2


@pytest.mark.parametrize("kind", SEEDS, ids=["schema", "regex", "lark", "gbnf"])
def test_the_grammars_that_are_broken_were_whole(lib, context, kind):
    params = {"grammar": SEEDS[kind], "grammar_kind": kind, "max_tokens": 8}
    assert lib.generate(context, [20, 21, 22], **params).text
