"""Bounds of the numbers in a config that say how often something is made.

A network's code makes as many layers, experts or passes as its config says, before anything
compares them with the weights.
"""

from __future__ import annotations

import re
from contextlib import contextmanager

from cowmlx.errors import BadFormat
from cowmlx.folders.config import CONTEXT_KEYS, invalid_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mlx.nn.layers.base import Module

# More than any model has.
_MOST = 4096
_MOST_MODULES = 1 << 16
_MOST_PASSES = 1 << 14  # through layers, in one step
_HIDDEN = "num_hidden_layers"
_LAYERS = ("depth", "n_layer", "n_layers", _HIDDEN, "num_kv_reuse_layers", "num_layers")
_COUNTS = re.compile(
    r"depth|(\w+_)?(num|n)_(\w+_)?(layers?|blocks|loops|experts?|heads?|groups?|inputs)"
    r"|\w+_(loops|layers)|(\w+_)?experts?_num|\w+_(neighbor|split)_num|\w*experts_per_tok(en)?"
    r"|moe_(top_?)?k|top_k_experts"
)
_PASSES = ("loop_num", "num_loops")
_MORE_PASSES = "sinkhorn_iters"  # at the end of a key
_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "head_dim", "n_embd", "d_model"),
    *("n_head", "n_heads", "num_attention_heads", "num_key_value_heads"),
)
_LONGEST_KEY = 128  # characters; the pattern takes a time that grows with their square
# Numbers by which architectures or mlx divide without a look at them, some only in long prompts. In
# others, 0 says that there are none.
_DIVISORS = {
    "group_norm_size": ("bailing_hybrid", "bailing_moe_linear"),
    "index_n_heads": ("deepseek_v32", "deepseek_v41", "glm_moe_dsa"),
    "n_group": ("bailing_moe_v3",),
}


def check_sizes(config: dict[str, Any], architecture: str = "", prefix: str = "") -> None:
    """Refuse numbers of layers, experts, passes and the like that no model has.

    Args:
        config: what ``config.json`` says, or an object in it.
        architecture: its name, if it is known.
        prefix: of its keys in messages.

    Raises:
        BadFormat: the message names the key.
    """
    layers = max((_number(config, key) for key in config if key in _LAYERS), default=0)
    for key, value in config.items():
        if isinstance(value, dict):
            check_sizes(value, architecture, f"{prefix}{key}.")
        elif isinstance(value, bool):  # which networks would take for 0 or 1
            if key in CONTEXT_KEYS or key in _SIZES or key in _LAYERS:
                _refuse_boolean(f"{prefix}{key}", value)
        elif not isinstance(value, int):
            continue
        elif key in _PASSES or key.endswith(_MORE_PASSES):
            _require(f"{prefix}{key}", value, 0, _MOST_PASSES // min(max(layers, 4), _MOST))
        elif _divides(architecture, config, key):
            _require(f"{prefix}{key}", value, 1, _MOST)
        elif key == "altup_active_idx":  # mlx would read beyond the last input of Gemma 3n
            most = _number(config, "altup_num_inputs") - 1
            _require(f"{prefix}{key}", value, 0, max(most, 0))
        elif len(key) <= _LONGEST_KEY and _COUNTS.fullmatch(key):
            named = key in _LAYERS or key in ("num_blocks", "num_experts")
            _require(f"{prefix}{key}", value, 0 if named else min(value, 0), _MOST)


def _refuse_boolean(key: str, value: bool) -> None:
    shown = str(value).lower()
    raise invalid_config(
        f"{key} is {shown}, not an integer", key=key, value=value, accepted="an integer"
    )


def _divides(architecture: str, part: dict[str, Any], key: str) -> bool:
    """Whether a network divides by a number of its config, whatever it is."""
    if key == "n_group":  # where more groups are dropped than there are, or always
        limited = part.get("topk_method") == "group_limited_greedy"
        if _number(part, "topk_group") < 0 or (architecture == "deepseek_v2" and limited):
            return True
    return architecture in _DIVISORS.get(key, ())


def check_layers(config: dict[str, Any], weights: int) -> None:
    """Refuse more layers than a folder has weights, before they are made.

    Raises:
        BadFormat: there are more.
    """
    for part, prefix in ((config, ""), (config.get("text_config"), "text_config.")):
        layers = _number(part, _HIDDEN) if isinstance(part, dict) else 0
        if layers > weights:
            key = f"{prefix}{_HIDDEN}"
            raise invalid_config(
                f"{key} is {layers}, but the folder has weights for at most {weights}",
                key=key,
                value=layers,
                accepted=f"at most {weights}",
            )


def _number(part: dict[str, Any], key: str) -> int:
    value = part.get(key)
    return value if isinstance(value, int) else 0


def _require(key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        accepted = f"{least} to {most}"
        raise invalid_config(
            f"{key} is {value}, not within {accepted}", key=key, value=value, accepted=accepted
        )


@contextmanager
def bounded_modules() -> Iterator[None]:
    """Refuse a network of more modules than any model has, while it is made in the block.

    Raises:
        BadFormat: there are more.
    """
    from mlx.nn.layers.base import Module

    plain, made = Module.__init__, 0

    def counted(module: Module) -> None:
        nonlocal made
        made += 1
        if made > _MOST_MODULES:
            raise BadFormat(
                f"config.json: its numbers make a network of more than {_MOST_MODULES} modules",
                reason="limit_exceeded",
                file="config.json",
                limit=_MOST_MODULES,
            )
        plain(module)

    Module.__init__ = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Module.__init__ = plain  # type: ignore[method-assign]
