"""Gradients: shapes, rows, central differences, and gradients of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.fuzz import rows
from support.fuzz.compare import difference
from support.fuzz.inputs import FLOATS, Array, array_of
from support.fuzz.session import Refused, Session
from support.programs import graph, node, value

Case = dict[str, Any]
STEP = 1e-4


def check(
    session: Session, case: Case, check: dict[str, Any], arrays: list[Array], eager: list[Array]
) -> None:
    """Derive the gradient of a weighted sum of all results, and look at it from all sides."""
    own = rows.places(case)
    chosen = [own[at] for at in check["inputs"] if arrays[own[at]].dtype in FLOATS]
    inexact = [at for at, each in enumerate(eager) if each.dtype in (*FLOATS, "complex64")]
    if not chosen or not inexact or sum(each.data.size for each in eager) > 20_000:
        return
    weights = [_weights(eager[at]) for at in inexact]
    double = all(arrays[at].dtype == "float64" for at in chosen) and all(
        eager[at].dtype == "float64" for at in inexact
    )
    text = _program(case, arrays, eager, inexact, weights, "float64" if double else "float32")
    program = session.make("gradient", text)
    if isinstance(program, Refused):
        session.find(f"gradient: loss refused: {program.message}")
        return
    given = [*arrays, *weights]
    names = [f"i{at}" for at in chosen]
    spec = {"of": "loss", "with_respect_to": names, "value": True}
    gradient = session.derive("gradient", program, gradient=spec)
    if isinstance(gradient, Refused):
        return
    found = session.run("gradient", gradient, given, 1 + len(chosen))
    alone = session.run("gradient", program, given, 1)
    if isinstance(found, Refused) or isinstance(alone, Refused):
        one = found if isinstance(found, Refused) else alone
        if not isinstance(alone, Refused) and found.name not in ("ENOMEM", "EUNSUPPORTED"):
            session.find(f"gradient: refused: {one.message}")
        return
    session.done.add("gradient")
    what = difference(found[0], alone[0], 10)
    if what:
        session.find(f"gradient: its value: {what}")
    wrong = _misshapen(session, "gradient", chosen, found[1:], arrays)
    into = [found[0], *(arrays[at] for at in chosen)]
    _into_memory(session, gradient, given, into, None if wrong else found)
    if wrong:
        return
    kinds = {each["values"]["kind"] for each in case["inputs"] if each is not None}
    smooth = double and kinds <= {"range", "normal"} and not _ambiguous(case, arrays)
    smooth = smooth and not enlarges_rounding(case)
    if smooth:
        differences(session, program, given, chosen, found, "gradient")
    # Zeros around an input make NaN of infinity, in one way of computing and not in others.
    padded = case["operation"].startswith("conv") and {"special", "infinite"} & kinds
    if check.get("levels") and not padded:
        wide = [*rows.widened(case, check["levels"]), *weights]
        rows.check(
            session,
            case,
            gradient,
            wide,
            check["levels"],
            1 + len(chosen),
            "vectorized gradient",
            loose=20,
        )
    if check.get("second"):
        _second(session, text, given, chosen, double, smooth)


def _into_memory(
    session: Session,
    gradient: int,
    given: list[Array],
    into: list[Array],
    wanted: list[Array] | None,
) -> None:
    """Let a run write its results into memory, and compare them."""
    made = session.run_into("gradient into memory", gradient, given, into)
    if not isinstance(made, Refused) and wanted is not None:
        for one, other in zip(made, wanted, strict=True):
            if difference(one, other):
                session.find(f"gradient into memory: {difference(one, other)}")


def _misshapen(
    session: Session, where: str, chosen: list[int], slopes: list[Array], inputs: list[Array]
) -> bool:
    """Report slopes without the type and shape of their input; whether there are any."""
    wrong = False
    for at, slope in zip(chosen, slopes, strict=True):
        own = inputs[at]
        if (slope.dtype, slope.shape) != (own.dtype, own.shape):
            wrong = True
            session.find(
                f"{where}: shape: {slope.dtype}{slope.shape} for an input {own.dtype}{own.shape}"
            )
    return wrong


def _ambiguous(case: Case, arrays: list[Array]) -> bool:
    """Whether several elements may be written to one place, of which only one stays."""
    if case["operation"] not in ("put_along_axis", "scatter", "scatter_max", "scatter_min"):
        return False
    indices = arrays[1].data
    return len(np.unique(indices)) < indices.size or bool((indices < 0).any())


def enlarges_rounding(case: Case) -> bool:
    """Whether a root enlarges all rounding."""
    return case["operation"] == "norm" and 0 < float(case["attributes"].get("ord") or 1) < 0.1


def _weights(result: Array) -> Array:
    dtype = "float32" if result.dtype == "complex64" else result.dtype
    return array_of(dtype, np.cos(np.arange(result.data.size)).reshape(result.shape))


def _program(
    case: Case,
    arrays: list[Array],
    eager: list[Array],
    inexact: list[int],
    weights: list[Array],
    dtype: str,
) -> dict[str, Any]:
    """The operation, and ``loss``, a weighted sum of its inexact results."""
    own = rows.places(case)
    declared = [value(f"i{at}", list(each.shape), each.dtype) for at, each in enumerate(arrays)]
    declared += [value(f"w{at}", list(each.shape), each.dtype) for at, each in enumerate(weights)]
    outputs = [f"o{at}" for at in range(len(eager))]
    taken = [None if each is None else f"i{own[at]}" for at, each in enumerate(case["inputs"])]
    nodes = [node(outputs, case["operation"], *taken, **case["attributes"])]
    parts = []
    for number, at in enumerate(inexact):
        views = [f"o{at}"]
        if eager[at].dtype == "complex64":
            nodes += [node(f"re{at}", "real", f"o{at}"), node(f"im{at}", "imag", f"o{at}")]
            views = [f"re{at}"]  # the imaginary part has no slope
        for view in views:
            nodes += [
                node(f"p_{view}", "multiply", view, f"w{number}"),
                node(f"s_{view}", "sum", f"p_{view}"),
                node(f"c_{view}", "astype", f"s_{view}", dtype=dtype),
            ]
            parts.append(f"c_{view}")
    total = parts[0]
    for at, part in enumerate(parts[1:]):
        nodes.append(node(f"t{at}", "add", total, part))
        total = f"t{at}"
    nodes.append(node("loss", "positive", total))
    return graph(declared, nodes, ["loss"])


def differences(
    session: Session,
    program: int,
    given: list[Array],
    chosen: list[int],
    found: list[Array],
    where: str,
) -> None:
    """Compare slopes in a direction with central differences of two steps that agree."""
    source = np.random.default_rng(len(given))
    directions = {at: source.normal(size=given[at].shape) for at in chosen}
    slope = sum(
        float(np.sum(each.data * directions[at]))
        for at, each in zip(chosen, found[1:], strict=True)
    )
    if not np.isfinite(slope):
        return
    estimates = []
    for step in (STEP, STEP / 3):
        moved = []
        for sign in (1, -1, 2, -2):
            inputs = [
                Array(each.dtype, np.asarray(each.data + sign * step * directions[at]))
                if at in directions
                else each
                for at, each in enumerate(given)
            ]
            result = session.run(where, program, inputs, 1)
            if isinstance(result, Refused) or not np.isfinite(result[0].data).all():
                return
            moved.append(float(result[0].data))
        estimates.append((8 * (moved[0] - moved[1]) - (moved[2] - moved[3])) / (12 * step))
    size = abs(float(found[0].data)) + abs(estimates[0]) + 1e-3
    if abs(estimates[0] - estimates[1]) > 1e-3 * size:
        return  # a kink, or too much rounding
    session.done.add(f"differences of {where}")
    if abs(estimates[1] - slope) > 5e-3 * size:
        session.find(f"{where}: slope: {slope} for {estimates[1]}")


def _second(
    session: Session,
    text: dict[str, Any],
    given: list[Array],
    chosen: list[int],
    double: bool,
    smooth: bool,
) -> None:
    """The derivative along a direction, and the derivatives of that."""
    source = np.random.default_rng(3)
    directions = [array_of(given[at].dtype, source.normal(size=given[at].shape)) for at in chosen]
    t = array_of("float64" if double else "float32", np.zeros(()))
    nodes, names = [], {}
    for number, at in enumerate(chosen):
        nodes += [
            node(f"t{at}_", "astype", "t", dtype=given[at].dtype),
            node(f"m{at}_", "multiply", f"d{number}", f"t{at}_"),
            node(f"x{at}_", "add", f"i{at}", f"m{at}_"),
        ]
        names[f"i{at}"] = f"x{at}_"
    nodes += [
        {**each, "inputs": [names.get(name, name) for name in each["inputs"]]}
        for each in text["nodes"]
    ]
    declared = [
        *text["inputs"],
        *(
            value(f"d{number}", list(each.shape), each.dtype)
            for number, each in enumerate(directions)
        ),
        value("t", [], t.dtype),
    ]
    program = session.make("second", graph(declared, nodes, ["loss"]))
    if isinstance(program, Refused):
        session.find(f"second: refused: {program.message}")
        return
    first = session.derive("second", program, gradient={"of": "loss", "with_respect_to": ["t"]})
    if isinstance(first, Refused):
        return
    outer = [f"i{at}" for at in chosen]
    second = session.derive(
        "second",
        first,
        gradient={"of": "loss/t", "with_respect_to": ["t", *outer], "value": True},
    )
    if isinstance(second, Refused):
        return
    inputs = [*given, *directions, t]
    one = session.run("second", first, inputs, 1)
    found = session.run("second", second, inputs, 2 + len(chosen))
    if isinstance(one, Refused) or isinstance(found, Refused):
        if not isinstance(one, Refused) and found.name not in ("ENOMEM", "EUNSUPPORTED"):
            session.find(f"second: refused: {found.message}")
        return
    session.done.add("second")
    _misshapen(session, "second", chosen, found[2:], given)
    if smooth:
        differences(session, first, inputs, [len(inputs) - 1], found[:2], "second")
