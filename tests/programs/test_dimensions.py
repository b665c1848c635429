"""Dimensions as numbers and polynomials of names."""

from __future__ import annotations

import random

import pytest

from cowmlx.programs.dimensions import (
    MAX_DIMENSION,
    DimensionError,
    at_least,
    check_shape,
    compare,
    count,
    divided,
    evaluate,
    evaluate_shape,
    lower_bound,
    named,
    names_of,
    parse,
    text_of,
)

N, M = named("n"), named("m")


@pytest.mark.parametrize(
    "text",
    ["batch", "2*batch", "batch+3", "n*n-1", "(n+1)//2", "2*n*m+n-4", "7", "5-(n+1)//2", "n//3*2"],
)
def test_texts_are_read_back(text):
    assert str(parse(str(parse(text)))) == str(parse(text))


def test_sums_and_products_are_exact():
    assert str(2 * N + 3 - N) == "n+3"
    assert (N + 1) * (N - 1) == N * N - 1
    assert N - N == 0 and (N + 2) - N == 2
    assert str(2 * named("batch")) == "2*batch"


def test_exact_quotients_are_polynomials():
    assert divided(6 * N, 3) == 2 * N
    assert divided(N * M * 4, M * 2) == 2 * N
    assert divided((N + 1) * 10, N + 1) == 10
    assert divided(N, 2) is None and divided(7, 2) is None and divided(5, 0) is None
    assert divided(N, 0) is None and divided(N - N, 0) is None
    assert (2 * N + 3) // 2 == N + 1
    assert str((N + 1) // 2) == "(n+1)//2"


def test_random_terms_have_the_value_that_python_gives_them():
    drawn = random.Random(1)
    for _ in range(300):
        values = {"n": drawn.randint(0, 9), "m": drawn.randint(0, 9)}
        text = "n"
        for _ in range(drawn.randint(1, 5)):
            sign = drawn.choice(["+", "*", "//"])
            other = str(drawn.randint(1, 4)) if sign == "//" else drawn.choice(["n", "m", "3"])
            text = f"({text}){sign}{other}"
        assert evaluate(parse(text), values) == eval(text, {}, values), text


def test_comparisons_are_yes_no_or_unknown():
    assert compare(N, N) is True and compare(N, N + 1) is False
    assert compare(N, M) is None and compare(N, 3) is None
    assert compare(3, 3) is True and compare(3, 4) is False
    assert compare(N + 1, 0) is False
    assert at_least(N + 2, 2) is True and at_least(N, 1) is None and at_least(N, N + 1) is False
    assert lower_bound((N + 5) // 2) == 2 and lower_bound(N - 1) == -1
    assert lower_bound(5 - N) is None


def test_a_value_that_is_no_dimension_is_named():
    assert evaluate(2 * N + 1, {"n": 3}) == 7
    with pytest.raises(DimensionError, match="n-5 is -2 for n = 3"):
        evaluate(N - 5, {"n": 3})
    with pytest.raises(DimensionError, match="'m' has no value"):
        evaluate(N + M, {"n": 3})
    with pytest.raises(DimensionError, match=str(MAX_DIMENSION)):
        evaluate(N * N, {"n": 2**20})
    with pytest.raises(DimensionError, match="elements"):
        evaluate_shape((N, N), {"n": 2**21})


def test_shapes_have_bounds():
    check_shape((2**31 - 1, N, 0))
    for shape in [(1,) * 9, (2**31,), (-1,), (2**21, 2**21, N)]:
        with pytest.raises(DimensionError):
            check_shape(shape)


def test_shapes_tell_their_names():
    assert names_of((N, (M + 1) // 2, 3)) == {"n", "m"}
    assert text_of((N, 3)) == "(n, 3)" and count((N, 2, M)) == 2 * N * M


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n m",
        "n+",
        "*n",
        "(n",
        "n)",
        "1.5",
        "n//0",
        "5//n",
        "n%2",
        "é",
        "n" * 65,
        "n+" * 200 + "n",
        "(" * 40 + "n" + ")" * 40,
        "9" * 40,
        "n//m",
    ],
)
def test_what_is_no_dimension_is_refused(text):
    with pytest.raises(DimensionError):
        parse(text)


def test_powers_do_not_grow_without_bound():
    text = "(n+m+k+1)*" * 20 + "n"
    with pytest.raises(DimensionError, match="more than 64"):
        parse(text)
    with pytest.raises(DimensionError, match=r"2\*\*62"):
        parse("n*9999999999*9999999999")


def test_a_dimension_has_no_truth():
    with pytest.raises(TypeError, match="compare"):
        bool(N)
