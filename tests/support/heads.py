"""Tiny models whose folders have the head that predicts the token behind the next one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Of each architecture: what a layer's names begin with, its number, and the head's names for the
# layer, the norms of tokens and of hidden states, the projection and the last norm.
_QWEN = ("mtp.layers.0.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
_DEEPSEEK = ("", "enorm", "hnorm", "eh_proj", "shared_head.norm")
_MIMO = ("", "token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm")
ARCHITECTURES: dict[str, tuple[str, int, str, tuple[str, ...]]] = {
    "qwen3_5": ("language_model.model.layers.", 1, "mtp.", _QWEN),
    "qwen3_5_moe": ("language_model.model.layers.", 1, "mtp.", _QWEN),
    "qwen3_next": ("model.layers.", 1, "mtp.", _QWEN),
    "deepseek_v3": ("model.layers.", -1, "model.layers.N.", _DEEPSEEK),
    "glm4_moe": ("model.layers.", -1, "model.layers.N.", _DEEPSEEK),
    "mimo": ("model.layers.", 0, "model.mtp_layers.0.", _MIMO),
}
_OUTPUTS = ("o_proj.weight", "out_proj.weight", "down_proj.weight")


def add(folder: Path, family: str, *, right: bool = False, stored_less_one: bool = False) -> Path:
    """Give a folder's model a head: a copy of a layer, behind a projection of the token.

    Args:
        folder: of a tiny model.
        family: its architecture.
        right: let no layer do anything, so that a token depends on the one before alone, and the
            head is always right.
        stored_less_one: store norms and convolutions as Hugging Face does for Qwen.
    """
    import mlx.core as mx

    file = str(folder / "model.safetensors")
    weights: dict[str, Any] = dict(mx.load(file))  # type: ignore[arg-type]
    config = json.loads((folder / "config.json").read_text())
    layers = config.get("text_config", config)["num_hidden_layers"]
    begins, number, head, (layer, *names) = ARCHITECTURES[family]
    number %= layers
    own = f"{begins}{number}."
    head = head.replace("N", str(layers))
    to = head if layer == "" else layer
    copied = {to + k.removeprefix(own): v for k, v in weights.items() if k.startswith(own)}
    dims = next(v for k, v in copied.items() if k.endswith("input_layernorm.weight")).shape[0]
    copied |= {f"{head}{name}.weight": mx.ones((dims,)) for name in (names[0], names[1], names[3])}
    halves = [mx.eye(dims), mx.zeros((dims, dims))]
    if family == "mimo":
        halves.reverse()
    copied[f"{head}{names[2]}.weight"] = mx.concatenate(halves, axis=1)
    weights |= copied
    if right:
        weights = {k: v * 0 if k.endswith(_OUTPUTS) else v for k, v in weights.items()}
        last = next(k for k in weights if k.endswith("model.norm.weight"))
        weights[f"{head}{names[3]}.weight"] = weights[last]
    if stored_less_one:
        for name, array in list(weights.items()):
            if name.endswith("conv1d.weight"):
                weights[name] = array.moveaxis(1, 2)
            elif (name.endswith("norm.weight") and "linear_attn" not in name) or "pre_fc" in name:
                weights[name] = array - 1
    mx.save_safetensors(file, weights, metadata={"format": "mlx"})
    return folder
