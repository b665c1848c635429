"""LoRA and DoRA adapters as mlx-lm's trainer writes them, and their layers."""

from __future__ import annotations

import os

from cowmlx import failures
from cowmlx.accelerate.device import put_into
from cowmlx.errors import BadFormat, NotFound, OutOfRange, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.folders import places, safetensors, weights
from cowmlx.folders.config import invalid_config, mismatch
from cowmlx.models import network
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.device import Form
    from cowmlx.memory import RequireRoom
    from cowmlx.models.model import Model

_KINDS = ("lora", "dora", "full")
_CONFIG, _WEIGHTS = "adapter_config.json", "adapters.safetensors"
_MAX_RANK = 65536


# Beyond it an adapter drowns the model, and soon float32 overflows.
_LARGEST_SCALE = 1000.0


def adapted(
    model: Model,
    path: str,
    scale: float,
    require_room: RequireRoom,
) -> Model:
    """Return a model with an adapter, whose other weights are the model's own arrays.

    Args:
        model: left as it is.
        path: the adapter's folder.
        scale: what its effect is multiplied by; only LoRA is linear in it. DoRA rescales every
            row to a trained length (arXiv 2402.09353, eq. 5), also where its change is 0.
        require_room: raises where so many bytes may not be taken for a named purpose.

    Raises:
        InvalidArgument: the scale is no number, or one that leaves nothing of the model.
        Unsupported: another scale than 1 for what is no LoRA; a model that is adapted already.
        NotFound, BadFormat, OutOfMemory: see the messages.
    """
    if not abs(scale) <= _LARGEST_SCALE:
        raise OutOfRange("scale", scale, f"within {_LARGEST_SCALE:g} of 0; 1 is as trained")
    path = places.resolved(path)
    settings = check(path)
    kind = settings.get("fine_tune_type", "lora")
    if scale != 1 and kind != "lora":
        raise Unsupported(
            f"scale is {scale}, but an adapter of fine_tune_type {kind!r} cannot be scaled; use 1",
            argument="scale",
            value=scale,
        )
    if layers_of(model.network):
        raise Unsupported(
            "the model was loaded with an adapter_path; load it without one to give contexts "
            "separate adapters",
            argument="adapter_path",
        )
    other = _sharing(model, settings, _load(path), path, require_room)
    for name, layer in layers_of(other.network).items():
        if not isinstance(layer.scale, int | float):
            raise Unsupported(
                f"{name} of type {type(layer).__name__} cannot be scaled", argument="scale"
            )
        layer.scale *= scale
    other.fuse_layers()
    return other


def adapted_by(model: Model, settings: dict[str, Any], arrays: dict[str, mx.array]) -> Model:
    """Return a model with an adapter that is in memory, whose other weights are the model's.

    Args:
        model: left as it is.
        settings: as in an ``adapter_config.json``.
        arrays: the adapter's parameters by name, or with "full" weights that take the place of the
            model's.

    Raises:
        BadFormat, Unsupported, OutOfMemory: see the messages.
    """
    other = _sharing(model, settings, arrays, "in memory")
    other.fuse_layers()
    return other


def _sharing(
    model: Model,
    settings: dict[str, Any],
    arrays: dict[str, mx.array],
    where: str,
    require_room: RequireRoom = lambda size, what: None,
) -> Model:
    """Return a model with an adapter, its layers not yet fused."""
    net = network.share(model.network)
    _put(net, settings, arrays, model.package, model.form, where)
    net.eval()
    require_room(sum(array.nbytes for array in arrays.values()), "the adapter")
    _evaluate(net, model.network, where)
    prove(net, where, model.package)
    return model.with_network(net)


def _evaluate(net: Module, base: Module, path: str) -> None:
    """Evaluate the arrays that a network does not share with its base.

    Raises:
        BadFormat, OutOfMemory: the evaluation failed.
    """
    import mlx.core as mx

    shared = {id(array) for array in weights.flatten(base.parameters()).values()}
    own = weights.flatten(net.parameters()).values()
    with weights.loading(path):
        mx.eval([array for array in own if id(array) not in shared])


def prove(net: Module, path: str, package: str) -> None:
    """Require that a network still runs with its adapter.

    Raises:
        BadFormat: it does not.
    """
    try:
        network.prove(net, package)
    except Exception as exc:
        failures.reraise_shortage(exc)
        reason = str(exc).partition("\n")[0]
        raise BadFormat(
            f"the adapter {path} makes no network that runs ({type(exc).__name__}: {reason})",
            file=path,
        ) from exc


