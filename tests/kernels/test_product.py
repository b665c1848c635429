"""Products, packing and rows of matrices as operations of mlx, against float64."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kernel_module import needed

from cowmlx.accelerate.sources import Sources
from cowmlx.folders import weights
from cowmlx.quantized_formats import FORMATS

MODULE = needed()
SETS = MODULE.instruction_sets()
TYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
# Half of the distance between neighbouring numbers, and what sums of float32 add to it.
PRECISION = {"float32": 2e-6, "float16": 2**-11 + 2e-6, "bfloat16": 2**-8 + 2e-6}
MODES = [
    (mode, bits, group)
    for mode, known in FORMATS.items()
    for bits in sorted(known.bits)
    for group in sorted(known.groups)
]


@pytest.fixture(autouse=True, params=SETS)
def instruction_set(request):
    """Each that this processor knows; the best one again afterwards."""
    MODULE.select(request.param)
    yield request.param
    MODULE.select("")


def numbers(array: mx.array) -> np.ndarray:
    return np.array(array.astype(mx.float32), dtype=np.float64)


def is_product(y: mx.array, x: mx.array, weight: np.ndarray, bias: mx.array | None) -> bool:
    """Whether ``y`` is x times the transpose of a matrix, up to rounding of each sum's terms."""
    name = str(x.dtype).removeprefix("mlx.core.")
    exact, scale = numbers(x) @ weight.T, np.abs(numbers(x)) @ np.abs(weight).T
    if bias is not None:
        exact, scale = exact + numbers(bias), scale + np.abs(numbers(bias))
    assert y.shape == exact.shape
    assert y.dtype == x.dtype
    return bool(np.all(np.abs(numbers(y) - exact) <= PRECISION[name] * (scale + 1e-30)))


def random(shape: tuple[int, ...], type_: str, seed: int = 0) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(TYPES[type_])


LEADING = st.sampled_from([(), (1,), (3,), (16,), (17,), (2, 9), (2, 3, 4), (130,), (0,)])


@settings(max_examples=60, deadline=None)
@given(
    leading=LEADING,
    rows=st.integers(1, 70),
    columns=st.integers(1, 200),
    type_=st.sampled_from(list(TYPES)),
    weight_type=st.sampled_from(list(TYPES)),
    biased=st.booleans(),
    seed=st.integers(0, 99),
)
def test_dense_products(leading, rows, columns, type_, weight_type, biased, seed):
    x, weight = random((*leading, columns), type_, seed), random((rows, columns), weight_type)
    bias = random((rows,), "float32") if biased else None
    y = MODULE.product(x, MODULE.pack(weight), bias=bias, rows=rows)
    assert is_product(y, x, numbers(weight), bias)


@settings(max_examples=60, deadline=None)
@given(
    leading=LEADING,
    rows=st.integers(1, 70),
    groups=st.integers(1, 5),
    mode=st.sampled_from(MODES),
    type_=st.sampled_from(list(TYPES)),
    biased=st.booleans(),
    seed=st.integers(0, 99),
)
def test_packed_products(leading, rows, groups, mode, type_, biased, seed):
    name, bits, group = mode
    columns = math.lcm(group, 32) * groups  # mlx packs multiples of 32
    x, weight = random((*leading, columns), type_, seed), random((rows, columns), type_)
    packed = mx.quantize(weight, group_size=group, bits=bits, mode=name)
    exact = mx.dequantize(
        *(part.astype(mx.float32) if part.dtype == weight.dtype else part for part in packed),
        group_size=group, bits=bits, mode=name, dtype=mx.float32,
    )  # fmt: skip
    bias = random((rows,), "float32") if biased else None
    y = MODULE.product(
        x, *map(MODULE.pack, packed), bias=bias, rows=rows, mode=name, bits=bits, group=group
    )
    assert is_product(y, x, numbers(exact), bias)


