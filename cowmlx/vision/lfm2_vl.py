"""LFM2-VL's image encoder: SigLIP 2 (arXiv 2502.14786) over images of any proportions.

A large image is split into tiles, with the whole of it in another size behind them. Blocks of
patches are joined to a row.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.networks.encoders.layers import Activation
from cowmlx.text.image_places import Written
from cowmlx.vision.encoder import ImageEncoder
from cowmlx.vision.lfm2_tiles import SPLITTING, Tiling
from cowmlx.vision.preprocessing import Preprocessing, patches_of, plain_steps
from cowmlx.vision.resampling import smoothed
from cowmlx.vision.siglip import Siglip, SiglipOptions
from cowmlx.vision.towers import (
    TowerWithProjector,
    activation,
    is_rate,
    is_size,
    require_fitting,
    siglip_places,
    text_width,
    tower_sizes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.text.tokenizer import Tokenizer
    from cowmlx.vision.pixels import Pixels
    from cowmlx.vision.turns import Turns

_SIZES = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
_SIZES |= {"intermediate_size": 3072, "patch_size": 16, "num_patches": 256}
_TEXT_WIDTH, _PROJECTOR_WIDTH = 2560, 2560
_MOST_PATCHES = 1 << 14  # of an image that is not split, or of a tile
_PLACES = {
    **siglip_places("vision_tower.vision_model."),
    **siglip_places("vision_tower."),
    "multi_modal_projector.": "projector.",
}
_START, _END, _WHOLE = "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"


class _Joining(NamedTuple):
    """The sizes and parts of the projector."""

    factor: int  # patches of a side of the blocks that are joined to a row
    hidden: int
    dims: int  # of a row
    has_norm: bool
    has_bias: bool
    activation: str


class Projector(Module):
    """Maps joined hidden states of patches to rows.

    Args:
        width: of a hidden state.
        options: what it is.
    """

    def __init__(self, width: int, options: _Joining) -> None:
        super().__init__()
        joined = width * options.factor**2
        self._work = options.hidden * (joined + options.dims)
        if options.has_norm:
            self.layer_norm = LayerNorm(joined)
        self.linear_1 = Linear(joined, options.hidden, bias=options.has_bias)
        self.linear_2 = Linear(options.hidden, options.dims, bias=options.has_bias)
        self.activation = Activation(options.activation)

    def steps(self, joined: mx.array, turns: Turns) -> Generator[None, None, mx.array]:
        """Return rows (M, D) of (M, width * factor²), yielding between bounded parts."""
        rows = turns.joined(lambda part: self._rows(joined[part]), len(joined), self._work)
        return (yield from rows)

    def _rows(self, joined: mx.array) -> mx.array:
        normed = self.layer_norm(joined) if "layer_norm" in self else joined
        return self.linear_2(self.activation(self.linear_1(normed)))


_Tower = TowerWithProjector[Siglip, Projector]


class Lfm2VlImageEncoder(ImageEncoder[_Tower]):
    """See :class:`cowmlx.vision.encoder.ImageEncoder`."""

    places = _PLACES

    def __init__(self, path: str, config: dict[str, Any], tokenizer: Tokenizer) -> None:
        super().__init__(path, config)
        self._options = _options(config["vision_config"])
        self._joining = _joining(config)
        # Published folders say do_resize false; transformers resizes all the same.
        own = Preprocessing.read(path, resizes=True, steps=(SPLITTING,))
        self._preprocessing = own
        self._tiling = Tiling.read(own, self._options.patch, self._joining.factor)
        if self._tiling.most_patches > _MOST_PATCHES:
            raise Unsupported(
                f"{own.file}: max_image_tokens or tile_size make {self._tiling.most_patches} "
                f"patches of an image, of which there can be {_MOST_PATCHES}"
            )
        for name, pixels in self._tiling.most_pixels.items():
            own.require_pixels(name, pixels)
        self.key = f"lfm2_vl {self._joining} {self._options} {self._preprocessing.key}"
        self.written, self._marks = self._written(config, tokenizer)

    def _written(
        self, config: dict[str, Any], tokenizer: Tokenizer
    ) -> tuple[Written, dict[str, int]]:
        """Return how an image is written, and the tokens of its marks."""
        soft = config.get("image_token_id", 396)
        ids = {text: token for token, text in tokenizer.added.items()}
        marks = [_START, _END, _WHOLE]
        most = self._tiling.most_tiles
        marks += [_place(row, at) for row in range(most) for at in range(most // (row + 1))]
        missing = [mark for mark in marks if mark not in ids]
        if not isinstance(soft, int) or soft not in tokenizer.added or missing:
            raise Unsupported(
                f"config.json: image_token_id is {soft!r}, and {missing[:1]} is no token"
            )
        text = tokenizer.added[soft]
        return Written(text, text, soft, (text, *marks)), {mark: ids[mark] for mark in marks}

    def layout(self, width: int, height: int) -> list[int]:
        """Return tokens that mark the tiles, and -1 for rows.

        Raises:
            InvalidArgument: the image is so thin that it would be too long.
        """
        tiles, factor, marks = self._tiling.of(width, height), self._joining.factor, self._marks
        high, wide = (side // self._options.patch for side in tiles.whole)
        if high * wide > 2 * _MOST_PATCHES:
            raise InvalidArgument(
                f"an image of {width} x {height} is too thin for this model: resized it would "
                f"have {high * wide} patches, more than {2 * _MOST_PATCHES}"
            )
        made = [marks[_START]]
        for row in range(tiles.rows):
            for column in range(tiles.columns):
                made += [marks[_place(row, column)], *[-1] * self._tiling.rows_of_tile]
        if tiles.rows:
            made += [marks[_WHOLE]] * tiles.has_whole
        made += [-1] * (high * wide // factor**2) * tiles.has_whole
        return [*made, marks[_END]]

    def tokens(self, width: int, height: int) -> int:
        """Return how many positions there are, with those of tokens around the image."""
        return len(self.layout(width, height))

    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` reports of it."""
        own = self._tiling
        tiles = own.most_tiles * (own.rows_of_tile + 1)
        side = own.tile * max(own.most_tiles, 1)
        around = 3 if tiles else 2
        return {"tokens": tiles + max(own.most, own.least) + around, "width": side, "height": side}

    def _new_tower(self) -> _Tower:
        own = self._options
        return TowerWithProjector(Siglip(own), Projector(own.dims, self._joining))

    def steps(self, pixels: Pixels) -> Generator[None, None, mx.array]:
        """Return the rows of an image."""
        tower = yield from self._read_tower()
        made = []
        patch, known = self._options.patch, self._options.side
        table = tower.tower.positions.reshape(known, known, -1)
        for tile in (yield from self._tiles(pixels)):
            grid = tile.shape[0] // patch, tile.shape[1] // patch
            patches = patches_of(self._preprocessing.normalized(tile), patch)
            positions = smoothed(table, *grid).reshape(grid[0] * grid[1], -1)
            positions = positions.astype(table.dtype)
            hidden = yield from tower.tower.steps(patches, self.turns, positions)
            joined = patches_of(hidden.reshape(*grid, -1), self._joining.factor)
            made.append((yield from tower.projector.steps(joined, self.turns)).astype(mx.float32))
        rows = mx.concatenate(made)
        mx.eval(rows)
        return rows

    def _tiles(self, pixels: Pixels) -> Generator[None, None, list[mx.array]]:
        """Return the tiles of an image, of bytes."""
        tiles, size = self._tiling.of(pixels.width, pixels.height), self._tiling.tile
        image, made = (yield from plain_steps(pixels)), []
        resized = self._preprocessing.resized_steps
        if tiles.rows:
            large = yield from resized(image, tiles.rows * size, tiles.columns * size)
            made = [
                large[row * size : (row + 1) * size, column * size : (column + 1) * size]
                for row in range(tiles.rows)
                for column in range(tiles.columns)
            ]
        if tiles.has_whole:
            made.append((yield from resized(image, *tiles.whole)))
        return made


