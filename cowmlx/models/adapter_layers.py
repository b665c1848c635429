"""The layers of LoRA and DoRA adapters, around a network's own: those of mlx-lm's tuner."""

from __future__ import annotations

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from mlx.nn.layers.base import Module

_LEAVES = frozenset(("lora_a", "lora_b", "m"))


def is_own(name: str) -> bool:
    """Whether a parameter, by its full name, is an adapter's and not the network's."""
    path, _, leaf = name.rpartition(".")
    if leaf.isdigit():  # of a layer that has several matrices
        leaf = path.rpartition(".")[2]
    return leaf in _LEAVES


def find(net: Module) -> dict[str, Any]:
    """Return a network's adapter layers by their names."""
    return {name: module for name, module in net.named_modules() if "lora_a" in module}


def insert(net: Any, settings: dict[str, Any], package: str) -> set[str]:
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
