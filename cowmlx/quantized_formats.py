"""The formats of quantized weights, as mlx has them: one row each.

``csrc/kernels/formats.h`` has the formats of small floats for the kernels.
"""

from __future__ import annotations

from typing import NamedTuple


class QuantizedFormat(NamedTuple):
    """A format of quantized weights.

    Attributes:
        bits: the bits that a number can have; the first is mlx's default.
        groups: how many numbers can share a scale; the first is mlx's default.
        affine: whether scales are floats and each has a bias; else scales are bytes.
        is_method: whether ``quant_method`` of a ``quantization_config`` can name it.
    """

    bits: tuple[int, ...]
    groups: tuple[int, ...]
    affine: bool = False
    is_method: bool = False


FORMATS = {
    "affine": QuantizedFormat((4, 2, 3, 5, 6, 8), (64, 32, 128), affine=True),
    "mxfp4": QuantizedFormat((4,), (32,), is_method=True),
    "mxfp8": QuantizedFormat((8,), (32,), is_method=True),
    "nvfp4": QuantizedFormat((4,), (16,)),
}
"""By mlx's name of the mode, in the order of its numbers."""


def with_byte_scales(bits: int, group_size: int) -> str | None:
    """Return the mode of weights whose scales are bytes, or None if mlx has none such."""
    return next(
        (
            mode
            for mode, known in FORMATS.items()
            if not known.affine and bits in known.bits and group_size in known.groups
        ),
        None,
    )
