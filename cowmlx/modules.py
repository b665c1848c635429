"""The modules of a network, for the many searches while it is prepared."""

from __future__ import annotations

from mlx.nn.layers.base import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def modules_of(network: Module) -> list[Module]:
    """Return a network and all modules in it, in the order of ``named_modules``.

    ``named_modules`` flattens a tree of names, which takes ten times as long.
    """
    modules: list[Module] = []
    waiting = [network]
    while waiting:
        module = waiting.pop()
        modules.append(module)
        for value in module.values():
            if isinstance(value, (dict, list)):
                _collect(value, waiting)
    return modules


def items_of(container: Any) -> list[tuple[Any, Any]]:
    """Return what a module, dictionary or list of a network holds, by name or place."""
    if isinstance(container, dict):
        return list(container.items())
    return list(enumerate(container)) if isinstance(container, list) else []


def _collect(value: Any, to: list[Module]) -> None:
    """Append the modules that a module holds in a value."""
    if isinstance(value, Module):
        to.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, to)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, to)
