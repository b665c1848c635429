"""The shapes and dtypes that rows say, against what mlx gives, and what they refuse."""

from __future__ import annotations

import json
import random

import mlx.core as mx
import pytest

from cowmlx.programs.dimensions import at_least, evaluate_shape, named
from cowmlx.programs.operations import OPERATIONS, ROWS, find, table
from cowmlx.programs.operations.attributes import (
    attributes_of,
    concrete_attributes,
    names_in,
)
from cowmlx.programs.operations.examples import array_of, spec_of, specs_of
from cowmlx.programs.operations.row import OperationError, Spec
from cowmlx.programs.operations.rules import DTYPES, mlx_dtype, name_of, promoted

WORD_LIST = """
    add subtract multiply divide negate abs exp log sqrt pow sin cos tan asin acos atan sinh cosh
    tanh sum product reduce_max reduce_min argmax argmin all any mean dot matmul transpose conv
    reshape squeeze broadcast pad slice concatenate stack reverse gather random_uniform
    random_normal eye iota equal not_equal greater less greater_equal less_equal logical_and
    logical_or logical_xor bitwise_and bitwise_or bitwise_xor softmax layer_norm
"""
WORDS = WORD_LIST.split()


def spec_of_array(array):
    return None if array is None else Spec(tuple(array.shape), name_of(array.dtype))


def check(row, inputs, attributes):
    """Whether mlx gives what the row says; False if the row refuses."""
    given = row.arranged(inputs)
    try:
        wanted = row.infer([spec_of_array(each) for each in given], attributes)
    except OperationError as error:
        assert row.name in str(error) and error.details["op"] == row.name
        return False
    found = row.compute(given, attributes)
    mx.eval(found)
    assert [spec_of_array(each) for each in found] == list(wanted)
    assert row.outputs_vary or len(found) == len(row.outputs)
    return True


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_results_are_as_said_for_all_dtypes(row):
    for example in row.examples:
        attributes = attributes_of(row, example.attributes)
        for dtype in (None, *DTYPES):
            inputs = []
            for at, text in enumerate(example.inputs):
                changed = text is not None and spec_of(text).dtype == "float32"
                inputs.append(
                    None if text is None else array_of(text, at, dtype if changed else None)
                )
            accepted = check(row, inputs, attributes)
            assert accepted or dtype is not None, "an example is refused"


