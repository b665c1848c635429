"""The form that a network takes for the device it runs on: plain mlx, or kernels for CPUs."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.errors import Unsupported
from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.sources import Sources


class Form(NamedTuple):
    """How a network's products are computed."""

    on_cpu: bool
    """Whether the device is a CPU."""
    quantized: bool = False
    """Whether there are quantized weights."""
    half: bool = False
    """Whether there are weights of 16 bits, none of them quantized or beside quantized ones."""
    why_not: str = ""
    """Why no kernels compute, a sentence without its full stop; "" if they do."""
    rounded: bool = False
    """Whether activations are rounded: to eight bits for quantized weights, else to bfloat16."""
    kv_type: mx.Dtype | None = None
    """The type of keys and values of fused layers; None: that of activations."""

    @property
    def passing(self) -> int:
        """In how many other forms a group of weights is in memory while it is loaded."""
        if not self.on_cpu:
            return 0
        return 2 if self.quantized else 1

    @property
    def is_slow(self) -> bool:
        """Whether mlx multiplies weights of 16 bits or fewer on a CPU, which is slow."""
        return self.on_cpu and (self.half or self.quantized) and bool(self.why_not)

    @property
    def activations(self) -> str:
        """The form of activations that ``model_info`` reports."""
        if not self.rounded:
            return "exact"
        return "int8" if self.quantized else "bfloat16"


def is_quantized(network: Module) -> bool:
    """Whether a network has quantized layers."""
    from cowmlx.modules import modules_of

    return any("scales" in module for module in modules_of(network))


def _types(network: Module, axes: int) -> set[mx.Dtype]:
    """Return the types of a network's arrays with at least so many axes."""
    from cowmlx.folders.weights import flatten

    arrays = flatten(network.parameters()).values()
    return {array.dtype for array in arrays if array.ndim >= axes}


def _kv_type(network: Module) -> mx.Dtype | None:
    """Return the type that mlx-lm gives keys and values of quantized weights, if it has 16 bits.

    Scales, norms and biases must all have this type: behind one of float32, mlx's results are
    float32.
    """
    import mlx.core as mx

    floating = [each for each in _types(network, 1) if mx.issubdtype(each, mx.floating)]
    return floating[0] if len(floating) == 1 and floating[0].size == _HALF else None


_HALF = 2  # bytes of a number

_SOURCES = "_sources"  # of a network, where it keeps them until it is prepared


def note_sources(net: Module, sources: Sources) -> None:
    """Note where the arrays of a network lie, so that it can be prepared without copies of them."""
    vars(net)[_SOURCES] = sources


