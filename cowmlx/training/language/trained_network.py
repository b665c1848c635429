"""A copy of a loaded model's network that can be trained."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten

from cowmlx.accelerate import kernels, single
from cowmlx.accelerate.device import is_quantized, take_out
from cowmlx.errors import BadFormat, CowMlxError, InvalidArgument, OutOfRange, Unsupported
from cowmlx.folders import weights
from cowmlx.models import adapters
from cowmlx.models import network as networks
from cowmlx.models.model import Model
from cowmlx.training.language import dequantized
from cowmlx.training.language.options import DORA, FULL, LanguageOptions

_HALF = (mx.float16, mx.bfloat16)
_SHOWN = 5


def make(model: Model, options: LanguageOptions) -> Any:
    """Return a copy of a model's network in training mode, with the options' trainable parameters.

    Arrays of the serving network in a form that can be trained are shared with it; arrays that
    kernels hold in blocks are laid out for mlx. On a CPU, where products of 16 bits are slow, all
    is float32.

    Raises:
        Unsupported: the network has no blocks, has an adapter already, or cannot be trained so.
        InvalidArgument: more layers than there are, or keys that name none.
    """
    if adapters.layers_of(model.network):
        raise Unsupported(
            "the model was loaded with an adapter_path; load it without one to train another",
            argument="adapter_path",
        )
    net: Any = networks.share(model.network)
    take_out(net)
    for _, module in net.named_modules():
        if "_no_grad" not in vars(module):  # an architecture that does not call Module.__init__
            Module.__init__(module)
    blocks = blocks_of(net, model.architecture)
    if options.num_layers > len(blocks):
        accepted = f"1 to {len(blocks)}, or -1 for all of them"
        raise OutOfRange("num_layers", options.num_layers, accepted)
    if model.form.on_cpu:
        _widen(net)
        dequantized.replace(net)
        if kernels.available():
            single.replace(net)
    net.freeze()
    if options.kind == FULL:
        _unfreeze(net, options)
    else:
        _insert(net, model, options)
    net.train()
    return net


def blocks_of(net: Any, architecture: str) -> list[Any]:
    """Return the blocks of a network.

    Raises:
        Unsupported: it has none.
    """
    try:
        blocks = list(net.layers)
    except (AttributeError, TypeError):
        blocks = []
    if not blocks:
        text = f"a {architecture} network cannot be trained: it has no list of layers"
        raise Unsupported(text, value=architecture)
    return blocks


def trainable(net: Module) -> dict[str, mx.array]:
    """Return the trainable parameters by full names, sorted."""
    parameters: dict[str, mx.array] = dict(tree_flatten(net.trainable_parameters()))
    return {
        name: parameters[name]
        for name in sorted(parameters)
        if mx.issubdtype(parameters[name].dtype, mx.floating)
    }


def _widen(net: Module) -> None:
    """Convert dense weights of 16 bits to float32."""
    wide: dict[int, tuple[mx.array, mx.array]] = {}  # tied weights stay one array
    for _, module in net.named_modules():
        for name, value in list(module.items()):
            if isinstance(value, mx.array) and value.dtype in _HALF:
                if id(value) not in wide:
                    wide[id(value)] = value, value.astype(mx.float32)
                module[name] = wide[id(value)][1]


def _unfreeze(net: Any, options: LanguageOptions) -> None:
    if is_quantized(net):
        message = (
            "type is 'full', but the model's weights are quantized, and such numbers have no "
            "gradients; train an adapter (type 'lora'), or a model that is not quantized"
        )
        raise Unsupported(message, argument="type", value=FULL, accepted="lora, dora")
    if options.num_layers == -1:
        net.unfreeze()
    else:
        for block in net.layers[-options.num_layers :]:
            block.unfreeze()


def _insert(net: Any, model: Model, options: LanguageOptions) -> None:
    settings = options.adapter_config(len(net.layers))
    if options.kind == DORA:
        _check_dora(net)
    try:
        unknown = sorted(adapters.insert_layers(net, settings, model.package))
    except CowMlxError as exc:
        raise _unfit(exc) from exc
    # The layers' first values have split mlx's key; the seed's values replace them.
    mx.eval(mx.random.state)
    if options.keys is not None and unknown:
        message = (
            f"keys names {', '.join(map(repr, unknown[:_SHOWN]))}, but the trained blocks "
            f"have no layer of that name; a {model.architecture} block has "
            f"{', '.join(_names(model))}"
        )
        raise InvalidArgument(message, reason="unknown_option", argument="keys", value=unknown[0])
    layers = adapters.layers_of(net)
    if not layers:
        text = f"no layer of this {model.architecture} network can have an adapter"
        raise Unsupported(text, value=model.architecture)
    _begin(layers, options.seed)


def _unfit(exc: CowMlxError) -> CowMlxError:
    if isinstance(exc, BadFormat):  # of an adapter's folder; here it is an option
        return InvalidArgument(str(exc).replace("the adapter names", "keys names"), argument="keys")
    return exc


def _check_dora(net: Any) -> None:
    """Refuse numbers that do not fill a word: mlx-lm's DoRA computes wrong shapes for them."""
    odd = {m.bits for _, m in net.named_modules() if "scales" in m and 32 % m.bits}
    if odd:
        raise Unsupported(
            f"type is 'dora', but weights of {min(odd)} bits have no DoRA in mlx-lm; use 'lora'",
            argument="type",
            value=DORA,
            accepted="lora",
        )


def _names(model: Model) -> list[str]:
    plain: Any = networks.share(model.network)
    names = {
        name
        for block in plain.layers
        for name, module in block.named_modules()
        if "weight" in module and module["weight"].ndim > 1
    }
    return sorted(names)


def _begin(layers: dict[str, Any], seed: int) -> None:
    """Set LoRA's first matrices to uniform values as mlx-lm does (arXiv 2106.09685)."""
    arrays = {
        f"{path}.{name}": (module, name, array)
        for path, module in layers.items()
        for name, array in weights.flatten({"lora_a": module["lora_a"]}).items()
    }
    keys = mx.random.split(mx.random.key(seed), len(arrays))
    for key, (_, (module, name, array)) in zip(keys, sorted(arrays.items()), strict=True):
        # Of experts (E, rank, in), of others (in, rank).
        bound = (array.shape[-1] if array.ndim > 2 else array.shape[0]) ** -0.5
        value = mx.random.uniform(-bound, bound, array.shape, key=key)
        _, _, index = name.partition(".")
        if index:
            module["lora_a"][int(index)] = value
        else:
            module["lora_a"] = value
