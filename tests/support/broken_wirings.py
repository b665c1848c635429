"""Wirings with something wrong, drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from support import wirings

GOOD = [wirings.hybrid, wirings.parallel, wirings.slstm, wirings.xlstm]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, -1, 2**31 - 1, 2**31, 2**63, 10**400]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["tokens", "mlstm_0", "embedding", "mlstm", "slstm", "attention", "dims"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from places(inner, (*path, key))


def _near(value: Any) -> st.SearchStrategy[Any]:
    """Values that could stand in a value's place."""
    if value in (0, 1, -1):
        return st.sampled_from([0, 1, -1])
    if isinstance(value, int):
        return st.sampled_from([1, 2, 3, 4, 8, 16, 32, 63, 64, 96])
    return st.just(value)


@st.composite
def spoilt(draw: Any, vocabulary: int, good: Sequence[Callable[[int], Any]] = GOOD) -> Any:
    """The JSON of a good wiring, in which up to three values are others, or gone."""
    value = draw(st.sampled_from(good))(vocabulary)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(value))))
        if not path:
            return draw(VALUES)
        owner = value
        for key in path[:-1]:
            owner = owner[key]
        how = draw(st.sampled_from(["other", "gone", "near"]))
        if how == "gone":
            del owner[path[-1]]
        else:
            owner[path[-1]] = draw(VALUES if how == "other" else _near(owner[path[-1]]))
    return value
