"""Gradients of networks by programs over the C ABI, and in plain mlx: gradients.py.

Answers each line "SIDE NETWORK RUNS" with the seconds of a step, and those of processor time: the
loss and its gradient for all parameters. SIDE is "program" or "plain", NETWORK "perceptron" or
"convolutions"; "check" in place of SIDE with any number: the largest difference between the two.
"""

import json
import sys
import time
from ctypes import byref, c_int32, c_int64
from functools import cache
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in (".", "tests")]
import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
import numpy as np  # noqa: E402
from support import signatures  # noqa: E402
from support.arrays import Arrays, tensor  # noqa: E402
from support.library import Library  # noqa: E402

Value = signatures.cow_mlx_value
BATCH = 64
SHAPES = {
    "perceptron": [(784, 256), (256,), (256, 128), (128,), (128, 10), (10,)],
    "convolutions": [(8, 3, 3, 1), (8,), (16, 3, 3, 8), (16,), (784, 10), (10,)],
}
INPUT = {"perceptron": (BATCH, 784), "convolutions": (BATCH, 28, 28, 1)}

lib = Library()
lib.start(device="cpu")  # also turns mlx's compile off
arrays, c = Arrays(lib), lib.c
rng = np.random.default_rng(0)


@cache
def data(network):
    """A batch, its labels, and the parameters."""
    x = rng.standard_normal(INPUT[network]).astype(np.float32)
    labels = rng.integers(0, 10, BATCH).astype(np.int32)
    given = [0.1 * rng.standard_normal(shape).astype(np.float32) for shape in SHAPES[network]]
    return [x, labels, *(each.astype(np.float32) for each in given)]


def nodes(network):
    """The network as nodes; the last is the loss."""
    found = []

    def add(op, *inputs, **attributes):
        found.append(
            {"name": f"v{len(found)}", "op": op, "inputs": inputs, "attributes": attributes}
        )
        return found[-1]["name"]

    value = "x"
    for at in (0, 2):
        if network == "perceptron":
            value = add("matmul", value, f"p{at}")
        else:
            value = add("conv2d", value, f"p{at}", stride=2, padding=1)
        value = add("relu", add("add", value, f"p{at + 1}"))
    if network == "convolutions":
        value = add("reshape", value, shape=[BATCH, -1])
    value = add("add", add("matmul", value, "p4"), "p5")
    add("cross_entropy", value, "y", reduction="mean")
    return found


@cache
def program(network):
    """One run gives the loss and all gradients, as arrays."""
    given = data(network)
    names = ["x", "y", *(f"p{at}" for at in range(6))]
    listed = nodes(network)
    text = {
        "inputs": [
            {"name": name, "dtype": str(each.dtype), "shape": each.shape}
            for name, each in zip(names, given, strict=True)
        ],
        "nodes": listed,
        "outputs": [listed[-1]["name"]],
    }
    spec = {"gradient": {"of": listed[-1]["name"], "with_respect_to": names[2:], "value": True}}
    made = c_int32()
    raw = json.dumps(text).encode()
    lib.check(c.cow_mlx_program_create(raw, len(raw), None, byref(made)))
    raw = json.dumps(spec).encode()
    lib.check(c.cow_mlx_program_derive(made, raw, len(raw), byref(made)))
    inputs, outputs = (Value * len(given))(), (Value * 7)()
    for at, each in enumerate(given):
        handle = c_int64()
        lib.check(c.cow_mlx_array_create(byref(tensor(each)), byref(handle)))
        inputs[at].array = handle.value

    def run():
        for at in range(7):
            if outputs[at].array:
                c.cow_mlx_array_free(outputs[at].array)
            outputs[at].array = 0
        lib.check(c.cow_mlx_program_run(made, inputs, len(given), outputs, 7, None))
        return outputs

    return run


@cache
def plain(network):
    """The same in Python."""
    x, y, *parameters = map(mx.array, data(network))

    def loss(parameters):
        value = x
        for at in (0, 2):
            if network == "perceptron":
                value = value @ parameters[at]
            else:
                value = mx.conv2d(value, parameters[at], stride=2, padding=1)
            value = nn.relu(value + parameters[at + 1])
        if network == "convolutions":
            value = value.reshape(BATCH, -1)
        value = value @ parameters[4] + parameters[5]
        return nn.losses.cross_entropy(value, y, reduction="mean")

    step = mx.value_and_grad(loss)

    def run():
        found, gradients = step(parameters)
        mx.eval(found, gradients)
        return [found, *gradients]

    return run


def difference(network):
    """The largest difference between the two sides' results."""
    ours = [arrays.read(each.array) for each in program(network)()]
    theirs = [np.array(each) for each in plain(network)()]
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))


SIDES = {"program": program, "plain": plain}
with mx.stream(mx.cpu):
    print("ready", flush=True)
    for line in sys.stdin:
        side, network, runs = line.split()
        if side == "check":
            print(difference(network), flush=True)
            continue
        run = SIDES[side](network)
        run()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(runs)):
            run()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(wall / int(runs), cpu / int(runs), flush=True)
