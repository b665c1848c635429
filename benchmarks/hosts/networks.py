"""Steps of small networks: networks.py SIDE, "library", "mlx" or "torch".

Answers each line "WHAT NETWORK STEPS" with steps/s, by the clock and by processor time of all
threads, and the last loss. WHAT is "train", steps with Adam whose loss the host reads, or
"gradient", the loss and the gradients of all parameters for one batch. NETWORK is one of
`NETWORKS`. All sides begin with the same numbers and take the same batches in the same order.
"""

import contextlib
import sys
import time
from ctypes import byref, c_int32
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in (".", "tests")]
sys.path.insert(0, str(Path(__file__).parent))

from small_networks import BATCH, HEADS, HIDDEN, NETWORKS, WIDTH, batches, data  # noqa: E402

RATE = 1e-3

# ---- the library: programs through the C ABI ----


class LibraryOperations:
    """Operations of a program that is traced."""

    def __init__(self):
        from cowmlx import program

        self.program = program
        for name in ("relu", "exp", "sigmoid", "gelu", "embedding", "layer_norm", "attention"):
            setattr(self, name, getattr(program, name))
        self.cross_entropy = lambda x, y: program.cross_entropy(x, y, reduction="mean")
        self.binary_cross_entropy = program.binary_cross_entropy

    def mean(self, x, axis=None):
        """Of all numbers, or along an axis."""
        return x.mean() if axis is None else x.mean(axis=axis)

    def conv(self, x, kernel, bias, stride):
        """Keep the size but for the stride."""
        made = self.program.conv2d(x, kernel, stride=stride, padding=kernel.shape[1] // 2)
        return made if bias is None else made + bias

    def batch_norm(self, x, weight, bias):
        """By the batch's own mean and variance."""
        return self.program.apply("batch_norm", x, None, None, weight, bias)

    def pooled(self, x):
        """The mean of each channel."""
        return x.mean(axis=[1, 2])

    def flat(self, x):
        """A row of numbers for each picture."""
        return x.reshape(shape=[BATCH, -1])

    def heads(self, x):
        """(B, T, W) to (B, heads, T, W / heads)."""
        return x.reshape(shape=[BATCH, 32, HEADS, WIDTH // HEADS]).swapaxes(axis1=1, axis2=2)

    def joined(self, x):
        """Heads side by side again."""
        return x.swapaxes(axis1=1, axis2=2).reshape(shape=[BATCH, 32, WIDTH])

    def lstm(self, x, wx, wh, bias):
        """The last state."""
        rows = (x @ wx + bias).swapaxes(axis1=0, axis2=1)

        def step(h, c, row):
            i, f, g, o = (row + h @ wh).split(indices_or_sections=4, axis=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c

        zeros = self.program.zeros(shape=[BATCH, HIDDEN])
        return self.program.scan(step, [zeros, zeros], [rows])[0]


def library(network):
    """Programs through the C ABI."""
    import json

    import bare  # noqa: F401 - the tests' library joins a process that has loaded mlx
    from support import signatures
    from support.library import Library
    from support.trainings import Trainings

    from cowmlx import program as builder

    loss, _, shapes = NETWORKS[network]
    x, y, initial = data(network)
    o = LibraryOperations()
    names = list(shapes)
    traced = builder.trace(
        lambda x, y, **p: {"loss": loss(o, x, y, p)},
        inputs={
            "x": (str(x.dtype), [BATCH, *x.shape[1:]]),
            "y": (str(y.dtype), [BATCH, *y.shape[1:]]),
            **{name: ("float32", list(shape)) for name, shape in shapes.items()},
        },
    )
    entry = json.loads(traced.json())
    entry["parameters"] = entry["inputs"][2:]
    del entry["inputs"][2:]
    lib = Library()
    lib.start(device="cpu")
    trainings = Trainings(lib)
    training = trainings.create(
        entry, optimizer={"name": "adam", "learning_rate": RATE}, initial=initial
    )
    arrays = [trainings.arrays.create(x), trainings.arrays.create(y)]

    def train(steps):
        until = trainings.info(training)["step"] + steps
        events = trainings.fit(
            training, inputs=arrays, batch_size=BATCH, shuffle=False, steps=until
        )
        return [event.loss for event in events if event.kind == signatures.TRAINING_STEP][-1]

    program = c_int32()
    text = json.dumps(entry).encode()
    lib.check(lib.c.cow_mlx_program_create(text, len(text), None, byref(program)))
    spec = {"gradient": {"of": "loss", "with_respect_to": names, "value": True}}
    text = json.dumps(spec).encode()
    lib.check(lib.c.cow_mlx_program_derive(program, text, len(text), byref(program)))
    given = [x[:BATCH], y[:BATCH], *initial.values()]
    values = (signatures.cow_mlx_value * len(given))()
    outputs = (signatures.cow_mlx_value * (1 + len(names)))()
    for at, value in enumerate(given):
        values[at].array = trainings.arrays.create(value)

    def gradient(steps):
        for _ in range(steps):
            for output in outputs:
                if output.array:
                    lib.c.cow_mlx_array_free(output.array)
                output.array = 0
            lib.check(
                lib.c.cow_mlx_program_run(program, values, len(values), outputs, len(outputs), None)
            )
        return float(trainings.arrays.read(outputs[0].array))

    return {"train": train, "gradient": gradient}


# ---- mlx: its own operations and optimizer ----


class MlxOperations:
    """Operations of mlx."""

    def __init__(self):
        import mlx.core as mx
        import mlx.nn as nn

        self.mx, self.nn = mx, nn
        self.relu, self.gelu, self.exp, self.sigmoid = nn.relu, nn.gelu, mx.exp, mx.sigmoid
        self.mean = mx.mean
        self.cross_entropy = lambda x, y: nn.losses.cross_entropy(x, y, reduction="mean")
        self.binary_cross_entropy = nn.losses.binary_cross_entropy
        self.embedding = lambda words, x: words[x]
        self.layer_norm = lambda x, weight, bias: mx.fast.layer_norm(x, weight, bias, 1e-5)

    def conv(self, x, kernel, bias, stride):
        """Keep the size but for the stride."""
        made = self.mx.conv2d(x, kernel, stride=stride, padding=kernel.shape[1] // 2)
        return made if bias is None else made + bias

    def batch_norm(self, x, weight, bias):
        """By the batch's own mean and variance."""
        mean, var = self.mx.mean(x, (0, 1, 2)), self.mx.var(x, (0, 1, 2))
        return (x - mean) * self.mx.rsqrt(var + 1e-5) * weight + bias

    def pooled(self, x):
        """The mean of each channel."""
        return self.mx.mean(x, (1, 2))

    def flat(self, x):
        """A row of numbers for each picture."""
        return x.reshape(BATCH, -1)

    def heads(self, x):
        """(B, T, W) to (B, heads, T, W / heads)."""
        return x.reshape(BATCH, 32, HEADS, -1).swapaxes(1, 2)

    def joined(self, x):
        """Heads side by side again."""
        return x.swapaxes(1, 2).reshape(BATCH, 32, WIDTH)

    def attention(self, q, k, v):
        """Softmax of the scaled products."""
        scale = (WIDTH // HEADS) ** -0.5
        return self.mx.fast.scaled_dot_product_attention(q, k, v, scale=scale)

    def lstm(self, x, wx, wh, bias):
        """The last state."""
        mx = self.mx
        rows = x @ wx + bias
        h = c = mx.zeros((BATCH, HIDDEN))
        for at in range(x.shape[1]):
            i, f, g, o = mx.split(rows[:, at] + h @ wh, 4, axis=1)
            c = mx.sigmoid(f) * c + mx.sigmoid(i) * mx.tanh(g)
            h = mx.sigmoid(o) * mx.tanh(c)
        return h


def mlx(network):
    """Mlx's own gradients."""
    import bare  # noqa: F401 - the library's BLAS, before mlx
    import mlx.core as mx
    import mlx.optimizers as optim

    mx.set_default_device(mx.cpu)
    loss, o = NETWORKS[network][0], MlxOperations()
    x, y, initial = data(network)
    x, y = mx.array(x), mx.array(y)
    parameters = {name: mx.array(value) for name, value in initial.items()}
    optimizer = optim.Adam(learning_rate=RATE)
    step = mx.value_and_grad(lambda p, x, y: loss(o, x, y, p))
    order = batches()

    def train(steps):
        nonlocal parameters
        for _ in range(steps):
            rows = next(order)
            value, gradients = step(parameters, x[rows], y[rows])
            parameters = optimizer.apply_gradients(gradients, parameters)
            mx.eval(value, parameters, optimizer.state)
            number = value.item()
        return number

    def gradient(steps):
        for _ in range(steps):
            value, gradients = step(parameters, x[:BATCH], y[:BATCH])
            mx.eval(value, gradients)
        return value.item()

    return {"train": train, "gradient": gradient}


# ---- PyTorch, which has an axis of channels before those of the picture ----


class TorchOperations:
    """Operations of PyTorch."""

    def __init__(self):
        import torch as pt
        import torch.nn.functional as F  # noqa: N812 - as its users do

        self.pt, self.functions = pt, F
        self.relu, self.gelu, self.exp, self.sigmoid = pt.relu, F.gelu, pt.exp, pt.sigmoid
        self.cross_entropy = lambda x, y: F.cross_entropy(x, y.long())
        self.binary_cross_entropy = F.binary_cross_entropy_with_logits
        self.embedding = lambda words, x: F.embedding(x, words)
        self.layer_norm = lambda x, weight, bias: F.layer_norm(x, (WIDTH,), weight, bias)
        self.attention = F.scaled_dot_product_attention

    def mean(self, x, axis=None):
        """Of all numbers, or along an axis."""
        return x.mean() if axis is None else x.mean(axis)

    def conv(self, x, kernel, bias, stride):
        """Keep the size but for the stride."""
        padding = kernel.shape[2] // 2
        return self.functions.conv2d(x, kernel, bias, stride=stride, padding=padding)

    def batch_norm(self, x, weight, bias):
        """By the batch's own mean and variance."""
        return self.functions.batch_norm(x, None, None, weight, bias, training=True)

    def pooled(self, x):
        """The mean of each channel."""
        return x.mean((2, 3))

    def flat(self, x):
        """A row of numbers for each picture, channel by channel: so losses differ a little."""
        return x.reshape(BATCH, -1)

    def heads(self, x):
        """(B, T, W) to (B, heads, T, W / heads)."""
        return x.reshape(BATCH, 32, HEADS, -1).transpose(1, 2)

    def joined(self, x):
        """Heads side by side again."""
        return x.transpose(1, 2).reshape(BATCH, 32, WIDTH)

    def lstm(self, x, wx, wh, bias):
        """The last state."""
        zeros = self.pt.zeros(1, BATCH, HIDDEN)
        given = [wx.T, wh.T, bias, self.pt.zeros(4 * HIDDEN)]
        states = self.pt.lstm(x, (zeros, zeros), given, True, 1, 0.0, True, False, True)
        return states[1][0]


def torch(network):
    """PyTorch's gradients and optimizer."""
    import torch as pt

    pt.set_num_threads(2)
    loss, o = NETWORKS[network][0], TorchOperations()
    x, y, initial = data(network)
    x, y = pt.tensor(x), pt.tensor(y)
    parameters = {name: pt.tensor(value) for name, value in initial.items()}
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
        for name, value in parameters.items():
            if value.ndim == 4:
                parameters[name] = value.permute(0, 3, 1, 2).contiguous()
    for value in parameters.values():
        value.requires_grad_()
    optimizer = pt.optim.Adam(parameters.values(), lr=RATE)
    order = batches()

    def differentiate(rows):
        optimizer.zero_grad()
        value = loss(o, x[rows], y[rows], parameters)
        value.backward()
        return value

    def train(steps):
        for _ in range(steps):
            value = differentiate(next(order))
            optimizer.step()
            number = value.item()
        return number

    def gradient(steps):
        for _ in range(steps):
            value = differentiate(slice(BATCH))
        return value.item()

    return {"train": train, "gradient": gradient}


make = cache({"library": library, "mlx": mlx, "torch": torch}[sys.argv[1]])
answers = sys.stdout
with contextlib.redirect_stdout(sys.stderr):
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        what, network, steps = line.split()
        run = make(network)[what]
        wall, cpu = time.perf_counter(), time.process_time()
        loss = run(int(steps))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(int(steps) / wall, int(steps) / max(cpu, 1e-9), loss, file=answers, flush=True)
