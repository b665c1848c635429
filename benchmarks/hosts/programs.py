"""Runs programs over the C ABI, the same by array_apply, and in plain mlx: programs.py.

Answers each line "SIDE WHAT NODES RUNS" with the seconds of a run, and those of processor time.
SIDE is "program", "apply" or "plain", WHAT "value" or "gradient".
"""

import json
import sys
import time
from ctypes import byref, c_int32, c_int64, c_size_t, pointer
from functools import cache
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in (".", "tests")]
import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402
from support import signatures  # noqa: E402
from support.arrays import tensor  # noqa: E402
from support.library import Library  # noqa: E402

UNARY = ("sin", "tanh", "exp", "sigmoid", "square", "abs")
OPERATIONS = ("sin", "add", "tanh", "multiply", "exp", "subtract", "sigmoid", "maximum", "square")

lib = Library()
lib.start(device="cpu")  # also turns mlx's compile off
c = lib.c
x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
result = np.zeros_like(x)
of_x, of_result = tensor(x), tensor(result)
array = c_int64()
lib.check(c.cow_mlx_array_create(byref(of_x), byref(array)))
plain_x = mx.array(x)
mx.eval(plain_x)


def chosen(nodes):
    """The operations of a program of so many nodes."""
    return [OPERATIONS[at % len(OPERATIONS)] for at in range(nodes)]


@cache
def program(what, nodes):
    """A run from host memory into host memory."""
    listed, last = [], "x"
    for at, op in enumerate(chosen(nodes)):
        inputs = [last] if op in UNARY else [last, "x"]
        last = f"v{at}"
        listed.append({"name": last, "op": op, "inputs": inputs})
    listed.append({"name": "total", "op": "sum", "inputs": [last]})
    declared = {
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["rows", 16]}],
        "nodes": listed,
        "outputs": [last if what == "value" else "total"],
    }
    made = c_int32()
    text = json.dumps(declared).encode()
    lib.check(c.cow_mlx_program_create(text, len(text), None, byref(made)))
    if what == "gradient":
        text = json.dumps({"gradient": {"of": "total", "with_respect_to": ["x"]}}).encode()
        lib.check(c.cow_mlx_program_derive(made, text, len(text), byref(made)))
    inputs, outputs = signatures.cow_mlx_value(), signatures.cow_mlx_value()
    inputs.host, outputs.host = pointer(of_x), pointer(of_result)
    run = c.cow_mlx_program_run
    return lambda: lib.check(run(made, byref(inputs), 1, byref(outputs), 1, None))


@cache
def apply(what, nodes):
    """One operation at a time; the last result is read."""
    steps = [(op.encode(), 1 if op in UNARY else 2) for op in chosen(nodes)]
    inputs, out, length = (c_int64 * 2)(), c_int64(), c_size_t()

    def run():
        last = array.value
        for op, count in steps:
            inputs[0], inputs[1] = last, array.value
            lib.check(c.cow_mlx_array_apply(op, inputs, count, None, byref(out), 1, byref(length)))
            if last != array.value:
                c.cow_mlx_array_free(last)
            last = out.value
        lib.check(c.cow_mlx_array_read(last, byref(of_result)))
        c.cow_mlx_array_free(last)

    return run


@cache
def plain(what, nodes):
    """The function in Python."""
    steps = [(getattr(mx, op), op in UNARY) for op in chosen(nodes)]

    def function(x):
        value = x
        for operation, is_unary in steps:
            value = operation(value) if is_unary else operation(value, x)
        return value

    function = function if what == "value" else mx.grad(lambda x, of=function: of(x).sum())
    return lambda: mx.eval(function(plain_x))


SIDES = {"program": program, "apply": apply, "plain": plain}
with mx.stream(mx.cpu):
    print("ready", flush=True)
    for line in sys.stdin:
        side, what, nodes, runs = line.split()
        run = SIDES[side](what, int(nodes))
        run()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(runs)):
            run()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(wall / int(runs), cpu / int(runs), flush=True)