def check(path: str) -> dict[str, Any]:
    """Read an adapter's config and check that its weights are there.

    Returns:
        The contents of ``adapter_config.json``.

    Raises:
        NotFound: the folder or one of its two files is missing.
        BadFormat: a file is malformed.
    """
    if not os.path.isdir(path):
        raise NotFound(f"no such adapter directory: {path}", file=path)
    config_files.check_folder(path)
    settings = config_files.read_json(os.path.join(path, _CONFIG))
    kind = settings.get("fine_tune_type", "lora")
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise invalid_config(
            f"fine_tune_type {kind!r} is none of {known}",
            _CONFIG,
            key="fine_tune_type",
            value=kind,
            accepted=known,
        )
    if kind != "full":
        _require(settings, ("num_layers", "lora_parameters"), _CONFIG)
        options = settings["lora_parameters"]
        if not isinstance(options, dict):
            raise invalid_config(
                "lora_parameters must be an object", _CONFIG, key="lora_parameters"
            )
        _require(options, ("rank", "scale", "dropout"), "lora_parameters")
        for name, value in (("num_layers", settings["num_layers"]), ("rank", options["rank"])):
            if not isinstance(value, int):
                raise invalid_config(
                    f"{name} must be an integer, not {value!r}", _CONFIG, key=name, value=value
                )
        _check_parameters(options)
    file = os.path.join(path, _WEIGHTS)
    if not os.path.isfile(file):
        raise NotFound(f"{path} has no {_WEIGHTS}", file=_WEIGHTS)
    safetensors.check_file(file)
    return settings


def _check_parameters(options: dict[str, Any]) -> None:
    rank, dropout = options["rank"], options["dropout"]
    if not 1 <= rank <= _MAX_RANK:
        raise _out_of_range("rank", rank, f"1 to {_MAX_RANK}")
    if network.is_number(dropout) and not 0 <= dropout < 1:
        raise _out_of_range("dropout", dropout, "0 to 1, without 1")
    for name in ("scale", "dropout"):
        value = options[name]
        if not network.is_number(value):
            raise invalid_config(
                f"lora_parameters.{name} is {repr(value)[:60]}; it must be a number within "
                f"{network.LARGEST:g} of 0",
                _CONFIG,
                key=f"lora_parameters.{name}",
            )
    keys = options.get("keys")
    if keys is not None and not (
        isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    ):
        raise BadFormat(
            f"lora_parameters: keys must be an array of names, not {keys!r}",
            reason="invalid_config",
            key="keys",
        )


def _out_of_range(name: str, value: float, accepted: str) -> BadFormat:
    key = f"lora_parameters.{name}"
    return invalid_config(
        f"{key} is {value}, not within {accepted}", _CONFIG, key=key, value=value, accepted=accepted
    )


def apply(net: Module, path: str, settings: dict[str, Any], package: str, form: Form) -> None:
    """Put an adapter's layers and weights into a network.

    Args:
        net: a loaded network; changed in place.
        path: the adapter's folder.
        settings: what :func:`check` returned.
        package: the package of the network's mlx-lm, for its own layer classes.
        form: that the network was put into.

    Raises:
        BadFormat: the adapter does not fit the network.
    """
    _put(net, settings, _load(path), package, form, path)


def _load(path: str) -> dict[str, mx.array]:
    """Return an adapter's arrays, not yet read."""
    with weights.loading(path):
        return safetensors.load(os.path.join(path, _WEIGHTS))


def _put(
    net: Module,
    settings: dict[str, Any],
    arrays: dict[str, mx.array],
    package: str,
    form: Form,
    where: str,
) -> None:
    """Put an adapter's layers and weights into a network; the last names it in messages."""
    full = settings.get("fine_tune_type", "lora") == "full"
    with weights.loading(where):
        if full:
            _restore(net, arrays)
        else:
            insert_layers(net, settings, package)
    own: dict[str, mx.array] = weights.flatten(net.parameters())
    if not full:
        own = {name: array for name, array in own.items() if is_adapter_parameter(name)}
    problems = []
    for name, array in sorted(arrays.items()):
        if name not in own:
            problems.append(f"{name} is no adapter parameter of this model")
        elif array.shape != own[name].shape:
            problems.append(f"{name} is {tuple(array.shape)}, not {tuple(own[name].shape)}")
    if problems:
        raise mismatch(
            f"the adapter {where} does not fit the model: {len(problems)} of its "
            f"tensors: {'; '.join(problems[:5])}",
            where,
        )
    net.load_weights(list(arrays.items()), strict=False)
    if full:
        put_into(net, form)
    else:
        keys = settings["lora_parameters"].get("keys")
        _require_whole(net, own.keys() - arrays.keys(), keys is not None, where)


def _require_whole(net: Any, missing: set[str], named: bool, where: str) -> None:
    """Check that a file has all parameters of an adapter's layers.

    A config that names no layers means all that can have an adapter; earlier versions of mlx-lm
    trained fewer then. Layers that such a file has nothing of become those of the network again.

    Raises:
        BadFormat: parameters are missing.
    """
    from mlx.utils import tree_unflatten

    layers, plain = layers_of(net), []
    for name, layer in layers.items():
        own = {f"{name}.{part}" for part in weights.flatten(layer.parameters())}
        own = {full for full in own if is_adapter_parameter(full)}
        base = layer.get("linear", layer.get("embedding"))
        if own <= missing and base is not None and not named:
            plain.append((name, base))
            missing = missing - own
    if missing or (layers and len(plain) == len(layers)):
        lacking = ", ".join(sorted(missing)[:5]) or "all parameters of its layers"
        raise mismatch(
            f"the adapter {where} lacks {lacking}{' and more' if len(missing) > 5 else ''}, which "
            f"its {_CONFIG} declares",
            where,
        )
    if plain:
        net.update_modules(tree_unflatten(plain))


