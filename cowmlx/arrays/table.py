"""The open arrays, which C keeps: the interface of the bridge, and values that are still to come.

A host opens an array of memory that C holds, the engine one of a value. The engine takes the
elements of the former when it first needs them.
"""

from __future__ import annotations

from cowmlx import failures
from cowmlx.errors import OutOfMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    import mlx.core as mx

    from cowmlx.errors import CowMlxError

    class Adopt(Protocol):
        """Makes a value of memory without a copy."""

        def __call__(
            self, address: int, room: int, let_go: int, shape: tuple[int, ...], dtype: int
        ) -> tuple[mx.array, bool] | None:
            """Return the value, and whether mlx counts its bytes; None if only a copy can be one.

            Args:
                address: of the row-major elements, behind 32 writable bytes.
                room: bytes from there on.
                let_go: address of the function that frees the first address, called at the end.
                shape: sizes.
                dtype: one of ``DTYPES``'s values.
            """

    class Held(Protocol):
        """A reference to an array, which outlives its handle."""

        @property
        def handle(self) -> int:
            """The handle of which it was taken; 0: none."""

        @property
        def dtype(self) -> int:
            """One of ``DTYPES``'s values."""

        @property
        def shape(self) -> tuple[int, ...]:
            """Its sizes."""

        @property
        def is_computed(self) -> bool:
            """Whether hosts can read the elements without the engine."""

        @property
        def value(self) -> mx.array | Submitted | None:
            """The engine's value; None if there is only C's memory."""

        def memory(self) -> memoryview:
            """Return the row-major elements as bytes; only if they are computed."""

        def set_value(self, value: mx.array | Submitted, is_computed: bool) -> None:
            """Replace the value.

            Args:
                value: of its dtype and shape.
                is_computed: whether it is evaluated and row-major, so that hosts may read it.
            """

        def adopted(self, make: Adopt) -> mx.array | None:
            """Set and return a value that shares C's memory.

            Args:
                make: makes it.

            Returns:
                None if the elements are not in C's memory, or are exported for good.
            """

    class Memory(Protocol):
        """Memory of C that no array has yet."""

        def bytes(self) -> memoryview:
            """Return it to be written, before an array has it."""

    Types = list[tuple[int, tuple[int, ...]]]

    class Launch(Protocol):
        """What repeats a computation: see :meth:`ArrayTable.launch`. Only the bridge asks it."""

    class ArrayTable(Protocol):
        """The open arrays."""

        def start(self, has_float64: bool) -> None:
            """Let hosts open arrays, of float64 if the device has it."""

        def stop(self) -> None:
            """Close every array; let hosts open no more."""

        def count(self) -> int:
            """Return how many are open."""

        def add(
            self,
            value: mx.array | Submitted,
            dtype: int,
            shape: tuple[int, ...],
            is_computed: bool = False,
        ) -> int:
            """Open an array of a value; 0 if no handle is left.

            Args:
                value: the value.
                dtype: one of ``DTYPES``'s values.
                shape: sizes.
                is_computed: whether it is evaluated; hosts may read it then if it is row-major.
            """

        def hold(
            self,
            value: mx.array | Submitted,
            dtype: int,
            shape: tuple[int, ...],
            is_computed: bool,
        ) -> Held:
            """Make an array of a value, without a handle; arguments as of :meth:`add`."""

        def memory(self, size: int) -> Memory | None:
            """Allocate C's memory; None if there is too little."""

        def trim(self) -> None:
            """Free the memory that C keeps for new arrays."""

        def bound_memory(self, limit: int, others: int) -> None:
            """Bound C's memory and ``others`` bytes together by ``limit`` bytes."""

        def memory_in_use(self) -> int:
            """Return the bytes of C's memory and of the others."""

        def add_memory(self, memory: Memory, dtype: int, shape: tuple[int, ...]) -> int:
            """Open an array that owns memory; 0 if no handle is left."""

        def close(self, handle: int) -> bool:
            """Close an array; false if it is not open."""

        def launch(
            self,
            compute: Callable[[list[mx.array | int]], list[mx.array] | None],
            order: list[mx.array | int],
            inputs: Types,
            outputs: Types,
            size: int,
            what: str,
        ) -> Launch:
            """Return what repeats a computation without the engine.

            Args:
                compute: returns computed, row-major results of arrays, and of addresses of
                    elements; None if it cannot.
                order: what it takes: indices of inputs, and arrays.
                inputs: dtypes and shapes of the host's.
                outputs: dtypes and shapes of the results.
                size: bytes of memory that it needs.
                what: its name in messages.
            """

        def take(self, handle: int) -> Held | None:
            """Return the array of a handle; None if it is not open."""


class Submitted:
    """Stands for a value to come, which its computation settles once.

    Until then the computation takes turns in the scheduler, and waiting calls look at the clock.

    Attributes:
        value: the array, once it is computed.
        error: why it cannot be.
    """

    __slots__ = ("error", "value")

    def __init__(self) -> None:
        self.value: mx.array | None = None
        self.error: CowMlxError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it has a value or an error."""
        return self.value is not None or self.error is not None

    def get(self) -> mx.array:
        """Return the value; only if it is settled.

        Raises:
            CowMlxError: the error of the computation.
        """
        if self.value is not None:
            return self.value
        if self.error is None:
            raise RuntimeError("the value is not settled")
        raise failures.kept(self.error)  # a copy for each caller

    def succeed(self, value: mx.array) -> None:
        """Settle the value: evaluated, row-major, of its handle's dtype and shape."""
        if not self.is_settled:
            self.value = value

    def fail(self, error: BaseException) -> None:
        """Settle the error."""
        if not self.is_settled:
            self.error = failures.kept(error)


def no_handles(table: ArrayTable) -> OutOfMemory:
    """Return the error of an array for which no handle is left."""
    return OutOfMemory(
        f"no array can be opened: there is too little memory, or {table.count()} are open, the "
        "maximum",
        reason="no_handles",
        kind="array",
        limit=table.count(),
    )
