"""Adapters of random weights for tiny models on disk, in the format of mlx-lm's trainer."""

from __future__ import annotations

import json
import pathlib
from typing import Any

RANK, SCALE = 4, 10.0
PARAMETERS: dict[str, Any] = {"rank": RANK, "scale": SCALE, "dropout": 0.0}


def make(
    folder: pathlib.Path,
    model: pathlib.Path,
    keys: list[str],
    *,
    kind: str = "lora",
    seed: int = 0,
) -> pathlib.Path:
    """Write an adapter of some layers of a model into ``folder``, and return it.

    Args:
        folder: where to.
        model: a model's folder.
        keys: ends of names of linear layers, experts or embeddings, such as "q_proj".
        kind: "lora" or "dora".
        seed: of the weights.
    """
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    stored = mx.load(str(model / "model.safetensors"))
    names = sorted(
        name.removesuffix(".weight")
        for name in stored
        if any(name.endswith(f".{key}.weight") or name == f"{key}.weight" for key in keys)
    )
    assert names, f"{model} has none of {keys}"
    config = json.loads((model / "config.json").read_text())
    arrays: dict[str, Any] = {}
    for index, name in enumerate(names):
        dense = _dense(stored, name, config.get("quantization"))
        *experts, out, inside = dense.shape
        key = mx.random.key(1000 * seed + index)
        a, b = mx.random.split(key)
        if experts:
            shapes = (*experts, RANK, inside), (*experts, out, RANK)
        elif "embed" in name:
            shapes = (out, RANK), (RANK, inside)
        else:
            shapes = (inside, RANK), (RANK, out)
        arrays[f"{name}.lora_a"] = mx.random.normal(shapes[0], scale=inside**-0.5, key=a)
        arrays[f"{name}.lora_b"] = mx.random.normal(shapes[1], scale=0.1, key=b)
        if kind == "dora":
            length = mx.linalg.norm(dense, axis=1)
            arrays[f"{name}.m"] = length * (1 + 0.3 * mx.sin(mx.arange(out)))
    settings = {
        "fine_tune_type": kind,
        "num_layers": 0,  # of all layers: named in full
        "lora_parameters": {**PARAMETERS, "keys": names},
    }
    mx.save_safetensors(str(folder / "adapters.safetensors"), arrays)
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def merged(
    folder: pathlib.Path, model: pathlib.Path, adapter: pathlib.Path, scale: float
) -> pathlib.Path:
    """Write a model whose weights W are W + scale * BA, computed by numpy, and return it."""
    import shutil

    import mlx.core as mx
    import numpy as np

    shutil.copytree(model, folder, dirs_exist_ok=True)
    weights = mx.load(str(model / "model.safetensors"))
    added = mx.load(str(adapter / "adapters.safetensors"))
    for name in added:
        if name.endswith(".lora_a"):
            layer = name.removesuffix(".lora_a")
            a, b = np.array(added[name]), np.array(added[f"{layer}.lora_b"])
            weight = np.array(weights[f"{layer}.weight"])
            weights[f"{layer}.weight"] = mx.array(weight + scale * SCALE * (a @ b).T)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _dense(stored: dict[str, Any], name: str, quantization: dict[str, Any] | None) -> Any:
    import mlx.core as mx

    weight = stored[f"{name}.weight"]
    if f"{name}.scales" not in stored or quantization is None:
        return weight
    return mx.dequantize(
        weight,
        stored[f"{name}.scales"],
        stored[f"{name}.biases"],
        group_size=quantization["group_size"],
        bits=quantization["bits"],
    )
