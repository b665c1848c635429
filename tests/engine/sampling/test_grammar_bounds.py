"""What bounds of grammars do not count."""

from __future__ import annotations

import json

import pytest
from support.signatures import (
    GRAMMAR_GBNF,
    GRAMMAR_JSON_SCHEMA,
    GRAMMAR_LARK,
    GRAMMAR_REGEX,
    OK,
)

PROMPT = [20, 21, 22]
SIGNS = "~&" * 20
TITLED = {
    f"p{n}": {
        "title": "T",
        "description": "d",
        "default": None,
        "anyOf": [{"type": "string", "pattern": f"^a{n}$"}, {"type": "null"}],
    }
    for n in range(20)
}
TAKEN = {
    "operators in a string": (GRAMMAR_LARK, f'start: "{SIGNS}"'),
    "operators in a regex": (GRAMMAR_LARK, f"start: /[{SIGNS[:2]}]({'~|&' * 20})/"),
    "operators in a comment": (GRAMMAR_LARK, f'start: "a" // {SIGNS}\n'),
    "operators in GBNF": (GRAMMAR_GBNF, f'root ::= "{SIGNS}" # {SIGNS}'),
    "%json in a string": (GRAMMAR_LARK, 'start: "%json x"'),
    "%json in a comment": (GRAMMAR_LARK, 'start: "a" // as %json does\n'),
    "%json behind a string": (GRAMMAR_LARK, 'start: "/" %json\n {"const": "%json /"}'),
    "annotations": (GRAMMAR_JSON_SCHEMA, json.dumps({"properties": TITLED})),
    "a space": (GRAMMAR_REGEX, " "),
}


@pytest.mark.parametrize("name", TAKEN)
def test_an_ordinary_grammar_is_taken(lib, context, name):
    kind, grammar = TAKEN[name]
    lib.begin(context, PROMPT, grammar=grammar, grammar_kind=kind, max_tokens=1)
    assert lib.next(context).status == OK
