"""Kernels alone, again and again on numbers outside of all caches: kernels.py SECONDS.

Prints a line of JSON for each: "kernel", its "rows", the best "seconds" of some calls, the "bytes"
of weights or of keys and values that a call reads, and its multiplications ("multiplied", "kind").
"""

import json
import sys
import time

import bare  # noqa: F401 - before mlx
import mlx.core as mx

from cowmlx.accelerate import kernels

SECONDS = float(sys.argv[1])
K = 2048
BYTES = 96 << 20  # of weights: more than any cache here has
FORMATS = {
    "4 bits, int8": (4, True),
    "4 bits, exact": (4, False),
    "8 bits, int8": (8, True),
    "8 bits, exact": (8, False),
    "bfloat16": (16, False),
    "float16": (-16, False),
    "float32": (32, False),
}
DENSE = {16: mx.bfloat16, -16: mx.float16, 32: mx.float32}
ROWS = (1, 8, 512)
HEADS, GROUPS, DIM, POSITIONS = 16, 8, 128, 4096

mx.set_default_device(mx.cpu)
MODULE = kernels.module()


def best(compute) -> float:
    """Return the least seconds of a call."""
    mx.eval(compute())
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        begun = time.perf_counter()
        mx.eval(compute())
        times.append(time.perf_counter() - begun)
    return min(times)


def report(kernel: str, rows: int, seconds: float, **more) -> None:
    """Print a line."""
    print(json.dumps({"kernel": kernel, "rows": rows, "seconds": seconds, **more}), flush=True)


def product(name: str, bits: int, int8: bool) -> None:
    """Measure products of one format of weights."""
    count = BYTES * 8 // (abs(bits) * K) // 16 * 16
    if bits in DENSE:
        arrays = [MODULE.pack(mx.random.normal((count, K)).astype(DENSE[bits]))]
        packing = {"rows": count}
    else:
        words = mx.random.randint(0, 2**31 - 1, (count, K * bits // 32)).astype(mx.uint32)
        beside = [mx.random.normal((count, K // 64)).astype(mx.bfloat16) for _ in range(2)]
        arrays = [MODULE.pack(operand) for operand in (words, *beside)]
        packing = {"rows": count, "mode": "affine", "bits": bits, "group": 64}
    mx.eval(arrays)
    size = sum(array.nbytes for array in arrays)
    for rows in ROWS:
        x = mx.random.normal((rows, K))
        mx.eval(x)
        # A prompt multiplies long enough with a part of the weights.
        own, part = arrays, dict(packing)
        if rows > 16:
            part["rows"] = count // 16 // 16 * 16
            own = [mx.contiguous(operand[: part["rows"] // 16]) for operand in arrays]
            mx.eval(own)
        seconds = best(
            lambda own=own, part=part, x=x: MODULE.product(x, *own, rounded=int8, **part)
        )
        report(
            f"product, {name}",
            rows,
            seconds,
            bytes=size if rows <= 16 else sum(operand.nbytes for operand in own),
            multiplied=rows * part["rows"] * K,
            kind="int8" if int8 else "float32",
        )


def attention(name: str, dtype: mx.Dtype) -> None:
    """Measure attention over keys and values of one type."""
    for rows, tokens in ((1, 1), (8, 1), (1, 512)):
        q = mx.random.normal((rows, HEADS, tokens, DIM))
        k, v = (mx.random.normal((rows, GROUPS, POSITIONS, DIM)).astype(dtype) for _ in range(2))
        mx.eval(q, k, v)
        mask = "causal" if tokens > 1 else None
        seconds = best(
            lambda q=q, k=k, v=v, mask=mask: MODULE.attention(q, k, v, scale=0.1, mask=mask)
        )
        seen = POSITIONS - (tokens - 1) / 2
        multiplied = int(rows * HEADS * tokens * seen * 2 * DIM)
        report(
            f"attention, {name}" + (" of a prompt" if tokens > 1 else ""),
            rows * tokens,
            seconds,
            bytes=k.nbytes + v.nbytes,
            multiplied=multiplied,
            kind="float32",
        )


for _name, _kind in FORMATS.items():
    product(_name, *_kind)
for _name, _dtype in (("float32", mx.float32), ("bfloat16", mx.bfloat16)):
    attention(f"keys of {_name}", _dtype)