def _restore(net: Module, arrays: dict[str, mx.array]) -> None:
    """Give modules whose weights are replaced mlx's own form."""
    from cowmlx.accelerate.blocks import restore

    owners = {name.rpartition(".")[0] for name in arrays}
    for name, module in net.named_modules():
        if name in owners:
            restore(module)


def _require(settings: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in keys:
        if key not in settings:
            raise BadFormat(
                f"the adapter's {where} lacks {key!r}", reason="invalid_config", file=where, key=key
            )


_LEAVES = frozenset(("lora_a", "lora_b", "m"))


def is_adapter_parameter(name: str) -> bool:
    """Whether a parameter, by its full name, is an adapter's and not the network's."""
    path, _, leaf = name.rpartition(".")
    if leaf.isdigit():  # of a layer that has several matrices
        leaf = path.rpartition(".")[2]
    return leaf in _LEAVES


def layers_of(net: Module) -> dict[str, Any]:
    """Return a network's adapter layers by their names."""
    return {name: module for name, module in net.named_modules() if "lora_a" in module}


def insert_layers(net: Any, settings: dict[str, Any], package: str) -> set[str]:
    """Replace layers by their LoRA or DoRA forms: in the last blocks, and by full name.

    Args:
        net: changed in place.
        settings: as in an ``adapter_config.json`` that is no full one.
        package: the package of the network's mlx-lm, for its own layer classes.

    Returns:
        the keys that name no layer.

    Raises:
        BadFormat, Unsupported: there is no such form of a layer.
    """
    from mlx.utils import tree_unflatten

    options = settings["lora_parameters"]
    kinds = _Kinds(package, options, dora=settings.get("fine_tune_type") == "dora")
    keys = options.get("keys")
    if keys is None:
        keys = {
            name
            for block in net.layers
            for name, module in block.named_modules()
            if kinds.accepts(module)
        }
    unknown = set(keys)
    count = max(settings["num_layers"], 0)
    # As mlx-lm slices it: 0 layers means all of them.
    for block in net.layers[-count:]:
        changed = [(name, kinds.make(m)) for name, m in block.named_modules() if name in keys]
        unknown.difference_update(name for name, _ in changed)
        if changed:
            block.update_modules(tree_unflatten(changed))
    changed = [(name, kinds.make(m)) for name, m in net.named_modules() if name in keys]
    unknown.difference_update(name for name, _ in changed)
    if changed:
        net.update_modules(tree_unflatten(changed))
    return unknown


class _Kinds:
    """Finds the adapter layer that goes around a layer."""

    def __init__(self, package: str, options: dict[str, Any], *, dora: bool) -> None:
        from mlx.nn.layers.embedding import Embedding
        from mlx.nn.layers.linear import Linear
        from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear

        lora = _import(package, "tuner.lora")
        switch = _import(package, "models.switch_layers")
        self._options = {
            "r": options["rank"],
            "scale": options["scale"],
            "dropout": options["dropout"],
        }
        self._dora = dora
        linear: Any = lora.LoRALinear
        embedding: Any = lora.LoRAEmbedding
        experts: Any = lora.LoRASwitchLinear
        if dora:
            module = _import(package, "tuner.dora")
            linear, embedding, experts = module.DoRALinear, module.DoRAEmbedding, None
        self._pairs: list[tuple[tuple[type, ...], Any]] = [
            ((Linear, QuantizedLinear), linear),
            ((switch.SwitchLinear, switch.QuantizedSwitchLinear), experts),
            ((Embedding, QuantizedEmbedding), embedding),
        ]

    def accepts(self, module: Module) -> bool:
        """Whether an adapter that names no layers applies to this one."""
        return hasattr(module, "to_lora") or any(isinstance(module, ts) for ts, _ in self._pairs)

    def make(self, module: Any) -> Module:
        """Return the adapter layer around a layer."""
        if not self._dora and hasattr(module, "to_lora"):
            own: Module = module.to_lora(**self._options)
            return own
        for types, kind in self._pairs:
            if isinstance(module, types):
                if kind is None:
                    raise Unsupported("mlx-lm has no DoRA for expert layers")
                made: Module = kind.from_base(module, **self._options)
                return made
        raise BadFormat(
            f"the adapter names a layer of type {type(module).__name__}", reason="invalid_config"
        )


def _import(package: str, name: str) -> ModuleType:
    if package == light_route.ALIAS:
        return light_route.import_module(name)
    import importlib

    return importlib.import_module(f"{package}.{name}")
