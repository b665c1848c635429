"""Layers that look near beside those that see all tokens, and the bases of their angles."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.folders.config import invalid_config
from cowmlx.networks.encoders.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cowmlx.networks.encoders.layers import Texts

FULL, SLIDING = "full_attention", "sliding_attention"


def kinds(config: dict[str, Any], layers: int, every: int, first: int = 0) -> tuple[str, ...]:
    """Return the kind of attention of each layer.

    Args:
        config: what ``config.json`` says.
        layers: how many there are.
        every: one layer in so many sees all tokens, where the config lists no kinds.
        first: the place of the first of these.

    Raises:
        BadFormat: it lists other kinds.
    """
    named = config.get("layer_types")
    if named is None:
        return tuple(FULL if index % every == first else SLIDING for index in range(layers))
    known = FULL, SLIDING
    if not isinstance(named, list) or len(named) != layers or any(k not in known for k in named):
        raise invalid_config(
            f"layer_types must hold {layers} of {FULL} and {SLIDING}", key="layer_types"
        )
    return tuple(named)


def bases(
    config: dict[str, Any], options: Options, keys: Mapping[str, tuple[str, float]]
) -> tuple[float, float]:
    """Return the bases of the angles of full and of sliding attention.

    Args:
        config: what ``config.json`` says.
        options: reads it.
        keys: the older key of each kind, and its default.
    """
    options.fixed("rope_scaling")
    known = config.get("rope_parameters")
    found = []
    for kind in (FULL, SLIDING):
        key, default = keys[kind]
        own = known.get(kind) if isinstance(known, dict) else None
        if isinstance(own, dict):
            Options(own).fixed("rope_type", "default")
            found.append(Options(own).number("rope_theta", default))
        elif kind == SLIDING and config.get(key, default) is None:
            found.append(found[0])  # null is that of full attention
        else:
            found.append(options.number(key, default))
    return found[0], found[1]


def masks(
    texts: Texts, window: int, sliding: Sequence[bool]
) -> Sequence[Sequence[mx.array | None] | None]:
    """Return what each layer sees of each group of texts.

    Args:
        texts: the batch.
        window: distance of the tokens that a sliding layer sees, to each side.
        sliding: whether each layer is one.
    """
    near = [_near(group.length, window) for group in texts.groups]
    return [near if own else None for own in sliding]


def _near(length: int, window: int) -> mx.array | None:
    """Return a boolean mask (1, 1, T, T); None where all tokens are near."""
    if length <= window + 1:
        return None
    places = mx.arange(length)
    return (mx.abs(places[:, None] - places[None]) <= window)[None, None]
