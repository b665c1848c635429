"""Quantizes the layers of a network, lazily: at a load, and when a folder is converted."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.accelerate.device import is_quantized, rows_in_parts
from cowmlx.errors import InvalidArgument, OutOfRange, Unsupported
from cowmlx.generated import constants
from cowmlx.models import ranking
from cowmlx.quantized_formats import FORMATS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

MODES: dict[int, str] = {getattr(constants, f"QUANTIZE_{name.upper()}"): name for name in FORMATS}
_BITS_OF_A_FLOAT = 16
# Bytes of a matrix that is quantized in parts, and of a part; how many there are at most.
_LARGE, _PART = 8 << 20, 1 << 18
_MOST_PARTS = 256


class Quantizing(NamedTuple):
    """How weights are quantized: a row of :data:`FORMATS`, with its numbers."""

    bits: int
    group_size: int
    mode: str

    @property
    def settings(self) -> dict[str, Any]:
        """The object ``quantization`` of a config."""
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}

    @property
    def ratio(self) -> float:
        """Bytes of a quantized weight by those of a weight of 16 bits."""
        return self.bits / _BITS_OF_A_FLOAT


def chosen(params: dict[str, Any]) -> Quantizing | None:
    """Return the options ``quantize_`` of ``cow_mlx_model_params``; None if bits is 0.

    Raises:
        InvalidArgument: a value is out of range, or the options exclude each other.
    """
    bits, group, mode = (params[f"quantize_{name}"] for name in ("bits", "group", "mode"))
    if mode not in MODES:
        known = ", ".join(f"{value} ({name})" for value, name in MODES.items())
        raise OutOfRange("quantize_mode", mode, known)
    if not bits:
        for name, value in (("quantize_group", group), ("quantize_mode", mode)):
            if value:
                raise InvalidArgument(
                    f"{name} is {value}, but quantize_bits is 0",
                    reason="conflict",
                    argument=name,
                    other="quantize_bits",
                )
        return None
    name = MODES[mode]
    known_bits = _listed(sorted(FORMATS[name].bits))
    if bits not in FORMATS[name].bits:
        raise OutOfRange("quantize_bits", bits, f"0, or {known_bits} with the mode {name}")
    groups = FORMATS[name].groups
    if group not in (0, *groups):
        raise OutOfRange("quantize_group", group, f"0, or {_listed(sorted(groups))} with {name}")
    return Quantizing(bits, group or groups[0], name)


def _listed(numbers: list[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


def apply(network: Module, config: dict[str, Any], how: Quantizing, path: str) -> None:
    """Quantize the layers of a network as mlx-lm's converter does; nothing is evaluated.

    Layers whose rows are no multiple of a group stay as they are, and so do those that the
    architecture excludes, and a classification head.

    Args:
        network: with all of its weights, none of them quantized; changed in place.
        config: receives the settings, as a converted folder has them.
        how: the format.
        path: of the model, for messages.

    Raises:
        Unsupported: the weights are quantized already, or no layer can be.
    """
    from mlx.nn.layers.quantized import quantize

    if is_quantized(network):
        raise Unsupported(
            f"quantize_bits is {how.bits}, but the weights of {path} are quantized already; leave "
            "it at 0, or load the folder of the original weights",
            argument="quantize_bits",
            value=how.bits,
        )
    settings: dict[str, Any] = how.settings
    excluded = getattr(network, "quant_predicate", None)

    def parameters(name: str, module: Any) -> Any:
        if not hasattr(module, "to_quantized") or name == ranking.HEAD:
            return False
        if module.weight.shape[-1] % how.group_size:
            return False
        own = True if excluded is None else excluded(name, module)
        if isinstance(own, dict):
            settings[name] = own
        return own

    large = _large(network)
    quantize(network, how.group_size, how.bits, mode=how.mode, class_predicate=parameters)
    _quantize_in_parts(network, large)
    network.eval()  # new layers are in training mode
    if not is_quantized(network):
        raise Unsupported(
            f"quantize_bits is {how.bits}, but no layer of {path} has rows that are a multiple of "
            f"{how.group_size}, the size of a group",
            argument="quantize_bits",
            value=how.bits,
        )
    config["quantization"] = config["quantization_config"] = settings


def _large(network: Module) -> dict[str, list[mx.array]]:
    """Return the large matrices of a network as parts that are read one by one, by their module."""
    found = {}
    for name, module in network.named_modules():
        weight = module.get("weight")
        if weight is not None and weight.ndim == 2 and weight.nbytes > _LARGE:
            parts = rows_in_parts(network, weight, max(_PART, weight.nbytes // _MOST_PARTS))
            if parts is not None:
                found[name] = parts
    return found


def _quantize_in_parts(network: Module, large: dict[str, list[mx.array]]) -> None:
    """Let matrices that are quantized be so part by part: none is there as a whole."""
    import mlx.core as mx

    for name, module in network.named_modules():
        if name not in large or "scales" not in module:
            continue
        made: Any = module
        keys = [key for key in ("weight", "scales", "biases") if key in module]
        whole = [mx.zeros(made[key].shape, made[key].dtype) for key in keys]
        first = 0
        for rows in large[name]:
            end = first + rows.shape[0]
            columns = mx.quantize(rows, made.group_size, made.bits, mode=made.mode)
            # One part follows another, as each changes the array in place: parts beside each other
            # would all be read before the first is quantized.
            for array, part in zip(whole, columns, strict=True):
                array[first:end] = part
            first = end
        for key, array in zip(keys, whole, strict=True):
            module[key] = array


def apply_to_head(head: Module, network: Module, how: Quantizing) -> None:
    """Quantize a head that drafts, but for the layers that its network treats in its own way.

    Args:
        head: with all of its weights; changed in place.
        network: the model's.
        how: the format.
    """
    from mlx.nn.layers.quantized import quantize

    excluded = getattr(network, "quant_predicate", None)

    def wanted(name: str, module: Any) -> bool:
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % how.group_size:
            return False
        return excluded is None or excluded(name, module) is True

    quantize(head, how.group_size, how.bits, mode=how.mode, class_predicate=wanted)
