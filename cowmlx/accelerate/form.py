"""What computes a network: the device, the kind of its weights, and kernels if there are any."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlx.nn.layers.base import Module


class Form:
    """How a network's products are computed.

    Attributes:
        on_cpu: whether the device is a CPU.
        packed: whether there are packed weights.
        half: whether there are weights of 16 bits, packed ones and those beside them not counted.
        why_not: why no kernels compute, a sentence without its full stop; "" if they do.
        int8: whether activations are rounded to eight bits for products with packed weights.
    """

    def __init__(
        self,
        on_cpu: bool,
        packed: bool = False,
        half: bool = False,
        why_not: str = "",
        int8: bool = False,
    ) -> None:
        self.on_cpu = on_cpu
        self.packed = packed
        self.half = half
        self.why_not = why_not
        self.int8 = int8

    @property
    def is_slow(self) -> bool:
        """Whether mlx multiplies weights of 16 bits or fewer on a CPU, which is slow."""
        return self.on_cpu and (self.half or self.packed) and bool(self.why_not)

    @property
    def activations(self) -> str:
        """What ``model_info`` tells of activations."""
        return "int8" if self.int8 else "exact"


def is_packed(network: Module) -> bool:
    """Tell whether a network has quantised layers."""
    from cowmlx.modules import modules_of

    return any("scales" in module for module in modules_of(network))


def is_half(network: Module) -> bool:
    """Tell whether a network has matrices of 16 bits and none that are packed."""
    import mlx.core as mx

    from cowmlx.folders.weights import flatten

    if is_packed(network):
        return False
    return any(
        array.ndim > 1 and array.dtype in (mx.float16, mx.bfloat16)
        for array in flatten(network.parameters()).values()
    )