def shape_like(drawn, shape):
    """A shape that broadcasts with another, or nearly."""
    found = [drawn.choice([each, each, 1]) for each in shape[drawn.randint(0, len(shape)) :]]
    if drawn.random() < 0.1 and found:
        found[0] += 1
    return tuple(found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_results_are_as_said_for_random_shapes(row):
    """Mlx raises nothing for what the row takes; shapes are random, also of no elements."""
    drawn = random.Random(row.name)
    for _ in range(12):
        example = drawn.choice(row.examples)
        attributes = attributes_of(row, example.attributes)
        full = tuple(drawn.choice([0, 1, 2, 3, 4]) for _ in range(drawn.randint(0, 3)))
        inputs = []
        for at, spec in enumerate(specs_of(example)):
            if spec is None:
                inputs.append(None)
                continue
            keep = drawn.random() < 0.5
            shape = spec.shape if keep else shape_like(drawn, full or (2,))
            if spec.dtype == "uint32" and spec.shape == (2,):
                shape = spec.shape
            text = f"{spec.dtype}[{','.join(map(str, shape))}]"
            inputs.append(array_of(text, at))
        check(row, inputs, attributes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_names_of_dimensions_give_what_numbers_do(row):
    """With a name for each dimension a row says the same, or that it cannot know."""
    for example in row.examples:
        specs = specs_of(example)
        lengths = {each for spec in specs if spec for each in spec.shape if each > 1}
        values = {f"n{length}": length for length in lengths}
        symbolic = [
            spec
            and Spec(
                tuple(named(f"n{each}") if each in lengths else each for each in spec.shape),
                spec.dtype,
            )
            for spec in specs
        ]
        attributes = attributes_of(row, example.attributes)
        wanted = row.infer(row.arranged(specs), attributes)
        try:
            found = row.infer(row.arranged(symbolic), attributes)
        except OperationError:
            continue
        if any(at_least(each, 0) is None for spec in found for each in spec.shape):
            continue  # a length such as n-3, which is right where it is one
        assert [Spec(evaluate_shape(each.shape, values), each.dtype) for each in found] == wanted


def test_batches_stay_names_through_a_network():
    batch = named("batch")
    x = Spec((batch, 28, 28, 1), "float32")
    (y,) = find("conv2d").infer(
        [x, Spec((8, 3, 3, 1), "float32")], attributes_of(find("conv2d"), {})
    )
    (y,) = find("max_pool2d").infer([y], attributes_of(find("max_pool2d"), {"kernel_size": 2}))
    reshape = find("reshape")
    (y,) = reshape.infer([y], attributes_of(reshape, {"shape": ["batch", -1]}))
    assert str(y) == "float32(batch, 1352)"
    (y,) = find("matmul").infer([y, Spec((1352, 10), "float32")], {})
    loss = find("cross_entropy")
    (y,) = loss.infer(
        loss.arranged([y, Spec((batch,), "int32")]), attributes_of(loss, {"reduction": "mean"})
    )
    assert y == Spec((), "float32")


def test_shapes_in_attributes_may_have_names():
    row = find("zeros")
    attributes = attributes_of(row, {"shape": ["2*batch+1", 3]})
    assert names_in(row, attributes) == {"batch"}
    assert concrete_attributes(row, attributes, {"batch": 4})["shape"] == (9, 3)
    assert str(row.infer([], attributes)[0]) == "float32(2*batch+1, 3)"


def test_promotion_is_mlxs_but_for_what_loses_values():
    for one in DTYPES:
        for other in DTYPES:
            arrays = [mx.zeros((1,), dtype=mlx_dtype(each)) for each in (one, other)]
            refused = {one, other} == {"float64", "complex64"} or (
                "uint64" in (one, other) and any(each.startswith("int") for each in (one, other))
            )
            wanted = None if refused else name_of(mx.result_type(*arrays))
            assert promoted(one, other) == wanted


@pytest.mark.parametrize("word", WORDS)
def test_words_of_other_systems_find_their_operation(word):
    assert find(word) is OPERATIONS[word]


def test_an_unknown_operation_names_near_ones():
    with pytest.raises(OperationError, match=r"reduce_summ.*reduce_sum") as caught:
        find("reduce_summ")
    assert (
        caught.value.reason == "unknown_option" and caught.value.details["value"] == "reduce_summ"
    )
    with pytest.raises(OperationError, match=r"no operation 'x{64}'"):
        find("x" * 10**6)


def test_the_table_is_json_and_whole():
    text = json.dumps(table(), allow_nan=False)
    assert len(json.loads(text)) == len(ROWS) >= 180
    for row in ROWS:
        assert row.summary.endswith(".") and row.formula and row.examples, row.name
        names = [place.name for place in row.inputs]
        assert set(row.differentiable) <= set(names) and len(set(names)) == len(names)
        assert all(attribute.about for attribute in row.attributes), row.name


BAD_ATTRIBUTES = [
    ("sum", {"axes": 1}, "unknown_option", "'axes'"),
    ("sum", {"axis": "0"}, "wrong_type", "axis"),
    ("sum", {"axis": True}, "wrong_type", "axis"),
    ("sum", {"axis": 1.0}, "wrong_type", "axis"),
    ("sum", {"axis": 2**31}, "out_of_range", "int32"),
    ("sum", {"keepdims": 1}, "wrong_type", "true or false"),
    ("sum", {"keepdims": None}, "wrong_type", "true or false"),
    ("reshape", {}, "missing", "shape"),
    ("reshape", {"shape": [-2]}, "out_of_range", "-2"),
    ("reshape", {"shape": ["a b"]}, "out_of_range", "a b"),
    ("reshape", {"shape": [1] * 9}, "limit_exceeded", "at most 8"),
    ("reshape", {"shape": [1] * 65}, "limit_exceeded", "64"),
    ("zeros", {"shape": [-1]}, "out_of_range", "-1"),
    ("zeros", {"shape": [2**31 - 1, 2**31 - 1]}, "limit_exceeded", "elements"),
    ("zeros", {"shape": [1], "dtype": "float8"}, "out_of_range", "float8"),
    ("zeros", {"shape": [1], "dtype": 3}, "wrong_type", "dtype"),
    ("cross_entropy", {"reduction": "max"}, "out_of_range", "'none' or 'mean' or 'sum'"),
    ("cross_entropy", {"label_smoothing": 1.5}, "out_of_range", "from 0 to 1"),
    ("cross_entropy", {"label_smoothing": "nan"}, "out_of_range", "label_smoothing"),
    ("clip", {"a_min": 10**400}, "out_of_range", "a huge number"),
    ("einsum", {"subscripts": "i" * 300}, "limit_exceeded", "256"),
    ("pad", {"pad_width": [[1, 2, 3]]}, "out_of_range", "before"),
    ("pad", {"pad_width": -1}, "out_of_range", "pad_width"),
    ("take", {"indices": "ignore"}, "out_of_range", "'check' or 'clamp'"),
]


@pytest.mark.parametrize("name, given, reason, part", BAD_ATTRIBUTES)
def test_bad_attributes_are_named(name, given, reason, part):
    with pytest.raises(OperationError) as caught:
        attributes_of(find(name), given)
    assert caught.value.reason == reason and part in str(caught.value)
    assert caught.value.details["op"] == name and "argument" in caught.value.details


def spec(text):
    return None if text is None else spec_of(text)


BAD_INPUTS = [
    ("add", ["float32[2,3]", "float32[4]"], {}, "conflict", "(2, 3) and (4)"),
    ("add", ["uint64[2]", "int32[2]"], {}, "wrong_type", "uint64 and int32"),
    ("add", ["float32[2]"], {}, "missing", "1 inputs"),
    ("add", ["float32[2]"] * 3, {}, "out_of_range", "3 inputs"),
    ("matmul", ["float32[2,3]", "float32[4,2]"], {}, "conflict", "(3)"),
    ("matmul", ["int32[2,3]", "int32[3,2]"], {}, "wrong_type", "a is int32"),
    ("matmul", ["float32[]", "float32[3]"], {}, "conflict", "0 dimensions"),
    ("sum", ["float32[2,3]"], {"axis": 2}, "out_of_range", "-2 to 1"),
    ("sum", ["float32[2,3]"], {"axis": [0, -2]}, "out_of_range", "twice"),
    ("sum", ["float32[]"], {"axis": 0}, "out_of_range", "no axes"),
    ("max", ["float32[0]"], {}, "conflict", "empty"),
    ("argmax", ["float32[2,0]"], {"axis": 1}, "conflict", "empty"),
    ("reshape", ["float32[2,3]"], {"shape": [4]}, "conflict", "6 and 4"),
    ("reshape", ["float32[2,3]"], {"shape": [-1, -1]}, "out_of_range", "one -1"),
    ("reshape", ["float32[2,3]"], {"shape": [4, -1]}, "conflict", "multiple of 4"),
    ("reshape", ["float32[0,3]"], {"shape": [0, -1]}, "conflict", "multiple of 0"),
    ("take", ["float32[3]", "float32[2]"], {}, "wrong_type", "indices is float32"),
    ("take", ["float32[0]", "int32[2]"], {}, "conflict", "empty axis"),
    ("concatenate", ["float32[2,3]", "float32[2,4]"], {}, "conflict", "axis 0"),
    ("stack", [], {}, "missing", "0 inputs"),
    ("split", ["float32[5]"], {"indices_or_sections": 2}, "conflict", "no 2 parts"),
    ("split", ["float32[5]"], {"indices_or_sections": 0}, "conflict", "no 0 parts"),
    ("split", ["float32[5]"], {"indices_or_sections": [3, 1]}, "out_of_range", "in order"),
    ("split", ["float32[0]"], {"indices_or_sections": 1025}, "out_of_range", "at most 1024"),
    ("squeeze", ["float32[2,1]"], {"axis": 0}, "conflict", "must be 1"),
    ("inv", ["float32[2,3]"], {}, "conflict", "as long"),
    ("inv", ["float32[0,0]"], {}, "conflict", "a row or more"),
    ("inv", ["float16[2,2]"], {}, "wrong_type", "float64"),
    ("conv1d", ["float32[1,5,0]", "float32[3,2,0]"], {}, "conflict", "elements"),
    ("conv1d", ["float32[1,1,2]", "float32[3,2,2]"], {}, "conflict", "no room"),
    ("conv2d", ["float32[1,5,5,4]", "float32[3,2,2,3]"], {}, "conflict", "channels"),
    ("conv2d", ["float32[1,5,5,4]", "float32[3,2,2,4]"], {"stride": [1]}, "out_of_range", "2"),
    ("einsum", ["float32[2]"], {"subscripts": "i,j"}, "out_of_range", "letters"),
    ("einsum", ["float32[2]"], {"subscripts": "ij"}, "conflict", "2 axes"),
    ("einsum", ["float32[2]"], {"subscripts": "i->ii"}, "out_of_range", "->"),
    ("random_normal", ["uint32[3]"], {"shape": []}, "conflict", "(2,)"),
    ("random_normal", ["int32[2]"], {"shape": []}, "wrong_type", "uint32"),
    ("random_normal", ["uint32[2]"], {"shape": [], "dtype": "int32"}, "out_of_range", "float"),
    ("full", [], {"shape": [], "vals": 1.5, "dtype": "int32"}, "out_of_range", "whole"),
    ("full", [], {"shape": [], "vals": 300, "dtype": "uint8"}, "out_of_range", "0 to 255"),
    ("arange", [], {"stop": 5, "step": 0}, "out_of_range", "step"),
    ("arange", [], {"stop": 1e308, "step": 1e-300, "dtype": "float32"}, "out_of_range", "at most"),
    ("arange", [], {"stop": 2**62}, "out_of_range", "2147483647"),
    ("repeat", ["float32[1000000]"], {"repeats": 10**6}, "out_of_range", "2147483647"),
    ("outer", ["float32[2000000]", "float32[2000000]"], {}, "limit_exceeded", "elements"),
    ("topk", ["float32[3]"], {"k": 4}, "out_of_range", "length 3"),
    ("partition", ["float32[3]"], {"kth": -4}, "out_of_range", "kth"),
    ("view", ["uint8[3]"], {"dtype": "bool"}, "out_of_range", "bool"),
    ("astype", ["float32[3]"], {"dtype": "bool", "x": 1}, "unknown_option", "x"),
    ("rope", ["float32[1,2,8]"], {"dims": 3}, "out_of_range", "even"),
    ("quantize", ["float32[4,60]"], {}, "conflict", "multiple of 64"),
    (
        "quantized_matmul",
        ["float32[3,64]", "uint32[4,8]", "float32[4,1]"],
        {},
        "out_of_range",
        "biases",
    ),
    ("slice", ["float32[3]"], {"start": [0], "stop": [2], "strides": [0]}, "out_of_range", "0"),
    ("dynamic_slice", ["float32[3]", "int32[1]"], {"slice_size": [4]}, "conflict", "needs 4"),
]


@pytest.mark.parametrize("name, inputs, given, reason, part", BAD_INPUTS)
def test_bad_inputs_are_named(name, inputs, given, reason, part):
    row = find(name)
    with pytest.raises(OperationError) as caught:
        row.infer(row.arranged([spec(text) for text in inputs]), attributes_of(row, given))
    assert caught.value.reason == reason and part in str(caught.value), caught.value
    assert caught.value.details["op"] == name
    assert name in str(caught.value)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", ["conv", "conv_transpose"])
def test_kernels_may_have_named_sides(name, axes):
    row = find(f"{name}{axes}d")
    sides = [named(f"n{at}") for at in range(axes)]
    given = [Spec((2, *[9] * axes, 4), "float32"), Spec((3, *sides, 4), "float32")]
    (found,) = row.infer(given, attributes_of(row, {"padding": 1}))
    values = {f"n{at}": 3 for at in range(axes)}
    assert evaluate_shape(found.shape, values) == (2, *[9] * axes, 3)


def test_dimensions_that_may_differ_are_refused():
    row = find("add")
    with pytest.raises(OperationError, match="not known to be equal"):
        row.infer([Spec((named("n"),), "float32"), Spec((named("m"),), "float32")], {})
    with pytest.raises(OperationError, match="differ"):
        row.infer([Spec((named("n"),), "float32"), Spec((named("n") + 1,), "float32")], {})


def test_a_missing_input_is_named():
    with pytest.raises(OperationError, match="needs its input 'x'"):
        find("layer_norm").arranged([None])
    assert find("layer_norm").arranged(["x"]) == ["x", None, None]
