"""The parts of decoder layers, recognized by the names and shapes of their modules."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx.accelerate import kernels, rope
from cowmlx.accelerate.blocks import LANES
from cowmlx.accelerate.fused.alike import kind_of
from cowmlx.accelerate.linear import InMatrix
from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Any

    from cowmlx.accelerate.rope import RoPETables

_QUERY = ("q_proj", "query_proj", "wq", "query")
_KEY = ("k_proj", "key_proj", "wk", "key")
_VALUE = ("v_proj", "value_proj", "wv", "value")
_JOINED = ("qkv_proj", "wqkv", "Wqkv", "W_pack", "query_key_value")
_OUT = ("o_proj", "out_proj", "wo", "dense")
_GATE = ("gate_proj", "w1")
_UP = ("up_proj", "w3")
_GATE_AND_UP = ("gate_up_proj",)
_DOWN = ("down_proj", "w2")
_HEADS = ("n_heads", "num_heads", "num_attention_heads", "n_head")
_GROUPS = ("n_kv_heads", "num_kv_heads", "num_key_value_heads", "n_head_kv")
_SCALE = ("scale", "sm_scale")
_SOFT_CAP = ("attn_logit_softcapping",)
_QUERY_NORM = ("q_norm", "query_norm", "q_layernorm")
_KEY_NORM = ("k_norm", "key_norm", "k_layernorm")
_ROTATION = ("rope", "rotary_emb", "rotary")
_NEAR = 1e-5
# What a norm may be, and whether 1 is added to its weight, in the order in which they are tried.
_TRIES = [(kind, adds) for kind in ("rms", "layer") for adds in (False, True)]
_LORA, _DORA = "LoRALinear", "DoRALinear"


class Unknown(Exception):
    """A module that is none of those that kernels fuse; the text says why."""


def block_parts(block: Any) -> tuple[Any, Any | None, list[Any]]:
    """Return a layer's attention, its MLP if it has a plain one, and its norms in order.

    Raises:
        Unknown: it has no attention, or more than one.
    """
    children = [(name, part) for name, part in block.items() if isinstance(part, Module)]
    attentions = [child for _, child in children if _is_attention(child)]
    if len(attentions) != 1:
        raise Unknown(f"it has {len(attentions)} attentions that project queries, keys and values")
    attention = attentions[0]
    mlps = [child for _, child in children if _is_mlp(child)]
    norms = [child for _, child in children if is_norm(child)]
    return attention, mlps[0] if len(mlps) == 1 else None, norms


def is_norm(module: Any) -> bool:
    """Whether a module looks like a norm: an eps, and no more than a weight and a bias."""
    if isinstance(module, InMatrix) or not hasattr(module, "eps"):
        return False
    arrays = [value for value in module.values() if isinstance(value, mx.array)]
    return len(arrays) == len(list(module.values())) and all(array.ndim == 1 for array in arrays)


def modules_given(block: Any) -> list[Any]:
    """Return the modules of a layer whose arrays kernels are given, or whose own code computes.

    Raises:
        Unknown: it has no attention, or more than one.
    """
    attention, mlp, norms = block_parts(block)
    first: tuple[tuple[str, ...], ...]
    first = (_QUERY, _KEY, _VALUE) if _first(attention, _JOINED) is None else (_JOINED,)
    names = [(attention, own) for own in (*first, _OUT, _QUERY_NORM, _KEY_NORM)]
    if mlp is not None:
        first = (_GATE, _UP) if _first(mlp, _GATE_AND_UP) is None else (_GATE_AND_UP,)
        names += [(mlp, own) for own in (*first, _DOWN)]
        own_code = []
    else:
        known = {id(module) for module in (attention, *norms)}
        rest = [each for each in block.values() if isinstance(each, Module)]
        own_code = [part for each in rest if id(each) not in known for part in modules_of(each)]
    given = [_first(module, own) for module, own in names]
    return [*norms, *own_code, *(module for module in given if module is not None)]


def norm_of(
    module: Any, width: int, kinds: dict[Hashable, tuple[str, bool]] | None = None
) -> tuple[str, mx.array | None, mx.array | None, float]:
    """Return what a norm does to vectors of a width, which is tried out.

    Args:
        module: the norm.
        width: of the vectors.
        kinds: what norms that compute the same do, and whether they add 1 to their weights;
            extended by this one, if there is no doubt.

    Raises:
        Unknown: it is neither an RMS norm nor a layer norm.
    """
    weight, bias, eps = module.get("weight"), module.get("bias"), float(module.eps)
    alike = None if kinds is None else kind_of([module], module, width)
    if kinds is not None and alike in kinds:
        kind, adds = kinds[alike]
        return kind, _weight(weight, adds), bias, eps
    x = mx.random.normal((4, width), key=mx.random.key(7))
    expected = module(x)
    found: list[tuple[str, bool]] = []
    if isinstance(expected, mx.array) and expected.shape == x.shape:
        near = _NEAR * mx.abs(expected).max()
        tries = [] if weight is not None and weight.size != width else list(_TRIES)
        if weight is None:
            tries = [(kind, adds) for kind, adds in tries if not adds]
        made = [_normed(kind, x, _weight(weight, adds), bias, eps) for kind, adds in tries]
        fits = [mx.abs(each - expected).max() <= near for each in made]
        mx.eval(fits)
        found = [one for one, fit in zip(tries, fits, strict=True) if fit.item()]
    if not found:
        raise Unknown(f"its {type(module).__name__} is no norm that kernels have")
    if kinds is not None and alike is not None and len(found) == 1:
        kinds[alike] = found[0]
    kind, adds = found[0]
    return kind, _weight(weight, adds), bias, eps


def _weight(weight: mx.array | None, adds: bool) -> mx.array | None:
    """Return what a norm multiplies with: its weight, or the weight and 1."""
    if weight is None:
        return None
    return (1.0 + weight if adds else weight).astype(mx.float32)


def _normed(
    kind: str, x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float
) -> mx.array:
    if kind == "rms":
        return mx.fast.rms_norm(x, weight, eps)
    bias = None if bias is None else bias.astype(mx.float32)
    return mx.fast.layer_norm(x, weight, bias, eps)


def attention_of(
    module: Any, kinds: dict[Hashable, tuple[str, bool]] | None = None
) -> dict[str, Any]:
    """Describe an attention without the norms around it and its rotation.

    Args:
        module: the attention.
        kinds: as for :func:`norm_of`.

    Raises:
        Unknown: it is none that kernels have.
    """
    heads = _number(module, _HEADS)
    groups = _number(module, _GROUPS) or heads
    if not heads or not groups:
        raise Unknown("its attention does not say how many heads it has")
    out = _linear(module, _OUT)
    joined = _linear(module, _JOINED, optional=True)
    if joined is None:
        query, key, value = (_linear(module, names) for names in (_QUERY, _KEY, _VALUE))
        matrices = [linear.matrix() for linear in (query, key, value)]
        dims = key.rows // groups
    else:
        dims = out.columns // heads
        sizes = [heads * dims, groups * dims, groups * dims]
        if sum(sizes) != joined.rows:
            raise Unknown("its joined projection has more rows than queries, keys and values")
        matrices = _cut(joined, sizes)
    scale = _number(module, _SCALE)
    projections: dict[str, Any] = {
        "heads": heads,
        "groups": groups,
        "query": matrices[0],
        "key": matrices[1],
        "value": matrices[2],
        "out": out.matrix(),
        "scale": dims**-0.5 if scale is None else float(scale),
        "soft_cap": float(_number(module, _SOFT_CAP) or 0.0),
        "residual": 1.0,
        "sinks": module.get("sinks"),
        "norm_per_head": True,
    }
    _add_norms(module, projections, (heads, groups, dims), kinds)
    return projections


def rotation_of(module: Any, description: dict[str, Any]) -> RoPETables | None:
    """Return how the heads of an attention turn; None if they do not.

    Raises:
        rope.UnsupportedRoPE: by no table.
    """
    rotation = _first(module, _ROTATION)
    if rotation is None or not callable(rotation):
        return None
    return rope.tables_of(rotation, description["key"].rows // description["groups"])


def mlp_of(module: Any) -> dict[str, Any]:
    """Describe a gated MLP without its activation and the norms around it.

    Raises:
        Unknown: it is none that kernels have.
    """
    joined = _linear(module, _GATE_AND_UP, optional=True)
    if joined is None:
        gate, up = _linear(module, _GATE).matrix(), _linear(module, _UP).matrix()
    else:
        gate, up = _cut(joined, [joined.rows // 2, joined.rows // 2])
    return {"gate": gate, "up": up, "down": _linear(module, _DOWN).matrix(), "residual": 1.0}


def _add_norms(
    module: Any,
    found: dict[str, Any],
    sizes: tuple[int, int, int],
    kinds: dict[Hashable, tuple[str, bool]] | None,
) -> None:
    heads, groups, dims = sizes
    query, key = _first(module, _QUERY_NORM), _first(module, _KEY_NORM)
    if query is None and key is None:
        return
    if query is None or key is None:
        raise Unknown("its attention norms either queries or keys")
    widths = (dims, dims), (heads * dims, groups * dims)
    for per_head, (own, keys) in zip((True, False), widths, strict=True):
        weights = [norm["weight"].size if "weight" in norm else own for norm in (query, key)]
        if weights == [own, keys]:
            found["norm_per_head"] = per_head
            found["query_norm"] = norm_of(query, own, kinds)
            found["key_norm"] = norm_of(key, keys, kinds)
            return
    raise Unknown("its attention norms neither heads nor all of them together")


def attention_width(attention: Any) -> int:
    """Return the width of what an attention reads.

    Raises:
        Unknown: its projections are not linear layers that kernels have.
    """
    for names in (_QUERY, _JOINED):
        linear = _linear(attention, names, optional=True)
        if linear is not None:
            width: int = linear.columns
            return width
    raise Unknown("its attention projects by no linear layers")


def _is_attention(module: Any) -> bool:
    projects = all(_first(module, names) is not None for names in (_QUERY, _KEY, _VALUE))
    return (projects or _first(module, _JOINED) is not None) and _first(module, _OUT) is not None


def _is_mlp(module: Any) -> bool:
    gated = _first(module, _GATE) is not None and _first(module, _UP) is not None
    inner = gated or _first(module, _GATE_AND_UP) is not None
    parts = [each for each in module.values() if isinstance(each, Module)]
    plain = all(isinstance(part, InMatrix) or is_adapted(part) for part in parts)
    if getattr(module, "limit", None) is not None:
        return False  # of its activations, which those of a proof need not reach
    return inner and _first(module, _DOWN) is not None and plain


def _linear(module: Any, names: tuple[str, ...], optional: bool = False) -> Any:
    linear = _first(module, names)
    if linear is None:
        if optional:
            return None
        raise Unknown(f"it has no {names[0]}")
    if isinstance(linear, InMatrix):
        return linear
    if is_adapted(linear):
        return Adapted(linear)
    raise Unknown(f"its {names[0]} is a {type(linear).__name__}")


def _cut(joined: Any, sizes: list[int]) -> list[Any]:
    """Return parts of a matrix of so many rows each.

    Raises:
        Unknown: they do not begin with blocks.
    """
    matrix, begin, parts = joined.matrix(), 0, []
    for size in sizes:
        if begin % LANES:
            raise Unknown(f"its joined projections begin at row {begin}, within a block")
        parts.append(matrix.part(begin, size))
        begin += size
    return parts


def _first(module: Any, names: tuple[str, ...]) -> Any:
    return next((module[name] for name in names if name in module), None)


def _number(module: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        value = getattr(module, name, None)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return None


def is_adapted(module: Any) -> bool:
    """Whether a module is mlx-lm's ``LoRALinear`` or ``DoRALinear`` around a matrix in blocks."""
    kind = type(module).__name__
    return (
        kind in (_LORA, _DORA)
        and isinstance(module.get("linear"), InMatrix)
        and isinstance(getattr(module, "scale", None), int | float)
        and all(name in module and module[name].ndim == 2 for name in ("lora_a", "lora_b"))
        and (kind == _LORA or ("m" in module and module["m"].ndim == 1))
    )


