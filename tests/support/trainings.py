"""Trainings over the C ABI, and a small network to train."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from ctypes import byref, c_char, c_char_p, c_int32, c_int64, c_size_t, sizeof
from dataclasses import dataclass
from typing import Any

import numpy as np

from support import signatures
from support.arrays import Arrays
from support.c_programs import Programs, values
from support.callbacks import Callbacks
from support.library import Library
from support.outputs import Buffer, poisoned, poisoned_struct
from support.programs import graph, node, value

Event = signatures.cow_mlx_training_event


@dataclass(frozen=True)
class Told:
    """An event as Python has it."""

    kind: int
    finish: int
    step: int
    steps: int
    epoch: int
    targets: int
    skipped: int
    loss: float
    validation_loss: float
    accuracy: float
    perplexity: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    elapsed: float
    remaining: float
    peak_memory: int


def told(event: Any) -> Told:
    """Copy an event, which must be as large as the header says."""
    assert event.struct_size == sizeof(Event)
    return Told(**{name: getattr(event, name) for name in Told.__dataclass_fields__})


class Trainings:
    """The calls of trainings; handles are plain integers."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib
        self.c = lib.c
        self.arrays = Arrays(lib)
        self.programs = Programs(lib)

    def create(self, program: int | dict[str, Any] | bytes, **params: Any) -> int:
        """Make a training; of JSON the program is freed at once.

        Args:
            program: its handle, or its JSON.
            params: of ``cow_mlx_training_params``; ``optimizer`` may be an object, ``train`` is a
                list, ``initial`` a dict of numpy arrays or handles.
        """
        handle = program if isinstance(program, int) else self.programs.create(program)
        mine: list[int] = []
        try:
            made = self._training_params(params, mine)
            out = poisoned(c_int32)
            self.lib.check(self.c.cow_mlx_training_create(handle, made, byref(out)), out)
            return out.value
        finally:
            for array in mine:
                self.arrays.free(array)
            if not isinstance(program, int):
                self.programs.free(handle)

    def create_for_model(self, model: int, **params: Any) -> int:
        """Make a training of a language model; ``fine_tune`` may be an object."""
        mine: list[int] = []
        try:
            made = self._training_params(params, mine)
            out = poisoned(c_int32)
            status = self.c.cow_mlx_training_create_for_model(model, made, byref(out))
            self.lib.check(status, out)
            return out.value
        finally:
            for array in mine:
                self.arrays.free(array)

    def adapter(self, training: int) -> int:
        """Open the trained layers as an adapter."""
        out = poisoned(c_int32)
        self.lib.check(self.c.cow_mlx_training_adapter(training, byref(out)), out)
        return out.value

    def export(self, training: int, folder: Any, **options: Any) -> None:
        """Write the trained layers."""
        text = json.dumps(options).encode() if options else None
        self.lib.check(self.c.cow_mlx_training_export(training, os.fsencode(folder), text))

    def _training_params(self, params: dict[str, Any], mine: list[int]) -> Any:
        if not params:
            return None
        made = signatures.cow_mlx_training_params()
        self.c.cow_mlx_training_params_init(byref(made), sizeof(made))
        for name, given in params.items():
            if name == "train":
                made.train_count = len(given)
                made.train = (c_char_p * len(given))(*(each.encode() for each in given))
            elif name == "initial":
                made.initial_count = len(given)
                made.initial_names = (c_char_p * len(given))(*(each.encode() for each in given))
                handles = self._handles(given.values(), mine)
                made.initial_arrays = (c_int64 * len(given))(*handles)
            elif name in ("optimizer", "fine_tune") and not isinstance(given, bytes):
                text = given if isinstance(given, str) else json.dumps(given)
                setattr(made, name, text.encode())
            else:
                setattr(made, name, given)
        return byref(made)

    def _handles(self, given: Any, mine: list[int]) -> list[int]:
        handles = []
        for each in given:
            if isinstance(each, np.ndarray):
                mine.append(self.arrays.create(each))
                each = mine[-1]
            handles.append(each)
        return handles

    def step(self, training: int, inputs: Sequence[np.ndarray | int]) -> Told:
        """Make a step on numpy arrays and handles."""
        event = poisoned_struct(Event)
        given = values(inputs)
        status = self.c.cow_mlx_training_step(training, given, len(inputs), byref(event))
        self.lib.check(status, event)
        return told(event)

    def fit(
        self,
        training: int,
        on_event: Callable[[Told], bool | None] | None = None,
        next_batch: Callable[[int], Sequence[np.ndarray | int] | None] | None = None,
        **params: Any,
    ) -> list[Told]:
        """Make steps; returns all events.

        Args:
            training: its handle.
            on_event: told of each.
            next_batch: gives numpy arrays, or handles which are the training's then; None at the
                end.
            params: of ``cow_mlx_fit_params``; ``inputs`` and ``validation`` are lists of numpy
                arrays or handles.
        """
        events: list[Told] = []
        callbacks = Callbacks()

        def listen(event: Any, *_: Any) -> bool | None:
            events.append(told(event.contents))
            return on_event(events[-1]) if on_event else True

        mine: list[int] = []
        try:
            made = self._fit_params(params, mine, next_batch, callbacks)
            hear = callbacks.wrap(signatures.cow_mlx_training_fn, listen)
            status = self.c.cow_mlx_training_fit(training, made, hear, None)
            callbacks.reraise()
            self.lib.check(status)
        finally:
            for array in mine:
                self.arrays.free(array)
        return events

    def evaluate(
        self,
        training: int,
        next_batch: Callable[[int], Sequence[np.ndarray | int] | None] | None = None,
        **params: Any,
    ) -> Told:
        """Evaluate on data."""
        event = poisoned_struct(Event)
        callbacks = Callbacks()
        mine: list[int] = []
        try:
            made = self._fit_params(params, mine, next_batch, callbacks)
            status = self.c.cow_mlx_training_evaluate(training, made, byref(event))
            callbacks.reraise()
            self.lib.check(status, event)
        finally:
            for array in mine:
                self.arrays.free(array)
        return told(event)

    def _fit_params(
        self, params: dict[str, Any], mine: list[int], next_batch: Any, callbacks: Callbacks
    ) -> Any:
        made = signatures.cow_mlx_fit_params()
        self.c.cow_mlx_fit_params_init(byref(made), sizeof(made))
        for name, given in params.items():
            if name in ("inputs", "validation"):
                handles = self._handles(given, mine)
                setattr(made, f"{name}_count", len(handles))
                setattr(made, name, (c_int64 * max(len(handles), 1))(*handles))
            elif name in ("folder", "lines_file", "validation_file"):
                setattr(made, name, os.fsencode(given))
            elif name == "lines_options":
                made.lines_options = json.dumps(given).encode()
            else:
                setattr(made, name, given)

        def bring(step: int, out: Any, count: int, *_: Any) -> bool:
            batch = next_batch(step)
            if batch is None:
                return False
            for at, each in enumerate(batch[:count]):
                out[at] = self.arrays.create(each) if isinstance(each, np.ndarray) else each
            return True

        if next_batch:
            made.next_batch = callbacks.wrap(signatures.cow_mlx_batch_fn, bring)
        return byref(made)

    def parameter(self, training: int, name: str) -> np.ndarray:
        """A parameter's elements."""
        out = poisoned(c_int64)
        status = self.c.cow_mlx_training_parameter(training, name.encode(), byref(out))
        self.lib.check(status, out)
        try:
            return self.arrays.read(out.value)
        finally:
            self.arrays.free(out.value)

    def parameters(self, training: int) -> dict[str, bytes]:
        """The bits of all parameters."""
        names = [each["name"] for each in self.info(training)["parameters"]]
        return {name: self.parameter(training, name).tobytes() for name in names}

    def info(self, training: int) -> dict[str, Any]:
        """What is known of a training."""
        size = c_size_t()
        self.lib.check(self.c.cow_mlx_training_info(training, None, 0, byref(size)))
        out = Buffer(c_char, size.value + 64)  # a step may come between
        self.lib.check(self.c.cow_mlx_training_info(training, *out.arguments()))
        return json.loads(bytes(out.value()))

    def save(self, training: int, folder: Any) -> None:
        """Save a training."""
        self.lib.check(self.c.cow_mlx_training_save(training, os.fsencode(folder)))

    def load(self, training: int, folder: Any) -> None:
        """Continue a saved training."""
        self.lib.check(self.c.cow_mlx_training_load(training, os.fsencode(folder)))

    def cancel(self, training: int) -> int:
        """Cancel what runs; returns the status."""
        return self.c.cow_mlx_training_cancel(training)

    def free(self, training: int) -> None:
        """Free a training."""
        self.lib.check(self.c.cow_mlx_training_free(training))


