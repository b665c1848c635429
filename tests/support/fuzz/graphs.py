"""Carries out a case of a program: node by node through single operations, and as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.fuzz import rows, slopes
from support.fuzz.inputs import FLOATS, Array, laid_out, make, row_major
from support.fuzz.operation import compare, declared_as_found
from support.fuzz.session import Refused, Session
from support.programs import node

Case = dict[str, Any]
Values = dict[str, Array]


class Unknown(Exception):
    """A scan without steps, whose stacked results only the program knows."""


class Failed(Exception):
    """A node that was refused."""

    def __init__(self, refused: Refused, where: str, top: bool) -> None:
        super().__init__(refused.message)
        self.refused = refused
        self.where = where
        self.top = top


class Interpreter:
    """Applies the nodes of a program one by one."""

    def __init__(self, session: Session, program: dict[str, Any]) -> None:
        self._session = session
        self._functions = {each["name"]: each for each in program.get("functions", [])}

    def run(self, graph: dict[str, Any], inputs: list[Array], top: bool = True) -> list[Array]:
        """The outputs of a program or a function."""
        names = [each["name"] for each in graph["inputs"]]
        found = dict(zip(names, inputs, strict=True))
        for each in graph["nodes"]:
            given = [None if name is None else found[name] for name in each["inputs"]]
            results = self._node(each, given, top)
            outputs = each["outputs"] if "outputs" in each else [each["name"]]
            found.update(zip(outputs, results, strict=True))
        return [found[name] for name in graph["outputs"]]

    def _called(self, name: str, inputs: list[Array]) -> list[Array]:
        return self.run(self._functions[name], inputs, False)

    def _node(self, each: dict[str, Any], given: list[Any], top: bool) -> list[Array]:
        op, attributes = each["op"], each["attributes"]
        if op == "call":
            return self._called(attributes["function"], given)
        if op == "cond":
            branch = "then" if given[0].data else "else"
            return self._called(attributes[branch], given[1:])
        if op == "while":
            state = given
            while self._called(attributes["condition"], state)[0].data:
                state = self._called(attributes["body"], state)
            return state
        if op == "scan":
            return self._scan(attributes, given)
        handles = [self._session.arrays.create(array.data, array.dtype) for array in given]

        def apply() -> list[Array] | Refused:
            made = self._session.arrays.apply(op, *handles, capacity=64, **attributes)
            return self._session.read_all(made)

        found = self._session.tried(f"node {op}", apply)
        for handle in handles:
            self._session.arrays.free(handle)
        if isinstance(found, Refused):
            raise Failed(found, op, top)
        return found

    def _scan(self, attributes: dict[str, Any], given: list[Array]) -> list[Array]:
        carries, sequences = attributes["carries"], attributes["sequences"]
        state = given[:carries]
        scanned, constants = given[carries : carries + sequences], given[carries + sequences :]
        steps = range(scanned[0].shape[0])
        parts: list[list[Array]] = []
        for at in reversed(steps) if attributes["reverse"] else steps:
            elements = [Array(each.dtype, row_major(each.data[at])) for each in scanned]
            found = self._called(attributes["body"], [*state, *elements, *constants])
            state = found[:carries]
            parts.append(found[carries:])
        if attributes["reverse"]:
            parts.reverse()
        if not parts:
            if len(self._functions[attributes["body"]]["outputs"]) > carries:
                raise Unknown
            return state
        stacked = [
            Array(part.dtype, np.stack([step[at].data for step in parts]))
            for at, part in enumerate(parts[0])
        ]
        return [*state, *stacked]


def carry_out(session: Session, case: Case) -> None:
    """Do what a case says, and compare the results."""
    program = case["program"]
    arrays = [make(each) for each in case["inputs"]]
    made = session.make("graph", program)
    if isinstance(made, Refused):
        if "twice" not in made.message:
            session.find(f"graph: refused: {made.message}")
        return
    session.done.add("graph")
    eager: list[Array] | None = None
    failed: Failed | None = None
    try:
        eager = Interpreter(session, program).run(program, arrays)
    except Failed as error:
        failed = error
    except Unknown:
        pass
    count = len(program["outputs"])
    for check in case["checks"]:
        if check["check"] == "program":
            _whole(session, case, check, made, arrays, eager, failed)
        elif check["check"] == "vectorized":
            wide = rows.widened(case, check["levels"])
            rows.check(session, case, made, wide, check["levels"], count, "vectorized graph", 100)
        elif check["check"] == "gradient":
            _gradient(session, case, check, arrays)


def _whole(
    session: Session,
    case: Case,
    check: dict[str, Any],
    program: int,
    arrays: list[Array],
    eager: list[Array] | None,
    failed: Failed | None,
) -> None:
    placed = [
        (laid_out(array.data, {**(each["layout"] or {}), "odd": None}), array.dtype)
        for array, each in zip(arrays, case["inputs"], strict=True)
    ]
    count = len(case["program"]["outputs"])
    params = {"submit": True} if check.get("submit") else {}
    found = session.run("graph", program, placed, count, **params)
    if isinstance(found, Refused):
        if eager is not None and found.name != "ENOMEM":
            session.find(f"graph: refused what single operations do: {found.message}")
        return
    if failed is not None:
        if failed.top and failed.refused.name != "ENOMEM":
            session.find(f"graph: did what {failed.where} refuses: {failed.refused.message}")
        return
    declared_as_found(session, "graph", program, found)
    if eager is not None:
        compare(session, "graph", found, eager, 10)
    if check.get("host"):
        again = session.run_into("graph into memory", program, placed, found)
        if isinstance(again, Refused):
            session.find(f"graph into memory: refused: {again.message}")
        else:
            compare(session, "graph into memory", again, found)


def _gradient(session: Session, case: Case, check: dict[str, Any], arrays: list[Array]) -> None:
    inner = case["program"]
    text = {
        **inner,
        "nodes": [
            *inner["nodes"],
            node("weighed", "cos", check["of"]),
            node("loss", "sum", "weighed"),
        ],
        "outputs": ["loss"],
    }
    program = session.make("graph loss", text)
    if isinstance(program, Refused):
        session.find(f"graph loss: refused: {program.message}")
        return
    alone = session.run("graph loss", program, arrays, 1)
    chosen = [at for at, each in enumerate(arrays) if each.dtype in FLOATS]
    for at in chosen:
        gradient = session.derive(
            "graph gradient",
            program,
            gradient={"of": "loss", "with_respect_to": [f"i{at}"], "value": True},
        )
        if isinstance(gradient, Refused):
            continue
        found = session.run("graph gradient", gradient, arrays, 2)
        if isinstance(found, Refused):
            if not isinstance(alone, Refused) and found.name == "EINVAL":
                session.find(f"graph gradient: refused: {found.message}")
            continue
        if isinstance(alone, Refused):
            continue
        session.done.add("graph gradient")
        compare(session, "graph gradient: its value", found[:1], alone, 100)
        if (found[1].dtype, found[1].shape) != (arrays[at].dtype, arrays[at].shape):
            session.find(f"graph gradient: shape: {found[1].shape} for {arrays[at].shape}")
            continue
        kinds = {each["values"]["kind"] for each in case["inputs"]}
        graphs = [inner, *inner.get("functions", [])]
        stops = any(each["op"] == "stop_gradient" for graph in graphs for each in graph["nodes"])
        double = arrays[at].dtype == alone[0].dtype == "float64"
        if double and not stops and not {"special", "infinite"} & kinds:
            slopes.differences(session, program, arrays, [at], found, "graph gradient")
        if check.get("levels"):
            before = len(session.findings)
            wide = rows.widened(case, check["levels"])
            rows.check(
                session, case, gradient, wide, check["levels"], 2, "vectorized graph gradient", 1000
            )
            # In rows, the slope of what is before a choice is times 0, which may be nan.
            if any(each["op"] == "cond" for graph in graphs for each in graph["nodes"]):
                kept = [each for each in session.findings[before:] if ", nan for " not in each]
                session.findings[before:] = kept
