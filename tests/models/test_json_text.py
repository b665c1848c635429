"""Reading JSON from outside: bounded nesting, and what is told of a text that is none."""

from __future__ import annotations

import json

import pytest

from cowmlx import json_text
from cowmlx.json_text import MAX_DEPTH, Malformed


@pytest.mark.parametrize(
    "value", [None, [], {}, "[[[", 'a"b\\', [1, {"a": [True, "]}"]}], {"é": "\ud800"}]
)
def test_a_value_is_what_json_reads(value):
    assert json_text.parse(json.dumps(value)) == value
    assert json_text.parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("opened", "closed", "levels"),
    [("[", "]", MAX_DEPTH), ('{"a":', "}", MAX_DEPTH), ('[{"a":', "}]", MAX_DEPTH // 2)],
)
def test_nesting_is_bounded(opened, closed, levels):
    assert json_text.parse(opened * levels + "1" + closed * levels)
    for more in (levels + 1, 100_000):
        with pytest.raises(Malformed, match=f"more than {MAX_DEPTH} levels deep"):
            json_text.parse(opened * more + "1" + closed * more)
        with pytest.raises(Malformed):
            json_text.parse(opened * more)


def test_brackets_in_strings_and_in_a_row_nest_nothing():
    flat = [["[" * 1000 + '\\"' + "{" * 1000] for _ in range(1000)]
    assert json_text.parse(json.dumps(flat)) == flat


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1, column 1"),
        ('{\n  "a": oops}', "line 2, column 8"),
        ("[1", "line 1, column 3"),
        (b"\xff[", "byte 0"),
        ("9" * 5000, "number that cannot be read"),
        ("[" * 300 + '"' + '\\"' * 100_000, "levels deep"),
        ("[" * 300 + '"' + '\\"' * 100_000 + "\\", "levels deep"),
    ],
)
def test_what_is_no_json_is_told(text, reason):
    with pytest.raises(Malformed, match=reason):
        json_text.parse(text)


def test_a_value_in_front_of_other_text():
    assert json_text.parse_front('x {"a": [1]} y', 2) == ({"a": [1]}, 12)
    with pytest.raises(Malformed):
        json_text.parse_front("x " + "[" * 1000 + "]" * 1000, 2)