@pytest.mark.parametrize("rows", [1, 5, 20])
@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_a_nan_of_mxfp8_spoils_its_row_of_the_matrix_alone(byte, rows):
    x, weight = random((rows, 96), "float32"), random((40, 96), "float32")
    words, scales = mx.quantize(weight, mode="mxfp8")

    def product(codes: np.ndarray) -> np.ndarray:
        parts = (MODULE.pack(mx.array(codes).view(mx.uint32)), MODULE.pack(scales))
        return np.array(MODULE.product(x, *parts, rows=40, mode="mxfp8", bits=8, group=32))

    codes = np.array(words.view(mx.uint8))
    plain = product(codes)
    assert np.isfinite(plain).all()
    for column in (0, 1, 2, 3, 63, 92, 95):
        spoiled = codes.copy()
        spoiled[17, column] = byte
        wanted = plain.copy()
        wanted[:, 17] = np.nan
        np.testing.assert_array_equal(product(spoiled), wanted)


@pytest.mark.parametrize("view", ["transposed", "broadcast", "strided", "flipped"])
def test_activations_of_any_strides(view):
    base = random((40, 96), "float32")
    x = {
        "transposed": base.T,
        "broadcast": mx.broadcast_to(base[:1], (5, 96)),
        "strided": base[::3, ::2],
        "flipped": base[::-1, ::-1],
    }[view]
    weight = random((33, x.shape[-1]), "float32")
    y = MODULE.product(x, MODULE.pack(weight), rows=33)
    assert is_product(y, x, numbers(weight), None)


@pytest.mark.parametrize("mode", [("dense", 0, 0), *MODES], ids=str)
def test_a_row_is_the_same_alone_and_beside_others(mode):
    """However many they are, and however many threads compute."""
    name, bits, group = mode
    weight, x = random((50, 128), "float32"), random((70, 128), "float32")
    parts = (weight,)
    if name != "dense":
        parts = mx.quantize(weight, group_size=group, bits=bits, mode=name)
    parts = tuple(map(MODULE.pack, parts))

    def product(rows: mx.array) -> mx.array:
        return MODULE.product(rows, *parts, rows=50, mode=name, bits=bits, group=group)

    few, many = product(x[:16]), product(x)
    mx.eval(few, many)
    for count in range(1, 16):
        assert mx.array_equal(product(x[:count]), few[:count])
    for count in (17, 32, 69):
        assert mx.array_equal(product(x[:count]), many[:count])
    MODULE.set_threads(1)
    alone = product(x)
    mx.eval(alone)
    MODULE.set_threads(0)
    assert mx.array_equal(alone, many)


@pytest.mark.parametrize("mode", [("dense", 0, 0), *MODES], ids=str)
@pytest.mark.parametrize("type_", TYPES)
def test_rows_are_taken(mode, type_):
    name, bits, group = mode
    parts = (random((37, 128), "float32"),)
    exact = parts[0]
    if name != "dense":
        parts = mx.quantize(parts[0], group_size=group, bits=bits, mode=name)
        exact = mx.dequantize(*parts, group_size=group, bits=bits, mode=name, dtype=mx.float32)
    indices = mx.array([[0, 36, 5], [-1, -37, 36]], dtype=mx.int64)
    found = MODULE.take(
        indices, *map(MODULE.pack, parts), rows=37, mode=name, bits=bits, group=group,
        dtype=TYPES[type_],
    )  # fmt: skip
    wanted = numbers(exact)[np.array(indices)]
    assert found.dtype == TYPES[type_]
    assert np.allclose(numbers(found), wanted, rtol=PRECISION[type_], atol=1e-7)


def test_rows_out_of_range_are_no_numbers():
    table = MODULE.pack(random((5, 32), "float32"))
    for values, dtype in (
        ([5, -6, 2**31 - 1, 1], np.int32),
        ([5, 2**32 - 1, 2**31, 1], np.uint32),
        ([-6, 2**32 + 1, -(2**32), 1], np.int64),
        ([5, 2**64 - 1, 2**32, 1], np.uint64),
    ):
        indices = mx.array(np.array(values, dtype))
        found = MODULE.take(indices, table, rows=5, dtype=mx.float32)
        assert mx.isnan(found).all(axis=1).tolist() == [True, True, True, False]


