"""Runs of small networks: inference.py SIDE, "library", "onnx", "mlx", "torch" or "onnxruntime".

``inference.py write FOLDER ROWS ...`` writes the programs and arrays for hosts/inference.c. Else it
answers each line "NETWORK ROWS RUNS" with the seconds of a run, the median by the clock and the
mean of the processor time of all threads, and the sum of the results. Inputs are the host's memory
and results come into it. "onnx" is the library with a program that it reads from an ONNX file. All
sides have the same numbers and two threads.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from statistics import median
from typing import ClassVar

THREADS = 2
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in (".", "tests")]
SIDE = sys.argv[1]
TOKENS, WIDTH, HEADS = 64, 64, 4
CHAIN = (
    *("sin", "add", "tanh", "multiply", "exp", "subtract", "sigmoid", "maximum"),
    *("abs", "minimum"),
)
UNARY = ("sin", "tanh", "exp", "sigmoid", "abs")

# An input without its rows, and nodes: a name of values, of which "w" are weights (outputs first,
# channels last), with what an operation takes besides.
NETWORKS = {
    "mlp": (
        (784,),
        [("dense", 256, "relu"), ("dense", 128, "relu"), ("dense", 10, None)],
    ),
    "convolutions": (
        (28, 28, 1),
        [
            ("conv", 16, 3, 1, 1, "relu"),
            ("conv", 32, 3, 2, 1, "relu"),
            ("conv", 32, 3, 1, 32, "relu"),
            ("conv", 64, 1, 1, 1, "relu"),
            ("mean",),
            ("dense", 10, None),
        ],
    ),
    "residual": (
        (56, 56, 32),
        [
            ("conv", 64, 3, 1, 1, "relu"),
            ("conv", 64, 3, 1, 1, "relu"),
            ("conv", 128, 1, 2, 1, None),
        ],
    ),
    "attention": ((TOKENS, WIDTH), [("attention",), ("dense", WIDTH, None)]),
    "addition": ((16,), [("one",)]),
    "chain": ((16,), [("chain", 200)]),
}


class Build:
    """Puts a network together from the operations of a side, which subclasses have."""

    def __init__(self, network):
        self.rng = np.random.default_rng(0)
        shape, self.layers = NETWORKS[network]
        self.shape = shape

    def weight(self, *shape):
        """Numbers that keep the size of what they are multiplied with."""
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return (scale * self.rng.standard_normal(shape)).astype(np.float32)

    def layer(self, x, channels, layer):
        """Return the values behind a layer, and their channels."""
        kind, *rest = layer
        if kind == "dense":
            out, activation = rest
            x = self.dense(x, self.weight(out, channels), self.weight(out))
            return (self.relu(x) if activation else x), out
        if kind == "conv":
            out, size, stride, groups, activation = rest
            weight = self.weight(out, size, size, channels // groups)
            x = self.conv(x, weight, self.weight(out), stride, size // 2, groups)
            return (self.relu(x) if activation else x), out
        if kind == "attention":
            return self.attention(x, [self.weight(WIDTH, WIDTH) for _ in range(3)]), channels
        if kind == "mean":
            return self.mean(x), channels
        if kind == "one":
            return self.call("add", x, x), channels
        first = x
        for at in range(rest[0]):
            op = CHAIN[at % len(CHAIN)]
            x = self.call(op, x) if op in UNARY else self.call(op, x, first)
        return x, channels

    def apply(self, x):
        """Return the result of all layers for an input."""
        channels = self.shape[-1]
        for layer in self.layers:
            x, channels = self.layer(x, channels, layer)
        return x


class Mlx(Build):
    """Mlx's own operations."""

    def __init__(self, network):
        super().__init__(network)
        self.kept = []
        self.rng_state = self.rng.bit_generator.state

    @cache  # noqa: B019 - as long as the process
    def constant(self, at):
        """Return a weight as an array."""
        return mx.array(self.kept[at])

    def weight(self, *shape):
        """Return a weight, the same in each run."""
        if self.place == len(self.kept):
            self.kept.append(super().weight(*shape))
        self.place += 1
        return self.constant(self.place - 1)

    def apply(self, x):
        """Return the result, computed."""
        self.place = 0
        return super().apply(x)

    def dense(self, x, weight, bias):
        """Return a product with a matrix, and a bias."""
        return mx.addmm(bias, x, weight.T)

    def relu(self, x):
        """Return what is above 0."""
        return mx.maximum(x, 0)

    def conv(self, x, weight, bias, stride, padding, groups):
        """Return a convolution of pictures, channels last."""
        return mx.conv2d(x, weight, stride, padding, groups=groups) + bias

    def mean(self, x):
        """Return the mean of a picture."""
        return x.mean(axis=(1, 2))

    def attention(self, x, weights):
        """Return what heads read."""
        q, k, v = (
            (x @ weight.T).reshape(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
            for weight in weights
        )
        out = mx.fast.scaled_dot_product_attention(q, k, v, scale=(WIDTH // HEADS) ** -0.5)
        return out.transpose(0, 2, 1, 3).reshape(-1, TOKENS, WIDTH)

    def call(self, op, *inputs):
        """Return an operation on numbers."""
        return getattr(mx, op)(*inputs)


class Torch(Mlx):
    """PyTorch in eager mode; pictures have their channels first."""

    @cache  # noqa: B019
    def constant(self, at):
        """Return a weight as a tensor."""
        weight = torch.tensor(self.kept[at])
        return weight.permute(0, 3, 1, 2).contiguous() if weight.ndim == 4 else weight

    def apply(self, x):
        """Return the result."""
        return super().apply(x.permute(0, 3, 1, 2) if x.ndim == 4 else x)

    def dense(self, x, weight, bias):
        """As of Mlx."""
        return torch.nn.functional.linear(x, weight, bias)

    def relu(self, x):
        """As of Mlx."""
        return torch.relu(x)

    def conv(self, x, weight, bias, stride, padding, groups):
        """As of Mlx, channels first."""
        return torch.nn.functional.conv2d(x, weight, bias, stride, padding, groups=groups)

    def mean(self, x):
        """As of Mlx, channels first."""
        return x.mean(dim=(2, 3))

    def attention(self, x, weights):
        """As of Mlx."""
        q, k, v = (
            (x @ weight.T).reshape(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)
            for weight in weights
        )
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return out.transpose(1, 2).reshape(-1, TOKENS, WIDTH)

    def call(self, op, *inputs):
        """As of Mlx."""
        return getattr(torch, op)(*inputs)


class Program(Build):
    """A program of the library."""

    def __init__(self, network):
        super().__init__(network)
        self.nodes, self.values = [], {}

    def add(self, op, *inputs, **attributes):
        """Append a node."""
        name = f"v{len(self.nodes)}"
        inputs = list(inputs)
        self.nodes.append({"name": name, "op": op, "inputs": inputs, "attributes": attributes})
        return name

    def hold(self, value):
        """Return the name of a parameter."""
        name = f"p{len(self.values)}"
        self.values[name] = np.ascontiguousarray(value)
        return name

    def dense(self, x, weight, bias):
        """As of Mlx."""
        return self.add("add", self.add("matmul", x, self.hold(weight.T)), self.hold(bias))

    def relu(self, x):
        """As of Mlx."""
        return self.add("relu", x)

    def conv(self, x, weight, bias, stride, padding, groups):
        """As of Mlx."""
        steps = {"stride": stride, "padding": padding, "groups": groups}
        return self.add("add", self.add("conv2d", x, self.hold(weight), **steps), self.hold(bias))

    def mean(self, x):
        """As of Mlx."""
        return self.add("mean", x, axis=[1, 2])

    def attention(self, x, weights):
        """As of Mlx."""
        heads = []
        for weight in weights:
            part = self.add("matmul", x, self.hold(weight.T))
            part = self.add("reshape", part, shape=[-1, TOKENS, HEADS, WIDTH // HEADS])
            heads.append(self.add("transpose", part, axes=[0, 2, 1, 3]))
        scale = (WIDTH // HEADS) ** -0.5
        out = self.add("scaled_dot_product_attention", *heads, scale=scale)
        out = self.add("transpose", out, axes=[0, 2, 1, 3])
        return self.add("reshape", out, shape=[-1, TOKENS, WIDTH])

    def call(self, op, *inputs):
        """As of Mlx."""
        return self.add(op, *inputs)


class Onnx(Program):
    """The nodes of an ONNX file."""

    NAMES: ClassVar = {"maximum": "Max", "minimum": "Min", "multiply": "Mul", "subtract": "Sub"}

    def add(self, op, *inputs, **attributes):
        """Append a node."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, inputs, [name], **attributes))
        return name

    def dense(self, x, weight, bias):
        """As of Mlx."""
        return self.add("Add", self.add("MatMul", x, self.hold(weight.T)), self.hold(bias))

    def relu(self, x):
        """As of Mlx."""
        return self.add("Relu", x)

    def conv(self, x, weight, bias, stride, padding, groups):
        """As of Mlx, channels first."""
        return self.add(
            "Conv",
            x,
            self.hold(weight.transpose(0, 3, 1, 2)),
            self.hold(bias),
            kernel_shape=list(weight.shape[1:3]),
            strides=[stride] * 2,
            pads=[padding] * 4,
            group=groups,
        )

    def mean(self, x):
        """As of Mlx, channels first."""
        return self.add("Flatten", self.add("GlobalAveragePool", x))

    def attention(self, x, weights):
        """As of Mlx."""
        apart = self.hold(np.array([0, TOKENS, HEADS, WIDTH // HEADS], np.int64))
        heads = []
        for weight, order in zip(weights, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True):
            part = self.add("Reshape", self.add("MatMul", x, self.hold(weight.T)), apart)
            heads.append(self.add("Transpose", part, perm=order))
        scale = self.hold(np.float32((WIDTH // HEADS) ** -0.5))
        scores = self.add("Mul", self.add("MatMul", heads[0], heads[1]), scale)
        out = self.add("MatMul", self.add("Softmax", scores), heads[2])
        out = self.add("Transpose", out, perm=(0, 2, 1, 3))
        return self.add("Reshape", out, self.hold(np.array([0, TOKENS, WIDTH], np.int64)))

    def call(self, op, *inputs):
        """As of Mlx."""
        return self.add(self.NAMES.get(op, op.capitalize()), *inputs)

    def file(self):
        """Return the network as an ONNX file's bytes."""
        shape = self.shape if len(self.shape) < 3 else (self.shape[2], *self.shape[:2])
        kind = onnx.TensorProto.FLOAT
        made = self.apply("x")
        graph = onnx.helper.make_graph(
            [*self.nodes, onnx.helper.make_node("Identity", [made], ["y"])],
            "network",
            [onnx.helper.make_tensor_value_info("x", kind, ["rows", *shape])],
            [onnx.helper.make_tensor_value_info("y", kind, None)],
            [onnx.numpy_helper.from_array(each, name) for name, each in self.values.items()],
        )
        opset = [onnx.helper.make_opsetid("", 17)]
        model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
        return model.SerializeToString()


def rows_of(network, rows):
    """Return an input."""
    shape = (rows, *NETWORKS[network][0])
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def first(x):
    """Return pictures with their channels first."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if x.ndim == 4 else x


@cache
def written(network):
    """A program and its parameters, as handles."""
    program = c_int32()
    if SIDE == "onnx":
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(Onnx(network).file())
            file.flush()
            lib.check(lib.c.cow_mlx_program_load(file.name.encode(), None, byref(program)))
        return program, []
    text, values = declared(network)
    lib.check(lib.c.cow_mlx_program_create(text, len(text), None, byref(program)))
    return program, [created(value) for value in values.values()]


def declared(network):
    """Return a program's JSON, and its parameters' values by name."""
    build = Program(network)
    result = build.apply("x")
    program = {
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["rows", *build.shape]}],
        "parameters": [
            {"name": name, "dtype": "float32", "shape": list(value.shape)}
            for name, value in build.values.items()
        ],
        "nodes": build.nodes,
        "outputs": [result],
    }
    return json.dumps(program).encode(), build.values


def write(folder, counts):
    """Write all programs, their parameters, and inputs of so many rows."""
    for network in NETWORKS:
        text, values = declared(network)
        (folder / f"{network}.json").write_bytes(text)
        values |= {f"x{rows}": rows_of(network, rows) for rows in counts}
        arrays = {name: mx.array(value) for name, value in values.items()}
        mx.save_safetensors(str(folder / network), arrays)


def created(value):
    """Return the handle of an array."""
    array = c_int64()
    lib.check(lib.c.cow_mlx_array_create(byref(tensor(value)), byref(array)))
    return array.value


def of_library(network, rows):
    """Return a run of a program, and its result."""
    program, parameters = written(network)
    x = rows_of(network, rows)
    x = first(x) if SIDE == "onnx" else x
    count = 1 + len(parameters)
    inputs, output = (signatures.cow_mlx_value * count)(), signatures.cow_mlx_value()
    of_x = tensor(x)
    inputs[0].host = pointer(of_x)
    for at, array in enumerate(parameters, 1):
        inputs[at].array = array
    run = lib.c.cow_mlx_program_run
    lib.check(run(program, inputs, count, byref(output), 1, None))
    y = np.zeros_like(arrays.read(output.array))
    of_y = tensor(y)
    output.array, output.host = 0, pointer(of_y)

    def once():
        lib.check(run(program, inputs, count, byref(output), 1, None))
        return y

    once.kept = x, of_x, of_y
    return once


def of_mlx(network, rows):
    """Return a run of mlx."""
    x, build = rows_of(network, rows), Mlx(network)
    return lambda: np.array(build.apply(mx.array(x)))


def of_torch(network, rows):
    """Return a run of PyTorch."""
    x, build = torch.tensor(rows_of(network, rows)), Torch(network)

    def once():
        with torch.inference_mode():
            return build.apply(x).numpy()

    return once


def of_onnxruntime(network, rows):
    """Return a run of onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        Onnx(network).file(), options, providers=["CPUExecutionProvider"]
    )
    x = first(rows_of(network, rows))
    return lambda: session.run(None, {"x": x})[0]


if SIDE == "write":
    import mlx.core as mx

    write(Path(sys.argv[2]), [int(rows) for rows in sys.argv[3:]])
    sys.exit()
answers = sys.stdout
with contextlib.redirect_stdout(sys.stderr):
    if SIDE in ("library", "onnx"):
        from ctypes import byref, c_int32, c_int64, pointer

        import bare
        from support import signatures
        from support.arrays import Arrays, tensor
        from support.library import Library

        lib = Library()
        lib.start(device="cpu", threads=THREADS)
        arrays = Arrays(lib)
    if SIDE == "mlx":
        import bare  # the library's BLAS
        import mlx.core as mx

        assert bare

        mx.set_default_device(mx.cpu)
    if SIDE == "torch":
        import torch

        torch.set_num_threads(THREADS)
    if SIDE in ("onnx", "onnxruntime"):
        import onnx
    if SIDE == "onnxruntime":
        import onnxruntime
    made = cache({"library": of_library, "onnx": of_library}.get(SIDE) or globals()[f"of_{SIDE}"])
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        network, rows, runs = line.split()
        run = made(network, int(rows))
        run()
        times = []
        cpu = time.process_time()
        for _ in range(int(runs)):
            began = time.perf_counter()
            result = run()
            times.append(time.perf_counter() - began)
        cpu = (time.process_time() - cpu) / int(runs)
        print(median(times), min(times), cpu, float(np.abs(result).sum()), file=answers, flush=True)
