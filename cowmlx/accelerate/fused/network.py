"""Fuses the layers of a network, and reports which ones and why not the others."""

from __future__ import annotations

from collections import Counter
from functools import partial

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx import failures
from cowmlx.accelerate.blocks import InBlocks
from cowmlx.accelerate.fused import decode, parts, proof, stand_in, trace
from cowmlx.accelerate.fused.arrangements import Arrangement
from cowmlx.accelerate.fused.caches import for_trials
from cowmlx.accelerate.fused.run import Rounding, Run
from cowmlx.accelerate.rope import UnsupportedRoPE
from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any

    from cowmlx.accelerate.fused.decode import Whole

_TRIED = 64  # tokens of which those with the largest embeddings are taken
_ALIKE = 1e-5
_ALIKE_16 = 2.0**-6


class Report:
    """What became of a network's layers.

    Attributes:
        layers: how many there are.
        fused: how many of them are computed by kernels, whole or their attention.
        whole: whether the network is one operation from its tokens to its head.
        reasons: why others are not, and how many layers each is about; 0: the network as a whole.
    """

    def __init__(self) -> None:
        self.layers = 0
        self.fused = 0
        self.whole = False
        self.reasons: Counter[str] = Counter()

    def info(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "layers": self.layers,
            "fused": self.fused,
            "whole": self.whole,
            "why_not": [
                {"reason": reason, "layers": count} for reason, count in self.reasons.items()
            ],
        }


def fuse(
    network: Module,
    make_cache: Callable[[], list[Any]],
    *,
    rounded: bool = False,
    kv_type: mx.Dtype | None = None,
) -> Report:
    """Let kernels compute the layers of a network that they are proved to compute.

    Args:
        network: its weights in blocks (``cowmlx.accelerate.linear``) and read; changed in place.
        make_cache: returns empty caches of its layers.
        rounded: whether activations are rounded, as in :class:`InBlocks`.
        kv_type: of keys and values, as in :class:`Run`.

    Returns:
        what is fused, and why other layers are not.
    """
    make_cache = partial(for_trials, make_cache)
    rounding = [m for m in modules_of(network) if isinstance(m, InBlocks) and m.rounded]
    for module in rounding:
        module.rounded = False  # rounded activations prove nothing
    decode.offer(network, None, make_cache)
    report = Report()
    try:
        whole = _fuse(network, make_cache, Rounding(rounded, kv_type), report)
    finally:
        for module in rounding:
            module.rounded = True
    decode.offer(network, whole, make_cache)
    return report


def _fuse(
    network: Module, make_cache: Callable[[], list[Any]], rounding: Rounding, report: Report
) -> Whole | None:
    """Fuse layers; returns the run that is the whole network, if there is one."""
    for owner, name in trace.lists_of_blocks(network):
        blocks = owner[name]
        if not any(_has_attention(block) for block in blocks):
            continue
        report.layers = len(blocks)
        try:
            ids = _ids(owner)
            around = trace.listen(owner, name, make_cache(), mx.array([ids]))
            windows = around.windows
        except trace.Unclear as why:
            report.reasons[str(why)] += len(blocks)
            return None
        layers = _layers(blocks, windows, make_cache, report)
        report.fused = sum(layer is not None for layer in layers)
        _put_layers(blocks, layers, rounding)
        if all(layer is not None and layer.rest is None for layer in layers):
            return _put_whole(network, owner, layers, around, ids, rounding, report)
        return None
    report.reasons["it has no list of layers with attention"] += 1
    return None


def undo(network: Module) -> None:
    """Let every module of a network compute by itself again."""
    decode.offer(network, None, list)
    for module in modules_of(network):
        if getattr(type(module), "_is_stand_in", False):
            stand_in.put(module, None)


def _has_attention(block: Any) -> bool:
    try:
        parts.block_parts(block)
    except parts.Unknown:
        return False
    return True


