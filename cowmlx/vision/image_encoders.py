"""Image encoders, one for each family of models, opened from a folder's config."""

from __future__ import annotations

from importlib import import_module

from cowmlx.errors import Unsupported
from cowmlx.vision import towers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.text.tokenizer import Tokenizer
    from cowmlx.vision.encoder import ImageEncoder

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


def is_of_tower(name: str, config: dict[str, Any]) -> bool:
    """Whether a stored weight is one of a model's tower or of its projector."""
    family = config.get("model_type")
    return family in FAMILIES and towers.is_stored(name, _kind(family).places)


def open_encoder(path: str, config: dict[str, Any], tokenizer: Tokenizer) -> ImageEncoder[Any]:
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
    encoder: ImageEncoder[Any] = _kind(family)(path, config, tokenizer)
    return encoder


def _kind(family: str) -> Any:
    module, name = FAMILIES[family]
    return getattr(import_module(module), name)
