"""What all blocks have in common."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.networks.wiring.declaration import BlockSpec


class Block(Module):
    """One block of a wiring: (B, T, :attr:`input_dims`) to (B, T, :attr:`output_dims`).

    Attributes:
        stateful: whether it has a state between calls, a layer cache of mlx-lm's.
        input_dims: values per position that it takes; None if it takes tokens (B, T).
        output_dims: values per position that it gives.
    """

    stateful = False
    input_dims: int | None
    output_dims: int

    def __init__(self, input_dims: int | None, output_dims: int) -> None:
        super().__init__()
        self.input_dims = input_dims
        self.output_dims = output_dims

    @classmethod
    def borrowed(cls, spec: BlockSpec) -> tuple[str, ...]:
        """Return the names of the embeddings that calls are given behind the state."""
        return ()

    def make_state(self) -> Any:
        """Return a fresh state, if the block is stateful."""
        return None

    if TYPE_CHECKING:

        def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
            """Map what arrives, and update the state in place."""
