"""What each operation computes, in numpy: ``name -> function(*arrays, **attributes)``.

Rows that numpy has under their own name need none. A function gives an array, or a list of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np


def softmax(a, axis=None, precise=False):
    axis = tuple(axis) if isinstance(axis, list | tuple) else axis
    shifted = np.exp(a - np.max(a, axis=axis, keepdims=True)) if a.size else a
    return shifted / np.sum(shifted, axis=axis, keepdims=True)


def logsumexp(a, axis=None, keepdims=False):
    axis = tuple(axis) if isinstance(axis, list | tuple) else axis
    return np.log(np.sum(np.exp(a), axis=axis, keepdims=keepdims))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(a):
    return np.vectorize(math.erf, otypes=[float])(a)


def erfinv(a):
    """By bisection."""

    def one(y):
        if not abs(y) < 1:
            return y * math.inf if abs(y) == 1 else math.nan
        low, high = -6.0, 6.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if math.erf(middle) < y else (low, middle)
        return low

    return np.vectorize(one, otypes=[float])(a)


def scan(function, identity):
    def reference(a, axis=None, reverse=False, inclusive=True):
        if axis is None:
            a, axis = a.reshape(-1), 0
        a = np.flip(a, axis) if reverse else a
        found = function(a, axis)
        if not inclusive and a.shape[axis]:
            first = np.full_like(np.take(found, [0], axis), identity)
            found = np.concatenate([first, np.take(found, range(a.shape[axis] - 1), axis)], axis)
        return np.flip(found, axis) if reverse else found

    return reference


def unique(a, size):
    values, counts = np.unique(a, return_counts=True)
    filled = np.full(size, values[-1])
    filled[: len(values)] = values[:size]
    many = np.zeros(size, int)
    many[: len(values)] = counts[:size]
    return [filled, many, np.array(len(values))]


def take(a, indices, axis=None, **_):
    return np.take(a, indices, axis=axis)


def put_along_axis(a, indices, values, axis=None, **_):
    found = a.copy() if axis is not None else a.reshape(-1).copy()
    at = 0 if axis is None else axis
    shape = list(found.shape)
    shape[at] = indices.shape[at]
    np.put_along_axis(found, np.broadcast_to(indices, shape), values, at)
    return found.reshape(a.shape)


def scatter(way):
    def reference(a, indices, updates, axis=0, **_):
        found = np.moveaxis(a, axis, 0).copy()
        axis %= a.ndim
        many = np.asarray(indices).ndim
        lined = np.moveaxis(updates, range(axis, axis + many), range(many))
        if way is None:
            found[indices] = lined
        else:
            way.at(found, indices, lined)
        return np.moveaxis(found, 0, axis)

    return reference


def slices(a, start, stop, strides=None, axes=None):
    axes = range(len(start)) if axes is None else axes
    parts = [slice(None)] * a.ndim
    for at, axis in enumerate(axes):
        stride = 1 if strides is None else strides[at]
        end = None if stride < 0 and stop[at] <= 1 - 2**31 else stop[at]
        parts[axis] = slice(start[at], end, stride)
    return a[tuple(parts)]


def window(a, starts, shape, axes):
    starts = np.asarray(starts).reshape(-1)
    axes = range(len(starts)) if axes is None else [axis % a.ndim for axis in axes]
    begin = dict(zip(axes, starts.tolist(), strict=True))
    return tuple(slice(begin.get(at, 0), begin.get(at, 0) + shape[at]) for at in range(a.ndim))


def dynamic_slice(a, starts, slice_size, axes=None, **_):
    return a[window(a, starts, slice_size, axes)]


def slice_update(a, update, starts, axes=None, **_):
    found = a.copy()
    found[window(a, starts, update.shape, axes)] = update
    return found


def each(value, axes):
    return (value,) * axes if not isinstance(value, list | tuple) else tuple(value)


def pairs(*lists):
    return zip(*lists, strict=True)


def convolution(
    x, w, stride=1, padding=0, kernel_dilation=1, input_dilation=1, groups=1, flip=False, **more
):
    """Every output by the definition, one at a time."""
    axes = x.ndim - 2
    stride, kernel_dilation = each(stride, axes), each(more.get("dilation", kernel_dilation), axes)
    spread = each(input_dilation, axes)
    pads = padding if isinstance(padding, list | tuple) else (padding,) * axes
    pads = [pad if isinstance(pad, list | tuple) else (pad, pad) for pad in pads]
    wide = np.zeros(
        (
            x.shape[0],
            *((n - 1) * d + 1 for n, d in pairs(x.shape[1:-1], spread)),
            x.shape[-1],
        )
    )
    wide[(slice(None), *(slice(None, None, d) for d in spread))] = x
    wide = np.pad(wide, [(0, 0), *((max(p[0], 0), max(p[1], 0)) for p in pads), (0, 0)])
    cut = [slice(max(-p[0], 0), n - max(-p[1], 0)) for p, n in pairs(pads, wide.shape[1:-1])]
    wide = wide[(slice(None), *cut)]
    if flip:
        w = np.flip(w, tuple(range(1, axes + 1)))
    kernel = w.shape[1:-1]
    outs = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in pairs(wide.shape[1:-1], kernel, kernel_dilation, stride)
    ]
    found = np.zeros((x.shape[0], *outs, w.shape[0]))
    share, made = w.shape[-1], w.shape[0] // groups
    for at in product(*map(range, outs)):
        for inside in product(*map(range, kernel)):
            place = tuple(
                a * s + i * d for a, s, i, d in pairs(at, stride, inside, kernel_dilation)
            )
            pixel = wide[(slice(None), *place)]
            for group in range(groups):
                taken = pixel[:, group * share : (group + 1) * share]
                outputs = slice(group * made, (group + 1) * made)
                found[(slice(None), *at, outputs)] += taken @ w[(outputs, *inside)].T
    return found


def transposed(x, w, stride=1, padding=0, dilation=1, output_padding=0, groups=1):
    axes = x.ndim - 2
    stride, padding, dilation, more = (
        each(v, axes) for v in (stride, padding, dilation, output_padding)
    )
    lows = [d * (k - 1) - p for d, k, p in pairs(dilation, w.shape[1:-1], padding)]
    pads = [(low, low + extra) for low, extra in pairs(lows, more)]
    return convolution(
        x,
        w,
        padding=pads,
        kernel_dilation=dilation,
        input_dilation=stride,
        groups=groups,
        flip=True,
    )


def pool(function, edge):
    def reference(x, kernel_size, stride=None, padding=0):
        axes = x.ndim - 2
        kernel = each(kernel_size, axes)
        stride, padding = each(stride or kernel, axes), each(padding, axes)
        x = np.pad(x, [(0, 0), *((p, p) for p in padding), (0, 0)], constant_values=edge)
        outs = [(n - k) // s + 1 for n, k, s in pairs(x.shape[1:-1], kernel, stride)]
        found = np.zeros((x.shape[0], *outs, x.shape[-1]))
        for at in product(*map(range, outs)):
            cut = tuple(slice(a * s, a * s + k) for a, s, k in pairs(at, stride, kernel))
            found[(slice(None), *at)] = function(
                x[(slice(None), *cut)], axis=tuple(range(1, axes + 1))
            )
        return found

    return reference


def convolve(a, v, mode="full"):
    return np.convolve(a, v, mode)


def norm(a, ord=2, axis=None, keepdims=False):
    axis = tuple(axis) if isinstance(axis, list | tuple) else axis
    ord = 2 if ord is None else float(ord)
    size = np.abs(a)
    if ord == math.inf:
        return np.max(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum(size != 0, axis=axis, keepdims=keepdims)
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1 / ord)


def normalised(x, axes, eps, weight=None, bias=None):
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    found = (x - mean) / np.sqrt(var + eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def group_norm(x, weight=None, bias=None, num_groups=1, eps=1e-5):
    parts = x.reshape(*x.shape[:-1], num_groups, -1)
    axes = (*range(1, x.ndim - 1), x.ndim)
    return _scaled(normalised(parts, axes, eps).reshape(x.shape), weight, bias)


def _scaled(x, weight, bias):
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def batch_norm(x, mean=None, var=None, weight=None, bias=None, eps=1e-5):
    if mean is None:
        return normalised(x, tuple(range(x.ndim - 1)), eps, weight, bias)
    return _scaled((x - mean) / np.sqrt(var + eps), weight, bias)


def rope(a, freqs=None, dims=0, traditional=False, base=10000.0, scale=1.0, offset=0):
    half = dims // 2
    speed = 1 / freqs if freqs is not None else base ** (-np.arange(half) * 2.0 / dims)
    angle = (np.arange(a.shape[-2]) + offset)[:, None] * scale * speed
    found = a.copy()
    one, two = (
        (slice(0, dims, 2), slice(1, dims, 2))
        if traditional
        else (slice(0, half), slice(half, dims))
    )
    x, y = a[..., one], a[..., two]
    found[..., one] = x * np.cos(angle) - y * np.sin(angle)
    found[..., two] = x * np.sin(angle) + y * np.cos(angle)
    return found


def attention(q, k, v, mask=None, scale=None, causal=False):
    times = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, times, 1), np.repeat(v, times, 1)
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    hidden = np.finfo(np.float64).min  # where nothing is seen, all count the same
    if causal:
        rows, columns = scores.shape[-2:]
        scores = np.where(np.tri(rows, columns, columns - rows, dtype=bool), scores, hidden)
    if mask is not None:
        scores = np.where(mask, scores, hidden) if mask.dtype == bool else scores + mask
    return softmax(scores, -1) @ v


def dequantized(w, scales, biases, group_size=64, bits=4, **_):
    """Affine weights: elements lie in words from the lowest bits up."""
    elements = (w[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & (2**bits - 1)
    elements = elements.reshape(*w.shape[:-1], -1, group_size)
    return (elements * scales[..., None] + biases[..., None]).reshape(*w.shape[:-1], -1)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def dequantize(w, scales, biases=None, mode="affine", dtype=None, **more):
    if mode == "affine":
        return dequantized(w, scales, biases, **more)
    bits = 8 if mode == "mxfp8" else 4
    parts = (w[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & (2**bits - 1)
    elements = E2M1[parts] if bits == 4 else from_fp8(parts)
    powers = 2.0 ** (scales.astype(float) - 127)
    return (elements.reshape(*w.shape[:-1], -1, 32) * powers[..., None]).reshape(*w.shape[:-1], -1)


def quantized_matmul(x, w, scales, biases, transpose=True, **more):
    full = dequantized(w, scales, biases, **more)
    return x @ (np.swapaxes(full, -1, -2) if transpose else full)


def gather_qmm(x, w, scales, biases, left=None, right=None, **more):
    more = {key: value for key, value in more.items() if key not in ("indices", "transpose")}
    full = np.swapaxes(dequantized(w, scales, biases, **more), -1, -2)
    x = x if left is None else x.reshape(-1, *x.shape[-2:])[left]
    return x @ (full if right is None else full[right])


def from_fp8(x, dtype=None):
    bits = x.astype(int)
    power, rest = (bits >> 3) & 15, bits & 7
    size = np.where(power == 0, rest / 8 * 2.0**-6, (1 + rest / 8) * 2.0 ** (power - 7.0))
    return np.where(bits & 128, -size, size)


def to_fp8(x):
    table = from_fp8(np.arange(127))
    nearest = [
        min(range(127), key=lambda c: (abs(table[c] - abs(v)), c & 1)) for v in x.reshape(-1)
    ]
    return np.where(x < 0, 128, 0) + np.array(nearest, int).reshape(x.shape)


def reduced(losses, reduction):
    return {"none": lambda x: x, "mean": np.mean, "sum": np.sum}[reduction](losses)


def loss(function, default="none"):
    return lambda *arrays, reduction=default, indices="check", **more: reduced(
        function(*arrays, **more), reduction
    )


def picked(scores, targets, axis):
    return np.take_along_axis(scores, np.expand_dims(targets, axis), axis).squeeze(axis)


def cross_entropy(logits, targets, weights=None, axis=-1, label_smoothing=0.0):
    classes = logits.shape[axis]
    log_p = logits - logsumexp(logits, axis, True)
    if targets.ndim == logits.ndim:
        # mlx smooths around the scores as they are given.
        hit = np.sum(logits * targets, axis) - np.max(logits, axis) * np.sum(targets, axis)
        log_z = logsumexp(logits, axis) - np.max(logits, axis)
        mean = np.mean(logits, axis) - np.max(logits, axis)
        found = log_z - (1 - label_smoothing) * hit - label_smoothing * mean
    else:
        hit = -picked(log_p, targets, axis)
        found = (1 - label_smoothing) * hit - label_smoothing / classes * np.sum(log_p, axis)
    return found if weights is None else found * weights


def binary_cross_entropy(inputs, targets, weights=None, with_logits=True):
    p = sigmoid(inputs) if with_logits else inputs
    hit, miss = (np.maximum(np.log(each), -100) for each in (p, 1 - p))
    found = -(targets * hit + (1 - targets) * miss)
    return found if weights is None else found * weights


def triplet(a, p_, n, axis=-1, p=2.0, margin=1.0, eps=1e-6):
    def distance(other):
        return (np.sum(np.abs(a - other) ** p, axis) + eps) ** (1 / p)

    return np.maximum(distance(p_) - distance(n) + margin, 0)


def huber(x, t, delta=1.0):
    a = np.abs(x - t)
    return np.where(a <= delta, a * a / 2, delta * (a - delta / 2))


def smooth_l1(x, t, beta=1.0):
    a = np.abs(x - t)
    return np.where(a < beta, a * a / (2 * beta), a - beta / 2)


def window_of(*terms):
    def reference(M):  # noqa: N803
        if M == 1:
            return np.ones(1)
        i = np.arange(M)
        return sum(term * np.cos(2 * np.pi * k * i / max(M - 1, 1)) for k, term in enumerate(terms))

    return reference


def einsum(*operands, subscripts):
    return np.einsum(subscripts, *operands)


def tensordot(a, b, axes=2, axes_a=None, axes_b=None):
    return np.tensordot(a, b, axes if axes_a is None else (axes_a, axes_b))


def topk(a, k, axis=-1):
    if axis is None:
        a, axis = a.reshape(-1), 0
    return np.take(np.sort(a, axis), range(a.shape[axis] - k, a.shape[axis]), axis)


def split(a, indices_or_sections, axis=0):
    return np.split(a, indices_or_sections, axis)


def fft_many(name):
    def reference(a, s=None, axes=None, norm="backward"):
        if name.endswith("2") and axes is None:
            axes = (-2, -1)
        return getattr(np.fft, name)(a, s=s, axes=axes, norm=norm)

    return reference


def view(a, dtype):
    a = a.astype(np.float32) if a.dtype == np.float64 else a  # as the row got it
    return np.ascontiguousarray(a).view(dtype)


def fill(value):
    return lambda *like, shape=None, dtype="float32", vals=value: np.full(
        like[0].shape if like else shape, vals
    )


def triangle(a, upper):
    return np.triu(a) if upper else np.tril(a)


def cholesky_inv(a, upper=False):
    a = triangle(a, upper)
    other = np.swapaxes(a, -1, -2)
    return np.linalg.inv(other @ a if upper else a @ other)


def moved_to(a, axes=None):
    return np.transpose(a, axes)


Reference = Callable[..., Any]
REFERENCES: dict[str, Reference] = {
    "positive": lambda a: a,
    "contiguous": lambda a: a,
    "stop_gradient": lambda a: a,
    "rsqrt": lambda a: a**-0.5,
    "reciprocal": lambda a: 1 / a,
    "clip": lambda a, a_min=None, a_max=None: np.clip(a, a_min, a_max),
    "divmod": lambda a, b: [np.floor_divide(a, b), np.remainder(a, b)],
    "nan_to_num": lambda a, **more: np.nan_to_num(a, **more),
    "logical_not": np.logical_not,
    "bitwise_invert": np.invert,
    "erf": erf,
    "erfinv": erfinv,
    "astype": lambda a, dtype: a.astype(dtype if dtype != "bfloat16" else "float32"),
    "view": view,
    "minmax": lambda a, axis=None, keepdims=False: [
        np.min(a, axis, keepdims=keepdims),
        np.max(a, axis, keepdims=keepdims),
    ],
    "logsumexp": logsumexp,
    "softmax": softmax,
    "softmin": lambda a, axis=None: softmax(-a, axis),
    "log_softmax": lambda a, axis=None: np.log(softmax(a, axis)),
    "cumsum": scan(lambda a, axis: np.cumsum(a, axis), 0),
    "cumprod": scan(lambda a, axis: np.cumprod(a, axis), 1),
    "cummax": scan(lambda a, axis: np.maximum.accumulate(a, axis), -math.inf),
    "cummin": scan(lambda a, axis: np.minimum.accumulate(a, axis), math.inf),
    "logcumsumexp": scan(lambda a, axis: np.log(np.cumsum(np.exp(a), axis)), -math.inf),
    "topk": topk,
    "searchsorted": lambda a, v, side="left": np.searchsorted(a, v, side),
    "unique": unique,
    "count_nonzero": lambda a, axis=None, keepdims=False: np.sum(
        a != 0, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims
    ),
    "flatten": lambda a, start_axis=0, end_axis=-1: (
        a.reshape(
            *a.shape[: start_axis % a.ndim],
            math.prod(a.shape[start_axis : end_axis % a.ndim + 1]),
            *a.shape[end_axis % a.ndim + 1 :],
        )
        if a.ndim
        else a.reshape(1)
    ),
    "unflatten": lambda a, axis, shape: a.reshape(
        *a.shape[: axis % a.ndim], *shape, *a.shape[axis % a.ndim + 1 :]
    ),
    "reshape": lambda a, shape: a.reshape(shape),
    "transpose": moved_to,
    "matrix_transpose": lambda a: np.swapaxes(a, -1, -2),
    "broadcast_to": lambda a, shape: np.broadcast_to(a, shape),
    "squeeze": lambda a, axis=None: np.squeeze(a, tuple(axis) if isinstance(axis, list) else axis),
    "concatenate": lambda *a, axis=0: np.concatenate(a, axis),
    "stack": lambda *a, axis=0: np.stack(a, axis),
    "split": split,
    "unstack": lambda a, axis=0: [np.take(a, at, axis) for at in range(a.shape[axis])],
    "tile": lambda a, reps: np.tile(a, reps),
    "pad": lambda a, pad_width, mode="constant", constant_values=0: (
        np.pad(
            a,
            pad_width,
            mode=mode,
            **({"constant_values": constant_values} if mode == "constant" else {}),
        )
        if a.ndim
        else a
    ),
    "meshgrid": lambda *a, indexing="xy": np.meshgrid(*a, indexing=indexing),
    "broadcast_arrays": lambda *a: list(np.broadcast_arrays(*a)),
    "tril": lambda x, k=0: np.tril(x, k),
    "triu": lambda x, k=0: np.triu(x, k),
    "slice": slices,
    "dynamic_slice": dynamic_slice,
    "slice_update": slice_update,
    "take": take,
    "take_along_axis": lambda a, i, axis=-1, **_: np.take_along_axis(
        a if axis is not None else a.reshape(-1),
        i
        if axis is None
        else np.broadcast_to(
            i, [i.shape[at] if at == axis % a.ndim else n for at, n in enumerate(a.shape)]
        ),
        axis if axis is not None else 0,
    ),
    "put_along_axis": put_along_axis,
    "embedding": lambda w, i, **_: w[i],
    "one_hot": lambda i, num_classes, **_: np.eye(num_classes)[i],
    "scatter": scatter(None),
    "scatter_add": scatter(np.add),
    "scatter_multiply": scatter(np.multiply),
    "scatter_max": scatter(np.maximum),
    "scatter_min": scatter(np.minimum),
    "zeros": fill(0),
    "ones": fill(1),
    "full": fill(None),
    "zeros_like": fill(0),
    "ones_like": fill(1),
    "full_like": fill(None),
    "arange": lambda stop, start=0, step=1, dtype=None: np.arange(start, stop, step),
    "iota": lambda shape, axis=-1, dtype=None: np.indices(shape)[axis],
    "linspace": lambda start, stop, num=50, endpoint=True, dtype=None: np.linspace(
        start, stop, num, endpoint
    ),
    "eye": lambda n, m=None, k=0, dtype=None: np.eye(n, m, k),
    "tri": lambda n, m=None, k=0, dtype=None: np.tri(n, m, k),
    "hanning": window_of(0.5, -0.5),
    "hamming": window_of(0.54, -0.46),
    "blackman": window_of(0.42, -0.5, 0.08),
    "bartlett": lambda M: np.bartlett(M),  # noqa: N803
    "vecdot": lambda a, b, axis=-1: np.sum(np.conj(a) * b, axis),
    "addmm": lambda c, a, b, alpha=1.0, beta=1.0: alpha * (a @ b) + beta * c,
    "tensordot": tensordot,
    "einsum": einsum,
    "cross": lambda a, b, axis=-1: np.cross(a, b, axis=axis),
    "gather_mm": lambda a, b, left=None, right=None, **_: np.matmul(
        a if left is None else a.reshape(-1, *a.shape[-2:])[left],
        b if right is None else b.reshape(-1, *b.shape[-2:])[right],
    ),
    "inv": np.linalg.inv,
    "tri_inv": lambda a, upper=False: np.linalg.inv(triangle(a, upper)),
    "cholesky": lambda a, upper=False: (
        np.swapaxes(np.linalg.cholesky(a), -1, -2) if upper else np.linalg.cholesky(a)
    ),
    "cholesky_inv": cholesky_inv,
    "pinv": np.linalg.pinv,
    "det": np.linalg.det,
    "slogdet": lambda a: list(np.linalg.slogdet(a)),
    "eigvalsh": lambda a, UPLO="L": np.linalg.eigvalsh(a, UPLO),  # noqa: N803
    "solve": lambda a, b: (
        np.linalg.solve(a, b[..., None])[..., 0] if b.ndim == 1 else np.linalg.solve(a, b)
    ),
    "solve_triangular": lambda a, b, upper=False: np.linalg.solve(triangle(a, upper), b),
    "norm": norm,
    **{f"conv{n}d": convolution for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": transposed for n in (1, 2, 3)},
    "conv_general": convolution,
    "convolve": convolve,
    **{f"max_pool{n}d": pool(np.max, -math.inf) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": pool(np.mean, 0) for n in (1, 2, 3)},
    **{
        name: (lambda f: lambda a, n=None, axis=-1, norm="backward": f(a, n, axis, norm))(
            getattr(np.fft, name)
        )
        for name in ("fft", "ifft", "rfft", "irfft")
    },
    **{
        name: fft_many(name)
        for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
    },
    "fftfreq": lambda n, d=1.0: np.fft.fftfreq(n, d),
    "rfftfreq": lambda n, d=1.0: np.fft.rfftfreq(n, d),
    "fftshift": lambda a, axes=None: np.fft.fftshift(a, axes),
    "ifftshift": lambda a, axes=None: np.fft.ifftshift(a, axes),
    "linear": lambda x, w, b=None: x @ w.T + (0 if b is None else b),
    "rms_norm": lambda x, w=None, eps=1e-5: _scaled(
        x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps), w, None
    ),
    "layer_norm": lambda x, w=None, b=None, eps=1e-5: normalised(x, (-1,), eps, w, b),
    "group_norm": group_norm,
    "instance_norm": lambda x, w=None, b=None, eps=1e-5: normalised(
        x, tuple(range(1, x.ndim - 1)), eps, w, b
    ),
    "batch_norm": batch_norm,
    "rope": rope,
    "scaled_dot_product_attention": attention,
    "sigmoid": sigmoid,
    "log_sigmoid": lambda x: np.log(sigmoid(x)),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x, negative_slope=0.01: np.where(x > 0, x, negative_slope * x),
    "prelu": lambda x, alpha: np.where(x > 0, x, alpha * x),
    "elu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)),
    "celu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x / alpha)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_approx": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "gelu_fast_approx": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_tanh": lambda x, min_val=-1, max_val=1: np.clip(x, min_val, max_val),
    "hard_shrink": lambda x, lambd=0.5: np.where(np.abs(x) > lambd, x, 0),
    "softshrink": lambda x, lambd=0.5: np.sign(x) * np.maximum(np.abs(x) - lambd, 0),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "step": lambda x, threshold=0.0: (x > threshold).astype(float),
    "glu": lambda x, axis=-1: (lambda a, b: a * sigmoid(b))(*np.split(x, 2, axis)),
    "cross_entropy": loss(cross_entropy),
    "binary_cross_entropy": loss(binary_cross_entropy, "mean"),
    "nll_loss": loss(lambda x, t, axis=-1: -picked(x, t, axis)),
    "l1_loss": loss(lambda p, t: np.abs(p - t), "mean"),
    "mse_loss": loss(lambda p, t: (p - t) ** 2, "mean"),
    "smooth_l1_loss": loss(smooth_l1, "mean"),
    "huber_loss": loss(huber),
    "log_cosh_loss": loss(lambda x, t: np.log(np.cosh(x - t))),
    "hinge_loss": loss(lambda x, t: np.maximum(0, 1 - x * t)),
    "kl_div_loss": loss(lambda x, t, axis=-1: np.sum(np.exp(t) * (t - x), axis)),
    "gaussian_nll_loss": loss(
        lambda x, t, v, full=False, eps=1e-6: (
            (np.log(np.maximum(v, eps)) + (t - x) ** 2 / np.maximum(v, eps)) / 2
            + (math.log(2 * math.pi) / 2 if full else 0)
        ),
        "mean",
    ),
    "cosine_similarity_loss": loss(
        lambda a, b, axis=1, eps=1e-8: (
            np.sum(a * b, axis)
            / np.maximum(np.linalg.norm(a, axis=axis) * np.linalg.norm(b, axis=axis), eps)
        )
    ),
    "margin_ranking_loss": loss(lambda a, b, t, margin=0.0: np.maximum(0, margin - t * (a - b))),
    "triplet_loss": loss(triplet),
    "dequantize": dequantize,
    "quantized_matmul": quantized_matmul,
    "gather_qmm": gather_qmm,
    "from_fp8": from_fp8,
    "to_fp8": to_fp8,
    "exp2": np.exp2,
    "real": np.real,
    "imag": np.imag,
    "random_key": lambda seed: np.array([seed >> 32, seed % 2**32]),
}


def reference_of(name: str) -> Reference | None:
    """Return the reference of a row: its own, or numpy's of that name."""
    return REFERENCES.get(name) or getattr(np, name, None)
