"""The image encoder of Pixtral (arXiv 2410.07073) and Mistral 3.

An image keeps its proportions. In a prompt, a token ends each line of its rows, and another one
the last. Mistral 3 merges blocks of patches to a row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import RMSNorm

from cowmlx.errors import Unsupported
from cowmlx.networks.encoders.layers import Activation
from cowmlx.text.image_places import Written
from cowmlx.vision.encoder import ImageEncoder
from cowmlx.vision.pixtral_tower import Pixtral, PixtralOptions
from cowmlx.vision.preprocessing import Preprocessing, patches_of
from cowmlx.vision.resampling import BICUBIC
from cowmlx.vision.towers import (
    TowerWithProjector,
    activation,
    is_rate,
    is_size,
    require_fitting,
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

_SIZES = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
_SIZES |= {"intermediate_size": 4096, "patch_size": 16}
_SETTINGS = {
    "resample": BICUBIC,
    "size": {"longest_edge": 1024},
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_MERGING = "mistral3"
_TEXT_WIDTH = {_MERGING: 5120}
_MOST_PATCHES = 1 << 14  # of an image
_PLACES = {
    "vision_tower.vision_model.": "vision_tower.",
    "vision_tower.transformer.layers.": "tower.layers.",
    "vision_tower.": "tower.",
    ".attention.": ".",
    ".feed_forward.": ".",
    "multi_modal_projector.patch_merger.": "projector.",
    "multi_modal_projector.": "projector.",
}
_MARKS = {"image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"}


class _Projecting(NamedTuple):
    """The sizes and parts of the projector."""

    dims: int  # of a row
    merge: int  # patches of a side of the blocks that are merged to a row
    is_merging: bool
    has_bias: bool
    activation: str
    eps: float  # of the norm before blocks are merged


class Projector(Module):
    """Maps hidden states of patches to rows, merging blocks of them if the family does.

    Args:
        width: of a hidden state.
        options: what it is.
    """

    def __init__(self, width: int, options: _Projecting) -> None:
        super().__init__()
        self._merge, self._is_merging, self._dims = options.merge, options.is_merging, options.dims
        if options.is_merging:
            self.norm = RMSNorm(width, options.eps)
            self.merging_layer = Linear(width * options.merge**2, width, bias=False)
        self.linear_1 = Linear(width, options.dims, bias=options.has_bias)
        self.linear_2 = Linear(options.dims, options.dims, bias=options.has_bias)
        self.activation = Activation(options.activation)

    def steps(
        self, hidden: mx.array, columns: int, turns: Turns
    ) -> Generator[None, None, mx.array]:
        """Return rows (M, D) of hidden states (rows * columns, W), in bounded parts."""
        width, dims = hidden.shape[1], self._dims
        line = columns * self._merge  # patches of the rows that are merged
        each = width * (width if self._is_merging else 0) + (width + dims) * dims // self._merge**2
        return (
            yield from turns.joined(
                lambda part: self._rows(hidden[part.start * line : part.stop * line], columns),
                len(hidden) // line,
                line * each,
            )
        )

    def _rows(self, hidden: mx.array, columns: int) -> mx.array:
        if self._is_merging:
            count, width = self._merge**2, hidden.shape[-1]
            grid = self.norm(hidden).reshape(-1, columns, width)
            blocks = patches_of(grid, self._merge).reshape(-1, count, width)
            hidden = self.merging_layer(blocks.transpose(0, 2, 1).reshape(-1, width * count))
        return self.linear_2(self.activation(self.linear_1(hidden)))


_Tower = TowerWithProjector[Pixtral, Projector]


class PixtralImageEncoder(ImageEncoder[_Tower]):
    """See :class:`cowmlx.vision.encoder.ImageEncoder`."""

    places = _PLACES

    def __init__(self, path: str, config: dict[str, Any], tokenizer: Tokenizer) -> None:
        super().__init__(path, config)
        self._options = _options(config["vision_config"])
        self._projecting = _projecting(config)
        self._layers = _layers(config, self._options.layers)
        self._preprocessing = Preprocessing.read(path, _SETTINGS)
        sides = self._preprocessing.sides("size", "longest_edge", "height,width")
        self._largest = sides[0], sides[-1]
        self._block = self._options.patch * self._projecting.merge
        self._check()
        own = self._layers, self._options, self._projecting
        self.key = f"pixtral {own} {self._preprocessing.key}"
        marks = [self._preprocessing.token(name, default) for name, default in _MARKS.items()]
        self.written, self._break, self._end = _written(config, tokenizer, *marks)

    def _check(self) -> None:
        """Require that the preprocessing fits the tower."""
        own, patch, merge = self._preprocessing, self._options.patch, self._projecting.merge
        sides = [math.ceil(side / self._block) * merge for side in self._largest]
        if math.prod(sides) > _MOST_PATCHES:
            raise Unsupported(
                f"{own.file}: size is {own.settings['size']!r} pixels in vision_config's patches "
                f"of {patch}, which are more than {_MOST_PATCHES}"
            )
        own.require_pixels(f"size in patches of {patch}", math.prod(sides) * patch**2)
        if "patch_size" in own.settings:
            given = own.sides("patch_size", "height,width")
            if given not in ([patch, patch], [self._block, self._block]):
                raise Unsupported(f"{own.file}: patch_size is {given}, not {patch} as config.json")
        else:
            own.require(patch_size=patch)
        own.require(spatial_merge_size=merge)

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Return how many lines an image has, and the rows of a line."""
        ratio = max(height / self._largest[0], width / self._largest[1])
        if ratio > 1:
            height, width = math.floor(height / ratio), math.floor(width / ratio)
        lines, each = (math.ceil(side / self._block) for side in (height, width))
        return max(lines, 1), max(each, 1)

    def layout(self, width: int, height: int) -> list[int]:
        """Return -1 for rows, and the tokens behind each line of them."""
        lines, each = self._grid(width, height)
        made = [*[-1] * each, self._break] * lines
        return [*made[:-1], self._end]

    def tokens(self, width: int, height: int) -> int:
        """Return how many positions there are, with those of tokens around the image."""
        return len(self.layout(width, height))

    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` reports of it."""
        high, wide = (math.ceil(side / self._block) * self._block for side in self._largest)
        return {"tokens": self.tokens(wide, high), "width": wide, "height": high}

    def _new_tower(self) -> _Tower:
        own = self._options
        return TowerWithProjector(Pixtral(own), Projector(own.dims, self._projecting))

    def steps(self, pixels: Pixels) -> Generator[None, None, mx.array]:
        """Return the rows of an image."""
        lines, each = self._grid(pixels.width, pixels.height)
        size = lines * self._block, each * self._block
        image = yield from self._preprocessing.steps(pixels, *size, self.turns)
        tower = yield from self._read_tower()
        patch = self._options.patch
        grid = size[0] // patch, size[1] // patch
        patches = patches_of(image, patch)
        hidden = yield from tower.tower.steps(patches, *grid, self._layers, self.turns)
        rows = yield from tower.projector.steps(hidden, grid[1], self.turns)
        return rows.astype(mx.float32)


def _options(config: dict[str, Any]) -> PixtralOptions:
    dims, layers, heads, mlp, patch = tower_sizes(config, ("pixtral",), _SIZES)
    rope = config.get("rope_parameters")
    base = rope.get("rope_theta") if isinstance(rope, dict) else None
    base = config.get("rope_theta", 10000.0) if base is None else base
    head = dims // heads
    own_head = dims % heads == 0 and head % 4 == 0 and config.get("head_dim", head) == head
    require_fitting(own_head and is_rate(base))
    kind = activation(config, "hidden_act", "gelu")
    return PixtralOptions(dims, layers, heads, mlp, patch, kind, float(base))


def _projecting(config: dict[str, Any]) -> _Projecting:
    family = config.get("model_type")
    merging = family == _MERGING
    merge = config.get("spatial_merge_size", 2) if merging else 1
    eps = config["text_config"].get("rms_norm_eps", 1e-5) if merging else 1e-5
    if not is_size(merge, 64) or not is_rate(eps):
        raise Unsupported(f"config.json: spatial_merge_size is {merge!r}, or rms_norm_eps {eps!r}")
    kind = activation(config, "projector_hidden_act", "gelu")
    dims = text_width(config, _TEXT_WIDTH.get(str(family), 4096))
    bias = bool(config.get("multimodal_projector_bias", not merging))
    return _Projecting(dims, merge, merging, bias, kind, eps)


def _layers(config: dict[str, Any], count: int) -> int:
    """Return how many layers hidden states go through."""
    layer = config.get("vision_feature_layer", -1 if config.get("model_type") == _MERGING else -2)
    known = isinstance(layer, int) and not isinstance(layer, bool) and -count - 1 <= layer <= count
    if not known:
        raise Unsupported(f"config.json: vision_feature_layer is {layer!r}, no layer of {count}")
    chosen = config.get("vision_feature_select_strategy", "full")
    if chosen != "full":
        raise Unsupported(
            f"config.json: vision_feature_select_strategy is {chosen!r}; a Pixtral tower's is full"
        )
    return int(layer) % (count + 1)


def _written(
    config: dict[str, Any], tokenizer: Tokenizer, row_end: str, end: str
) -> tuple[Written, int, int]:
    """Return how an image is written, and the tokens that end a line and the image."""
    soft = config.get("image_token_index", config.get("image_token_id", 10))
    ids = {text: token for token, text in tokenizer.added.items()}
    if not isinstance(soft, int) or soft not in tokenizer.added or not {row_end, end} <= ids.keys():
        raise Unsupported(
            f"config.json: image_token_index is {soft!r}, or {row_end} and {end} are no tokens"
        )
    text = tokenizer.added[soft]
    return Written(text, text, soft, (text, row_end, end)), ids[row_end], ids[end]
