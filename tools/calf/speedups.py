"""What makes training calf quick on a CPU: faster matrix products, and fewer slow exponentials.

The exponential of mlx's CPU backend takes some twenty nanoseconds an element, and the softmax
and the gates of a small model are full of them.  Here it is a short polynomial that the compiler
turns into vector code, used in attention, in the gated unit and in the loss, each with its
gradient written out.  The trained weights know nothing of it.
"""

import ctypes
import subprocess
from functools import lru_cache
from pathlib import Path

GELU = 0.7978845608028654  # the square root of 2 / pi


def load_blas(folder):
    """Build the library's shim in `folder` and load it; mlx must not have been imported yet."""
    try:
        import scipy_openblas32 as blas

        source = Path(__file__).resolve().parents[2] / "csrc" / "blas" / "cblas.c"
        target = Path(folder) / "cblas.so"
        library = Path(blas.get_lib_dir()) / f"lib{blas.get_library()}.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", target], check=True)
        shim = ctypes.CDLL(str(target))
        shim.cow_blas_open.restype = ctypes.c_char_p
        problem = shim.cow_blas_open(str(library).encode())
        if problem:
            raise OSError(problem.decode())
        ctypes.CDLL(str(target), mode=ctypes.RTLD_GLOBAL)
    except (ImportError, OSError, subprocess.CalledProcessError) as error:
        print(f"no faster BLAS, training will be slow: {error}")


def install(llama):
    """Put the quick attention and gate into mlx_lm's llama module; return the quick loss."""
    import mlx.core as mx

    attention, gate, cross_entropy = masked_attention(), _gate(), _cross_entropy()

    def scaled_attention(queries, keys, values, cache=None, scale=1.0, mask=None):
        """Stands in for mlx_lm's attention in training, where the mask is always causal."""
        groups = queries.shape[1] // keys.shape[1]
        keys, values = mx.repeat(keys, groups, 1), mx.repeat(values, groups, 1)
        return attention(queries * scale, keys, values, _causal(queries.shape[2]))[0]

    llama.scaled_dot_product_attention = scaled_attention
    llama.swiglu = lambda g, x: gate(g, x)[0]
    return lambda logits, wanted: cross_entropy(logits, wanted)[0]


def install_gemma(gemma, mask):
    """Put the quick attention and gate into mlx_lm's gemma3_text module.

    `mask` returns what is added to the scores.  Returns the attention, the activation of towers
    and the quick loss.
    """
    import mlx.core as mx

    attention, cross_entropy = masked_attention(), _cross_entropy()
    gate = _gate(lambda g: 2 * GELU * (g + 0.044715 * g * g * g), _gelu_slope)

    def scaled_attention(queries, keys, values, cache=None, scale=1.0, mask=None):
        """Stands in for mlx_lm's attention in training."""
        groups = queries.shape[1] // keys.shape[1]
        keys, values = mx.repeat(keys, groups, 1), mx.repeat(values, groups, 1)
        return attention(queries * scale, keys, values, mask)[0]

    def units(mlp, x):
        return mlp.down_proj(gate(mlp.gate_proj(x), mlp.up_proj(x))[0])

    gemma.scaled_dot_product_attention = scaled_attention
    gemma.create_attention_mask = lambda *_, **__: mask()
    gemma.MLP.__call__ = units

    def gelu(x):
        return gate(x, mx.ones_like(x))[0]

    return attention, gelu, lambda logits, wanted: cross_entropy(logits, wanted)[0]


def _gelu_slope(g):
    """The derivative of what the gate of GELU takes the sigmoid of."""
    return 2 * GELU * (1 + 3 * 0.044715 * g * g)


def _exponential(x):
    """Euler's number to the x in [-40, 40]: the series of x / 32, squared five times."""
    import mlx.core as mx

    x = mx.clip(x, -40.0, 40.0)
    y = x * x
    p = (1 + x * 2**-5) + y * ((2**-11 + x * (2**-16 / 3)) + y * (2**-23 / 3))
    for _ in range(5):
        p = p * p
    return p


def _row_sums(x):
    """Sums along the last axis, as a matrix product."""
    import mlx.core as mx

    return x @ mx.ones((x.shape[-1], 1))


@lru_cache
def _causal(length):
    """The mask that is added to attention scores to hide the future."""
    import mlx.core as mx

    return mx.triu(mx.full((length, length), -1e4), 1)


def masked_attention():
    """Attention of queries, keys, values and a mask that is added; the first result is its own."""
    import mlx.core as mx

    @mx.custom_function
    def attention(q, k, v, mask):
        weights = _exponential(mx.addmm(mask, q, k.swapaxes(-1, -2)))
        scale = 1 / _row_sums(weights)
        return (weights @ v) * scale, weights, scale

    @attention.vjp
    def attention_gradient(primals, cotangents, outputs):
        q, k, v, mask = primals
        out, weights, scale = outputs
        d_out = cotangents[0] * scale
        shift = -(d_out * out).sum(-1, keepdims=True)
        ones = mx.ones((*v.shape[:-1], 1))
        left, right = mx.concatenate([d_out, shift], -1), mx.concatenate([v, ones], -1)
        d_scores = weights * (left @ right.swapaxes(-1, -2))
        d_values = weights.swapaxes(-1, -2) @ d_out
        return d_scores @ k, d_scores.swapaxes(-1, -2) @ q, d_values, mx.zeros_like(mask)

    return attention


def _gate(inner=lambda g: g, slope=lambda g: 1):
    """A gate: g * sigmoid(inner(g)) * x, where `slope` is the derivative of `inner`."""
    import mlx.core as mx

    @mx.custom_function
    def gate(g, x):
        s = 1 / (1 + _exponential(-inner(g)))
        return g * s * x, s

    @gate.vjp
    def gate_gradient(primals, cotangents, outputs):
        (g, x), s = primals, outputs[1]
        d = cotangents[0] * s
        return d * x * (1 + g * slope(g) * (1 - s)), d * g

    return gate


def _cross_entropy():
    import mlx.core as mx

    @mx.custom_function
    def cross_entropy(logits, wanted):
        weights = _exponential(logits - logits.max(-1, keepdims=True))
        chances = weights * (1 / _row_sums(weights))
        picked = mx.take_along_axis(chances, wanted[..., None], -1)
        return -mx.log(picked[..., 0] + 1e-9), chances

    @cross_entropy.vjp
    def cross_entropy_gradient(primals, cotangents, outputs):
        wanted, scale = primals[1][..., None], cotangents[0][..., None]
        d_logits = outputs[1] * scale
        picked = mx.take_along_axis(d_logits, wanted, -1) - scale
        return mx.put_along_axis(d_logits, wanted, picked, -1), mx.zeros_like(primals[1])

    return cross_entropy
