"""Steps of small networks: networks.py SIDE, "library", "mlx" or "torch".

Answers each line "WHAT NETWORK STEPS" with steps/s, by the clock and by processor time of all
threads, and the last loss. WHAT is "train", steps with Adam whose loss the host reads, or
"gradient", the loss and the gradients of all parameters for one batch. NETWORK is "mlp" or
"convolutions". All sides begin with the same numbers and take the same batches in the same order.
"""

import contextlib
import json
import sys
import time
from ctypes import byref, c_int32
from itertools import count
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in (".", "tests")]
BATCH, ROWS, RATE = 64, 1024, 1e-3
SHAPES = {
    "mlp": [(784, 256), (256,), (256, 128), (128,), (128, 10), (10,)],
    "convolutions": [(8, 3, 3, 1), (8,), (16, 3, 3, 8), (16,), (784, 10), (10,)],
}
INPUT = {"mlp": (784,), "convolutions": (28, 28, 1)}


def data(network):
    """Rows, labels and parameters."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, *INPUT[network])).astype(np.float32)
    labels = rng.integers(0, 10, ROWS).astype(np.int32)
    initial = [0.1 * rng.standard_normal(shape).astype(np.float32) for shape in SHAPES[network]]
    return x, labels, initial


def batches():
    """Yield the slice of every batch, again and again."""
    for made in count():
        at = made * BATCH % ROWS
        yield slice(at, at + BATCH)


def nodes_of(network):
    """The network as nodes of a program; "loss" is the last."""
    nodes = []

    def add(op, *inputs, name=None, **attributes):
        name = name or f"v{len(nodes)}"
        nodes.append({"name": name, "op": op, "inputs": inputs, "attributes": attributes})
        return name

    value = "x"
    for at in (0, 2):
        if network == "mlp":
            value = add("matmul", value, f"p{at}")
        else:
            value = add("conv2d", value, f"p{at}", stride=2, padding=1)
        value = add("relu", add("add", value, f"p{at + 1}"))
    if network == "convolutions":
        value = add("reshape", value, shape=[-1, 784])
    value = add("add", add("matmul", value, "p4"), "p5")
    add("cross_entropy", value, "y", name="loss", reduction="mean")
    return nodes


def library(network):
    """Programs through the C ABI."""
    import bare  # noqa: F401 - the tests' library joins a process that has loaded mlx
    from support import signatures
    from support.library import Library
    from support.trainings import Trainings

    lib = Library()
    lib.start(device="cpu")
    trainings = Trainings(lib)
    x, labels, initial = data(network)
    names = [f"p{at}" for at in range(6)]
    inputs = [
        {"name": "x", "dtype": "float32", "shape": ["rows", *x.shape[1:]]},
        {"name": "y", "dtype": "int32", "shape": ["rows"]},
    ]
    parameters = [
        {"name": name, "dtype": "float32", "shape": value.shape}
        for name, value in zip(names, initial, strict=True)
    ]
    body = {"nodes": nodes_of(network), "outputs": ["loss"]}
    training = trainings.create(
        {"inputs": inputs, "parameters": parameters, **body},
        optimizer={"name": "adam", "learning_rate": RATE},
        initial=dict(zip(names, initial, strict=True)),
    )
    arrays = [trainings.arrays.create(x), trainings.arrays.create(labels)]

    def train(steps):
        until = trainings.info(training)["step"] + steps
        events = trainings.fit(
            training, inputs=arrays, batch_size=BATCH, shuffle=False, steps=until
        )
        return [event.loss for event in events if event.kind == signatures.TRAINING_STEP][-1]

    program = c_int32()
    text = json.dumps({"inputs": inputs + parameters, **body}).encode()
    lib.check(lib.c.cow_mlx_program_create(text, len(text), None, byref(program)))
    spec = {"gradient": {"of": "loss", "with_respect_to": names, "value": True}}
    text = json.dumps(spec).encode()
    lib.check(lib.c.cow_mlx_program_derive(program, text, len(text), byref(program)))
    values, outputs = (signatures.cow_mlx_value * 8)(), (signatures.cow_mlx_value * 7)()
    for at, value in enumerate([x[:BATCH], labels[:BATCH], *initial]):
        values[at].array = trainings.arrays.create(value)

    def gradient(steps):
        for _ in range(steps):
            for output in outputs:
                if output.array:
                    lib.c.cow_mlx_array_free(output.array)
                output.array = 0
            lib.check(lib.c.cow_mlx_program_run(program, values, 8, outputs, 7, None))
        return float(trainings.arrays.read(outputs[0].array))

    return {"train": train, "gradient": gradient}


def mlx(network):
    """Mlx's own modules and optimizer."""
    import bare  # noqa: F401 - the library's BLAS, before mlx
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim

    mx.set_default_device(mx.cpu)
    x, labels, initial = data(network)
    if network == "mlp":
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
        weight, bias = initial[2 * at], initial[2 * at + 1]
        layer.weight = mx.array(weight.T if weight.ndim == 2 else weight)
        layer.bias = mx.array(bias)
    optimizer = optim.Adam(learning_rate=RATE)
    x, labels = mx.array(x), mx.array(labels)
    step = nn.value_and_grad(net, lambda x, y: nn.losses.cross_entropy(net(x), y, reduction="mean"))
    order = batches()

    def train(steps):
        for _ in range(steps):
            rows = next(order)
            loss, gradients = step(x[rows], labels[rows])
            optimizer.update(net, gradients)
            mx.eval(loss, net.parameters(), optimizer.state)
            value = loss.item()
        return value

    def gradient(steps):
        for _ in range(steps):
            loss, gradients = step(x[:BATCH], labels[:BATCH])
            mx.eval(loss, gradients)
        return loss.item()

    return {"train": train, "gradient": gradient}


def torch(network):
    """PyTorch, which has an axis of channels before those of the picture."""
    import torch as pt

    x, labels, initial = data(network)
    layers = []
    for at, shape in enumerate(SHAPES[network][::2]):
        if len(shape) == 2:
            layers += [pt.nn.Flatten(), pt.nn.Linear(*shape)]
        else:
            layers.append(pt.nn.Conv2d(shape[3], shape[0], 3, stride=2, padding=1))
        weight, bias = (pt.tensor(value) for value in initial[2 * at : 2 * at + 2])
        layers[-1].weight.data = weight.T if weight.ndim == 2 else weight.permute(0, 3, 1, 2)
        layers[-1].bias.data = bias
        layers.append(pt.nn.ReLU())
    net = pt.nn.Sequential(*layers[:-1])
    optimizer = pt.optim.Adam(net.parameters(), lr=RATE)
    x, labels = pt.tensor(x), pt.tensor(labels).long()
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    order = batches()

    def differentiate(rows):
        optimizer.zero_grad()
        loss = pt.nn.functional.cross_entropy(net(x[rows]), labels[rows])
        loss.backward()
        return loss

    def train(steps):
        for _ in range(steps):
            loss = differentiate(next(order))
            optimizer.step()
            value = loss.item()
        return value

    def gradient(steps):
        for _ in range(steps):
            loss = differentiate(slice(BATCH))
        return loss.item()

    return {"train": train, "gradient": gradient}


make = {"library": library, "mlx": mlx, "torch": torch}[sys.argv[1]]
answers = sys.stdout
with contextlib.redirect_stdout(sys.stderr):
    runs = {network: make(network) for network in SHAPES}
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        what, network, steps = line.split()
        wall, cpu = time.perf_counter(), time.process_time()
        loss = runs[network][what](int(steps))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(int(steps) / wall, int(steps) / max(cpu, 1e-9), loss, file=answers, flush=True)
