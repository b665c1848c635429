"""Training steps of small networks: networks.py SIDE, "library", "mlx" or "torch".

Answers each line "NETWORK STEPS" with steps/s, by the clock and by processor time of all threads,
and the last loss. NETWORK is "perceptron" or "convolutions". All begin with the same numbers, take
the same batches in the same order, and hand the loss of each step to the host.
"""

import contextlib
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in (".", "tests")]
BATCH, ROWS, RATE = 64, 1024, 1e-3
SHAPES = {
    "perceptron": [(784, 256), (256,), (256, 128), (128,), (128, 10), (10,)],
    "convolutions": [(8, 3, 3, 1), (8,), (16, 3, 3, 8), (16,), (784, 10), (10,)],
}
INPUT = {"perceptron": (784,), "convolutions": (28, 28, 1)}


def data(network):
    """Rows, labels and parameters."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, *INPUT[network])).astype(np.float32)
    labels = rng.integers(0, 10, ROWS).astype(np.int32)
    given = [0.1 * rng.standard_normal(shape).astype(np.float32) for shape in SHAPES[network]]
    return x, labels, given


def library(network):
    """Train a program through the C ABI."""
    from lent_blas import lend_blas

    lend_blas()  # the tests' library joins a process that has loaded mlx
    from support.library import Library
    from support.signatures import TRAINING_STEP
    from support.trainings import Trainings

    lib = Library()
    lib.start(device="cpu")
    trainings = Trainings(lib)
    x, labels, given = data(network)
    names = [f"p{at}" for at in range(6)]
    nodes, value = [], "x"

    def add(op, *inputs, **attributes):
        name = f"v{len(nodes)}"
        nodes.append({"name": name, "op": op, "inputs": inputs, "attributes": attributes})
        return name

    for at in (0, 2):
        if network == "perceptron":
            value = add("matmul", value, names[at])
        else:
            value = add("conv2d", value, names[at], stride=2, padding=1)
        value = add("relu", add("add", value, names[at + 1]))
    if network == "convolutions":
        value = add("reshape", value, shape=[-1, 784])
    value = add("add", add("matmul", value, "p4"), "p5")
    add("cross_entropy", value, "y", reduction="mean")
    nodes[-1]["name"] = "loss"
    program = {
        "inputs": [
            {"name": "x", "dtype": "float32", "shape": ["rows", *x.shape[1:]]},
            {"name": "y", "dtype": "int32", "shape": ["rows"]},
        ],
        "parameters": [
            {"name": name, "dtype": "float32", "shape": each.shape}
            for name, each in zip(names, given, strict=True)
        ],
        "nodes": nodes,
        "outputs": ["loss"],
    }
    optimizer = {"name": "adam", "learning_rate": RATE}
    initial = dict(zip(names, given, strict=True))
    training = trainings.create(program, optimizer=optimizer, initial=initial)
    arrays = [trainings.arrays.create(x), trainings.arrays.create(labels)]

    def run(steps):
        until = trainings.info(training)["step"] + steps
        events = trainings.fit(
            training, inputs=arrays, batch_size=BATCH, shuffle=False, steps=until
        )
        return [event.loss for event in events if event.kind == TRAINING_STEP][-1]

    return run


def mlx(network):
    """Train by mlx's own modules and optimizer."""
    from lent_blas import lend_blas

    lend_blas()
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim

    mx.set_default_device(mx.cpu)
    x, labels, given = data(network)
    if network == "perceptron":
        layers = [nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)]
    else:
        layers = [
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.Linear(784, 10),
        ]

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def __call__(self, x):
            """Map rows to logits."""
            for layer in self.layers[:-1]:
                x = nn.relu(layer(x))
            return self.layers[-1](x.reshape(x.shape[0], -1))

    net = Network()
    for at, layer in enumerate(layers):
        weight, bias = given[2 * at], given[2 * at + 1]
        layer.weight = mx.array(weight.T if weight.ndim == 2 else weight)
        layer.bias = mx.array(bias)
    optimizer = optim.Adam(learning_rate=RATE)
    x, labels = mx.array(x), mx.array(labels)
    step = nn.value_and_grad(net, lambda x, y: nn.losses.cross_entropy(net(x), y, reduction="mean"))
    made = 0

    def run(steps):
        nonlocal made
        for _ in range(steps):
            at = made * BATCH % ROWS
            loss, gradients = step(x[at : at + BATCH], labels[at : at + BATCH])
            optimizer.update(net, gradients)
            mx.eval(loss, net.parameters(), optimizer.state)
            loss = loss.item()
            made += 1
        return loss

    return run


def torch(network):
    """Train by PyTorch, which has an axis of channels before those of the picture."""
    import torch as pt

    x, labels, given = data(network)
    layers = []
    for at, shape in enumerate(SHAPES[network][::2]):
        if len(shape) == 2:
            layers += [pt.nn.Flatten(), pt.nn.Linear(*shape)]
        else:
            layers.append(pt.nn.Conv2d(shape[3], shape[0], 3, stride=2, padding=1))
        weight, bias = (pt.tensor(each) for each in given[2 * at : 2 * at + 2])
        layers[-1].weight.data = weight.T if weight.ndim == 2 else weight.permute(0, 3, 1, 2)
        layers[-1].bias.data = bias
        layers.append(pt.nn.ReLU())
    net = pt.nn.Sequential(*layers[:-1])
    optimizer = pt.optim.Adam(net.parameters(), lr=RATE)
    x, labels = pt.tensor(x), pt.tensor(labels).long()
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    made = 0

    def run(steps):
        nonlocal made
        for _ in range(steps):
            at = made * BATCH % ROWS
            optimizer.zero_grad()
            loss = pt.nn.functional.cross_entropy(net(x[at : at + BATCH]), labels[at : at + BATCH])
            loss.backward()
            optimizer.step()
            loss = loss.item()
            made += 1
        return loss

    return run


make = {"library": library, "mlx": mlx, "torch": torch}[sys.argv[1]]
answers = sys.stdout
with contextlib.redirect_stdout(sys.stderr):
    runs = {network: make(network) for network in SHAPES}
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        network, steps = line.split()
        wall, cpu = time.perf_counter(), time.process_time()
        loss = runs[network](int(steps))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(int(steps) / wall, int(steps) / max(cpu, 1e-9), loss, file=answers, flush=True)
