"""Products of a linear layer in parts, one for each processor, on a CPU.

A stream of mlx on a CPU is one thread, and so is a BLAS that is told to use one. The rows of a
layer's weights are shared out between streams; the values are those of one product.
"""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.linear import Linear

from cowmlx import blas
from cowmlx.branches import BRANCHES, MAX_PROCESSORS
from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mlx.nn.layers.base import Module

# Multiplications from which a part is worth a stream of its own (see benchmarks/branches.py).
_WORTH_A_STREAM = 1 << 20


def in_parts(rows: int, work: int, product: Callable[[slice], mx.array]) -> mx.array:
    """Compute a product in as many parts as pay.

    Args:
        rows: of the weights.
        work: multiplications of the whole product.
        product: computes (..., R) with a slice of R rows.

    Returns:
        the product (..., rows).
    """
    parts = min(work // _WORTH_A_STREAM, blas.processors(), MAX_PROCESSORS, rows)
    if parts < 2 or BRANCHES.spreading:
        return product(slice(None))
    bounds = [rows * part // parts for part in range(parts + 1)]
    products = [product(slice(bounds[1]))]
    for part in range(1, parts):
        with mx.stream(BRANCHES.stream(part - 1)):
            products.append(product(slice(bounds[part], bounds[part + 1])))
    return mx.concatenate(products, axis=-1)


class PartedLinear(Linear):
    """Takes the place of ``mlx.nn.Linear``."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map (..., input_dims) to (..., output_dims)."""
        rows = self["weight"].shape[0]
        if x.size * rows < 2 * _WORTH_A_STREAM:
            return super().__call__(x)
        return in_parts(rows, x.size * rows, lambda part: self._of(x, part))

    def _of(self, x: mx.array, rows: slice) -> mx.array:
        weight = self["weight"][rows].T
        return mx.addmm(self["bias"][rows], x, weight) if "bias" in self else x @ weight


def replace(network: Module) -> None:
    """Give a network's linear layers this form, unless the BLAS shares out their work itself."""
    if blas.threads() > 1 or blas.processors() < 2:
        return
    for module in modules_of(network):
        if type(module) is Linear:
            module.__class__ = PartedLinear


def restore(module: Module) -> None:
    """Make a module of mlx's own kind again."""
    if type(module) is PartedLinear:
        module.__class__ = Linear  # type: ignore[assignment]