def _ids(owner: Any) -> tuple[int, int]:
    """Return two tokens with large embeddings: those of untrained tokens may be 0."""
    embedding = _embedding(owner)
    if embedding is None:
        return 0, 0
    tried = mx.arange(0, embedding.rows, max(1, embedding.rows // _TRIED))
    sizes = mx.abs(embedding(tried).astype(mx.float32)).sum(-1)
    order = mx.argsort(mx.where(mx.isfinite(sizes), -sizes, 0))
    ids: list[int] = tried[order][:2].tolist()  # type: ignore[assignment]
    return ids[0], ids[-1]


def _layers(
    blocks: list[Any], windows: list[int], make_cache: Callable[[], list[Any]], report: Report
) -> list[proof.Fused | None]:
    """Return what each layer is proved to be; reasons for others go to the report.

    One of each kind is proved: the others compute the same with other weights.
    """
    layers: list[proof.Fused | None] = []
    hint: Arrangement | None = None
    proved: dict[Hashable, Arrangement] = {}
    norms: dict[Hashable, tuple[str, bool]] = {}
    for index, (block, window) in enumerate(zip(blocks, windows, strict=True)):
        stand_in.put(block, None)
        fused = None
        try:
            own_cache: Callable[[], Any] = lambda at=index: make_cache()[at]  # type: ignore[misc]  # noqa: E731
            layer = proof.Layer(block, window, own_cache, norms)
            known = proved.get(layer.kind)
            fused = layer.prove(hint) if known is None else layer.arranged(known)
            hint = fused.arrangement
            if layer.kind is not None:
                proved[layer.kind] = hint
        except (parts.Unknown, UnsupportedRoPE) as why:
            report.reasons[str(why)] += 1
        except Exception as error:  # whatever a module that only looks like one of these may raise
            failures.reraise_shortage(error)
            report.reasons[f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"] += 1
        layers.append(fused)
    return layers


def _put_layers(blocks: list[Any], found: list[proof.Fused | None], rounding: Rounding) -> None:
    for block, fused in zip(blocks, found, strict=True):
        if fused is not None:
            width = fused.description["attention"]["query"].columns
            run = Run(width, [fused.description], rounding)
            stand_in.put(block, stand_in.FusedLayer(run, fused.rest))


def _put_whole(
    network: Any,
    owner: Any,
    found: list[Any],
    around: trace.Around,
    ids: tuple[int, int],
    rounding: Rounding,
    report: Report,
) -> Whole | None:
    """Let kernels compute all layers with what is around them, if that is known."""
    embedding = _embedding(owner)
    width = around.before.shape[-1]
    if embedding is None or embedding.columns != width:
        report.reasons["it has no embedding of its layers' width"] += 0
        return None
    scale = _scale(embedding, around.before, mx.array([ids]))
    norm = _last_norm(owner, around)
    if scale is None or norm is None:
        what = "its last norm" if norm is None else "its embedding"
        report.reasons[f"it does something around its layers that kernels do not: {what}"] += 0
        return None
    head = decode.head_of(network, owner)
    run_of = partial(
        Run,
        width,
        rounding=rounding,
        embedding=embedding.matrix(),
        scale=scale,
        norm=norm,
        head=head.matrix() if head is not None and head.columns == width else None,
    )
    descriptions = [layer.description for layer in found]
    kinds = [(each["cache"], each["window"]) for each in descriptions]
    few = sorted({kinds.index(kind) for kind in kinds})
    runs = run_of(descriptions), run_of([descriptions[index] for index in few])
    whole, short = (stand_in.FusedNetwork(run, embedding, around.before.dtype) for run in runs)
    stand_in.put(owner, whole)
    report.whole = True
    return decode.Whole(*runs, few, owner, short, ids)


def _embedding(owner: Any) -> Any | None:
    embeddings = [
        part for part in owner.values() if isinstance(part, InBlocks) and hasattr(part, "as_linear")
    ]
    return embeddings[0] if len(embeddings) == 1 else None


def _scale(embedding: Any, before: mx.array, ids: mx.array) -> float | None:
    """Return what embeddings are multiplied with before the first layer, or None."""
    rows = embedding(ids).astype(mx.float32)
    given = before.astype(mx.float32)
    if not mx.any(given).item():
        return None
    width: float = rows.shape[-1]
    root = mx.array(width**0.5)
    rough = (mx.sum(rows * given) / mx.maximum(mx.sum(rows * rows), 1e-30)).item()
    candidates = [1.0, root.item(), root.astype(mx.bfloat16).astype(mx.float32).item(), rough]
    for scale in candidates:
        if _is_near(rows * scale, before):
            return float(scale)  # type: ignore[arg-type]
    return None


def _is_near(made: mx.array, expected: mx.array) -> bool:
    """Whether float32 numbers are equal but for rounding to the other array's type."""
    near = _ALIKE if expected.dtype == mx.float32 else _ALIKE_16
    size = mx.maximum(mx.abs(expected).max(), 1e-30)
    return (mx.abs(made - expected.astype(mx.float32)).max() / size).item() < near  # type: ignore[operator]


def _last_norm(owner: Any, around: trace.Around) -> Any | None:
    """Return the norm behind the last layer, or None if anything else is there."""
    x = around.behind.astype(mx.float32)
    for module in owner.values():
        if isinstance(module, Module) and parts.is_norm(module):
            try:
                norm = parts.norm_of(module, x.shape[-1])
            except parts.Unknown:
                continue
            if _is_near(module(x), around.result):
                return norm
    return None
