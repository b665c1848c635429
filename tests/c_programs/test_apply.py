"""array_apply: one operation at a time, lazily, with its errors at once."""

from __future__ import annotations

import math
import threading
from ctypes import byref, c_int64, c_size_t

import numpy as np
import pytest
from support.callbacks import StatusError
from support.paths import CALF
from support.programs import graph, node, value
from support.signatures import EBUFFER, EHANDLE, EINVAL, EUNSUPPORTED, OK


@pytest.fixture
def xs(arrays):
    """Six numbers as floats, and two of them as indices."""
    made = [arrays.create(np.arange(6, dtype=np.float32)), arrays.create(np.int32([4, 1]))]
    yield made
    for handle in made:
        arrays.free(handle)


def taken(arrays, handles: list[int]) -> list[np.ndarray]:
    """The elements of results, which are freed."""
    found = [arrays.read(handle) for handle in handles]
    for handle in handles:
        arrays.free(handle)
    return found


def test_results_are_inputs_of_others(arrays, xs):
    (double,) = arrays.apply("add", xs[0], xs[0])
    (grid,) = arrays.apply("reshape", double, shape=[2, 3])
    assert arrays.type(grid) == ("float32", (2, 3))
    arrays.free(double)
    assert taken(arrays, arrays.apply("reduce_max", grid, axis=1))[0].tolist() == [4, 10]
    arrays.free(grid)


