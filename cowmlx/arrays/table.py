"""What the engine sees of the open arrays, which C keeps: the interface that the bridge implements.

An array is opened by a host, of memory that C holds, or by the engine, of a value. Its elements
come to the engine when they are first needed.
"""

from __future__ import annotations

from cowmlx import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    import mlx.core as mx

    from cowmlx.errors import CowMlxError

    class Adopt(Protocol):
        """Makes values of memory that is not copied."""

        def __call__(
            self, address: int, room: int, let_go: int, shape: tuple[int, ...], dtype: int
        ) -> mx.array | None:
            """Return a value; None if the elements would have to be copied.

            Args:
                address: of the elements, row-major, behind 32 bytes that may be written.
                room: bytes from there on.
                let_go: address of the function that takes the first, once nothing needs it.
                shape: sizes.
                dtype: one of ``DTYPES``'s values.
            """

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

        def set_value(self, value: mx.array | Submitted, is_computed: bool) -> None:
            """Have another value for it.

            Args:
                value: of its dtype and shape.
                is_computed: whether it is evaluated and row-major, so that hosts may have its
                    elements.
            """

        def adopted(self, make: Adopt) -> mx.array | None:
            """Return a value whose elements are C's own, which it has from now on.

            Args:
                make: makes it.

            Returns:
                None if that cannot be: the elements are not C's, or others have them for good.
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

        def bound_memory(self, limit: int, others: int) -> None:
            """Let C's memory, and ``others`` bytes beside it, be at most ``limit`` bytes."""

        def memory_in_use(self) -> int:
            """Return the bytes of C's memory that is held, and of the others."""

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

    def bound_memory(self, limit: int, others: int) -> None:
        """Change nothing."""

    def memory_in_use(self) -> int:
        """Return 0."""
        return 0

    def add_memory(self, memory: Memory, dtype: int, shape: tuple[int, ...]) -> int:
        """Return 0."""
        return 0

    def close(self, handle: int) -> bool:
        """Return False."""
        return False

    def take(self, handle: int) -> Held | None:
        """Return None."""
        return None


class Submitted:
    """What stands for a value to come; whoever computes it settles it once.

    Until then that takes turns in the scheduler, between which waiting calls look at the clock.

    Attributes:
        value: the array, once it is there.
        error: why it will never be there.
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
            CowMlxError: why it will never be there.
        """
        if self.value is not None:
            return self.value
        if self.error is None:
            raise RuntimeError("the value is asked for before it is there")
        raise failures.kept(self.error)  # a copy for everybody who asks

    def succeed(self, value: mx.array) -> None:
        """Give it its value: evaluated, row-major, of its handle's dtype and shape."""
        if not self.is_settled:
            self.value = value

    def fail(self, error: BaseException) -> None:
        """Give it the run's error instead."""
        if not self.is_settled:
            self.error = failures.kept(error)