def test_matrices_of_an_arena_share_memory():
    """They are those of pack(), begin at lines of caches, and end with the last of them."""
    matrices = [random((rows, 7), "float32") for rows in (1, 16, 33)]
    mx.eval(matrices)
    before = mx.get_active_memory()
    arena = MODULE.Arena()
    packed = [MODULE.pack(matrix, arena) for matrix in matrices]
    mx.eval(packed)
    late = MODULE.pack(matrices[1], arena)
    for made, matrix in zip([*packed, late], [*matrices, matrices[1]], strict=True):
        assert mx.array_equal(made, MODULE.pack(matrix))
    assert arena.size >= sum(made.nbytes for made in packed)
    assert all(np.array(made, copy=False).ctypes.data % 64 == 0 for made in packed)
    first = numbers(packed[0])
    del made, late, arena, packed[1:]
    assert mx.get_active_memory() > before
    assert (numbers(packed[0]) == first).all()
    packed.clear()
    assert mx.get_active_memory() == before


def test_a_matrix_whose_read_failed_takes_its_place_when_it_is_read_again(tmp_path):
    stored = np.random.default_rng(0).random((2, 64, 1024)).astype(np.float32)
    path = tmp_path / "matrices"
    path.write_bytes(stored[0].tobytes())
    file, arena = MODULE.StoredFile(str(path)), MODULE.Arena()
    before = mx.get_active_memory()
    one, other = (
        MODULE.pack_stored(file, at * stored[0].nbytes, 64, 1024, mx.float32, arena)
        for at in range(2)
    )
    mx.eval(one)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="ends within a matrix"):
            mx.eval(other)
    path.write_bytes(stored.tobytes())
    mx.eval(other)
    assert mx.array_equal(other, MODULE.pack(mx.array(stored[1])))
    assert mx.get_active_memory() - before < arena.size + stored[0].nbytes // 2


