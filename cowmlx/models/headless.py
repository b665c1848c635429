"""Folders for embeddings, whose networks have no head for tokens: other names, and no logits."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

_INNER, _TABLE, _HEAD = "model.", "embed_tokens.weight", "lm_head."
_OUTSIDE = (_HEAD, "score.")  # names that no network has within its inner one
_MARK = "is_headless"  # of a network


def is_for_embeddings(config: dict[str, Any], path: str) -> bool:
    """Whether a folder is one of sentence-transformers, or holds an inner network alone."""
    named = config.get("architectures")
    kinds = [str(name) for name in named] if isinstance(named, list) else []
    inner = any(name.endswith("Model") and not name.endswith("LMHeadModel") for name in kinds)
    return inner or os.path.lexists(os.path.join(path, "modules.json"))


def whole_names(arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return an inner network's weights under the names that a whole one has."""
    if _TABLE not in arrays or any(name.startswith(_INNER) for name in arrays):
        return arrays
    return {
        name if name.startswith(_OUTSIDE) else f"{_INNER}{name}": array
        for name, array in arrays.items()
    }


def is_headless(arrays: dict[str, mx.array]) -> bool:
    """Whether weights of a whole network, or of its inner one, have no head for tokens."""
    table = _TABLE in arrays or f"{_INNER}{_TABLE}" in arrays
    return table and not any(name.startswith(_HEAD) for name in arrays)


def note(network: Module) -> None:
    """Note that a network's logits mean nothing."""
    setattr(network, _MARK, True)


def is_noted(network: Any) -> bool:
    """Whether a network's logits mean nothing."""
    return getattr(network, _MARK, False) is True