def test_several_results(arrays, xs):
    parts = taken(arrays, arrays.apply("split", xs[0], indices_or_sections=3))
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("operation", ["argmax", "argmin"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_the_index_of_a_scalar_is_0(arrays, operation, keepdims):
    x = arrays.create(np.array(3, np.float32))
    (found,) = taken(arrays, arrays.apply(operation, x, keepdims=keepdims))
    assert (found.dtype, found.shape, found.item()) == (np.uint32, (), 0)
    arrays.free(x)


def test_a_transposed_convolution_with_the_greatest_stride_and_padding(arrays):
    x, w = np.float32([1, 2, 3, 4, 5]), np.float32([7, 8, 9])
    given = [arrays.create(each.reshape(1, -1, 1)) for each in (x, w)]
    size = 2**16
    (found,) = taken(arrays, arrays.apply("conv_transpose1d", *given, stride=size, padding=size))
    wanted = np.zeros(2 * size + 3, np.float32)
    wanted[:3], wanted[size : size + 3], wanted[2 * size :] = x[1] * w, x[2] * w, x[3] * w
    assert np.array_equal(found.reshape(-1), wanted)
    for handle in given:
        arrays.free(handle)


def test_attention_over_no_features_is_the_mean_of_values(arrays):
    q, k = (arrays.create(np.zeros((1, 2, 3, 0), np.float32)) for _ in range(2))
    values = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    v = arrays.create(values)
    (found,) = taken(arrays, arrays.apply("scaled_dot_product_attention", q, k, v))
    wanted = np.broadcast_to(values.mean(axis=2, keepdims=True), values.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for handle in (q, k, v):
        arrays.free(handle)


def test_a_convolution_of_lines_in_float64(arrays):
    given = [arrays.create(np.float64(line)) for line in ([1, 2], [1, 0, 3, 0, 1])]
    (found,) = taken(arrays, arrays.apply("convolve", *given))
    assert found.tolist() == np.convolve([1, 2], [1, 0, 3, 0, 1]).tolist()
    for handle in given:
        arrays.free(handle)


def test_an_input_that_is_left_out(arrays, xs):
    """A layer norm without weights, and with a bias."""
    bias = arrays.create(np.full(6, 3, np.float32))
    (found,) = taken(arrays, arrays.apply("layer_norm", xs[0], 0, bias))
    x = np.arange(6, dtype=np.float32)
    assert np.allclose(found, (x - x.mean()) / np.sqrt(x.var() + 1e-5) + 3, atol=1e-5)
    arrays.free(bias)


def test_float64_keeps_its_digits(arrays):
    x = np.linspace(-0.9, 0.9, 7)
    given = arrays.create(x)
    for name, wanted in {"exp": np.exp(x), "cos": np.cos(x), "erf": list(map(math.erf, x))}.items():
        (found,) = taken(arrays, arrays.apply(name, given))
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted, rtol=1e-15)
    arrays.free(given)


def test_a_capacity_that_is_too_small_leaves_nothing_open(arrays, lib, xs):
    before = lib.info()["handles"]["array"]
    out, length = (c_int64 * 2)(), c_size_t()
    status = arrays.c.cow_mlx_array_apply(
        b"split", (c_int64 * 1)(xs[0]), 1, b'{"indices_or_sections": 3}', out, 2, byref(length)
    )
    assert (status, length.value, list(out)) == (EBUFFER, 3, [0, 0])
    assert lib.info()["handles"]["array"] == before


BAD = {
    "no such operation": (("expp", 0), {}, ["expp", "exp"]),
    "an attribute that it has not": (("sin", 0), {"axis": 1}, ["sin", "axis"]),
    "an attribute of another type": (("sum", 0), {"axis": "first"}, ["sum", "axis", "first"]),
    "an axis that is not there": (("sum", 0), {"axis": 1}, ["sum", "axis", "1"]),
    "too few inputs": (("add", 0), {}, ["add", "1", "2"]),
    "too many inputs": (("sin", 0, 0), {}, ["sin", "2", "1"]),
    "shapes that cannot meet": (("add", 0, 1), {}, ["add", "6", "2"]),
    "a dtype that it does not take": (("take", 0, 0), {}, ["take", "float32"]),
    "an index out of range": (("take", 0, 2), {}, ["take", "70000"]),
    "a named dimension": (("reshape", 0), {"shape": ["n"]}, ["reshape", "n"]),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_calls(arrays, lib, xs, what):
    far = arrays.create(np.int32([0, 70000]))
    before = lib.info()["handles"]["array"]
    (operation, *inputs), attributes, words = BAD[what]
    with pytest.raises(StatusError) as error:
        arrays.apply(operation, *[[*xs, far][at] for at in inputs], **attributes)
    assert error.value.status == EINVAL
    assert error.value.reason
    for word in words:
        assert word in error.value.message
    assert lib.info()["handles"]["array"] == before
    arrays.free(far)


def test_an_index_out_of_range_is_clamped_where_that_is_asked_for(arrays, xs):
    far = arrays.create(np.int32([-70000, 70000]))
    (found,) = taken(arrays, arrays.apply("take", xs[0], far, indices="clamp"))
    assert found.tolist() == [0, 5]
    arrays.free(far)


def test_handles_that_are_none(arrays, xs):
    for handle in (-1, 2**62, xs[0] + 10**6):
        with pytest.raises(StatusError) as error:
            arrays.apply("sin", handle)
        assert error.value.status == EHANDLE
    with pytest.raises(StatusError) as error:
        arrays.apply("add", xs[0], 0)
    assert error.value.status == EINVAL


def test_an_operation_that_is_known_is_checked_for_other_inputs_too(arrays, xs):
    """What is remembered of one call does not make another right."""
    for _ in range(3):
        assert taken(arrays, arrays.apply("sum", xs[0], axis=0))[0] == 15
        with pytest.raises(StatusError):
            arrays.apply("sum", xs[0], axis=1)
        with pytest.raises(StatusError):
            arrays.apply("add", *xs)
        assert taken(arrays, arrays.apply("add", xs[1], xs[1]))[0].tolist() == [8, 2]


def test_a_repeated_operation_is_checked_as_the_first_was(arrays, lib, xs):
    other = arrays.create(np.arange(5, dtype=np.float32))
    lazy = arrays.apply("cumsum", xs[0], axis=0)[0]
    for _ in range(3):
        for _ in range(2):
            (double,) = taken(arrays, arrays.apply("add", xs[0], xs[0]))
            assert double.tolist() == [0, 2, 4, 6, 8, 10]
        (found,) = taken(arrays, arrays.apply("add", xs[0], lazy))
        assert found.tolist() == [0, 2, 5, 9, 14, 20]
        for handles, status in (([xs[0], other], EINVAL), ([xs[0]], EINVAL), ([xs[0], 0], EINVAL)):
            with pytest.raises(StatusError) as error:
                arrays.apply("add", *handles)
            assert error.value.status == status
        with pytest.raises(StatusError) as error:
            arrays.apply("add", xs[0], 1 << 50)
        assert error.value.status == EHANDLE
        with pytest.raises(StatusError) as error:
            arrays.apply("add", xs[0], xs[0], axis=0)
        assert error.value.status == EINVAL
        before = lib.info()["handles"]["array"]
        inputs, out, length = (c_int64 * 2)(xs[0], xs[0]), c_int64(), c_size_t()
        for room, wanted in ((byref(out), EBUFFER), (None, OK)):
            status = arrays.c.cow_mlx_array_apply(b"add", inputs, 2, None, room, 0, byref(length))
            assert (status, length.value, out.value) == (wanted, 1, 0)
        assert lib.info()["handles"]["array"] == before
    for handle in (other, lazy):
        arrays.free(handle)


def test_what_a_run_has_still_to_make_is_waited_for(arrays, programs):
    """And its error is the operation's."""
    step = programs.create(graph([value("x", [3])], [node("y", "sin", "x")], ["y"]))
    take = programs.create(
        graph([value("x", [3]), value("i", [1], "int32")], [node("y", "take", "x", "i")], ["y"])
    )
    x = np.ones(3, np.float32)
    (there,) = programs.run(step, [x], submit=True)
    assert np.allclose(taken(arrays, arrays.apply("add", there, there))[0], 2 * np.sin(x))
    (never,) = programs.run(take, [x, np.int32([70000])], submit=True)
    with pytest.raises(StatusError, match="70000"):
        arrays.apply("sin", never)
    for handle in (there, never):
        arrays.free(handle)
    for program in (step, take):
        programs.free(program)


def test_many_threads_apply_to_the_same_arrays(arrays, xs):
    failures = []

    def work() -> None:
        for _ in range(30):
            (double,) = arrays.apply("add", xs[0], xs[0])
            found = taken(arrays, arrays.apply("multiply", double, xs[0]))[0]
            arrays.free(double)
            if found.tolist() != [2 * at * at for at in range(6)]:
                failures.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_float64_is_refused_where_the_device_lacks_it(arrays, lib, xs):
    if lib.info()["device"] == "cpu":
        (wide,) = arrays.apply("astype", xs[0], dtype="float64")
        assert arrays.type(wide)[0] == "float64"
        arrays.free(wide)
    else:
        with pytest.raises(StatusError) as error:
            arrays.apply("astype", xs[0], dtype="float64")
        assert error.value.status == EUNSUPPORTED


def chained(arrays, operation="tan", count=24, side=1024):
    """The last of many results, which nobody has computed."""
    last = arrays.create(np.eye(side) + np.ones((side, side)))
    for _ in range(count):
        (following, *others) = arrays.apply(operation, last)
        for each in (last, *others):
            arrays.free(each)
        last = following
    return last


@pytest.mark.parametrize("use", ["read", "wait", "save", "check", "bind", "copy"])
def test_calls_are_answered_while_an_array_is_computed(arrays, programs, lib, tmp_path, use):
    """Operations are lazy: a read of the last array computes all that led to it."""
    last = chained(arrays)
    moved = graph([value("x", ["n", "m"], "float64")], [node("y", "transpose", "x")], ["y"])
    program = programs.create(moved)
    out = np.zeros((1024, 1024))
    uses = {
        "read": lambda: arrays.read(last),
        "wait": lambda: arrays.wait(last),
        "save": lambda: arrays.save(tmp_path / "a.safetensors", [("a", last)]),
        "check": lambda: [arrays.free(each) for each in arrays.apply("svd", last)],
        "bind": lambda: programs.free(programs.derive(program, bind={"x": last})),
        "copy": lambda: programs.run(program, [last], [out]),
    }
    begun = threading.Event()
    thread = threading.Thread(target=lambda: (begun.set(), uses[use]()))
    thread.start()
    begun.wait()
    small = arrays.create(np.ones((3, 2), np.float32))
    (turned,) = arrays.apply("transpose", small)
    answered = 0  # one call alone would be, behind all of them
    while thread.is_alive():
        lib.info()
        arrays.free(*arrays.apply("reshape", turned, shape=[6]))  # which copies
        answered += 1
    thread.join()
    assert answered >= 12
    for each in (last, small, turned):
        arrays.free(each)
    programs.free(program)


@pytest.mark.parametrize("operation", ["svd", "qr"])
def test_a_generation_goes_on_while_an_array_is_computed(arrays, lib, operation):
    """Few operations, each of which takes long."""
    model = lib.load(CALF)
    context = lib.context(model)
    count, side = {"svd": (24, 300), "qr": (48, 400)}[operation]
    last = chained(arrays, operation, count, side)
    lib.begin(context, lib.tokenize(model, "Once upon a time"), max_tokens=256, temperature=0)
    lib.next(context)
    thread = threading.Thread(target=lambda: arrays.read(last))
    thread.start()
    steps = 0
    while thread.is_alive() and lib.next(context).status == OK:
        steps += 1
    thread.join()
    assert steps >= 4
    arrays.free(last)
    lib.free(context)
    lib.free_model(model)


def test_a_generation_goes_on_while_a_long_graph_is_computed(arrays, lib):
    """A graph that is started whole makes mlx wait until some 60 operations are left.

    A generation would have steps beside these alone: 10 to 60. It has hundreds, also on
    a busy machine.
    """
    model = lib.load(CALF)
    context = lib.context(model)
    prompt = lib.tokenize(model, "Once upon a time")
    last = chained(arrays, "tan", 3600, 256)
    lib.begin(context, prompt, max_tokens=100, temperature=0)
    lib.next(context)
    thread = threading.Thread(target=lambda: arrays.read(last))
    thread.start()
    steps = 0
    while thread.is_alive():
        if lib.next(context).status != OK:
            lib.begin(context, prompt, max_tokens=100, temperature=0)
        steps += 1
    thread.join()
    assert steps >= 180
    arrays.free(last)
    lib.free(context)
    lib.free_model(model)
