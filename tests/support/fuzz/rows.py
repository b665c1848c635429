"""Vectorized programs against the rows one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.fuzz.compare import difference
from support.fuzz.inputs import INEXACT, Array, array_of, make, row_major
from support.fuzz.session import Refused, Session

Case = dict[str, Any]
Level = dict[str, Any]


def places(case: Case) -> dict[int, int]:
    """By the index of an input in the case, its index among those that are there."""
    there = [at for at, each in enumerate(case["inputs"]) if each is not None]
    return {at: place for place, at in enumerate(there)}


def widened(case: Case, levels: list[Level]) -> list[Array]:
    """The inputs that are there, with an axis of rows for each level that names them."""
    found = []
    for at, described in enumerate(case["inputs"]):
        if described is None:
            continue
        array = make(described)
        for number, level in enumerate(levels):
            axis = level["axes"].get(str(at))
            if axis is None:
                continue
            axis, count = min(axis, array.data.ndim), level["rows"]
            if number == 0:
                array = make(described, count, axis)
            else:
                parts = [np.roll(array.data, turn) for turn in range(count)]
                empty = np.empty((*array.shape[:axis], 0, *array.shape[axis:]), array.data.dtype)
                data = np.stack(parts, axis) if count else empty
                array = Array(array.dtype, row_major(data))
        found.append(array)
    return found


def check(
    session: Session,
    case: Case,
    program: int,
    arrays: list[Array],
    levels: list[Level],
    results: int,
    where: str,
    loose: float = 1.0,
) -> None:
    """Derive a program for rows, run it, and compare with the rows one by one."""
    *inner, last = levels
    lower = arrays
    if inner:
        program = _derived(session, case, program, widened(case, inner), inner[-1], where)
    if isinstance(program, Refused):
        return
    own = places(case)
    axes = {
        own[int(at)]: min(axis, lower[own[int(at)]].data.ndim - 1)
        for at, axis in last["axes"].items()
    }
    made = session.derive(
        where, program, vectorize={f"i{place}": axis for place, axis in axes.items()}
    )
    if isinstance(made, Refused):
        _refused(session, case, made, where)
        return
    found = session.run(where, made, lower, results)
    session.done.add(where)
    count = last["rows"]
    given = [
        [
            Array(each.dtype, row_major(np.take(each.data, row, axes[place])))
            if place in axes
            else each
            for place, each in enumerate(lower)
        ]
        for row in range(count)
    ]
    alone = [session.run(f"{where} row", program, inputs, results) for inputs in given]
    bad = [each for each in alone if isinstance(each, Refused)]
    if isinstance(found, Refused):
        if not bad and found.name != "ENOMEM":
            _refused(session, case, found, where)
        return
    if bad:
        if bad[0].name != "ENOMEM":
            session.find(f"{where}: took a row that is refused alone: {bad[0].message}")
        return
    declared(session, made, found, where)
    _compare(session, program, found, alone, given, loose, where)


def _compare(
    session: Session,
    program: int,
    found: list[Array],
    alone: list[Any],
    given: list[list[Array]],
    loose: float,
    where: str,
) -> None:
    """Compare the rows of results with those of runs one by one."""
    results = len(found)
    for at, together in enumerate(found):
        if together.shape[:1] != (len(alone),):
            session.find(f"{where}: result {at}: shape: {together.shape} for {len(alone)} rows")
            continue
        for row, each in enumerate(alone):
            mine = Array(together.dtype, together.data[row])
            what = difference(mine, each[at], loose)
            if what and mine.dtype in INEXACT:
                sizes = _sizes(session, program, given[row], results)
                what = difference(mine, each[at], loose, sizes[at])
            if what:
                session.find(f"{where}: result {at}: row {row}: {what}")


def _sizes(session: Session, program: int, inputs: list[Array], results: int) -> list[float]:
    """The largest results of a program for the absolute values of its inputs; 0 if unknown.

    A sum whose terms cancel has the rounding of these, in an order that rows may change.
    """
    sizes = [
        array_of(each.dtype, np.abs(each.numbers)) if each.dtype in INEXACT else each
        for each in inputs
    ]
    found = session.run("absolute values", program, sizes, results)
    if isinstance(found, Refused):
        return [0.0] * results
    return [
        float(np.max(np.abs(numbers), initial=0, where=np.isfinite(numbers)))
        for numbers in (each.numbers for each in found)
    ]


def declared(session: Session, program: int, found: list[Array], where: str) -> None:
    told = session.programs.info(program)["outputs"]
    for at, (each, result) in enumerate(zip(told, found, strict=True)):
        same = len(each["shape"]) == len(result.shape) and all(
            not isinstance(side, int) or side == other
            for side, other in zip(each["shape"], result.shape, strict=True)
        )
        if not same or each["dtype"] != result.dtype:
            session.find(
                f"{where}: result {at}: shape: declared {each['dtype']}{each['shape']}, "
                f"has {result.dtype}{result.shape}"
            )


def _derived(
    session: Session, case: Case, program: int, arrays: list[Array], level: Level, where: str
) -> int | Refused:
    own = places(case)
    axes = {
        f"i{own[int(at)]}": min(axis, arrays[own[int(at)]].data.ndim - 1)
        for at, axis in level["axes"].items()
    }
    return session.derive(where, program, vectorize=axes)


def _refused(session: Session, case: Case, refused: Refused, where: str) -> None:
    """Arrays of 8 dimensions cannot be vectorized, nor all programs."""
    if refused.name == "ENOMEM" or "8 dimensions" in refused.message:
        return
    if refused.name == "EUNSUPPORTED" and "operation" not in case:
        return
    session.find(f"{where}: refused what rows do alone: {refused.name}: {refused.message}")
