"""Values of PyTorch's pickles. The opcodes are read as data: nothing is imported or called.

Only the opcodes that PyTorch writes are known. A function that a pickle names is compared with a
few names, and stands for no more than a value here.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

_MOST = 1 << 23  # bytes of a pickle; a tensor takes some 150
_LONGEST = 1 << 10  # characters of a name
_MOST_AXES = 16  # of a tensor
_ORDERED = "collections OrderedDict"
_TENSORS = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor")
_PARAMETER = "torch._utils _rebuild_parameter"
_MARK = object()


class Odd(ValueError):
    """A pickle is none that is read here; says why."""


class Name(NamedTuple):
    """What a pickle wants to import.

    Attributes:
        text: the module and the name in it.
    """

    text: str


class Stored(NamedTuple):
    """Something outside of the pickle.

    Attributes:
        parts: what names it.
    """

    parts: tuple[Any, ...]


class Tensor(NamedTuple):
    """A tensor.

    Attributes:
        storage: that holds its numbers.
        begin: of the first of them there.
        shape: of the tensor.
        strides: of its axes, in numbers.
    """

    storage: Stored
    begin: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(file: BinaryIO) -> Any:
    """Return the value of the pickle that begins where a file stands; it then stands behind it.

    Raises:
        Odd: it has an opcode, a name or a value that is not known, or is too long.
    """
    return _Machine(file).run()


class _Machine:
    """Runs the opcodes of one pickle on a stack."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _MOST
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            code = self.take(1)
            if code == b".":
                return self._pop()
            step = _STEPS.get(code)
            if step is None:
                raise Odd(f"its pickle has the opcode {code!r}, which is not read")
            step(self)

    def take(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            raise Odd(f"its pickle has more than {_MOST} bytes")
        data = self._file.read(count)
        if len(data) != count:
            raise Odd("its pickle ends too early")
        return data

    def number(self, format: str) -> Any:
        return struct.unpack(f"<{format}", self.take(struct.calcsize(format)))[0]

    def text(self, format: str) -> str:
        return self._decoded(self.take(self.number(format)))

    def line(self) -> str:
        line = self._file.readline(min(self._left, _LONGEST))
        self._left -= len(line)
        if not line.endswith(b"\n"):
            raise Odd("its pickle has a name without an end")
        return self._decoded(line[:-1])

    @staticmethod
    def _decoded(data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Odd("its pickle has a text that is not UTF-8") from None

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise Odd("its pickle takes more values than it has")
        return self._stack.pop()

    def popped(self, count: int) -> list[Any]:
        return [self._pop() for _ in range(count)][::-1]

    def marked(self) -> list[Any]:
        values: list[Any] = []
        while self._stack:
            value = self._stack.pop()
            if value is _MARK:
                return values[::-1]
            values.append(value)
        raise Odd("its pickle takes more values than it has")

    def top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise Odd(f"its pickle fills something that is no {kind.__name__}")
        return self._stack[-1]

    def keep(self, index: int) -> None:
        self._memo[index] = self.top(object)

    def memoize(self) -> None:
        self.keep(len(self._memo))

    def get(self, index: int) -> None:
        if index not in self._memo:
            raise Odd("its pickle uses a value that it does not have")
        self.push(self._memo[index])

    def extend(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def put(self, values: list[Any]) -> None:
        items: Any = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=False):
            if not isinstance(key, (str, int)):
                raise Odd("its pickle has a key that is neither text nor number")
            items[key] = value

    def reduce(self) -> None:
        name, given = self.popped(2)
        self.push(_made(name, given))

    def named(self) -> None:
        parts = self.popped(2)
        # Tuples of a tuple twice, of such tuples twice and so on would be an endless text.
        if not all(isinstance(part, str) and len(part) <= _LONGEST for part in parts):
            raise Odd("its pickle imports something by no name, or by a long one")
        self.push(Name(" ".join(parts)))

    def persistent(self) -> None:
        (parts,) = self.popped(1)
        if not isinstance(parts, tuple):
            raise Odd("its pickle names a storage by something else than a tuple")
        self.push(Stored(parts))

    def build(self) -> None:
        self.popped(1)  # attributes of a dictionary: versions of modules
        self.top(dict)


def _made(name: object, given: object) -> Any:
    """Return what a function would make of its arguments."""
    text = name.text if isinstance(name, Name) else type(name).__name__
    if isinstance(given, tuple):
        if text == _ORDERED and not given:
            return {}
        if text in _TENSORS and len(given) >= 4:
            storage, begin, shape, strides = given[:4]
            whole = isinstance(storage, Stored) and _are_sizes((begin,))
            if whole and _are_sizes(shape) and _are_sizes(strides):
                return Tensor(storage, begin, shape, strides)
            raise Odd("its pickle has a tensor of an odd form")
        if text == _PARAMETER and given and isinstance(given[0], Tensor):
            return given[0]
    raise Odd(f"its pickle calls {text[:80]!r}, which no weights need; nothing of it was run")


def _are_sizes(values: object) -> bool:
    """Whether values are those of a tensor's axes."""
    if not isinstance(values, tuple) or len(values) > _MOST_AXES:
        return False
    return all(type(n) is int and n >= 0 for n in values)


def _long(machine: _Machine) -> None:
    machine.push(int.from_bytes(machine.take(machine.number("B")), "little", signed=True))


_STEPS: dict[bytes, Callable[[_Machine], object]] = {
    b"\x80": lambda m: m.number("B"),  # the version of the protocol
    b"\x95": lambda m: m.number("Q"),  # the length of a frame
    b"(": lambda m: m.push(_MARK),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(m.number("i")),
    b"K": lambda m: m.push(m.number("B")),
    b"M": lambda m: m.push(m.number("H")),
    b"\x8a": _long,
    b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    b"X": lambda m: m.push(m.text("I")),
    b"\x8c": lambda m: m.push(m.text("B")),
    b"U": lambda m: m.push(m.text("B")),  # a text of Python 2
    b"}": lambda m: m.push({}),
    b"]": lambda m: m.push([]),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.marked())),
    b"\x85": lambda m: m.push(tuple(m.popped(1))),
    b"\x86": lambda m: m.push(tuple(m.popped(2))),
    b"\x87": lambda m: m.push(tuple(m.popped(3))),
    b"a": lambda m: m.extend(m.popped(1)),
    b"e": lambda m: m.extend(m.marked()),
    b"s": lambda m: m.put(m.popped(2)),
    b"u": lambda m: m.put(m.marked()),
    b"c": lambda m: m.push(Name(f"{m.line()} {m.line()}")),
    b"\x93": lambda m: m.named(),
    b"R": lambda m: m.reduce(),
    b"Q": lambda m: m.persistent(),
    b"b": lambda m: m.build(),
    b"q": lambda m: m.keep(m.number("B")),
    b"r": lambda m: m.keep(m.number("I")),
    b"\x94": lambda m: m.memoize(),
    b"h": lambda m: m.get(m.number("B")),
    b"j": lambda m: m.get(m.number("I")),
}
