"""First values of a program's parameters: of their ``init``, or arrays of the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from cowmlx.errors import InvalidArgument
from cowmlx.programs.failure import shown
from cowmlx.programs.graph import Declared
from cowmlx.programs.operations.random import normal, uniform
from cowmlx.programs.operations.rules import mlx_dtype, name_of
from cowmlx.training.objective import key_of


def parameters_of(
    declared: list[Declared], given: Mapping[str, mx.array], seed: int
) -> dict[str, mx.array]:
    """Return the first values of parameters.

    Raises:
        InvalidArgument: an array has no parameter or does not fit, or a parameter has neither an
            array nor an ``init``, or no size.
    """
    known = {declaration.name for declaration in declared}
    for name in given:
        if name not in known:
            accepted = ", ".join(sorted(known)[:16])
            raise InvalidArgument(
                f"initial_names has {shown(name)}, which is no parameter of the program, must be "
                f"one of {accepted}",
                reason="unknown_option",
                argument="initial_names",
                value=shown(name),
                accepted=accepted,
            )
    parameters = {
        declaration.name: _begin(declaration, given.get(declaration.name), seed)
        for declaration in declared
    }
    mx.eval(list(parameters.values()))
    return parameters


def _begin(each: Declared, array: mx.array | None, seed: int) -> mx.array:
    name = shown(each.name)
    if array is not None:
        _require_fits(each, array)
        return array
    if each.value is not None:
        return each.value
    if each.init is None:
        text = f"the parameter {name} has no init in the program: give it an array"
        raise InvalidArgument(text, reason="missing", argument=each.name)
    shape = tuple(side for side in each.spec.shape if isinstance(side, int))
    if len(shape) != len(each.spec.shape):
        text = f"the parameter {name} is {each.spec}, whose size only an array has: give it one"
        raise InvalidArgument(text, reason="missing", argument=each.name)
    return made(each.init, shape, each.spec.dtype, key_of(seed, "init", each.name))


def made(
    described: tuple[str, dict[str, Any]], shape: tuple[int, ...], dtype: str, key: mx.array
) -> mx.array:
    """Return an array of a function of ``mlx.nn.init``, lazily, for a random key.

    mlx's own functions use its global state, which is the host's.
    """
    name, arguments = described
    given = SimpleNamespace(**arguments)
    of = mlx_dtype(dtype)
    match name:
        case "constant":
            return mx.full(shape, given.value, of)
        case "zeros":
            return mx.zeros(shape, of)
        case "ones":
            return mx.ones(shape, of)
        case "identity":
            return mx.eye(shape[0], dtype=of)
        case "normal":
            return normal(shape, of, given.mean, given.std, key)
        case "uniform":
            return uniform(given.low, given.high, shape, of, key)
        case "sparse":
            return _sparse(given, shape, of, key)
        case "orthogonal":
            return _orthogonal(given.gain, shape, of, key)
    fan_in, fan_out = _fans(shape)
    if name.startswith("glorot"):
        fan = (fan_in + fan_out) / 2
    else:
        fan = fan_in if given.mode == "fan_in" else fan_out
    scale = given.gain / math.sqrt(fan)
    if name.endswith("normal"):
        return normal(shape, of, 0.0, scale, key)
    limit = math.sqrt(3.0) * scale
    return uniform(-limit, limit, shape, of, key)


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the units in and out: the last and the first side, times those between."""
    field = math.prod(shape[1:-1])
    return max(1, shape[-1] * field), max(1, shape[0] * field)


def _sparse(given: Any, shape: tuple[int, ...], of: mx.Dtype, key: mx.array) -> mx.array:
    """Normal numbers, with as many zeros in each row (J. Martens 2010)."""
    for_order, for_values = mx.random.split(key)
    zeros = math.ceil(given.sparsity * shape[1])
    order = mx.argsort(mx.random.uniform(shape=shape, key=for_order), axis=1)
    values = normal(shape, of, given.mean, given.std, for_values)
    nothing = mx.zeros((shape[0], zeros), of)
    return mx.put_along_axis(values, order[:, :zeros], nothing, axis=1)


def _orthogonal(gain: float, shape: tuple[int, ...], of: mx.Dtype, key: mx.array) -> mx.array:
    """Part of the Q of normal numbers, with the signs of R's diagonal."""
    side = max(shape)
    wide = of if of == mx.float64 else mx.float32
    q, r = mx.linalg.qr(normal((side, side), wide, 0.0, 1.0, key), stream=mx.cpu)
    q = (q * mx.sign(mx.diag(r)))[: shape[0], : shape[1]]
    return (q * gain).astype(of)


def _require_fits(each: Declared, array: mx.array) -> None:
    dtype, shape = name_of(array.dtype), list(array.shape)
    if dtype != each.spec.dtype:
        raise InvalidArgument(
            f"the array of the parameter {shown(each.name)} is {dtype}, must be {each.spec.dtype}",
            reason="dtype_mismatch",
            argument=each.name,
            value=dtype,
            accepted=each.spec.dtype,
        )
    wanted = each.spec.shape
    if len(shape) != len(wanted) or any(
        isinstance(side, int) and side != own for side, own in zip(wanted, shape, strict=True)
    ):
        raise InvalidArgument(
            f"the array of the parameter {shown(each.name)} has the shape {shape}, must be "
            f"{each.spec}",
            reason="shape_mismatch",
            argument=each.name,
            value=f"{shape}",
            accepted=f"{each.spec}",
        )
