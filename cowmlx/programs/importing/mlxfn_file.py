"""Files of ``mx.export_function`` as programs: what they hold, every length checked.

A file has one function or more: each is a list of arrays in the order in which they are computed,
with the primitive that computes them, its state, and what was captured as constants.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import Any, BinaryIO

from cowmlx.errors import BadFormat, InputOutput, InvalidArgument, Unsupported
from cowmlx.programs.bounds import MAX_DECLARED, MAX_FUNCTIONS, MAX_NAME, MAX_NODES, Pace, Steps
from cowmlx.programs.dimensions import MAX_DIMENSION, MAX_RANK
from cowmlx.programs.failure import shown
from cowmlx.programs.importing.mlxfn_node import PRIMITIVES
from cowmlx.programs.importing.mlxfn_primitives import REFUSED
from cowmlx.programs.operations.row import Spec

DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "bfloat16", "complex64"),
)
"""By mlx's numbers."""
SIZES = (1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8)
MAX_LIST = 1 << 16
"""Numbers of one list: a primitive's state, or the inputs of a node."""
MAX_HEADER = 1 << 20
"""Bytes of a text."""


@dataclass
class Entry:
    """A primitive with its inputs and results.

    Args:
        name: mlx's class.
        state: as :data:`cowmlx.programs.importing.mlxfn_node.PRIMITIVES` says.
        inputs: numbers of arrays.
        outputs: numbers of arrays.
        specs: what the file says of the results.
    """

    name: str
    state: list[Any]
    inputs: list[int]
    outputs: list[int]
    specs: list[Spec]


@dataclass
class Constant:
    """An array that the function has captured.

    Args:
        spec: its dtype and shape.
        offset: the first byte in the file.
        size: in bytes.
    """

    spec: Spec
    offset: int
    size: int


@dataclass
class Function:
    """One function of a file.

    Args:
        inputs: names, numbers of arrays, and what they are.
        outputs: numbers of arrays.
        entries: primitives in their order.
        constants: by their numbers.
        uses: how often each array is read, in the order of their first uses.
    """

    inputs: list[tuple[str, int, Spec]]
    outputs: list[int]
    entries: list[Entry] = field(default_factory=list)
    constants: dict[int, Constant] = field(default_factory=dict)
    uses: Counter[int] = field(default_factory=Counter)

    def __str__(self) -> str:
        return f"({', '.join(f'{name}: {spec}' for name, _, spec in self.inputs)})"


class Reader:
    """Reads numbers, lists and texts of a file, none beyond its end."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._at = 0

    def damaged(self, what: str) -> BadFormat:
        """Return the error for something that is wrong in the file."""
        return BadFormat(f"{self.path} is damaged: {what}", file=self.path)

    def take(self, count: int, what: str) -> bytes:
        """Read bytes."""
        if count > self._size - self._at:
            raise self.damaged(f"it ends within {what} at byte {self._at}")
        data = self._file.read(count)
        if len(data) != count:
            raise InputOutput(f"{self.path} has become shorter while it was read", file=self.path)
        self._at += count
        return data

    def skip(self, count: int, what: str) -> int:
        """Pass over bytes; returns where they begin."""
        begin = self._at
        if count > self._size - begin:
            raise self.damaged(f"{what} needs {count} bytes at byte {begin} of {self._size}")
        self._at += count
        self._file.seek(self._at)
        return begin

    def number(self, code: str, what: str) -> Any:
        """Read a number of a format of the module struct."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), what))[0]

    def flag(self, what: str) -> bool:
        """Read a bool."""
        value = self.take(1, what)[0]
        if value > 1:
            raise self.damaged(f"{what} is {value}, must be 0 or 1")
        return bool(value)

    def count(self, most: int, what: str) -> int:
        """Read how many follow."""
        count: int = self.number("Q", what)
        if count > most:
            raise self.damaged(f"{what} are {count}, must be {most} at most")
        return count

    def numbers(self, code: str, what: str, most: int = MAX_LIST) -> list[Any]:
        """Read a list of numbers."""
        count = self.count(most, what)
        data = self.take(count * struct.calcsize(f"<{code}"), what)
        return list(struct.unpack(f"<{count}{code}", data))

    def text(self, most: int, what: str) -> str:
        """Read a text."""
        return self.take(self.count(most, what), what).decode("utf-8", "replace")

    def dtype(self, what: str) -> str:
        """Read the name of a dtype."""
        number, size = self.number("i", what), self.take(1, what)[0]
        if not 0 <= number < len(DTYPES) or SIZES[number] != size:
            raise self.damaged(f"the dtype of {what} is {number} of {size} bytes")
        return DTYPES[number]

    def shape(self, what: str) -> tuple[int, ...]:
        """Read a shape."""
        shape = tuple(self.numbers("i", f"the shape of {what}", most=256))
        if len(shape) > MAX_RANK:
            raise Unsupported(f"{what} has {len(shape)} dimensions, arrays have at most {MAX_RANK}")
        if any(not 0 <= side <= MAX_DIMENSION for side in shape):
            raise self.damaged(f"{what} has the shape {list(shape)}, which no array has")
        return shape

    def spec(self, what: str) -> Spec:
        """Read a shape and a dtype."""
        shape = self.shape(what)
        return Spec(shape, self.dtype(what))

    def constant(self) -> Constant:
        """Read what a constant is, and pass over its elements."""
        shape = self.shape("a constant")
        dtype = self.dtype("a constant")
        size = prod(shape) * SIZES[DTYPES.index(dtype)]
        offset = self.skip(size, f"a constant of {dtype}{list(shape)}")
        return Constant(Spec(shape, dtype), offset, size)

    def state(self, codes: str, what: str) -> list[Any]:
        """Read the state of a primitive, by the codes of its parts."""
        return [self._part(code, what) for code in codes]

    def _part(self, code: str, what: str) -> Any:
        if code in "fdi":
            return self.number(code, what)
        if code == "b":
            return self.flag(what)
        if code == "t":
            return self.dtype(what)
        if code == "s":
            return self.text(MAX_NAME, what)
        if code == "N":
            return self.number("Q", what)
        return self.numbers({"I": "i", "L": "q", "Z": "Q"}[code], what)