class Adapted:
    """A linear layer with an adapter as fused layers use it: a matrix and a low-rank part.

    LoRA (arXiv 2106.09685) adds to the matrix, and DoRA (arXiv 2402.09353, eq. 5) gives each row of
    the sum a trained length.

    Args:
        module: one that :func:`is_adapted` takes.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._linear = module["linear"]
        self.rows: int = self._linear.rows
        self.columns: int = self._linear.columns

    def matrix(self) -> Any:
        """Return the weight as layers of kernels hold it, evaluated."""
        down = self._module["lora_a"].astype(mx.float32).T
        up = self._module["lora_b"].astype(mx.float32).T * self._module.scale
        rescale = None
        if "m" in self._module:
            rescale = self._rescale(down, up)
            up = up * rescale[:, None]
        return self._linear.matrix().with_low(_matrix(down), _matrix(up), rescale)

    def _rescale(self, down: mx.array, up: mx.array) -> mx.array:
        """Return what rows of the sum are multiplied with, (N,): it depends on no input."""
        adapted = self._module._dequantized_weight().astype(mx.float32) + up @ down
        scale: mx.array = self._module["m"].astype(mx.float32) / mx.linalg.norm(adapted, axis=1)
        mx.eval(scale)
        return scale


def _matrix(weight: mx.array) -> Any:
    module = kernels.module()
    return module.Matrix(module.pack(mx.contiguous(weight)), rows=weight.shape[0])