# ------------------------------------------------------------------ A small network

ROWS, WIDE, HIDDEN, CLASSES = 24, 5, 8, 3


def network(loss: str = "mean", **more: Any) -> dict[str, Any]:
    """A MLP that separates three classes; outputs loss, targets, correct."""
    return graph(
        [value("x", ["rows", WIDE]), value("y", ["rows"], "int32")],
        [
            node("h", "matmul", "x", "w1"),
            node("a", "add", "h", "b1"),
            node("r", "maximum", "a", "zero"),
            node("z", "matmul", "r", "w2"),
            node("loss", "cross_entropy", "z", "y", reduction=loss),
            node("best", "argmax", "z", axis=-1),
            node("chosen", "astype", "best", dtype="int32"),
            node("same", "equal", "chosen", "y"),
            node("correct", "sum", "same"),
        ],
        ["loss", "correct"],
        parameters=[
            {**value("w1", [WIDE, HIDDEN]), "init": "glorot_uniform"},
            {**value("b1", [HIDDEN]), "init": "zeros"},
            {**value("w2", [HIDDEN, CLASSES]), "init": "he_normal"},
        ],
        constants=[{"name": "zero", "dtype": "float32", "value": 0.0}],
        **more,
    )


def data(rows: int = ROWS, seed: int = 1) -> list[np.ndarray]:
    """Rows that the network can tell apart."""
    draws = np.random.default_rng(seed)
    y = draws.integers(0, CLASSES, rows).astype(np.int32)
    x = draws.normal(size=(rows, WIDE)).astype(np.float32)
    x[np.arange(rows), y] += 2
    return [x, y]


def is_nothing(number: float) -> bool:
    """Whether an event does not have a number."""
    return math.isnan(number)