def function_steps(reader: Reader, chosen: Any) -> Steps[Function]:
    """Return one function of a file, in steps.

    Args:
        reader: of the file, at its begin.
        chosen: which of several, from 0; None where there is one.

    Raises:
        InputOutput: the file cannot be read.
        BadFormat: it is damaged.
        InvalidArgument: it has no such function, or several where none is chosen.
        Unsupported: it needs what programs do not have; names the primitive.
    """
    reader.text(MAX_NAME, "mlx's version")
    count = reader.number("i", "the number of functions")
    if not 1 <= count <= MAX_FUNCTIONS:
        raise reader.damaged(f"it has {count} functions, must have 1 to {MAX_FUNCTIONS}")
    reader.flag("whether shapes are fixed")
    reader.skip(reader.count(MAX_HEADER, "bytes of metadata"), "metadata")
    constants: dict[int, Constant] = {}
    wanted = _chosen(chosen, count)
    heads, found = [], None
    pace = Pace()
    for at in range(count):
        function = _head(reader)
        heads.append(str(function))
        yield from _tape_steps(reader, function, constants, pace)
        if at == wanted:
            found = function
    if found is None:
        accepted = "; ".join(f"{at}: {head}" for at, head in enumerate(heads[:8]))
        raise InvalidArgument(
            f"{reader.path} has {count} functions: fixed must name one of them as "
            f'{{"function": number}}: {accepted}',
            reason="missing",
            argument="function",
            accepted=accepted,
        )
    return found


def _chosen(given: Any, count: int) -> int | None:
    if given is None:
        return 0 if count == 1 else None
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < count:
        raise InvalidArgument(
            f"fixed has the function {shown(given)}, must be a number from 0 to {count - 1}",
            argument="function",
            value=shown(given),
            accepted=f"0 to {count - 1}",
        )
    return given


def _head(reader: Reader) -> Function:
    """Read the inputs and outputs of a function."""
    names = [
        reader.text(MAX_NAME, "a keyword")
        for _ in range(reader.count(MAX_DECLARED, "keyword inputs"))
    ]
    numbers = reader.numbers("Q", "inputs", MAX_DECLARED)
    count = reader.count(MAX_DECLARED, "inputs")
    if count != len(numbers) or count < len(names):
        raise reader.damaged(f"{len(numbers)} inputs have {count} shapes and {len(names)} keywords")
    names = [f"input_{at}" for at in range(count - len(names))] + names
    specs = [reader.spec(f"input {shown(name)}") for name in names]
    outputs = reader.numbers("Q", "outputs", MAX_DECLARED)
    if not outputs:
        raise reader.damaged("a function has no outputs")
    return Function(list(zip(names, numbers, specs, strict=True)), outputs)


def _tape_steps(
    reader: Reader, function: Function, constants: dict[int, Constant], pace: Pace
) -> Steps[None]:
    """Read the arrays of a function in their order."""
    known = {number for _, number, _ in function.inputs}
    for _ in range(reader.count(MAX_NODES + MAX_DECLARED, "arrays")):
        yield from pace.rest()
        number = reader.number("Q", "an array")
        if reader.flag("whether an array is computed"):
            entry = _entry(reader, number)
            function.entries.append(entry)
            function.uses.update(entry.inputs)
            missing = [each for each in entry.inputs if each not in known]
            known.update(entry.outputs)
        elif reader.flag("whether an array is a constant"):
            if number not in constants:
                constants[number] = reader.constant()
            function.constants[number] = constants[number]
            known.add(number)
            continue
        else:
            missing = [] if number in known else [number]
        if missing:
            raise reader.damaged("an array is read before it is computed")
    if not known.issuperset(function.outputs):
        raise reader.damaged("an output is not computed")
    function.uses.update(function.outputs)


def _entry(reader: Reader, number: int) -> Entry:
    inputs = reader.numbers("Q", "the inputs of a primitive")
    for what in ("stream", "device", "device"):
        reader.number("i", what)
    name = reader.text(MAX_NAME, "the name of a primitive")
    if name not in PRIMITIVES:
        reason = REFUSED.get(name, "there is no operation for it")
        raise Unsupported(f"{reader.path} has the primitive {shown(name)}: {reason}", op=name[:64])
    state = reader.state(PRIMITIVES[name].codes, f"the state of {name}")
    what = f"a result of {name}"
    if not reader.count(MAX_LIST, "results"):
        return Entry(name, state, inputs, [number], [reader.spec(what)])
    outputs = reader.numbers("Q", "results")
    shapes = [reader.shape(what) for _ in range(reader.count(MAX_LIST, "shapes"))]
    dtypes = [reader.dtype(what) for _ in range(reader.count(MAX_LIST, "dtypes"))]
    if not len(outputs) == len(shapes) == len(dtypes):
        raise reader.damaged(
            f"{name} has {len(outputs)} results, {len(shapes)} shapes and {len(dtypes)} dtypes"
        )
    specs = [Spec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return Entry(name, state, inputs, outputs, specs)
