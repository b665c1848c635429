"""The image encoder of Idefics 3 (arXiv 2408.12637) and SmolVLM (arXiv 2504.05299).

An image is split into tiles of one size, with the whole of it as the last one. SigLIP sees each
tile; blocks of patches are joined to a row (pixel shuffle) and projected to the text's width.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear

from cowmlx.errors import Unsupported
from cowmlx.text.image_places import Written
from cowmlx.vision.encoder import ImageEncoder
from cowmlx.vision.preprocessing import Preprocessing, patches_of, plain_steps
from cowmlx.vision.resampling import LANCZOS
from cowmlx.vision.siglip import Siglip, SiglipOptions
from cowmlx.vision.towers import is_size, siglip_places, text_width, vision_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.text.tokenizer import Tokenizer
    from cowmlx.vision.pixels import Pixels
    from cowmlx.vision.turns import Turns

_KINDS = ("idefics3_vision", "idefics3", "smolvlm_vision", "smolvlm")
_DEFAULTS = {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32}
_TEXT_WIDTH = 4096
_SPLITTING = "do_image_splitting"
_SETTINGS = {
    "resample": LANCZOS,
    "size": {"longest_edge": 1456},
    "max_image_size": {"longest_edge": 364},
    _SPLITTING: True,
}
_LARGEST = 4096  # pixels of the longest edge, whatever the settings say
_MOST_PATCHES = 1 << 14  # of a tile
_MOST_ROWS = 1 << 17  # of an image
_PLACES = {
    **siglip_places("vision_model."),
    "connector.modality_projection.proj.": "proj.",
}
_FAKE, _GLOBAL = "<fake_token_around_image>", "<global-img>"
_MARK = re.compile(r"<row_\d+_col_\d+>|<global-img>")


class _Split(NamedTuple):
    """How an image is split: the size that it gets, twice, and its rows and columns of tiles."""

    first: tuple[int, int]
    second: tuple[int, int]
    rows: int
    columns: int


class TowerWithConnector(Module):
    """The tower and its connector.

    Args:
        options: of the tower.
        dims: of a row.
        factor: patches of a side of the blocks that are joined.
    """

    def __init__(self, options: SiglipOptions, dims: int, factor: int) -> None:
        super().__init__()
        self.tower = Siglip(options)
        self.proj = Linear(options.dims * factor**2, dims, bias=False)
        self._work = options.dims * factor**2 * dims

    def projected(self, blocks: mx.array, turns: Turns) -> Generator[None, None, mx.array]:
        """Return rows (M, dims) of joined patches, yielding between bounded parts."""
        rows = turns.joined(lambda part: self.proj(blocks[part]), len(blocks), self._work)
        return (yield from rows)


class Idefics3ImageEncoder(ImageEncoder[TowerWithConnector]):
    """See :class:`cowmlx.vision.encoder.ImageEncoder`."""

    places = _PLACES

    def __init__(self, path: str, config: dict[str, Any], tokenizer: Tokenizer) -> None:
        super().__init__(path, config)
        self._tokenizer = tokenizer
        self._options = vision_options(config["vision_config"], _KINDS, **_DEFAULTS)
        self._dims = text_width(config, _TEXT_WIDTH)
        own = Preprocessing.read(path, _SETTINGS, steps=(_SPLITTING,))
        self._preprocessing = own
        [self._tile] = own.sides("max_image_size", "longest_edge")
        self._size = own.sides("size", "longest_edge", "height,width")
        self._longest = max(self._size) if len(self._size) > 1 else min(self._size[0], _LARGEST)
        self._splits: bool = own.settings[_SPLITTING]
        self._factor = config.get("scale_factor", 2)
        self._check()
        self._rows = (self._tile // self._options.patch // self._factor) ** 2
        own.require(image_seq_len=self._rows)
        self.key = f"idefics3 {self._factor} {self._options} {own.key}"
        self.written = self._written(config, tokenizer)
        self._pieces: dict[str, list[int]] = {}

    def _check(self) -> None:
        tile, patch, factor = self._tile, self._options.patch, self._factor
        side, file = tile // patch, self._preprocessing.file
        if not is_size(factor) or not side or side % factor or side**2 > _MOST_PATCHES:
            raise Unsupported(
                f"{file}: max_image_size is {tile} pixels, {side} of vision_config's patches of "
                f"{patch}: scale_factor, {factor!r}, must divide it, and a tile can have at most "
                f"{_MOST_PATCHES} patches"
            )
        largest = self._split(self._longest, self._longest)
        for name, pixels in (
            ("max_image_size", tile**2),
            ("size", math.prod(largest.first)),
            (f"size in tiles of {tile}", math.prod(largest.second)),
        ):
            self._preprocessing.require_pixels(name, pixels)
        rows = math.ceil(self._longest / tile) ** 2 * (side // factor) ** 2
        if self._splits and rows > _MOST_ROWS:
            raise Unsupported(
                f"{file}: size is {self._longest} pixels in tiles of {tile}, which make {rows} "
                f"rows of an image, of which there can be {_MOST_ROWS}"
            )

    @staticmethod
    def _written(config: dict[str, Any], tokenizer: Tokenizer) -> Written:
        soft = config.get("image_token_id")
        known = set(tokenizer.added.values())
        if not isinstance(soft, int) or soft not in tokenizer.added or _FAKE not in known:
            raise Unsupported(f"config.json: image_token_id is {soft!r}, or {_FAKE} is no token")
        text = tokenizer.added[soft]
        marks = sorted(mark for mark in known if _MARK.fullmatch(mark))
        return Written(text, text, soft, (text, _FAKE, *marks))

    def _split(self, width: int, height: int) -> _Split:
        tile = self._tile
        first = self._resized(height, width)
        if not self._splits:
            return _Split(first, (tile, tile), 0, 0)
        high, wide = first
        ratio = wide / high
        if wide >= high:
            wide = math.ceil(wide / tile) * tile
            high = math.ceil(int(wide / ratio) / tile) * tile
        else:
            high = math.ceil(high / tile) * tile
            wide = math.ceil(int(high * ratio) / tile) * tile
        high, wide = max(high, tile), max(wide, tile)
        if (high, wide) == (tile, tile):
            return _Split(first, (high, wide), 0, 0)
        return _Split(first, (high, wide), high // tile, wide // tile)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Return the size that an image gets first."""
        if len(self._size) > 1:
            return self._size[0], self._size[1]
        high, wide = _within(height, width, self._size[0])
        if max(high, wide) <= _LARGEST:
            return high, wide
        ratio = wide / high
        if wide >= high:
            return max(int(_LARGEST / ratio), 1), _LARGEST
        return _LARGEST, max(int(_LARGEST * ratio), 1)

    def layout(self, width: int, height: int) -> list[int]:
        """Return tokens that mark the tiles, and -1 for rows."""
        split = self._split(width, height)
        made: list[int] = []
        text = ""
        for row in range(split.rows):
            for column in range(split.columns):
                text += f"{_FAKE}<row_{row + 1}_col_{column + 1}>"
                made += [*self._piece(text), *[-1] * self._rows]
                text = ""
            text = "\n"
        text += ("\n" if split.rows else "") + _FAKE + _GLOBAL
        return [*made, *self._piece(text), *[-1] * self._rows, *self._piece(_FAKE)]

    def _piece(self, text: str) -> list[int]:
        """Return the tokens of a text between rows, which begins or ends with a special token."""
        if text not in self._pieces:
            self._pieces[text] = self._tokenizer.encode_inner(text)
        return self._pieces[text]

    def tokens(self, width: int, height: int) -> int:
        """Return how many positions there are, with those of tokens around the image."""
        return len(self.layout(width, height))

    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` reports of it."""
        most = self._longest
        return {"tokens": self.tokens(most, most), "width": most, "height": most}

    def _new_tower(self) -> TowerWithConnector:
        return TowerWithConnector(self._options, self._dims, self._factor)

    def steps(self, pixels: Pixels) -> Generator[None, None, mx.array]:
        """Return the rows of an image."""
        tower = yield from self._read_tower()
        side = self._tile // self._options.patch
        positions = tower.tower.positions[mx.array(_places(side, self._options.side))]
        made = []
        for tile in (yield from self._tiles(pixels)):
            patches = patches_of(self._preprocessing.normalized(tile), self._options.patch)
            hidden = yield from tower.tower.steps(patches, self.turns, positions)
            blocks = patches_of(hidden.reshape(side, side, -1), self._factor)
            made.append((yield from tower.projected(blocks, self.turns)).astype(mx.float32))
        rows = mx.concatenate(made)
        mx.eval(rows)
        return rows

    def _tiles(self, pixels: Pixels) -> Generator[None, None, list[mx.array]]:
        """Return the tiles of an image, of bytes."""
        split, tile = self._split(pixels.width, pixels.height), self._tile
        resized = self._preprocessing.resized_steps
        image = yield from resized((yield from plain_steps(pixels)), *split.first)
        image = yield from resized(image, *split.second)
        made = [
            image[row * tile : (row + 1) * tile, column * tile : (column + 1) * tile]
            for row in range(split.rows)
            for column in range(split.columns)
        ]
        whole = yield from resized(image, tile, tile)
        return [*made, whole]


def _within(height: int, width: int, longest: int) -> tuple[int, int]:
    """Return the size of an image whose longer side gets a length; the other one is even."""
    ratio = width / height
    if width >= height:
        height, width = int(longest / ratio), longest
        height += height % 2
    else:
        height, width = longest, int(longest * ratio)
        width += width % 2
    return max(height, 1), max(width, 1)


def _places(side: int, known: int) -> list[int]:
    """Return for each patch of a square of patches the place of its embedding.

    A table of another size has those of the nearest lower coordinates, in numbers of float32.

    Args:
        side: of the square.
        known: side of the square that the table is for.
    """
    bounds = mx.array([(at + 1) * (1 / known) for at in range(known - 1)], mx.float32)
    coordinates = mx.arange(side).astype(mx.float32) * mx.array(1 / side, mx.float32)
    coordinates = mx.minimum(coordinates, mx.array(1.0 - 1e-6, mx.float32))
    found = (coordinates[:, None] >= bounds[None]).sum(axis=1)
    places: list[int] = (found[:, None] * known + found[None]).reshape(-1).tolist()  # type: ignore[assignment]
    return places