def rows_in_parts(net: Module, matrix: mx.array, size: int) -> list[mx.array] | None:
    """Return the rows of a matrix in parts that are read one by one, before a network is prepared.

    Args:
        net: whose weight it is.
        matrix: (N, K), which lies in a file.
        size: bytes of a part.

    Returns:
        None where it is not known where the matrix lies, or nothing reads a part.
    """
    import mlx.core as mx

    from cowmlx.accelerate import kernels
    from cowmlx.accelerate.blocks import LANES

    sources: Sources | None = vars(net).get(_SOURCES)
    place = None if sources is None else sources.of(matrix)
    if place is None or mx.default_device().type != mx.cpu or not kernels.available():
        return None
    count, width = matrix.shape
    row = matrix.nbytes // count
    rows = max(1, size // row // LANES) * LANES
    file = kernels.module().StoredFile(place[0])
    parts = []
    for first in range(0, count, rows):
        own = min(rows, count - first)
        offset = place[1] + first * row
        blocks = kernels.module().pack_stored(file, offset, own, width, dtype=matrix.dtype)
        parts.append(blocks.transpose(0, 2, 1).reshape(-1, width)[:own])
    return parts


def prepare_for_device(net: Module, activations: int = constants.ACTIVATIONS_DEFAULT) -> Form:
    """Put a network into the form that is fast on the current device, lazily.

    A GPU runs the network as it is. On a CPU kernels take the place of mlx's operations; without
    kernels it is plain mlx, with two changes: quantized networks compute in float32, since mlx
    takes ten times longer with 16 bits, and experts of 16 bits are widened, since mlx has no
    products for them. The results are the same, unless activations are rounded.

    Args:
        net: a network with all of its weights; changed in place.
        activations: ``ACTIVATIONS_DEFAULT``, ``_EXACT`` or ``_INT8``.

    Returns:
        what computes it from now on.

    Raises:
        Unsupported: activations of eight bits are asked for, and nothing computes with them.
    """
    form = form_for(net, activations)
    put_into(net, form, vars(net).pop(_SOURCES, None))
    return form


def start_readers(net: Module, files: list[str]) -> None:
    """Start mlx's threads for large arrays, if mlx will read large arrays of a network.

    Args:
        net: its weights are not read yet.
        files: the shards that hold them.

    Raises:
        OutOfMemory: they cannot be started.
    """
    from cowmlx import resources
    from cowmlx.accelerate import kernels
    from cowmlx.folders import weights

    if kernels.usable():
        arrays = list(weights.flatten(net.parameters()).values())
        if not kernels.module().loads(arrays, resources.LARGE_READ):
            return
    weights.start_readers(files)


def put_into(net: Module, form: Form, sources: Sources | None = None) -> None:
    """Put a network into a form, in place; what is in it already stays.

    Args:
        net: the network.
        form: the form.
        sources: where its arrays lie, if that is known.
    """
    if not form.on_cpu:
        return
    from cowmlx.accelerate import switch  # late: a GPU needs none of it

    if not form.why_not:
        from cowmlx.accelerate import linear, single
        from cowmlx.folders import weights

        single.replace(net)
        weights.note_read_in_place(net, linear.replace(net, rounded=form.rounded, sources=sources))
    elif form.quantized:
        import mlx.core as mx

        net.set_dtype(mx.float32)
    switch.widen(net)


def take_out(net: Module) -> None:
    """Make the modules of a network mlx's and mlx-lm's own again, in place.

    Names, shapes and values stay as they are. Arrays of quantized networks that were widened stay
    float32.

    Args:
        net: a copy of a network that was prepared, of which nothing is fused.
    """
    from cowmlx.accelerate import blocks, single
    from cowmlx.modules import modules_of

    for module in modules_of(net):
        blocks.restore(module)
        single.restore(module)


def form_for(net: Module, activations: int) -> Form:
    """Return the form that the current device computes a network in.

    Raises:
        Unsupported: activations of eight bits are asked for, and nothing computes with them.
    """
    import mlx.core as mx

    from cowmlx.accelerate import kernels

    on_cpu, why_not = mx.default_device().type == mx.cpu, "the device is no CPU"
    if on_cpu:
        why_not = "" if kernels.available() else f"there are no kernels: {kernels.reason()}"
    quantized = is_quantized(net)
    if activations == constants.ACTIVATIONS_INT8 and (why_not or not quantized):
        raise Unsupported(
            f"activations is {activations} (int8), but "
            + (why_not or "the model's weights are not quantized"),
            argument="activations",
            value=activations,
        )
    rounded = not why_not and activations != constants.ACTIVATIONS_EXACT
    if quantized:
        return Form(on_cpu, True, False, why_not, rounded, _kv_type(net) if rounded else None)
    types = _types(net, 2)
    if rounded:
        rounded = mx.bfloat16 in types and kernels.instruction_set() in kernels.BFLOAT16
    half = not types.isdisjoint((mx.float16, mx.bfloat16))
    return Form(on_cpu, False, half, why_not, rounded)


def fuse_layers(net: Module, make_cache: Callable[[], list[Any]], form: Form) -> dict[str, Any]:
    """Let kernels compute a network's layers as one operation, where there are kernels.

    Args:
        net: a network that was prepared, its weights read; changed in place.
        make_cache: returns empty caches of its layers.
        form: that the network was put into.

    Returns:
        what ``model_info`` reports of it.
    """
    if form.why_not:
        return {"instruction_set": None, "fused": 0, "why_not": [{"reason": form.why_not}]}
    from cowmlx.accelerate import kernels
    from cowmlx.accelerate.fused import network

    if getattr(net, "is_encoder", False):
        from cowmlx.accelerate.fused import encoders

        count, reasons = encoders.fuse(net, form.rounded)
        why = [{"reason": text, "layers": times} for text, times in reasons.items()]
        report = {"layers": len(net["layers"]), "fused": count, "whole": False, "why_not": why}
        return {"instruction_set": kernels.instruction_set(), **report}
    fused = network.fuse(net, make_cache, rounded=form.rounded, kv_type=form.kv_type).info()
    return {"instruction_set": kernels.instruction_set(), **fused}
