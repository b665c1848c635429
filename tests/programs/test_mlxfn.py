"""Functions that mlx has exported become programs that give what mlx gives."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from support import mlxfn_files
from support.mlxfn_files import load, name_of, run
from support.paths import CALF

from cowmlx.accelerate import kernels
from cowmlx.errors import BadFormat, CowMlxError, InvalidArgument, NotFound, Unsupported
from cowmlx.programs.importing.mlxfn_file import DTYPES, SIZES
from cowmlx.programs.importing.mlxfn_primitives import MODES, PRIMITIVES
from cowmlx.programs.operations import ROWS, elementary, linear_algebra, losses
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import arrays_of
from cowmlx.steps import finished

NOT_EXPORTED = {
    *((name, at) for name in ("contiguous", "inv", "det", "slogdet") for at in range(3)),
    *((name, at) for name in ("bitwise_invert", "lu", "lu_factor") for at in range(3)),
    *((name, at) for name in ("solve", "solve_triangular", "to_fp8", "from_fp8") for at in (0, 1)),
    *((name, at) for name in ("cholesky", "eigh", "eigvalsh") for at in (0, 1)),
    *(("logcumsumexp", at) for at in range(5)),
    ("quantize", 3),
    ("dequantize", 2),
}
"""Examples with a primitive that mlx exports to no file."""
NINE_DIMENSIONS = {("conv3d", 2), ("conv_transpose3d", 3)}
"""Examples that mlx computes with arrays of more dimensions than programs have."""


OWN_SLOPES = (
    (elementary, "_real_power", mx.power),
    (elementary, "root", mx.sqrt),
    (linear_algebra, "root", mx.sqrt),
    (losses, "_bounded_log", lambda a: mx.maximum(mx.log(a), -100)),
)
"""Functions with their own gradients, which mlx does not export, and what they compute."""


def key() -> mx.array:
    return mx.random.key(7)


def numbers(*shape: int) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(sum(shape)))


def close(got: mx.array, wanted: mx.array, error: float = 1e-5) -> bool:
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    if mx.issubdtype(got.dtype, mx.inexact):
        return mx.allclose(got, wanted, rtol=error, atol=error, equal_nan=True).item()
    return mx.array_equal(got, wanted).item()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_example_of_an_operation(row, tmp_path, monkeypatch):
    """Those with random bits, and those that mlx does not export, are refused."""
    path = tmp_path / "function.mlxfn"
    monkeypatch.setattr(kernels, "available", lambda: False)  # mlx exports no kernels
    for module, name, plain in OWN_SLOPES:
        monkeypatch.setattr(module, name, plain)
    for at, example in enumerate(row.examples):
        arrays, attributes = arrays_of(example), attributes_of(row, example.attributes)
        given = [array for array in arrays if array is not None]

        def function(*inputs, arrays=arrays, attributes=attributes):
            left = iter(inputs)
            whole = [None if array is None else next(left) for array in arrays]
            return row.compute(row.arranged(whole), attributes)

        if (row.name, at) in NOT_EXPORTED:
            with pytest.raises(ValueError, match="Unable to serialize"):
                mx.export_function(str(path), function, *given)
            continue
        mx.export_function(str(path), function, *given)
        if (row.name, at) in NINE_DIMENSIONS or b"RandomBits" in path.read_bytes():
            with pytest.raises(Unsupported, match=r"RandomBits|9 dimensions"):
                load(path)
            continue
        wanted = mx.import_function(str(path))(*given)
        got = run(load(path), *given)
        assert len(got) == len(wanted)
        assert all(map(close, got, wanted)), f"example {at}"


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2)
        self.norm, self.pool, self.head = nn.BatchNorm(8), nn.MaxPool2d(2), nn.Linear(8, 5)

    def __call__(self, x):
        x = self.pool(nn.relu(self.norm(self.first(x))))
        return nn.softmax(self.head(self.second(x).reshape(x.shape[0], -1)))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layers = nn.TransformerEncoder(2, 16, 4)
        self.rope, self.norm = nn.RoPE(16), nn.RMSNorm(16)

    def __call__(self, tokens):
        x = self.rope(self.embedding(tokens))
        mask = nn.MultiHeadAttention.create_additive_causal_mask(tokens.shape[1])
        return self.embedding.as_linear(self.norm(self.layers(x, mask)))


def quantized() -> nn.Module:
    made = nn.Sequential(nn.Linear(64, 32), nn.silu, nn.Linear(32, 8, bias=False))
    nn.quantize(made, group_size=32, bits=4)
    return made


NETWORKS = {
    "MLP": (lambda: nn.Sequential(nn.Linear(4, 8), nn.gelu, nn.Linear(8, 3)), (2, 4)),
    "convolutional": (Convolutional, (2, 9, 9, 3)),
    "attending": (Attending, None),
    "lstm": (lambda: nn.LSTM(6, 5), (2, 7, 6)),
    "gru": (lambda: nn.GRU(6, 5), (2, 7, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (1, 5, 5, 3)),
    "group norm": (lambda: nn.GroupNorm(2, 4, pytorch_compatible=True), (2, 3, 4)),
    "quantized": (quantized, (2, 64)),
    "half": (lambda: nn.Sequential(nn.Linear(4, 4)).apply(lambda w: w.astype(mx.bfloat16)), (2, 4)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_mlx_nn(name, tmp_path):
    """Its weights are parameters that have values."""
    make, shape = NETWORKS[name]
    mx.random.seed(3)
    network = make()
    network.eval()
    mx.eval(network.parameters())
    x = mx.random.normal(shape, key=key()) if shape else mx.array([[1, 5, 19, 0], [3, 3, 2, 7]])
    path = tmp_path / "network.mlxfn"
    mx.export_function(str(path), network, x)
    program = load(path)
    wanted = network(x)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert all(map(close, run(program, x), wanted))
    assert [each.name for each in program.inputs if each.value is None] == ["input_0"]
    assert len(program.inputs) > 1


def test_a_language_model(tmp_path):
    """Calf's logits, with mlx-lm's own code."""
    from mlx_lm.utils import load as load_model

    model, _ = load_model(str(CALF))
    tokens = mx.array([[1, 17, 230, 9, 4]])
    path = tmp_path / "calf.mlxfn"
    mx.export_function(str(path), lambda tokens: model(tokens), tokens)
    assert close(run(load(path), tokens)[0], model(tokens), 1e-4)


@pytest.mark.parametrize("other", [False, True])
def test_decompositions_without_their_gradients(other, tmp_path):
    """Mlx exports none of the functions with which operations define gradients."""
    half, part = ("U" if other else "L"), numbers(2, 3, 3)
    definite = part @ mx.swapaxes(part, -1, -2) + mx.eye(3)

    def function(a):
        values, vectors = mx.linalg.eigh(a, half, stream=mx.cpu)
        factor = mx.linalg.cholesky(a, upper=other, stream=mx.cpu)
        inverted = mx.linalg.tri_inv(factor, upper=other, stream=mx.cpu)
        return values, vectors, mx.linalg.eigvalsh(a, half, stream=mx.cpu), factor, inverted

    path = tmp_path / "decompositions.mlxfn"
    mx.export_function(str(path), function, definite)
    assert all(map(close, run(load(path), definite), function(definite)))


def test_names_of_inputs_and_results(tmp_path):
    path = tmp_path / "two.mlxfn"
    x, y = mx.array([1.0, 2.0]), mx.array([3.0, 5.0])
    mx.export_function(str(path), lambda a, *, scale, by: [a * scale, by], x, scale=y, by=y)
    info = load(path).info()
    assert [each["name"] for each in info["inputs"]] == ["input_0", "by", "scale"]
    assert [each["name"] for each in info["outputs"]] == ["output_0", "output_1"]


def test_one_of_several_functions(tmp_path):
    """They share what they have captured."""
    path, weight = tmp_path / "several.mlxfn", mx.arange(6.0).reshape(2, 3)
    shapes = [(2,), (4, 2), (1, 2)]
    with mx.exporter(str(path), lambda x: x @ weight) as write:
        for shape in shapes:
            write(mx.zeros(shape))
    with pytest.raises(InvalidArgument, match=r"3 functions.*0: \(input_0: float32\(2\)\); 1: "):
        load(path)
    for at, shape in enumerate(shapes):
        x = mx.random.normal(shape, key=key())
        program = load(path, json.dumps({"function": at}))
        assert close(run(program, x)[0], x @ weight)
    for wrong in (3, -1, "0", True, 0.0):
        with pytest.raises(InvalidArgument, match="must be a number from 0 to 2"):
            load(path, json.dumps({"function": wrong}))


@pytest.mark.parametrize("shapeless", [False, True])
def test_a_function_of_one_row_takes_any_number_of_rows(shapeless, tmp_path):
    """A file has the shapes of its example, also of an export for any shapes."""
    mx.random.seed(3)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    mx.eval(network.parameters())
    path, x = tmp_path / "row.mlxfn", numbers(5, 4)
    mx.export_function(str(path), network, x[0], shapeless=shapeless)
    program = load(path)
    assert program.inputs[0].spec.shape == (4,)
    rows = program.derive(json.dumps({"vectorize": {"input_0": 0}}))
    for count in (0, 1, 5):
        assert close(run(rows, x[:count])[0], network(x[:count]))


def test_fixed_inputs(tmp_path):
    path = tmp_path / "fixed.mlxfn"
    x, by = mx.array([1.0, 2.0]), mx.array([3, 0])
    mx.export_function(str(path), lambda x, by: x * by, x, by)
    program = load(path, '{"input_1": [4, -1]}')
    assert [each.name for each in program.inputs] == ["input_0"]
    assert run(program, x)[0].tolist() == [4.0, -2.0]
    for wrong, said in (
        ('{"by": [1, 2]}', "no input of the function; it has input_0, input_1"),
        ('{"input_1": 3}', r"must be numbers for int32\(2\)"),
        ('{"input_1": ["a", 1]}', r"must be numbers for int32\(2\)"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            load(path, wrong)


def test_layers_that_a_gpu_computes(tmp_path):
    """On a CPU mlx exports their parts instead, so the files are written here."""
    x, w, b, heads = numbers(2, 3, 8), numbers(8), numbers(8), numbers(1, 2, 5, 8)
    one, offset = mx.array(1.0), mx.array(3, mx.int32)
    freqs, mask = mx.exp(numbers(4)), numbers(1, 1, 5, 5)
    cases = [
        ("RMSNorm", "f", [1e-5], [x, w], mx.fast.rms_norm(x, w, 1e-5), []),
        ("RMSNorm", "f", [1e-5], [x], mx.fast.rms_norm(x, None, 1e-5), [one]),
        ("LayerNorm", "f", [1e-5], [x, w, b], mx.fast.layer_norm(x, w, b, 1e-5), []),
        ("LayerNorm", "f", [1e-5], [x], mx.fast.layer_norm(x, None, None, 1e-5), [one, one]),
        (
            *("RoPE", "ibffb", [8, False, 10000.0, 1.0, True], [heads]),
            mx.fast.rope(heads, 8, traditional=False, base=10000.0, scale=1.0, offset=3),
            [offset],
        ),
        (
            *("RoPE", "ibffb", [8, True, 0.0, 0.5, True], [heads]),
            mx.fast.rope(heads, 8, traditional=True, base=None, scale=0.5, offset=3, freqs=freqs),
            [offset, freqs],
        ),
        (
            *("ScaledDotProductAttention", "fbbbb", [0.3, True, False, False, False]),
            [heads] * 3,
            mx.fast.scaled_dot_product_attention(heads, heads, heads, scale=0.3, mask="causal"),
            [],
        ),
        (
            *("ScaledDotProductAttention", "fbbbb", [0.3, False, False, False, False]),
            [heads, heads, heads, mask],
            mx.fast.scaled_dot_product_attention(heads, heads, heads, scale=0.3, mask=mask),
            [],
        ),
    ]
    for at, (name, codes, state, inputs, wanted, constants) in enumerate(cases):
        path = tmp_path / f"{at}.mlxfn"
        mlxfn_files.write(path, inputs, name, codes, state, wanted.shape, constants)
        assert PRIMITIVES[name].codes == codes
        assert close(run(load(path), *inputs)[0], wanted), (at, name)


@pytest.mark.parametrize(
    ("name", "codes", "state", "said"),
    [
        ("CustomKernel", "", [], "it is a kernel for a GPU"),
        ("RMSNormVJP", "f", [1e-5], "derive the program"),
        ("Frobnicate", "", [], "'Frobnicate': there is no operation for it"),
        ("RoPE", "ibffb", [8, False, 1e4, 1.0, False], "part of a gradient"),
        ("RoPE", "ibffb", [8, False, 1e4, 1.0, True], "its offset depends on inputs"),
        ("ScaledDotProductAttention", "fbbbb", [1.0, False, True, False, False], "sinks"),
    ],
)
def test_what_no_program_has_is_refused(name, codes, state, said, tmp_path):
    path, x = tmp_path / "refused.mlxfn", numbers(1, 1, 3, 8)
    mlxfn_files.write(path, [x, mx.array(1, mx.int32)], name, codes, state, x.shape)
    with pytest.raises(Unsupported, match=re.escape(said)) as caught:
        load(path)
    assert caught.value.details["op"] == name


# ------------------------------------------------------------------ damaged files

PARTS = {
    "bool": "b", "int": "i", "float": "f", "double": "d", "size_t": "N", "Dtype": "t",
    "Shape": "I", "std::vector<int>": "I", "Strides": "L", "std::vector<size_t>": "Z",
    "std::string": "s", "ReduceType": "i", "Op": "i", "Base": "i", "QuantizationMode": "i",
}  # fmt: skip


def test_states_are_those_of_mlx_s_headers():
    """A new version of mlx may add to them."""
    include = Path(mx.__file__).parent / "include/mlx"
    text = "".join((include / name).read_text() for name in HEADERS)
    for name, primitive in PRIMITIVES.items():
        body = re.search(rf"class (?:\w+ )?{name} : .*?\n}};", text, re.S)
        assert body, f"mlx has no primitive {name}"
        state = re.search(r" state\(\) const (?:override )?\{(.*?)\n  \}", body[0], re.S)
        members = re.findall(r"\b(\w+_)\b", state[1]) if state else []
        kinds = [
            re.search(rf"\n  (?:const )?([\w:<>]+) {member}(?:\{{.*\}})?;", body[0])[1]
            for member in members
        ]
        assert "".join(PARTS[kind] for kind in kinds) == primitive.codes, name


def test_modes_are_in_the_order_of_mlx_s_numbers():
    text = (Path(mx.__file__).parent / "include/mlx/primitives.h").read_text()
    modes = re.search(r"enum class QuantizationMode \{ (.*?) \}", text)[1]
    assert tuple(modes.lower().split(", ")) == MODES


HEADERS = ("primitives.h", "fast_primitives.h")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> bytes:
    """A file with a constant, a list, a text and two results."""
    path = tmp_path_factory.mktemp("small") / "small.mlxfn"
    weight = mx.array([[1.0, 2.0], [3.0, 4.0]])

    def function(x, *, y):
        values, _ = mx.linalg.eigh(x @ weight + y.T, stream=mx.cpu)
        return mx.split(mx.concatenate([values, values]), [1, 3])

    mx.export_function(str(path), function, weight + 1, y=weight * 2)
    load(path)
    return path.read_bytes()


def test_every_truncated_file_is_damaged(small, tmp_path):
    path = tmp_path / "short.mlxfn"
    for size in [*range(160), *range(160, len(small), 3)]:
        path.write_bytes(small[:size])
        with pytest.raises(BadFormat, match="is damaged"):
            load(path)


def test_changed_files_load_or_are_refused(small, tmp_path):
    """Nothing of what they claim is allocated first."""
    path, draw, refused = tmp_path / "changed.mlxfn", random.Random(5), 0
    tracemalloc.start()
    for _ in range(400):
        data = bytearray(small)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(data))
            data[at] = draw.choice((0, 1, 2, 127, 128, 255, draw.randrange(256)))
        path.write_bytes(data)
        try:
            load(path)
        except CowMlxError:
            refused += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused > 150
    assert peak < 64 << 20


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(NotFound):
        load(tmp_path / "none.mlxfn")
    (tmp_path / "folder.mlxfn").mkdir()
    with pytest.raises(CowMlxError, match="cannot read"):
        load(tmp_path / "folder.mlxfn")


def test_a_constant_in_a_file_that_shrinks(small, tmp_path):
    """Constants are read after the rest."""
    from cowmlx.programs.importing import mlxfn_walk

    path = tmp_path / "shrinks.mlxfn"
    path.write_bytes(small)
    imported = finished(mlxfn_walk.load_steps(str(path), {}))
    path.write_bytes(small[:40])
    with pytest.raises(BadFormat, match="shorter"):
        finished(imported.arrays_steps())


def test_an_offset_that_no_array_has(tmp_path):
    path, x = tmp_path / "offset.mlxfn", numbers(4)
    mlxfn_files.write(path, [x], "AsStrided", "ILN", [[2], [1], (1 << 64) - 1], [2])
    with pytest.raises(BadFormat, match="AsStrided"):
        load(path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype, tmp_path):
    """Of inputs, constants and results."""
    kind = getattr(mx, "bool_" if dtype == "bool" else dtype)
    weight = mx.array([[0, 1], [1, 1]]).astype(kind)
    x = mx.array([[1, 0], [0, 1]]).astype(kind)
    assert weight.itemsize == SIZES[DTYPES.index(dtype)]
    path = tmp_path / "dtype.mlxfn"
    with mx.stream(mx.cpu):
        mx.export_function(str(path), lambda x: mx.concatenate([x, weight]), x)
    (got,) = run(load(path), x)
    assert name_of(got) == dtype
    assert mx.array_equal(got, mx.concatenate([x, weight], stream=mx.cpu), stream=mx.cpu)


def test_without_numpy(small, tmp_path):
    """It is a package that a host may leave out."""
    path = tmp_path / "small.mlxfn"
    path.write_bytes(small)
    script = f"""
import sys
sys.modules["numpy"] = None
from cowmlx.errors import NotFound
from cowmlx.steps import finished
from cowmlx.programs.importing import load_steps
try:
    finished(load_steps({str(path)!r}))
except NotFound as error:
    print(error.details["package"], error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("numpy .mlxfn files need the Python package numpy")
