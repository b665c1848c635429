"""Submitted runs that several threads wait for, read, cancel and free in random order."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import numpy as np

from support.callbacks import StatusError
from support.fuzz.session import Session
from support.programs import graph, node, value

Case = dict[str, Any]
PROGRAMS = ("square", "loop", "endless", "scan", "index", "slope")
ACTIONS = ("submit", "submit", "chain", "chain", "wait", "read", "free", "free", "cancel", "apply",
           "donate", "run", "derive")  # fmt: skip
ROUNDS = 60


def draw(seed: str) -> Case:
    """A case: for each thread what it does, in order."""
    source = random.Random(seed)
    threads = [
        [
            [source.choice(ACTIONS), source.choice(PROGRAMS), source.randrange(2**16)]
            for _ in range(source.randint(5, 40))
        ]
        for _ in range(source.randint(1, 4))
    ]
    return {"kind": "runs", "threads": threads, "length": source.choice((0, 1, 5, 1000, 100_000))}


@dataclass
class Held:
    """A handle, what it should have, and how else it may end."""

    handle: int
    wanted: np.ndarray | None
    fails: set[str]
    endless: bool = False


def _loop(x: dict[str, Any], condition: str) -> dict[str, Any]:
    """A program whose loop ends after ``ROUNDS`` with "low", and never with "always"."""
    state = [value("n", [], "int32"), x]
    one = {"name": "one", "dtype": "int32", "value": 1}
    more = {"name": "more", "dtype": "float32", "value": 1}
    step = graph(
        state,
        [node("m", "add", "n", "one"), node("y", "add", "x", "more")],
        ["m", "y"],
        name="step",
        constants=[one, more],
    )
    low = graph(
        state,
        [node("p", "less", "n", "most")],
        ["p"],
        name="low",
        constants=[{"name": "most", "dtype": "int32", "value": ROUNDS}],
    )
    always = graph(state, [node("p", "equal", "n", "n")], ["p"], name="always")

    names = {"condition": condition, "body": "step", "max_iterations": 2**31 - 1}
    return graph(
        [x],
        [
            node("zero", "zeros", shape=[], dtype="int32"),
            node(["n", "y"], "while", "zero", "x", **names),
        ],
        ["y"],
        functions=[step, low, always],
    )


def _programs(session: Session, length: int) -> dict[str, int]:
    x = value("x", [length])
    add = graph([x, value("e", [])], [node("y", "add", "x", "e")], ["y"], name="add")
    scan = graph(
        [x],
        [
            node("e", "ones", shape=[ROUNDS]),
            node("y", "scan", "x", "e", body="add", carries=1),
        ],
        ["y"],
        functions=[add],
    )
    index = graph(
        [x],
        [
            node("i", "full", shape=[1], vals=70_000_000, dtype="int32"),
            node("z", "concatenate", "x", "pad"),
            node("t", "take", "z", "i"),
            node("y", "add", "x", "t"),
        ],
        ["y"],
        constants=[{"name": "pad", "dtype": "float32", "value": [0]}],
    )
    squared = [node("y", "multiply", "x", "x"), node("s", "sum", "y")]
    made = {
        "square": session.programs.create(graph([x], squared, ["y"])),
        "loop": session.programs.create(_loop(x, "low")),
        "endless": session.programs.create(_loop(x, "always")),
        "scan": session.programs.create(scan),
        "index": session.programs.create(index),
    }
    loss = session.programs.create(graph([x], squared, ["s"]))
    spec = {"of": "s", "with_respect_to": ["x"]}
    made["slope"] = session.programs.derive(loss, gradient=spec)
    session.programs.free(loss)
    return made


def _expected(program: str, x: np.ndarray | None) -> np.ndarray | None:
    if x is None:
        return None
    with np.errstate(all="ignore"):
        if program in ("loop", "scan"):
            for _ in range(ROUNDS):
                x = x + np.float32(1)
            return x
        return {"square": lambda: x * x, "slope": lambda: x + x}.get(program, lambda: None)()


class Thread:
    """Does one list of actions."""

    def __init__(
        self, session: Session, programs: dict[str, int], length: int, number: int
    ) -> None:
        self._session = session
        self._programs = programs
        self._x = (np.arange(length) % 7 + number).astype(np.float32)
        self._held: list[Held] = []

    def carry_out(self, actions: list[list[Any]]) -> None:
        """All actions; then cancel what has no end, and free what is left."""
        try:
            for action, program, number in actions:
                self._one(action, program, number)
        except Exception as error:
            self._session.find(f"runs: {type(error).__name__}: {error}")
        self._session.programs.cancel(self._programs["endless"])
        for held in self._held:
            self._session.arrays.free(held.handle)

    def _one(self, action: str, program: str, number: int) -> None:
        arrays, programs = self._session.arrays, self._session.programs
        held = self._held[number % len(self._held)] if self._held else None
        if action == "cancel":
            programs.cancel(self._programs[program])
        elif action == "submit":
            self._submit(program, self._x, Held(0, self._x, set()))
        elif action == "derive":
            spec = {"vectorize": {"x": 0}}
            made = programs.derive(self._programs["square"], spec)
            rows = np.stack([self._x, self._x])
            (handle,) = programs.run(made, [rows], 1, submit=True)
            programs.free(made)
            self._held.append(Held(handle, rows * rows, set()))
        elif action == "donate":
            given = arrays.create(self._x)
            self._submit(program, given, Held(0, self._x, set()), donate=[0])
        elif action == "run" and program not in ("endless", "index"):
            self._run(program)
        elif held is None:
            return
        elif action == "chain":
            if held.wanted is None or held.wanted.shape == self._x.shape:
                self._submit(program, held.handle, held)
        elif action == "free":
            self._held.remove(held)
            arrays.free(held.handle)
        elif action == "wait":
            self._wait(held, number % 40)
        elif action == "read":
            if held.endless:
                programs.cancel(self._programs["endless"])
            self._read(held)
        elif action == "apply" and not held.endless:
            self._apply(held)

    def _submit(self, program: str, given: Any, source: Held, **params: Any) -> None:
        try:
            (handle,) = self._session.programs.run(
                self._programs[program], [given], 1, submit=True, **params
            )
        except StatusError as error:
            # It waits for a handle whose run has failed, or it was cancelled before it began.
            self._ended(error, Held(0, None, {"ECANCELED", *source.fails}))
            if params and isinstance(given, int):
                self._session.arrays.c.cow_mlx_array_free(given)  # it may be freed already
            return
        fails = {"ECANCELED", *source.fails, *(["EINVAL"] if program == "index" else [])}
        endless = source.endless or program == "endless"
        wanted = None if endless or program == "index" else _expected(program, source.wanted)
        self._held.append(Held(handle, wanted, fails, endless))

    def _run(self, program: str) -> None:
        out = np.zeros_like(self._x)
        try:
            self._session.programs.run(self._programs[program], [self._x], [out])
        except StatusError as error:
            self._ended(error, Held(0, None, {"ECANCELED"}))
            return
        self._same(out, _expected(program, self._x), program)

    def _wait(self, held: Held, milliseconds: int) -> None:
        try:
            self._session.arrays.wait(held.handle, milliseconds)
        except StatusError as error:
            if error.name != "ETIMEDOUT":
                self._ended(error, held)

    def _read(self, held: Held) -> None:
        try:
            found = self._session.arrays.read(held.handle)
        except StatusError as error:
            self._ended(error, held)
            return
        self._same(found, held.wanted, "read")

    def _apply(self, held: Held) -> None:
        try:
            (handle,) = self._session.arrays.apply("negative", held.handle)
        except StatusError as error:
            self._ended(error, held)
            return
        try:
            found = self._session.arrays.read(handle)
        except StatusError as error:
            self._ended(error, held)
        else:
            self._same(found, None if held.wanted is None else -held.wanted, "apply")
        finally:
            self._session.arrays.free(handle)

    def _same(self, found: np.ndarray, wanted: np.ndarray | None, what: str) -> None:
        if wanted is None:
            self._session.find(f"runs: {what} has a result, but must fail")
        elif not np.array_equal(found, wanted, equal_nan=True):
            self._session.find(f"runs: {what}: {found[:3]} for {wanted[:3]}")

    def _ended(self, error: StatusError, held: Held) -> None:
        if error.name not in held.fails:
            self._session.find(f"runs: {error.name}: {error.message}")


def carry_out(session: Session, case: Case) -> None:
    """Run all threads; then nothing may be held."""
    session.done.add("runs")
    programs = _programs(session, case["length"])
    before = session.lib.info()["memory"]["active"]
    threads = [
        threading.Thread(
            target=Thread(session, programs, case["length"], at).carry_out, args=[each]
        )
        for at, each in enumerate(case["threads"])
    ]
    for thread in threads:
        thread.start()
    end = monotonic() + 60
    while any(thread.is_alive() for thread in threads):
        # A thread may have submitted another run without an end after it was cancelled.
        session.programs.cancel(programs["endless"]) if monotonic() > end else None
        sleep(0.01)
    session.programs.cancel(programs["endless"])
    for program in programs.values():
        session.programs.free(program)
    end = monotonic() + 5
    while (held := session.lib.info()["memory"]["active"]) > before + (1 << 19):
        if monotonic() > end:
            session.find(f"runs: {held} bytes are held for {before} before")
            break
        sleep(0.02)
