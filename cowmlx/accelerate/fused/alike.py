"""Kinds of modules: those of one kind compute the same, but for the weights that kernels are given.

A module's code can distinguish two modules by their classes, their arrays, and the attributes that
the code names. Often only the constructor names a layer's number.
"""

from __future__ import annotations

import sys
from functools import cache
from types import FunctionType

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator
    from types import CodeType
    from typing import Any

_SMALL = 1 << 12  # bytes of an array that is compared by its numbers
_PLAIN = (int, float, str, bytes, type, type(None))
# Attributes of training, which kernels do not do.
_TRAINING = ("_no_grad", "_training")


class _Large(Exception):
    """An array that is too large to compare, and that kernels are not given."""


def kind_of(given: Iterable[Module], *values: Any) -> Hashable | None:
    """Return the kind of values, equal for those that compute the same; None if it is unknown.

    Args:
        given: the modules whose own arrays kernels are given.
        values: modules and others. They must live while their kinds are compared.
    """
    kinds = {type(part) for each in values if isinstance(each, Module) for part in modules_of(each)}
    named = [_named_by(kind) for kind in kinds]
    names = None if None in named else frozenset[str]().union(*filter(None, named))
    try:
        return _Comparison({id(module) for module in given}, names).kind(values)
    except _Large:
        return None


class _Comparison:
    """Finds the kinds of values.

    Args:
        given: the identities of modules whose own arrays kernels are given.
        names: the attributes that code names; None if they are unknown.
    """

    def __init__(self, given: set[int], names: frozenset[str] | None) -> None:
        self._given = given
        self._names = names

    def kind(self, value: Any, is_given: bool = False) -> Hashable:
        """Return the kind of a value, of a module whose arrays kernels are given or not."""
        if isinstance(value, mx.array):
            return value.shape, value.dtype, b"" if is_given else _numbers(value)
        if isinstance(value, Module):
            own = {name: each for name, each in vars(value).items() if self._counts(name)}
            parts = self.kind(dict(value.items()), id(value) in self._given), self.kind(own)
            return type(value), *parts
        if isinstance(value, dict):
            return tuple((name, self.kind(each, is_given)) for name, each in value.items())
        if isinstance(value, list | tuple):
            return type(value), *(self.kind(each, is_given) for each in value)
        if isinstance(value, _PLAIN):
            return type(value), value
        return type(value), id(value)

    def _counts(self, name: str) -> bool:
        return name not in _TRAINING and (self._names is None or name in self._names)


@cache
def _named_by(kind: type) -> frozenset[str] | None:
    """Return the names in the code of a class and of the functions that its module has.

    None if some code cannot be read.
    """
    names: set[str] = set()
    for base in kind.__mro__:
        if base in (Module, dict, object):
            continue
        beside = vars(sys.modules.get(base.__module__, object)).values()
        functions = [each for each in beside if isinstance(each, FunctionType)]
        functions += [each for each in beside if getattr(each, "__module__", "") == base.__module__]
        methods = [each for name, each in vars(base).items() if name != "__init__"]
        for each in [*methods, *functions]:
            plain = getattr(each, "fget", None) or getattr(each, "__func__", each)
            code = getattr(getattr(plain, "__wrapped__", plain), "__code__", None)
            if code is not None:
                names.update(_names_of(code))
            elif callable(plain) and not isinstance(plain, type):
                return None
    return frozenset(names)


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant  # of getattr
        elif isinstance(constant, type(code)):
            yield from _names_of(constant)


def _numbers(array: mx.array) -> bytes:
    if array.nbytes > _SMALL:
        raise _Large
    return bytes(memoryview(array.reshape(-1).view(mx.uint8)))  # type: ignore[arg-type]