def _place(row: int, column: int) -> str:
    return f"<|img_row_{row + 1}_col_{column + 1}|>"


def _options(config: dict[str, Any]) -> SiglipOptions:
    dims, layers, heads, mlp, patch, count = tower_sizes(config, ("siglip2_vision_model",), _SIZES)
    side, eps = round(count**0.5), config.get("layer_norm_eps", 1e-6)
    require_fitting(dims % heads == 0 and side**2 == count and is_rate(eps))
    kind = activation(config, "hidden_act", "gelu_pytorch_tanh")
    return SiglipOptions(dims, layers, heads, mlp, patch, side * patch, eps, kind)


def _joining(config: dict[str, Any]) -> _Joining:
    factor = config.get("downsample_factor", 2)
    hidden = config.get("projector_hidden_size", _PROJECTOR_WIDTH)
    if not is_size(factor, 64) or not is_size(hidden):
        raise Unsupported(
            f"config.json: downsample_factor is {factor!r}, or projector_hidden_size {hidden!r}"
        )
    return _Joining(
        factor,
        hidden,
        text_width(config, _TEXT_WIDTH),
        bool(config.get("projector_use_layernorm", True)),
        bool(config.get("projector_bias", True)),
        activation(config, "projector_hidden_act", "gelu"),
    )
