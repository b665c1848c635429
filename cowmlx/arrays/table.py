"""What the engine sees of the open arrays, which C keeps: the interface that the bridge implements.

An array is opened by a host, of memory that C holds, or by the engine, of a value. Its elements
come to the engine when they are first needed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    import mlx.core as mx

    from cowmlx.arrays.submitted import Submitted

    class Held(Protocol):
        """An array that stays while somebody has this, whatever becomes of its handle."""

        @property
        def handle(self) -> int:
            """The handle that it was given by; 0: by none."""

        @property
        def dtype(self) -> int:
            """One of ``DTYPES``'s values."""

        @property
        def shape(self) -> tuple[int, ...]:
            """Its sizes."""

        @property
        def is_computed(self) -> bool:
            """Whether hosts can have the elements without the engine."""

        @property
        def value(self) -> mx.array | Submitted | None:
            """What the engine has for it; None if it is only memory of C's."""

        def memory(self) -> memoryview:
            """Return the elements, row-major, as bytes; only if they are computed."""

        def set_value(self, value: mx.array, is_computed: bool) -> None:
            """Have another value for it.

            Args:
                value: of its dtype and shape.
                is_computed: whether it is evaluated and row-major, so that hosts may have its
                    elements.
            """

    class Memory(Protocol):
        """Memory of C's that no array has yet."""

        def bytes(self) -> memoryview:
            """Return it, to be written; not once an array has it."""

    class ArrayTable(Protocol):
        """The open arrays."""

        def start(self, has_float64: bool) -> None:
            """Let hosts open arrays; of float64, too, where the device has it."""

        def stop(self) -> None:
            """Close every array; let hosts open no more."""

        def count(self) -> int:
            """Return how many are open."""

        def add(self, value: mx.array | Submitted, dtype: int, shape: tuple[int, ...]) -> int:
            """Open an array of a value; 0 if there is no handle for it."""

        def hold(self, value: mx.array | Submitted, dtype: int, shape: tuple[int, ...]) -> Held:
            """Hold an array of a value, which has no handle."""

        def memory(self, size: int) -> Memory | None:
            """Return so many bytes of C's memory; None if there are fewer."""

        def trim(self) -> None:
            """Give back memory that C keeps for arrays to come."""

        def add_memory(self, memory: Memory, dtype: int, shape: tuple[int, ...]) -> int:
            """Open an array of memory, which it takes over; 0 if there is no handle for it."""

        def close(self, handle: int) -> bool:
            """Close an array; false if it is not open."""

        def take(self, handle: int) -> Held | None:
            """Hold the array of a handle; None if it is not open."""


class ClosedTable:
    """A table without arrays."""

    def start(self, has_float64: bool) -> None:
        """Change nothing."""

    def stop(self) -> None:
        """Change nothing."""

    def count(self) -> int:
        """Return 0."""
        return 0

    def add(self, value: mx.array | Submitted, dtype: int, shape: tuple[int, ...]) -> int:
        """Return 0."""
        return 0

    def hold(self, value: mx.array | Submitted, dtype: int, shape: tuple[int, ...]) -> Held:
        """Have no memory for it."""
        raise MemoryError

    def memory(self, size: int) -> Memory | None:
        """Return None."""
        return None

    def trim(self) -> None:
        """Change nothing."""

    def add_memory(self, memory: Memory, dtype: int, shape: tuple[int, ...]) -> int:
        """Return 0."""
        return 0

    def close(self, handle: int) -> bool:
        """Return False."""
        return False

    def take(self, handle: int) -> Held | None:
        """Return None."""
        return None
