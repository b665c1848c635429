"""Quantized checkpoints: fits a network's layers to the weights.

Formats that only need other layers are handled here, as ``mlx_lm.utils.load_model`` does.
Formats that need transformed weights (AWQ, GPTQ) or other layers (BitNet) take the full route.
"""

from __future__ import annotations

from cowmlx.folders.config import invalid_config, mismatch
from cowmlx.quantized_formats import FORMATS, with_byte_scales

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module


def is_light(config: dict[str, Any]) -> bool:
    """Tell whether :func:`apply` alone can make the network of this config."""
    if config.get("quantize_activations"):
        return False
    if config.get("quantization") is not None:
        return True
    foreign = config.get("quantization_config")
    return not foreign or (isinstance(foreign, dict) and _settings_of(foreign) is not None)


def _settings_of(foreign: dict[str, Any]) -> dict[str, Any] | None:
    """Return mlx's settings for a ``quantization_config``, or None where mlx has no such method."""
    method = foreign.get("quant_method")
    known = FORMATS.get(method) if isinstance(method, str) else None
    if known is None or not known.is_method:
        return None
    return {"group_size": known.groups[0], "bits": known.bits[0], "mode": method}


def apply(network: Module, config: dict[str, Any], weights: dict[str, mx.array]) -> None:
    """Replace the layers that have quantized weights.

    The settings found in a foreign ``quantization_config`` are written to
    ``config["quantization"]``, as mlx-lm does.

    Raises:
        BadFormat: the settings are none that mlx has.
    """
    settings = config.get("quantization")
    if settings is None:
        foreign = config.get("quantization_config")
        if not foreign:
            return
        settings = _settings_of(foreign)
        config["quantization"] = config["quantization_config"] = settings
    if not isinstance(settings, dict):
        raise invalid_config(
            f"quantization must be an object, not {settings!r}", key="quantization"
        )
    _check(settings, "quantization")
    for path, chosen in settings.items():
        if isinstance(chosen, dict):
            _check({**settings, **chosen}, f"quantization of {path}")

    from mlx.nn.layers.quantized import quantize

    def parameters(path: str, module: Module) -> Any:
        if path in settings:
            chosen = settings[path]
            return dict(chosen) if isinstance(chosen, dict) else chosen
        if not hasattr(module, "to_quantized") or f"{path}.scales" not in weights:
            return False
        return _inferred(path, module, weights)

    try:
        quantize(
            network,
            group_size=settings["group_size"],
            bits=settings["bits"],
            mode=settings.get("mode", "affine"),
            class_predicate=parameters,
        )
    except (ValueError, TypeError, KeyError, RuntimeError) as exc:
        raise invalid_config(f"quantization is not usable ({exc})", key="quantization") from exc


def _check(settings: dict[str, Any], where: str) -> None:
    """Require numbers that mlx can divide by."""
    for key in ("group_size", "bits"):
        value = settings.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise invalid_config(
                f"{where} needs a positive integer {key!r}, not {value!r}", key=key, value=value
            )


def _inferred(path: str, module: Any, weights: dict[str, mx.array]) -> dict[str, Any]:
    """Derive a layer's settings from the shapes of its packed weight and scales."""
    import inspect

    import mlx.core as mx

    scales, packed = weights[f"{path}.scales"], weights.get(f"{path}.weight")
    columns = module.weight.shape[-1]
    if packed is None or not scales.ndim or not packed.ndim or not scales.shape[-1]:
        raise mismatch(f"{path}.scales has no weight to go with")
    group_size = columns // scales.shape[-1]
    bits = packed.shape[-1] * 32 // columns
    if not group_size or not bits:
        raise mismatch(f"{path}.scales is {scales.shape[-1]} wide for {columns} columns")
    mode = "affine"
    if scales.dtype == mx.uint8:
        mode = with_byte_scales(bits, group_size) or ""
        if not mode:
            raise mismatch(
                f"{path} is packed with {bits} bits and groups of {group_size}, "
                "which is no mode of mlx"
            )
    settings: dict[str, Any] = {"group_size": group_size, "bits": bits, "mode": mode}
    if f"{path}.global_scale" in weights:
        accepted = inspect.signature(module.to_quantized).parameters
        if "global_scale" in accepted:
            settings["global_scale"] = True
    return settings