@pytest.mark.parametrize("dtype", [mx.uint8, mx.float16, mx.bfloat16, mx.float32, mx.uint32])
@pytest.mark.parametrize("rows", [1, 15, 16, 33])
def test_packing_is_rows_beside_each_other(dtype, rows):
    matrix = mx.arange(rows * 7).reshape(rows, 7).astype(dtype)
    blocks = -(-rows // 16)
    filled = mx.pad(matrix, [(0, blocks * 16 - rows), (0, 0)])
    wanted = filled.reshape(blocks, 16, 7).transpose(0, 2, 1)
    assert mx.array_equal(MODULE.pack(matrix), wanted)
    assert mx.array_equal(MODULE.pack(matrix[:, ::-1]), wanted[:, ::-1])


@pytest.mark.parametrize("rows", [1, 16, 33, 5000])
@pytest.mark.parametrize("dtype", [mx.uint8, mx.bfloat16, mx.uint32])
def test_a_matrix_of_a_file_is_packed_as_one_in_memory(tmp_path, rows, dtype):
    matrix = mx.random.randint(0, 250, (rows, 37), key=mx.random.key(rows)).astype(dtype)
    path = tmp_path / "weights"
    words = matrix.view(mx.uint16) if dtype == mx.bfloat16 else matrix
    path.write_bytes(b"front" + bytes(memoryview(words)) + b"behind")
    made = MODULE.pack_stored(MODULE.StoredFile(str(path)), 5, rows, 37, dtype)
    path.rename(tmp_path / "elsewhere")  # it stays open
    assert made.dtype == dtype
    assert mx.array_equal(made, MODULE.pack(matrix))


def test_a_matrix_that_was_changed_in_place_is_not_read_from_its_file(tmp_path, on_cpu):
    path = str(tmp_path / "model.safetensors")
    mx.save_safetensors(path, {"kept": mx.ones((64, 32)), "changed": mx.ones((64, 32))})
    arrays = weights.read([path])
    sources = Sources([path], arrays)
    changed = arrays["changed"]
    changed *= 2
    assert sources.of(arrays["kept"]) is not None
    assert arrays["changed"] is changed
    assert sources.of(changed) is None


def test_a_file_that_ends_within_a_matrix_is_reported(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(4 * 64 * 32))
    made = MODULE.pack_stored(MODULE.StoredFile(str(path)), 0, 64, 32, mx.float32)
    path.write_bytes(bytes(4 * 64 * 32 - 1))
    with pytest.raises(RuntimeError, match=r"\[read\] the file ends"):
        mx.eval(made)
    with pytest.raises(RuntimeError, match=r"\[read\] cannot open"):
        MODULE.StoredFile(str(tmp_path / "none"))
    for shape in ((0, 4), (4, 0), (-1, 4)):
        with pytest.raises(ValueError, match="not empty"):
            MODULE.pack_stored(MODULE.StoredFile(str(path)), 0, *shape, mx.float32)


X, MATRIX = mx.zeros((3, 64)), mx.zeros((3, 64, 16))
WORDS, SCALES = mx.zeros((3, 8, 16), dtype=mx.uint32), mx.zeros((3, 1, 16))
AFFINE = {"rows": 40, "mode": "affine", "bits": 4, "group": 64}


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        ((X[:, :63], MATRIX), {"rows": 40}, "the last axis of x is 63 wide; the matrix takes 64"),
        ((X, MATRIX), {"rows": 60}, r"weight has the shape \(3, 64, 16\); it must be \(4, words,"),
        ((X, MATRIX), {"rows": 0}, "rows is 0"),
        (
            (X, MATRIX),
            {"rows": 40, "mode": "foo"},
            'mode is "foo"; it can be one of dense, affine,',
        ),
        ((X.astype(mx.int32), MATRIX), {"rows": 40}, "x is int32; it can be float32"),
        ((mx.array(1.0), MATRIX), {"rows": 40}, "at least one axis"),
        ((X, MATRIX, SCALES), {"rows": 40}, "dense weights have no scales"),
        ((X, MATRIX, None, None, mx.zeros(39)), {"rows": 40}, r"bias is float32 \(39\); it must"),
        ((X, MATRIX, SCALES, SCALES), AFFINE, "weight is float32; quantized weights are uint32"),
        ((X, WORDS), AFFINE, "weights of mode affine need scales and biases"),
        ((X, WORDS, SCALES), AFFINE, "weights of mode affine need scales and biases"),
        ((X, WORDS, SCALES, SCALES), AFFINE | {"bits": 7}, "no kernel takes 7 bits in groups"),
        ((X, WORDS, SCALES, SCALES), AFFINE | {"group": 128}, "8 words in a row, which is no"),
        ((X, WORDS, SCALES[:, :, :8], SCALES), AFFINE, "scales has the shape"),
        ((X, WORDS, SCALES, SCALES.astype(mx.float16)), AFFINE, "of different types"),
        ((X, WORDS, *[SCALES.astype(mx.uint8)] * 2), AFFINE, "scales are uint8, not those of"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options, why):
    with pytest.raises(ValueError, match=why):
        MODULE.product(*arguments, **options)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_numbers_with_a_mean_are_as_exact_as_mlxs(bits):
    """Packed numbers and their biases are added up apart, and must not cancel each other."""
    mx.random.seed(1)
    x, weight = mx.random.normal((4, 1024)) + 5, mx.random.normal((64, 1024))
    packed = mx.quantize(weight, 64, bits)
    w, scales, biases = packed
    exact = np.asarray(mx.dequantize(*packed, 64, bits), np.float64)
    wanted = np.asarray(x, np.float64) @ exact.T
    own = MODULE.product(
        x, *(MODULE.pack(each) for each in packed), rows=64, mode="affine", bits=bits, group=64
    )
    plain = mx.quantized_matmul(x, w, scales, biases, True, 64, bits)
    errors = [np.sqrt(np.mean((np.asarray(each) - wanted) ** 2)) for each in (own, plain)]
    assert errors[0] < 1.5 * errors[1]
