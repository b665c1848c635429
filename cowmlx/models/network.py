"""Building a network from a config and its weights, on the light route."""

from __future__ import annotations

from cowmlx.errors import BadFormat, CowMlxError
from cowmlx.models import light_route, quantization, weights

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

# More than any model has; an absurd number in a config would build layers without end.
_MOST_LAYERS = 4096
_LAYER_KEYS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_experts")


def build(
    config: dict[str, Any], architecture: str, arrays: dict[str, mx.array], path: str
) -> Module:
    """Make the network of ``config`` around lazily loaded weights.

    Args:
        config: what ``config.json`` says; quantisation settings may be added to it.
        architecture: the name of an architecture file of mlx-lm.
        arrays: the weights as stored; emptied, so that the network alone holds them.
        path: the model's folder, for messages.

    Raises:
        Unsupported: the architecture cannot be imported.
        BadFormat: config and weights do not make a network.
    """
    module = light_route.import_module(f"models.{architecture}")
    for part in (config, config.get("text_config")):
        _check_sizes(part)
    try:
        arguments = module.ModelArgs.from_dict(config)
        network: Module = module.Model(arguments)
    except CowMlxError:
        raise
    except Exception as exc:
        raise BadFormat(_unusable(module.ModelArgs, config, architecture, exc)) from exc
    try:
        stored = dict(arrays)
        arrays.clear()
        if hasattr(network, "sanitize"):
            stored = network.sanitize(stored)
    except Exception as exc:
        raise BadFormat(
            f"the weights in {path} are not those of a {architecture} model "
            f"({type(exc).__name__}: {exc})"
        ) from exc
    quantization.apply(network, config, stored)
    weights.assign(network, stored, path)
    network.eval()
    return network


def logits_width(network: Module, fallback: int) -> int:
    """Return the rows of the logits: the shape of a forward pass that is never evaluated."""
    import mlx.core as mx

    try:
        return int(network(mx.array([[0]])).shape[-1])
    except Exception:
        return fallback


def _check_sizes(config: object) -> None:
    if not isinstance(config, dict):
        return
    for key in _LAYER_KEYS:
        value = config.get(key)
        if isinstance(value, int) and not 0 <= value <= _MOST_LAYERS:
            raise BadFormat(f"config.json: {key} is {value}, not within 0 to {_MOST_LAYERS}")


def _unusable(arguments: Any, config: dict[str, Any], architecture: str, exc: Exception) -> str:
    """Say what the architecture did not find or could not use in the config."""
    import inspect

    required = [
        name
        for name, parameter in inspect.signature(arguments).parameters.items()
        if parameter.default is inspect.Parameter.empty
    ]
    missing = [name for name in required if name not in config]
    if missing:
        return f"config.json lacks {', '.join(missing)}, which {architecture} needs"
    if isinstance(exc, KeyError) and exc.args:
        return f"config.json lacks {exc.args[0]}, which {architecture} needs"
    return f"config.json does not describe a {architecture} model ({type(exc).__name__}: {exc})"
