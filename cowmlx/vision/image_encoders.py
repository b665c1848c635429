"""Image encoders, one for each family of models, opened from a folder's config."""

from __future__ import annotations

from importlib import import_module

from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Protocol

    import mlx.core as mx

    from cowmlx.accelerate.positions import Axes
    from cowmlx.text.image_places import Written
    from cowmlx.text.tokenizer import Tokenizer
    from cowmlx.vision.pixels import Pixels

    class ImageEncoder(Protocol):
        """Turns the images of a family's models into embeddings."""

        both_ways: bool
        """Whether the positions of an image attend to each other both ways."""
        key: str
        """A text that is equal where equal pixels give equal embeddings."""
        written: Written
        """How prompts have images."""

        axes: Axes | None
        """How positions of three axes are turned by; missing or None where they have one.

        Only with axes, ``depth`` and ``grid`` are used.
        """
        depth: int
        """For how many of the network's first layers rows have features behind them."""

        def grid(self, width: int, height: int) -> tuple[int, int]:
            """Return the rows and columns of an image's positions."""

        def layout(self, width: int, height: int) -> list[int]:
            """Return for each position of an image a token that is looked up there; -1: a row."""

        def tokens(self, width: int, height: int) -> int:
            """Return how many positions there are, with those of tokens around the image."""

        def steps(self, pixels: Pixels) -> Generator[None, None, mx.array]:
            """Return the rows (N, D) of an image, yielding between bounded parts.

            They are what the network's table of embeddings would give, for the positions without
            a token.
            """

        def info(self) -> dict[str, Any]:
            """Return what ``model_info`` reports of it."""


_IDEFICS = "cowmlx.vision.idefics3", "Idefics3ImageEncoder"
_PIXTRAL = "cowmlx.vision.pixtral", "PixtralImageEncoder"
_QWEN = "cowmlx.vision.qwen", "QwenImageEncoder"
_LFM2 = "cowmlx.vision.lfm2_vl", "Lfm2VlImageEncoder"
FAMILIES = {
    "gemma3": ("cowmlx.vision.gemma3", "Gemma3ImageEncoder"),
    "idefics3": _IDEFICS,
    "lfm2-vl": _LFM2,
    "lfm2_vl": _LFM2,
    "llava": _PIXTRAL,
    "mistral3": _PIXTRAL,
    "pixtral": _PIXTRAL,
    "smolvlm": _IDEFICS,
    "qwen2_5_vl": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen3_5": _QWEN,
    "qwen3_5_moe": _QWEN,
    "qwen3_vl": _QWEN,
    "qwen3_vl_moe": _QWEN,
}


def open_encoder(path: str, config: dict[str, Any], tokenizer: Tokenizer) -> ImageEncoder:
    """Return the encoder of a model whose config has a part about images.

    Raises:
        Unsupported: the family is not known here, or its config is not.
        BadFormat, InputOutput: a file is malformed, or cannot be read.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        raise Unsupported(
            f"a {family} model is used without its vision tower; those of {', '.join(FAMILIES)} "
            "take images",
            value=str(family),
        )
    module, name = FAMILIES[family]
    encoder: ImageEncoder = getattr(import_module(module), name)(path, config, tokenizer)
    return encoder
