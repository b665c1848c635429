"""The vision towers of Qwen's models, over images of any size.

Qwen2-VL (arXiv 2409.12191), Qwen2.5-VL (arXiv 2502.13923, with attention in windows) and Qwen3-VL
(arXiv 2511.21631, with Deepstack and learned positions that are interpolated). Patches turn by
their row and column. Squares of them are merged to a position of the text's network.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm, RMSNorm

from cowmlx.networks.encoders.layers import Activation, Attend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from cowmlx.vision.turns import Turns

    Grid = tuple[int, int]

EPS = 1e-6
_BASE = 10_000.0  # of the angles' geometric series
_QUICK = 1.702  # of "quick_gelu": x sigmoid(1.702 x)


class QwenTowerOptions(NamedTuple):
    """The sizes of a tower.

    Attributes:
        dims, layers, heads, mlp: of its layers.
        patch: pixels of a patch's side.
        merge: patches of a side that become one position.
        frames: of a patch: an image is repeated so often.
        out: numbers of a row of the text's network.
        activation: of the MLPs.
        gated: whether the MLPs are, and norms are RMS norms.
        bias: whether patches are embedded with a bias.
        window: merged positions of a window's side; 0: all attend to all.
        full: the layers that attend to all beside windows.
        side: learned positions of a side; 0: none.
        stacked: the layers whose features go to the first layers of the text's network.
    """

    dims: int
    layers: int
    heads: int
    mlp: int
    patch: int
    merge: int
    frames: int
    out: int
    activation: str
    gated: bool = False
    bias: bool = False
    window: int = 0
    full: tuple[int, ...] = ()
    side: int = 0
    stacked: tuple[int, ...] = ()


class Places:
    """Where the patches of an image lie: squares to be merged together, windows together.

    Args:
        options: of the tower.
        grid: rows and columns of patches.

    Attributes:
        grid: the same.
        windows: how many neighbouring windows have a number of patches, and this.
    """

    def __init__(self, options: QwenTowerOptions, grid: Grid) -> None:
        self.grid = grid
        self._merge = options.merge
        rows, columns = (side // options.merge for side in grid)
        self.windows: list[tuple[int, int]] = []
        self._order: mx.array | None = None
        if options.window:
            self._set_windows(rows, columns, options.window)
        heights, widths = (mx.arange(side) for side in grid)
        self._rows = self.ordered(mx.broadcast_to(heights[:, None], grid)[..., None])[:, 0]
        self._columns = self.ordered(mx.broadcast_to(widths[None], grid)[..., None])[:, 0]

    def _set_windows(self, rows: int, columns: int, size: int) -> None:
        """Put windows of equal size behind each other; those at the edges are smaller."""
        found: dict[int, list[list[int]]] = {}
        for top in range(0, rows, size):
            for left in range(0, columns, size):
                window = [
                    row * columns + column
                    for row in range(top, min(top + size, rows))
                    for column in range(left, min(left + size, columns))
                ]
                found.setdefault(len(window), []).append(window)
        self._order = mx.array([at for own in found.values() for each in own for at in each])
        each = self._merge**2
        self.windows = [(len(own), count * each) for count, own in found.items()]

    def ordered(self, x: mx.array) -> mx.array:
        """Return what patches (rows, columns, D) have as (N, D), squares behind each other."""
        rows, columns = self.grid
        merge, width = self._merge, x.shape[-1]
        split = x.reshape(rows // merge, merge, columns // merge, merge, width)
        squares = split.transpose(0, 2, 1, 3, 4).reshape(-1, merge * merge, width)
        chosen = squares if self._order is None else squares[self._order]
        return chosen.reshape(-1, width)

    def restored(self, merged: mx.array) -> mx.array:
        """Return merged positions (N, D) in the order of rows and columns."""
        return merged if self._order is None else merged[mx.argsort(self._order)]

    def angles(self, dims: int) -> tuple[mx.array, mx.array]:
        """Return cosines and sines (N, dims / 2): half of them turn by rows, half by columns."""
        quarter = dims // 4
        steps = mx.arange(0, quarter, dtype=mx.float32) / quarter
        frequencies = mx.power(mx.array(_BASE), -steps)
        places = mx.stack([self._rows, self._columns], axis=1).astype(mx.float32)
        angles = (places[..., None] * frequencies).reshape(-1, 2 * quarter)
        return mx.cos(angles), mx.sin(angles)

    def interpolated(self, table: Embedding, side: int, part: slice) -> mx.array:
        """Return learned positions of some patches: those of a square grid, between its corners.

        Args:
            table: of the positions (side², D).
            side: of the square.
            part: which patches.
        """
        taps = []
        for places, count in ((self._rows, self.grid[0]), (self._columns, self.grid[1])):
            at = places[part].astype(mx.float32) * ((side - 1) / max(count - 1, 1))
            first = mx.floor(at)
            weight = at - first
            below = first.astype(mx.int32)
            above = mx.minimum(below + 1, side - 1)
            taps.append(((below, 1 - weight), (above, weight)))
        total = mx.zeros(())
        for row, by_row in taps[0]:
            for column, by_column in taps[1]:
                own = table(row * side + column).astype(mx.float32)
                total = total + own * (by_row * by_column)[:, None]
        return total


class QwenLayer(Module):
    """Attention and an MLP, each behind a norm.

    Args:
        options: of the tower.
    """

    def __init__(self, options: QwenTowerOptions) -> None:
        super().__init__()
        dims, mlp = options.dims, options.mlp
        self.heads = options.heads
        norm = RMSNorm if options.gated else LayerNorm
        self.norm1, self.norm2 = norm(dims, EPS), norm(dims, EPS)
        self.qkv, self.proj = Linear(dims, 3 * dims), Linear(dims, dims)
        self.attend = Attend((dims // options.heads) ** -0.5)
        self.linear_fc1, self.linear_fc2 = Linear(dims, mlp), Linear(mlp, dims)
        self.gated = options.gated
        if self.gated:
            self.gate_proj = Linear(dims, mlp)
        self.quick = options.activation == "quick_gelu"
        if not self.quick:
            self.activation = Activation(options.activation)
        self._mlp_work = (3 if self.gated else 2) * dims * mlp

    def steps(
        self,
        x: mx.array,
        angles: tuple[mx.array, mx.array],
        windows: list[tuple[int, int]],
        turns: Turns,
    ) -> Generator[None, None, mx.array]:
        """Return the layer's result for (N, D), yielding between bounded parts.

        Args:
            x: hidden states of patches.
            angles: cosines and sines of theirs.
            windows: numbers of windows, and patches of each.
            turns: of the work.
        """
        count, dims = x.shape
        q, k, v = yield from turns.joined_all(
            lambda part: self._projected(x[part], (angles[0][part], angles[1][part])),
            count,
            3 * dims * dims,
        )
        own = []
        begin = 0
        for number, size in windows:
            shape = number, size, self.heads, -1
            end = begin + number * size
            queries, keys, values = (
                each[begin:end].reshape(shape).transpose(0, 2, 1, 3) for each in (q, k, v)
            )
            own.append((yield from self._attended(queries, keys, values, turns)))
            begin = end
        attended = own[0] if len(own) == 1 else mx.concatenate(own)
        mx.eval(attended)
        yield
        added = yield from turns.joined(
            lambda part: x[part] + self.proj(attended[part]), count, dims * dims
        )
        return (
            yield from turns.joined(
                lambda part: added[part] + self._mlp(self.norm2(added[part])),
                count,
                self._mlp_work,
            )
        )

    def _projected(self, x: mx.array, angles: tuple[mx.array, mx.array]) -> list[mx.array]:
        q, k, v = mx.split(self.qkv(self.norm1(x)), 3, axis=-1)
        return [self._turned(q, angles), self._turned(k, angles), self._split(v)]

    def _split(self, x: mx.array) -> mx.array:
        return x.reshape(len(x), self.heads, -1)

    def _turned(self, x: mx.array, angles: tuple[mx.array, mx.array]) -> mx.array:
        """Return (N, heads, D) turned by angles (N, D / 2)."""
        cosines, sines = (own[:, None] for own in angles)
        first, second = mx.split(self._split(x).astype(mx.float32), 2, axis=-1)
        turned = [first * cosines - second * sines, second * cosines + first * sines]
        return mx.concatenate(turned, axis=-1).astype(x.dtype)

    def _attended(
        self, q: mx.array, k: mx.array, v: mx.array, turns: Turns
    ) -> Generator[None, None, mx.array]:
        """Return (N, dims) from windows (W, heads, S, D), yielding between bounded parts."""
        number, heads, size, width = q.shape
        each = 2 * size * heads * width  # multiplications of a query

        def own(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
            return self.attend(q, k, v).transpose(0, 2, 1, 3).reshape(-1, heads * width)

        if number > 1:
            windows = turns.joined(lambda part: own(q[part], k[part], v[part]), number, size * each)
            return (yield from windows)
        return (yield from turns.joined(lambda part: own(q[:, :, part], k, v), size, each))

    def _mlp(self, x: mx.array) -> mx.array:
        hidden = self.linear_fc1(x)
        if self.gated:
            hidden = self.activation(self.gate_proj(x), hidden)
        elif self.quick:
            hidden = hidden * mx.sigmoid(_QUICK * hidden)
        else:
            hidden = self.activation(hidden)
        return self.linear_fc2(hidden)


class Merger(Module):
    """Merges squares of patches to rows of the text's network.

    Args:
        options: of the tower.
        behind: whether the norm is over a square, not over each patch.
    """

    def __init__(self, options: QwenTowerOptions, *, behind: bool = False) -> None:
        super().__init__()
        self._width = options.dims * options.merge**2
        norm = RMSNorm if options.gated else LayerNorm
        self.norm = norm(self._width if behind else options.dims, EPS)
        self._behind = behind
        self.linear_fc1 = Linear(self._width, self._width)
        self.activation = Activation("gelu")
        self.linear_fc2 = Linear(self._width, options.out)
        self._work = self._width * (self._width + options.out)

    def steps(self, x: mx.array, turns: Turns) -> Generator[None, None, mx.array]:
        """Return rows (N, out) of hidden states (N merge², D), yielding between bounded parts."""
        squares = x.reshape(-1, self._width)
        return (
            yield from turns.joined(
                lambda part: self._merged(squares[part], x.shape[-1]), len(squares), self._work
            )
        )

    def _merged(self, squares: mx.array, dims: int) -> mx.array:
        if self._behind:
            own = self.norm(squares)
        else:
            own = self.norm(squares.reshape(-1, dims)).reshape(squares.shape)
        return self.linear_fc2(self.activation(self.linear_fc1(own)))


class QwenTower(Module):
    """The tower, with what makes rows of its hidden states.

    Args:
        options: its sizes.
    """

    def __init__(self, options: QwenTowerOptions) -> None:
        super().__init__()
        self._options = options
        pixels = options.frames * options.patch**2 * 3
        self.patch_embedding = Linear(pixels, options.dims, bias=options.bias)
        if options.side:
            self.pos_embed = Embedding(options.side**2, options.dims)
        self.blocks = [QwenLayer(options) for _ in range(options.layers)]
        self.merger = Merger(options)
        if options.stacked:
            self.stacked = [Merger(options, behind=True) for _ in options.stacked]

    def steps(self, patches: mx.array, grid: Grid, turns: Turns) -> Generator[None, None, mx.array]:
        """Return rows of an image, and behind each the features for the network's first layers.

        Args:
            patches: (rows * columns, patch * patch * 3), by rows.
            grid: rows and columns.
            turns: of the work.

        Returns:
            (N, out * (1 + stacked)) by rows and columns of merged patches; yields between bounded
            parts.
        """
        own = self._options
        places = Places(own, grid)
        x = yield from self._embedded(places, places.ordered(patches.reshape(*grid, -1)), turns)
        whole = [(1, len(x))]
        angles = places.angles(own.dims // own.heads)
        made = []
        for at, layer in enumerate(self.blocks):
            windows = whole if not own.window or at in own.full else places.windows
            x = yield from layer.steps(x, angles, windows, turns)
            if at in own.stacked:
                merger = self.stacked[own.stacked.index(at)]
                made.append((yield from merger.steps(x, turns)))
        rows = yield from self.merger.steps(x, turns)
        joined = places.restored(mx.concatenate([rows, *made], axis=-1))
        mx.eval(joined)
        return joined

    def _embedded(
        self, places: Places, patches: mx.array, turns: Turns
    ) -> Generator[None, None, mx.array]:
        """Return the hidden states (N, dims) of patches before the first layer."""
        own = self._options

        def embedded(part: slice) -> mx.array:
            x = self.patch_embedding(mx.tile(patches[part], (1, own.frames)))
            return x + places.interpolated(self.pos_embed, own.side, part) if own.side else x

        work = own.frames * patches.shape[1] * own.dims
        return (yield from turns.joined(embedded, len(patches), work))
