"""Gemma 3's image encoder: SigLIP at one size, patches pooled and projected to the text's width."""

from __future__ import annotations

import math

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.normalization import RMSNorm

from cowmlx.errors import Unsupported
from cowmlx.text.image_places import Written
from cowmlx.vision.encoder import ImageEncoder
from cowmlx.vision.preprocessing import Preprocessing, patches_of
from cowmlx.vision.siglip import Siglip, SiglipOptions
from cowmlx.vision.towers import siglip_places, vision_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.text.tokenizer import Tokenizer
    from cowmlx.vision.pixels import Pixels

_AROUND = 4  # tokens: two line breaks, as one token each, and the marks of begin and end
_PLACES = {
    **siglip_places("vision_tower.vision_model."),
    **siglip_places("vision_tower."),
    "multi_modal_projector.": "projector.",
}


class Projector(Module):
    """Pools hidden states of patches and maps them to rows of the text's network.

    Args:
        tower: its options.
        dims: of a row.
        side: rows of a side.
    """

    def __init__(self, tower: SiglipOptions, dims: int, side: int) -> None:
        super().__init__()
        self._grid, self._side = tower.side, side
        self.mm_soft_emb_norm = RMSNorm(tower.dims, tower.eps)
        self.mm_input_projection_weight = mx.zeros((tower.dims, dims))

    def __call__(self, hidden: mx.array) -> mx.array:
        """Return rows (side², dims) of hidden states (N, D)."""
        pooled = self._grid // self._side
        grid = hidden.reshape(self._side, pooled, self._side, pooled, -1)
        mean = grid.mean(axis=(1, 3)).reshape(self._side**2, -1)
        norm = self.mm_soft_emb_norm
        normed = mx.fast.rms_norm(mean, 1.0 + norm.weight, norm.eps)
        return normed @ self.mm_input_projection_weight


class TowerWithProjector(Module):
    """The tower and its projector."""

    def __init__(self, options: SiglipOptions, dims: int, side: int) -> None:
        super().__init__()
        self.tower = Siglip(options)
        self.projector = Projector(options, dims, side)


class Gemma3ImageEncoder(ImageEncoder[TowerWithProjector]):
    """See :class:`cowmlx.vision.encoder.ImageEncoder`."""

    both_ways = True
    places = _PLACES

    def __init__(self, path: str, config: dict[str, Any], tokenizer: Tokenizer) -> None:
        super().__init__(path, config)
        self._options = vision_options(config["vision_config"])
        text = config.get("text_config")
        dims = text.get("hidden_size") if isinstance(text, dict) else None
        count = config.get("mm_tokens_per_image", 256)
        side = math.isqrt(count) if isinstance(count, int) and count > 0 else 0
        if not isinstance(dims, int) or not side or side**2 != count or self._options.side % side:
            raise Unsupported(
                f"config.json: mm_tokens_per_image is {count!r}, no square whose side divides the "
                f"{self._options.side} patches of a side in vision_config"
            )
        self._dims, self._side = dims, side
        self._preprocessing = Preprocessing.read(path)
        size, own = self._preprocessing.settings.get("size"), self._options.image
        if size not in (None, {"height": own, "width": own}):
            raise Unsupported(f"preprocessor_config.json: size is {size}, not {own} x {own}")
        self.key = f"gemma3 {side} {self._options} {self._preprocessing.key}"
        self.written = self._written(config, tokenizer)

    @staticmethod
    def _written(config: dict[str, Any], tokenizer: Tokenizer) -> Written:
        names = ("boi_token_index", "image_token_index", "eoi_token_index")
        ids = [config.get(name) for name in names]
        if not all(isinstance(own, int) and own in tokenizer.added for own in ids):
            raise Unsupported(f"config.json: {', '.join(names)} are {ids}, which are no tokens")
        begin, soft, end = (tokenizer.added[own] for own in ids)  # type: ignore[index]
        return Written(begin, f"\n\n{begin}{soft}{end}\n\n", ids[1], (begin, soft, end))  # type: ignore[arg-type]

    def layout(self, width: int, height: int) -> list[int]:
        """Return what its positions are: rows."""
        return [-1] * self._side**2

    def tokens(self, width: int, height: int) -> int:
        """Return how many positions there are, with those of tokens around the image."""
        return self._side**2 + _AROUND

    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` reports of it."""
        own = self._options.image
        return {"tokens": self.tokens(own, own), "width": own, "height": own}

    def _new_tower(self) -> TowerWithProjector:
        return TowerWithProjector(self._options, self._dims, self._side)

    def steps(self, pixels: Pixels) -> Generator[None, None, mx.array]:
        """Return the rows of an image."""
        own = self._options
        image = yield from self._preprocessing.steps(pixels, own.image, own.image, self.turns)
        tower = yield from self._read_tower()
        hidden = yield from tower.tower.steps(patches_of(image, own.patch), self.turns)
        # The network multiplies what its table gives by this.
        scale = mx.array(self._dims**0.5, mx.bfloat16).astype(mx.float32)
        rows = tower.projector(hidden).astype(mx.float32) / scale
        mx.eval(rows)
        return rows
