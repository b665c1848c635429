"""Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.making import example, moving, row
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Operation, Spec

ACCEPTED = ("float32", "complex64")
MAX_LENGTH = 2**26
_LARGEST = float(mx.finfo(mx.float32).max)
_N = Attribute(
    "n",
    "int",
    None,
    "The length to which the axis is cut or filled up with zeros; null is its own.",
    low=1,
    high=MAX_LENGTH,
)
_NORM = Attribute(
    "norm",
    "choice",
    "backward",
    "Whether 1 / n is the inverse's factor, or its root that of both, or it is the other's.",
    ("backward", "ortho", "forward"),
)
_S = Attribute(
    "s", "ints", None, "As n, for each of axes; null is their own.", low=1, high=MAX_LENGTH
)


def _kinds(name: str) -> tuple[bool, bool]:
    """Return whether a transform takes real numbers, and whether it gives them."""
    return name.startswith("rfft"), name.startswith("irfft")


def _result(
    name: str, given: Spec, axes: tuple[int, ...], lengths: tuple[int, ...] | None
) -> list[Spec]:
    real_in, real_out = _kinds(name)
    rules.require_dtype("a", given, ("float32",) if real_in else ACCEPTED)
    if not axes:
        raise rules.value_refused("axes", "empty", "one axis or more")
    if lengths is not None and len(lengths) != len(axes):
        raise rules.value_refused("s", list(lengths), f"{len(axes)} lengths, one per axis")
    shape: Shape = given.shape
    for at, axis in enumerate(axes):
        length: Dim = shape[axis] if lengths is None else lengths[at]
        if at == len(axes) - 1 and real_out and lengths is None:
            length = (length - 1) * 2
        if length == 0:
            raise rules.shapes_refused([given.shape], f"axis {axis} must have elements")
        if at == len(axes) - 1 and real_in:
            length = length // 2 + 1
        shape = rules.replaced(shape, axis, length)
    if lengths is not None and any(given.shape[axis] == 0 for axis in axes):
        raise rules.shapes_refused([given.shape], "the axes must have elements")
    return [rules.spec(shape, "float32" if real_out else "complex64")]


def _one(name: str, function: Callable[..., mx.array], summary: str, formula: str) -> Operation:
    def infer(given: Any, /, **attributes: Any) -> list[Spec]:
        axis = rules.axis_of(attributes["axis"], len(given.shape))
        n = attributes["n"]
        return _result(name, given, (axis,), None if n is None else (n,))

    kind = "float32" if _kinds(name)[0] else "complex64"
    return row(
        f"{name}(a)",
        infer,
        lambda *arrays, **attributes: function(*arrays, **attributes),
        summary,
        formula,
        [
            example(f"{kind}[2,6]"),
            example(f"{kind}[5,2]", axis=0, norm="ortho"),
            example("[2,6]", n=4),
            example(f"{kind}[2,6]", n=9, norm="forward"),
        ],
        attributes=(_N, Attribute("axis", "axis", -1, "The axis."), _NORM),
        differentiable=("a",),
    )


def _many(name: str, function: Callable[..., mx.array], summary: str) -> Operation:
    def given_axes(rank: int, attributes: Attributes) -> tuple[int, ...]:
        axes, lengths = attributes["axes"], attributes["s"]
        if axes is None and lengths is not None and not name.endswith("2"):
            if len(lengths) > rank:
                raise rules.value_refused("s", list(lengths), f"{rank} lengths at most")
            axes = tuple(range(rank - len(lengths), rank))
        return rules.axes_of(axes, rank, "axes")

    def infer(given: Any, /, **attributes: Any) -> list[Spec]:
        axes = given_axes(len(given.shape), attributes)
        return _result(name, given, axes, attributes["s"])

    def compute(a: Any, /, **attributes: Any) -> mx.array:
        axes = list(given_axes(a.ndim, attributes))
        lengths = attributes["s"]
        return function(a, s=lengths, axes=axes, norm=attributes["norm"])

    kind = "float32" if _kinds(name)[0] else "complex64"
    axes = (-2, -1) if name.endswith("2") else None
    return row(
        f"{name}(a)",
        infer,
        compute,
        summary,
        "the transform of each axis after the other",
        [
            example(f"{kind}[2,4,6]"),
            example("[2,4]"),
            example(f"{kind}[3,4]", s=[2, 6], axes=[0, 1], norm="ortho"),
        ],
        attributes=(
            _S,
            Attribute("axes", "axes", axes, "The axes" + ("." if axes else "; null is all.")),
            _NORM,
        ),
        differentiable=("a",),
    )


def _frequencies(name: str, function: Callable[..., mx.array], real: bool) -> Operation:
    def infer(*inputs: Any, **attributes: Any) -> Spec:
        n = attributes["n"]
        if attributes["d"] == 0:
            raise rules.value_refused("d", 0, "a number that is not 0")
        return rules.spec((n // 2 + 1 if real else n,), "float32")

    def compute(n: int, d: float) -> mx.array:
        found = function(n, d)
        if abs(1 / (n * d)) <= _LARGEST:
            return found
        # mlx multiplies places by infinity.
        return mx.where(mx.arange(found.size) == 0, 0 / d, found)

    return row(
        f"{name}()",
        infer,
        lambda *arrays, **attributes: compute(**attributes),
        f"The frequencies of the results of {'rfft' if real else 'fft'}.",
        "out[i] = i / (n d)" + ("" if real else ", those from n / 2 on less 1 / d"),
        [example(n=6), example(n=5, d=0.5)],
        attributes=(
            # mlx's fftfreq returns half of the frequencies for one more.
            Attribute(
                "n",
                "int",
                REQUIRED,
                "The length of what is transformed.",
                low=1,
                high=None if real else 2**31 - 2,
            ),
            Attribute("d", "float", 1.0, "The time between two samples."),
        ),
    )


def _shift(name: str, where: str) -> Operation:
    def rule(shape: Shape, attributes: Attributes) -> Shape:
        rules.axes_of(attributes["axes"], len(shape), "axes")
        return shape

    def compute(a: mx.array, axes: Any) -> mx.array:
        given = range(a.ndim) if axes is None else axes if isinstance(axes, tuple) else (axes,)
        if a.size == 0:
            return a
        for axis in given:
            half = a.shape[axis] // 2
            a = mx.roll(a, half if name == "fftshift" else -half, axis)
        return a

    return moving(
        name,
        rule,
        f"The frequency 0 {where}.",
        "out = roll(a, half the length)",
        [example("[5]"), example("[2,6]", axes=[1])],
        compute,
        attributes=(Attribute("axes", "axis or axes", None, "The axes; null is all."),),
    )


_FORWARD = "out[k] = sum over j of a[j] e^(-2 pi i j k / n)"
_BACKWARD = "out[j] = 1 / n sum over k of a[k] e^(2 pi i j k / n)"

ROWS = (
    _one("fft", mx.fft.fft, "The Fourier transform along an axis.", _FORWARD),
    _one("ifft", mx.fft.ifft, "The inverse Fourier transform along an axis.", _BACKWARD),
    _one("rfft", mx.fft.rfft, "The first half of the Fourier transform of real numbers.", _FORWARD),
    _one("irfft", mx.fft.irfft, "The inverse of rfft: real numbers.", _BACKWARD),
    _many("fft2", mx.fft.fft2, "The Fourier transform along two axes."),
    _many("ifft2", mx.fft.ifft2, "The inverse Fourier transform along two axes."),
    _many("rfft2", mx.fft.rfft2, "The Fourier transform of real numbers along two axes."),
    _many("irfft2", mx.fft.irfft2, "The inverse of rfft2: real numbers."),
    _many("fftn", mx.fft.fftn, "The Fourier transform along axes."),
    _many("ifftn", mx.fft.ifftn, "The inverse Fourier transform along axes."),
    _many("rfftn", mx.fft.rfftn, "The Fourier transform of real numbers along axes."),
    _many("irfftn", mx.fft.irfftn, "The inverse of rfftn: real numbers."),
    _frequencies("fftfreq", mx.fft.fftfreq, False),
    _frequencies("rfftfreq", mx.fft.rfftfreq, True),
    _shift("fftshift", "in the middle"),
    _shift("ifftshift", "back at the beginning"),
)
