"""The layer of a tower whose patches attend to all others: attention and an MLP in turns."""

from __future__ import annotations

from abc import ABC, abstractmethod

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx.networks.encoders.layers import Attend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cowmlx.vision.turns import Turns


class TowerLayer(Module, ABC):
    """Adds attention, then an MLP, to its input. Subclasses have the norms and the matrices.

    Args:
        dims: width of the layer.
        heads: of the attention.
        mlp_work: multiplications of the MLP for each patch.
    """

    def __init__(self, dims: int, heads: int, mlp_work: int) -> None:
        super().__init__()
        self.heads = heads
        self.attend = Attend((dims // heads) ** -0.5)
        self._mlp_work = mlp_work

    @abstractmethod
    def projections(self, x: mx.array) -> list[mx.array]:
        """Return the queries, keys and values of patches, (N, D) each."""

    @abstractmethod
    def output(self, x: mx.array) -> mx.array:
        """Return the output projection of attended values (N, D)."""

    @abstractmethod
    def mlp(self, x: mx.array) -> mx.array:
        """Return the MLP's result (N, D) for patches."""

    def steps(
        self,
        x: mx.array,
        turns: Turns,
        rotate: Callable[[mx.array, slice], mx.array] | None = None,
    ) -> Generator[None, None, mx.array]:
        """Return the layer's result for (N, D), yielding between bounded parts.

        Args:
            x: the patches.
            turns: of the work.
            rotate: applies rotary positions to queries or keys (N, H, head) of a slice of patches.
        """
        count, dims = x.shape

        def projected(part: slice) -> list[mx.array]:
            own = [each.reshape(len(each), self.heads, -1) for each in self.projections(x[part])]
            return own if rotate is None else [rotate(own[0], part), rotate(own[1], part), own[2]]

        made = yield from turns.joined_all(projected, count, 3 * dims * dims)
        q, k, v = (own[None].transpose(0, 2, 1, 3) for own in made)

        def attended(part: slice) -> mx.array:
            values = self.attend(q[:, :, part], k, v).transpose(0, 2, 1, 3)
            return x[part] + self.output(values.reshape(-1, dims))

        y = yield from turns.joined(attended, count, 2 * count * dims + dims * dims)
        return (
            yield from turns.joined(lambda part: y[part] + self.mlp(y[part]), count, self._mlp_work)
        )
