"""A copy of a loaded model's network that can be trained."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten

from cowmlx.accelerate import kernels, single
from cowmlx.accelerate.device import is_quantized, take_out
from cowmlx.errors import BadFormat, CowMlxError, InvalidArgument, OutOfRange, Unsupported
from cowmlx.folders import weights
from cowmlx.models import adapters
from cowmlx.models import network as networks
from cowmlx.training.language import unpacked
from cowmlx.training.language.options import DORA, FULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.models.model import Model
    from cowmlx.training.language.options import LanguageOptions

_HALF = (mx.float16, mx.bfloat16)
_SHOWN = 5


def make(model: Model, options: LanguageOptions) -> Any:
    """Return a copy in training mode, whose trainable parameters are what options say.

    Arrays that are in the serving network in a form that can be trained are shared with it; what
    kernels hold in blocks is laid out for mlx. On a CPU, where products of 16 bits are slow, all
    is float32.

    Args:
        model: its weights read; left as it is.
        options: what is trained.

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
        if "_no_grad" not in vars(module):  # an architecture that leaves out Module's own beginning
            Module.__init__(module)
    blocks = blocks_of(net, model.architecture)
    if options.num_layers > len(blocks):
        raise OutOfRange(
            "num_layers", options.num_layers, f"1 to {len(blocks)}, or -1 for all of them"
        )
    if model.form.on_cpu:
        _widen(net)
        unpacked.replace(net)
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
        raise Unsupported(
            f"a {architecture} network cannot be trained: it has no list of layers",
            value=architecture,
        )
    return blocks


def trainable(net: Module) -> dict[str, mx.array]:
    """Return what is trained, by full names, sorted."""
    found: dict[str, mx.array] = dict(tree_flatten(net.trainable_parameters()))
    return {
        name: found[name] for name in sorted(found) if mx.issubdtype(found[name].dtype, mx.floating)
    }


def _widen(net: Module) -> None:
    """Let dense weights of 16 bits be float32."""
    wide: dict[int, tuple[mx.array, mx.array]] = {}  # tied weights stay one array
    for _, module in net.named_modules():
        for name, value in list(module.items()):
            if isinstance(value, mx.array) and value.dtype in _HALF:
                if id(value) not in wide:
                    wide[id(value)] = value, value.astype(mx.float32)
                module[name] = wide[id(value)][1]


def _unfreeze(net: Any, options: LanguageOptions) -> None:
    if is_quantized(net):
        raise Unsupported(
            "type is 'full', but the model's weights are quantised, and such numbers have no "
            "gradients; train an adapter (type 'lora'), or a model that is not quantised",
            argument="type",
            value=FULL,
            accepted="lora, dora",
        )
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
    # What the layers begin with has split mlx's key; it is replaced by what the seed says.
    mx.eval(mx.random.state)
    if options.keys is not None and unknown:
        raise InvalidArgument(
            f"keys names {', '.join(map(repr, unknown[:_SHOWN]))}, but the layers that are "
            f"trained have none of that name; a {model.architecture} block has "
            f"{', '.join(_names(net, model))}",
            reason="unknown_option",
            argument="keys",
            value=unknown[0],
        )
    layers = adapters.layers_of(net)
    if not layers:
        raise Unsupported(
            f"no layer of this {model.architecture} network can have an adapter",
            value=model.architecture,
        )
    _begin(layers, options.seed)


def _unfit(exc: CowMlxError) -> CowMlxError:
    if isinstance(exc, BadFormat):  # of an adapter's folder; here it is an option
        return InvalidArgument(str(exc).replace("the adapter names", "keys names"), argument="keys")
    return exc


def _check_dora(net: Any) -> None:
    """Refuse what mlx-lm's DoRA counts wrong: numbers that do not fill a word."""
    odd = {m.bits for _, m in net.named_modules() if "scales" in m and 32 % m.bits}
    if odd:
        raise Unsupported(
            f"type is 'dora', but weights of {min(odd)} bits have no DoRA in mlx-lm; use 'lora'",
            argument="type",
            value=DORA,
            accepted="lora",
        )


def _names(net: Any, model: Model) -> list[str]:
    plain = networks.share(model.network)
    kinds = {
        name
        for block in plain.layers
        for name, module in block.named_modules()
        if "weight" in module and module["weight"].ndim > 1
    }
    return sorted(kinds)


def _begin(layers: dict[str, Any], seed: int) -> None:
    """Give LoRA's first matrices their values, uniform as mlx-lm has them (arXiv 2106.09685)."""
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
