"""The library as a case uses it: results, refusals, and findings where neither is right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.arrays import NUMPY, Arrays
from support.c_programs import Programs
from support.callbacks import StatusError
from support.fuzz.inputs import Array
from support.library import Library

REFUSALS = ("EINVAL", "EUNSUPPORTED", "ENOMEM")
LARGEST = 1 << 24
"""Elements of a result that is read: a broadcast of one number may have more than memory holds."""


@dataclass(frozen=True)
class Refused:
    """A call that failed as it may."""

    name: str
    message: str


@dataclass
class Session:
    """The calls of one case, and what was found wrong."""

    lib: Library
    findings: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.arrays = Arrays(self.lib)
        self.programs = Programs(self.lib)
        self._made: list[int] = []

    def find(self, what: str) -> None:
        if what not in self.findings:
            self.findings.append(what[:600])

    def tried(self, where: str, call: Any, *given: Any, **named: Any) -> Any:
        """What a call gives, or that it was refused; a failure of another kind is a finding."""
        try:
            return call(*given, **named)
        except StatusError as error:
            if error.name not in REFUSALS:
                self.find(f"{where}: {error.name}: {error.message}")
            elif not (10 < len(error.message) < 10_000 and error.reason):
                self.find(f"{where}: poor message {error.message!r} {error.reason!r}")
            return Refused(error.name, error.message)
        except AssertionError as error:
            self.find(f"{where}: assertion: {error}")
            return Refused("assertion", str(error))

    def create(self, where: str, array: np.ndarray, dtype: str) -> int | Refused:
        return self.tried(where, self.arrays.create, array, dtype)

    def read(self, handle: int) -> Array:
        dtype, _ = self.arrays.type(handle)
        return Array(dtype, self.arrays.read(handle))

    def read_all(self, handles: Sequence[int]) -> list[Array] | Refused:
        """The elements of handles, which are freed."""
        try:
            if any(math.prod(self.arrays.type(handle)[1]) > LARGEST for handle in handles):
                return Refused("large", "too many elements to read")
            return [self.read(handle) for handle in handles]
        finally:
            for handle in handles:
                self.arrays.free(handle)

    def make(self, where: str, program: dict[str, Any]) -> int | Refused:
        return self._keep(self.tried(where, self.programs.create, program))

    def derive(self, where: str, program: int, **spec: Any) -> int | Refused:
        return self._keep(self.tried(where, self.programs.derive, program, spec))

    def _keep(self, made: int | Refused) -> int | Refused:
        if isinstance(made, int):
            self._made.append(made)
        return made

    def free_programs(self) -> None:
        for program in self._made:
            self.programs.free(program)
        self._made.clear()

    def run(
        self, where: str, program: int, inputs: Sequence[Any], outputs: int, **params: Any
    ) -> list[Array] | Refused:
        """The results of a run; inputs are Arrays, numpy arrays with dtypes, or handles."""
        given = [(each.data, each.dtype) if isinstance(each, Array) else each for each in inputs]

        def carry_out() -> list[Array] | Refused:
            handles = self.programs.run(program, given, outputs, **params)
            return self.read_all([handle for handle in handles if handle is not None])

        return self.tried(where, carry_out)

    def run_into(
        self, where: str, program: int, inputs: Sequence[Any], alike: Sequence[Array]
    ) -> list[Array] | Refused:
        """The results of a run in the host's memory, beside which nothing may be written."""
        given = [(each.data, each.dtype) if isinstance(each, Array) else each for each in inputs]
        views, around = [], []
        for each in alike:
            if each.data.size == 0:  # one side may be enormous
                views.append((np.empty(each.shape, NUMPY[each.dtype]), each.dtype))
                continue
            sides = [2 * side + 1 for side in each.shape]
            whole = np.full(sides, 90, np.uint8).astype(NUMPY[each.dtype])
            places = (..., *(slice(1, None, 2) for _ in sides))
            views.append((whole[places], each.dtype))
            around.append((whole, places))
        found = self.tried(where, self.programs.run, program, given, views)
        if isinstance(found, Refused):
            return found
        results = [Array(dtype, view.copy()) for view, dtype in views]
        for whole, places in around:
            whole[places] = whole.flat[0] if whole.ndim else 0
            if whole.ndim and not (whole == whole.flat[0]).all():
                self.find(f"{where}: a run has written beside its output")
        return results


def graph_of(
    inputs: list[dict[str, Any]], nodes: list[dict[str, Any]], outputs: list[str], **more: Any
) -> dict[str, Any]:
    return {"inputs": inputs, "nodes": nodes, "outputs": outputs, **more}
