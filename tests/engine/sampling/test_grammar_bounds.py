"""What bounds of grammars do not count, and numbers that a schema cannot bound exactly."""

from __future__ import annotations

import json

import pytest
from support.callbacks import StatusError
from support.signatures import (
    EINVAL,
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
    "an integer of 54 bits": (GRAMMAR_JSON_SCHEMA, f'{{"enum": [{2**53}, {-(2**53) - 2}]}}'),
    "the largest integer": (GRAMMAR_JSON_SCHEMA, f'{{"const": {2**63 - 1}}}'),
    "a range of all positive integers": (
        GRAMMAR_JSON_SCHEMA,
        f'{{"type": "integer", "minimum": 0, "maximum": {2**63 - 1}}}',
    ),
    "low numbers that are no ends": (
        GRAMMAR_JSON_SCHEMA,
        json.dumps({"type": "integer", "default": -(10**20), "examples": [-1e19]}),
    ),
    "a long range": (
        GRAMMAR_JSON_SCHEMA,
        f'{{"type": "integer", "minimum": -5, "maximum": {2**60 + 1}}}',
    ),
}
INEXACT = {
    "const": {"const": 2**53 + 1},
    "enum": {"items": {"enum": ["a", 2**60 + 1]}},
    "inside const": {"properties": {"id": {"const": {"a": [-(2**53) - 1]}}}},
    "more than 64 bits": {"const": 2**70 + 1},
    "hundreds of digits": {"enum": [10**400]},
    "a short range": {"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 3},
    "one number": {"type": "integer", "minimum": 2**53 + 1, "maximum": 2**53 + 1},
    "exclusive": {"type": "integer", "exclusiveMinimum": 2**53 + 1, "maximum": 2**53 + 4},
    "beside a boolean": {
        "exclusiveMinimum": True,  # of draft 4
        "minimum": 2**53,
        "maximum": 2**53 + 1,
    },
    # The library recursed until the stack was full.
    "the least integer": {"const": -(2**63)},
    "what rounds to the least integer": {"enum": [-(2**63) + 512]},
    "in a schema without a name": {
        "$ref": "#/properties",
        "properties": {"const": -(2**63)},
    },
}
TOO_LOW = {
    # The library recursed until the stack was full.
    "one integer": {"type": "integer", "minimum": -(2**63), "maximum": -(2**63)},
    "in parts": {"type": "integer", "allOf": [{"minimum": -1e300}, {"maximum": -1e300}]},
    "a float": {"type": "number", "minimum": -1e19},
    "hundreds of digits beside a float": {"minimum": -(10**400), "maximum": 0.5},
}


@pytest.mark.parametrize("name", TAKEN)
def test_an_ordinary_grammar_is_taken(lib, context, name):
    kind, grammar = TAKEN[name]
    lib.begin(context, PROMPT, grammar=grammar, grammar_kind=kind, max_tokens=1)
    assert lib.next(context).status == OK


def refused(lib, context, schema, embedded=False):
    """Begin with a schema that is refused, and return the error."""
    text = json.dumps(schema)
    kind = GRAMMAR_LARK if embedded else GRAMMAR_JSON_SCHEMA
    grammar = f"start: %json {text}" if embedded else text
    with pytest.raises(StatusError) as error:
        lib.begin(context, PROMPT, grammar=grammar, grammar_kind=kind)
    assert error.value.status == EINVAL
    return error.value


@pytest.mark.parametrize("embedded", [False, True], ids=["schema", "in Lark"])
@pytest.mark.parametrize("name", INEXACT)
def test_a_number_that_cannot_be_matched_exactly_is_refused(lib, context, name, embedded):
    error = refused(lib, context, INEXACT[name], embedded)
    assert (error.reason, error.details["limit"]) == ("limit_exceeded", 2**53)


@pytest.mark.parametrize("embedded", [False, True], ids=["schema", "in Lark"])
@pytest.mark.parametrize("name", TOO_LOW)
def test_the_end_of_a_range_that_is_too_low_is_refused(lib, context, name, embedded):
    error = refused(lib, context, TOO_LOW[name], embedded)
    assert (error.reason, error.details["limit"]) == ("limit_exceeded", 512 - 2**63)


def test_numbers_of_hundreds_of_digits_are_refused(lib, context):
    refused(lib, context, {"type": "number", "minimum": 0.5, "maximum": 10**400})
    error = refused(lib, context, {"type": "integer", "multipleOf": 10**400 + 1})
    assert error.reason == "limit_exceeded"
