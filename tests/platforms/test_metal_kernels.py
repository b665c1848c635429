"""The kernels that operations take on Apple's GPUs, by the names in mlx's library of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import mlx.core as mx
import pytest
from support import registries
from support.paths import ROOT

from cowmlx.programs.operations import ROWS, devices
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import arrays_of
from cowmlx.programs.operations.row import Operation, OperationError
from cowmlx.programs.operations.rules import described, mlx_dtype, name_of

pytestmark = pytest.mark.long

DTYPES = (
    "bool",
    "uint8",
    "int16",
    "int32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "complex64",
)
ORDERS = ("ArgPartition", "ArgSort", "Partition", "Sort")
SCATTER_SUM = 2  # mlx's Scatter::Sum
COMMON = ("float32", "int32", "bool_")
"""Of which each function of elements has a kernel."""
UNARY, BINARY = "v2_{}{}{}", "vv2_{}{}"
"""Names of kernels: of a primitive and its inputs' dtype, and the result's."""


class Gpu:
    """A Mac's default device."""

    type = mx.gpu


@pytest.fixture(scope="module")
def kernels() -> set[str]:
    """The names in mlx's library for Metal."""
    text = (ROOT / "tools/requirements/constraints.txt").read_text()
    (version,) = re.findall(r"^mlx==(\S+)", text, re.MULTILINE)
    (path,) = registries.wheel("mlx-metal", version, "*.metallib", "macosx_14_0_arm64")
    names = re.findall(rb"(?<=NAME..)[A-Za-z0-9_]+(?=\0)", path.read_bytes(), re.DOTALL)
    return {name.decode() for name in names}


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace as for a GPU; what is computed on the CPU instead leaves no trace."""

    def elsewhere(function: Callable[..., mx.array], *arrays: mx.array) -> mx.array:
        found = function(*arrays)
        return mx.zeros(found.shape, found.dtype)

    monkeypatch.setattr(mx, "default_device", Gpu)
    monkeypatch.setattr(devices, "on_cpu", elsewhere)


def traced(
    function: Callable[..., Any], given: Sequence[mx.array]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield each primitive of a function with the dtypes of its inputs and outputs."""
    steps: list[dict[str, Any]] = []
    try:
        mx.export_function(steps.append, function, *given)
    except ValueError as error:  # some primitives cannot be exported
        assert "Unable to get state" in str(error)
    for step in steps:
        if step["type"] == "primitive":
            ways = (step["inputs"], step["outputs"])
            inputs, outputs = ([name_of(each[2]) for each in way] for way in ways)
            is_sum = step["name"] == "Scatter" and step["arguments"][0] == SCATTER_SUM
            yield "ScatterSum" if is_sum else step["name"], inputs, outputs


def named(dtype: str) -> str:
    """Return a dtype as kernels are named."""
    return "bool_" if dtype == "bool" else dtype


def is_there(kernels: set[str], name: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
    """Return whether a GPU has the kernel of a primitive, as far as its name tells."""
    if name in ORDERS:
        return inputs[0] != "bool"
    if name in ("Scatter", "ScatterSum"):
        is_complex_sum = name == "ScatterSum" and outputs[0] == "complex64"
        return is_complex_sum or mlx_dtype(outputs[0]).size < 8
    if not inputs or (name == "Round" and inputs[0] not in ("float16", "float32")):
        return True  # integers are given back
    first, result = named(inputs[0]), named(outputs[0])
    own = {UNARY.format(name, first, result), BINARY.format(name, first)}
    if name == "Select":
        own = {BINARY.format(name, result).removeprefix("v")}
    common = [(UNARY.format(name, each, each), BINARY.format(name, each)) for each in COMMON]
    return bool(own & kernels) or not kernels & set(chain(*common))


def cases(row: Operation, dtype: str) -> Iterator[tuple[Callable[..., Any], list[mx.array]]]:
    """Yield a row's function for each of its examples in a dtype that it takes."""
    for example in row.examples:
        given = [
            each if each is None or each.dtype != mx.float32 else each.astype(mlx_dtype(dtype))
            for each in arrays_of(example)
        ]
        kinds = [each.name for each in row.attributes if each.kind == "dtype"]
        try:
            attributes = attributes_of(row, {**example.attributes, **dict.fromkeys(kinds, dtype)})
            row.infer(
                row.arranged([None if each is None else described(each) for each in given]),
                attributes,
            )
        except OperationError:
            continue

        def function(*real: mx.array, given: Any = given, attributes: Any = attributes) -> Any:
            rest = iter(real)
            whole = [None if each is None else next(rest) for each in given]
            return row.compute(row.arranged(whole), attributes)

        yield function, [each for each in given if each is not None]


def test_every_operation_has_kernels_for_what_it_takes(kernels, on_a_mac):
    lacking, taken = set(), 0
    for row in ROWS:
        for dtype in DTYPES if not row.cpu_only else ():
            for function, given in cases(row, dtype):
                for primitive in traced(function, given):
                    taken += 1
                    if not is_there(kernels, *primitive):
                        lacking.add((row.name, dtype, primitive[0]))
    assert taken > 1000
    assert lacking == set()
