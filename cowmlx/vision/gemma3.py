"""Gemma 3's image encoder: SigLIP at one size, patches pooled and projected to the text's width.

A folder can have crops of long images beside the whole ones (pan and scan, arXiv 2503.19786).
"""

from __future__ import annotations

import math

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.normalization import RMSNorm

from cowmlx.errors import Unsupported
from cowmlx.text.image_places import Written
from cowmlx.vision.encoder import ImageEncoder
from cowmlx.vision.pan_and_scan import STEP, PanAndScan
from cowmlx.vision.preprocessing import Preprocessing, patches_of
from cowmlx.vision.siglip import Siglip, SiglipOptions
from cowmlx.vision.towers import TowerWithProjector, siglip_places, vision_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.text.tokenizer import Tokenizer
    from cowmlx.vision.pan_and_scan import Crop
    from cowmlx.vision.pixels import Pixels

# As the model was trained with them.
_WITH_CROPS = "Here is the original image {} and here are some crops to help you see better {}"
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


_Tower = TowerWithProjector[Siglip, Projector]


class Gemma3ImageEncoder(ImageEncoder[_Tower]):
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
        self._dims, self._side, self._tokenizer = dims, side, tokenizer
        self._preprocessing = own = Preprocessing.read(path, steps=(STEP,))
        image = self._options.image
        if "size" in own.settings and (given := own.sides("size", "height,width")) != [image] * 2:
            raise Unsupported(f"{own.file}: size is {given}, not {image} x {image} as config.json")
        own.require_pixels("image_size of vision_config", image**2, "config.json")
        own.require(image_seq_length=count)
        self._scan = PanAndScan.read(own)
        self.key = f"gemma3 {side} {self._options} {own.key}"
        self.written = self._written(config, tokenizer)
        self._counts: dict[int, int] = {}

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

    def parts(self, pixels: Pixels) -> list[Pixels]:
        """Return the whole image, and crops of one that is much longer than wide, or wider."""
        crops = self._crops(pixels.width, pixels.height)
        return [pixels, *(pixels.crop(*crop) for crop in crops)]

    def text(self, width: int, height: int) -> str:
        """Return what replaces the marker of an image in a prompt."""
        return self._text(len(self._crops(width, height)))

    def tokens(self, width: int, height: int) -> int:
        """Return how many positions an image has, with those of the text around its parts."""
        return self._count(len(self._crops(width, height)))

    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` reports of it."""
        own = self._options.image
        most = self._scan.most if self._scan else 0
        return {"tokens": self._count(most), "width": own, "height": own}

    def _crops(self, width: int, height: int) -> list[Crop]:
        return self._scan.crops(width, height) if self._scan else []

    def _text(self, crops: int) -> str:
        """Return what stands for an image with a number of crops."""
        one = self.written.text
        if not crops:
            return one
        return _WITH_CROPS.format(one, " ".join([one] * crops))

    def _count(self, crops: int) -> int:
        """Return the positions of an image with a number of crops."""
        if crops not in self._counts:
            text = self._tokenizer.encode_inner(self._text(crops))
            self._counts[crops] = len(text) + (crops + 1) * (self._side**2 - 1)
        return self._counts[crops]

    def _new_tower(self) -> _Tower:
        own = self._options
        return TowerWithProjector(Siglip(own), Projector(own, self._dims, self._side))

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
