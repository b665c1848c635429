"""Reading JSON from outside: bounded nesting, and messages for texts that are not JSON."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda values: (
        st.lists(values, max_size=12) | st.dictionaries(st.text(max_size=6), values, max_size=8)
    ),
    max_leaves=60,
)


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object; its keys differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Malformed("twice")
    return found


def in_steps(text: str | bytes) -> tuple[object, int]:
    """What reading in steps gives, and how many there were."""
    steps, count = json_text.parse_steps(text, unique), 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


@given(JSON, st.sampled_from([None, 1, "\t"]), st.data())
def test_steps_read_what_one_does(value, indent, data):
    """Also of a text that is damaged: then both say what is wrong."""
    text = json.dumps(value, indent=indent, ensure_ascii=data.draw(st.booleans()))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(at, min(at + 3, len(text))))
        text = (
            text[:at]
            + data.draw(st.sampled_from(["", ",", "]", "}", '"', "{", "1", " "]))
            + text[end:]
        )
    with mock.patch.object(json_text, "SLICE", 64), mock.patch.object(json_text, "ENTRY", 1):
        try:
            expected = json_text.parse(text, unique)
        except Malformed as error:
            with pytest.raises(Malformed) as caught:
                in_steps(text)
            if "twice" not in (str(error), str(caught.value)):
                assert str(caught.value).split(" at ")[1:] == str(error).split(" at ")[1:]
        else:
            found, _ = in_steps(text)
            assert found == expected
            assert json.dumps(found) == json.dumps(expected)


@pytest.mark.parametrize("element", ["1", "-1.5e3", '"a"', '{"a": [1, {"b": 2}]}', "[[1], [2]]"])
def test_a_long_text_is_read_in_as_many_steps_as_it_has_slices(element):
    count = 4 * json_text.SLICE // len(element)
    text = f'{{"all": [{", ".join([element] * count)}]}}'
    found, steps = in_steps(text)
    assert found == json.loads(text)
    assert steps >= 4


def test_nesting_is_bounded_in_steps_too():
    filling = f'"{"x" * json_text.SLICE}"'
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        deepest = opened * (MAX_DEPTH - 1) + f"[{filling}]" + closed * (MAX_DEPTH - 1)
        assert in_steps(deepest)[0] == json.loads(deepest)
        with pytest.raises(Malformed, match=f"more than {MAX_DEPTH} levels deep"):
            in_steps(opened + deepest + closed)


@pytest.mark.parametrize("value", [{}, [], {"a": [1, {"b": [None, "é"]}]}, [[[[1, {}]]]], "x", 1.5])
def test_a_text_made_in_steps_is_json(value):
    steps = json_text.dump_steps(value)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            assert json.loads(stop.value) == value
            break
