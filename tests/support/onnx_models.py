"""Small ONNX networks, and ONNX's own cases, for tests of the importer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cowmlx.errors import CowMlxError, Unsupported
from cowmlx.programs.importing import onnx_file
from cowmlx.programs.importing.onnx_tensors import DTYPES
from cowmlx.programs.importing.values import to_mlx, to_numpy
from cowmlx.programs.program import Program
from cowmlx.steps import finished

OPSET = 21


def info(name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> Any:
    """Declare a tensor."""
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, array: np.ndarray) -> Any:
    """Return an initializer."""
    return numpy_helper.from_array(array, name)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Sequence[Any] = (),
    opset: int = OPSET,
) -> Any:
    """Return a network."""
    graph = helper.make_graph(nodes, "network", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def saved(made: Any, folder: Path, name: str = "network.onnx") -> Path:
    """Write a network to a file, and return its path."""
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


def program_of(made: Any, folder: str = "/nowhere", **fixed: Any) -> Program:
    """Return the program of a network."""
    imported = finished(onnx_file.model_steps(made, folder, fixed))
    values = finished(imported.arrays_steps())
    return finished(Program.of_entry_steps(imported.entry, values))


def run(program: Program, **inputs: np.ndarray) -> list[np.ndarray]:
    """Run a program with the values of its file; return its results."""
    given = [
        to_mlx(np.asarray(inputs[each.name])) if each.value is None else each.value
        for each in program.inputs
    ]
    return [to_numpy(result) for result in program.run(given).finish()]


def computed(
    node: Any, given: dict[str, np.ndarray], weights: dict[str, Any], opset: int = OPSET
) -> Any:
    """Return the result "y" of one node, of inputs and of weights or tensors of the file."""
    inputs = [
        info(name, list(array.shape), helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in given.items()
    ]
    tensors = [
        array if isinstance(array, TensorProto) else weight(name, np.asarray(array))
        for name, array in weights.items()
    ]
    return run(program_of(model([node], inputs, [info("y", [])], tensors, opset)), **given)[0]


def turns(made: Any) -> int:
    """Return how many turns the import of a network takes."""
    return sum(1 for _ in onnx_file.model_steps(made, "/nowhere", {}))


class Case:
    """One of ONNX's own cases.

    Args:
        found: as ``onnx.backend.test.loader`` has it.
    """

    def __init__(self, found: Any) -> None:
        self.name: str = found.name.removeprefix("test_")
        self.model = found.model
        self.rtol: float = found.rtol
        self.atol: float = max(found.atol, 1e-6)
        inputs, outputs = found.data_sets[0]
        self.inputs = dict(zip([v.name for v in self.model.graph.input], inputs, strict=False))
        self.outputs = outputs

    @property
    def is_ours(self) -> bool:
        """Whether all that it takes and gives are tensors of dtypes of the library."""
        kinds = [value.type for value in (*self.model.graph.input, *self.model.graph.output)]
        return all(
            kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.elem_type in DTYPES
            for kind in kinds
        )

    def outcome(self) -> str:
        """Import and run it; "" if the results are those expected, else the reason."""
        inputs = {name: _array(value) for name, value in self.inputs.items()}
        fixed: dict[str, Any] = {}
        while True:
            try:
                program = program_of(self.model, **fixed)
                return self._difference(run(program, **inputs))
            except Unsupported as error:
                # Shapes depend on the value of an input, which a host would fix.
                free = [n for n, a in inputs.items() if n not in fixed and a.dtype.kind in "biuf"]
                if "fix that input" not in str(error) or not free:
                    return f"refused: {error}"
                named = [name for name in free if f"({name})" in str(error)]
                whole = [name for name in free if inputs[name].dtype.kind in "bi"]
                name = (named or whole or free)[0]
                fixed[name] = inputs[name].tolist()
            except CowMlxError as error:
                return f"refused: {error}"

    def _difference(self, results: list[np.ndarray]) -> str:
        for result, value in zip(results, self.outputs, strict=False):
            wanted = _array(value)
            if (str(result.dtype), result.shape) != (str(wanted.dtype), wanted.shape):
                return f"differs: {result.dtype}{result.shape}, not {wanted.dtype}{wanted.shape}"
            kind = complex if wanted.dtype.kind == "c" else float
            a, b = result.astype(kind), wanted.astype(kind)
            if not np.allclose(a, b, self.rtol, self.atol, equal_nan=True):
                return f"differs: by {np.abs(a - b).max()}"
        return ""


def _array(value: Any) -> np.ndarray:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)


def cases() -> Iterator[Case]:
    """ONNX's cases of single operators, and of their definitions, of our dtypes."""
    from onnx.backend.test import loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    for each in found:
        inputs, outputs = each.data_sets[0]
        if any(isinstance(value, list | dict) or value is None for value in (*inputs, *outputs)):
            continue
        case = Case(each)
        if case.is_ours:
            yield case
