"""Which architecture a config asks for: one of ours, or one of mlx-lm's.

Ours are made of a wiring, or are encoders, or vision models around one of mlx-lm's.

An architecture is a module with ``ModelArgs.from_dict`` and ``Model``, as mlx-lm has them.
"""

from __future__ import annotations

import importlib

from cowmlx.errors import Unsupported
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

WIRED = ("mad", "xlstm")
ENCODERS = (
    *("bert", "deberta-v2", "distilbert", "electra", "gemma3_encoder", "modernbert", "mpnet"),
    *("nomic_bert", "roberta", "xlm-roberta"),
)
_BOTH_WAYS = {"gemma3_text": "gemma3_encoder"}
"""Encoders in the place of mlx-lm's decoders, where a config lets tokens see those behind them."""
SEEING = ("idefics3", "lfm2-vl", "lfm2_vl", "llava", "smolvlm")
SELF_CHECKED = (*WIRED, *ENCODERS)
"""Those that report odd numbers of a config themselves."""
OWN = (*SELF_CHECKED, *SEEING)
_TYPES = tuple(own for own in OWN if own not in _BOTH_WAYS.values())


def name(config: dict[str, Any]) -> str:
    """Return the name of the architecture that a config's ``model_type`` asks for.

    Raises:
        BadFormat: ``model_type`` is missing or no string.
        Unsupported: no such architecture; the message lists near names.
    """
    model_type = config.get("model_type")
    both_ways = config.get("use_bidirectional_attention") is True
    if both_ways and isinstance(model_type, str) and model_type in _BOTH_WAYS:
        return _BOTH_WAYS[model_type]
    return model_type if model_type in _TYPES else light_route.architecture_name(config, _TYPES)


def is_light(architecture: str) -> bool:
    """Tell whether an architecture imports without the whole of mlx-lm."""
    return architecture in OWN or light_route.is_light(architecture)


def load(architecture: str) -> ModuleType:
    """Import an architecture's module.

    Raises:
        Unsupported: it cannot be imported here.
    """
    if architecture in OWN:
        module = "seeing" if architecture in SEEING else architecture.replace("-", "_")
        return importlib.import_module(f"{__name__}.{module}")
    return light_route.import_module(f"models.{architecture}")


def require_in_mlx_lm(architecture: str, config: dict[str, Any]) -> None:
    """Refuse what only mlx-lm could load, but does not know.

    Raises:
        Unsupported: the architecture is ours.
    """
    if architecture in OWN:
        method = config.get("quantization_config")
        raise Unsupported(
            f"{architecture} models are not loaded with quantization_config {method!r}; "
            "mlx's quantization, config.json's \"quantization\", is supported",
            value=architecture,
        )


def supported() -> list[str]:
    """List every ``model_type``, sorted."""
    return sorted({*_TYPES, *light_route.supported_architectures()})
