"""Programs of files through C: ONNX networks and JSON, their weights, and files that are wrong."""

from __future__ import annotations

import json
import os
import random
import sys
from ctypes import byref, c_int32
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from onnx import TensorProto, helper
from support.callbacks import StatusError
from support.onnx_models import info, model, saved, weight
from support.programs import graph, node, value
from support.signatures import EFORMAT, EINVAL, EIO, ENOENT, EUNSUPPORTED

from cowmlx.program import trace

W = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
B = np.array([1, 2, 3, 4], np.float32)


def linear(dimension: str = "rows"):
    """A network of x @ w + b, and the mean of it."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
    ]
    outputs = [info("y", [dimension, 4]), info("loss", [])]
    return model(nodes, [info("x", [dimension, 3])], outputs, [weight("w", W), weight("b", B)])


def refused(programs, path: object, **fixed: object) -> StatusError:
    with pytest.raises(StatusError) as error:
        programs.load(path, fixed or None)
    return error.value


def test_a_function_of_python_is_derived_and_run(programs, tmp_path: Path):
    made = trace(
        lambda x, w, b: {"y": x @ w + b, "loss": (x @ w + b).mean()},
        {"x": ("float32", ["rows", 3])},
        {"w": mx.array(W), "b": mx.array(B)},
    )
    made.save(str(tmp_path / "linear.json"))
    loaded = programs.load(tmp_path / "linear.json")
    x, y, loss = np.ones((2, 3), np.float32), np.zeros((2, 4), np.float32), np.zeros((), "float32")
    programs.run(loaded, [x], [y, loss])
    np.testing.assert_allclose(y, x @ W + B, rtol=1e-6)
    slope = programs.derive(loaded, gradient={"of": "loss", "with_respect_to": ["b"]})
    slopes = np.zeros((4,), np.float32)
    programs.run(slope, [x], [slopes])
    np.testing.assert_allclose(slopes, np.full(4, 0.25), rtol=1e-6)
    programs.free(slope)
    programs.free(loaded)


def test_a_run_may_leave_out_the_weights_of_the_file(programs, tmp_path: Path):
    program = programs.load(saved(linear(), tmp_path))
    described = programs.info(program)
    assert [each["name"] for each in described["inputs"]] == ["x"]
    assert {each["name"]: each["has_value"] for each in described["parameters"]} == {
        "w": True,
        "b": True,
    }
    x = np.ones((2, 3), np.float32)
    y, loss = np.zeros((2, 4), np.float32), np.zeros((), np.float32)
    programs.run(program, [x], [y, loss])
    np.testing.assert_allclose(y, x @ W + B, rtol=1e-6)
    given = {"w": W * 0, "b": B}
    programs.run(program, [x, *(given[p["name"]] for p in described["parameters"])], [y, loss])
    np.testing.assert_array_equal(y, [B, B])
    with pytest.raises(StatusError) as error:
        programs.run(program, [x, W], [y, loss])
    assert error.value.status == EINVAL
    programs.free(program)


def test_weights_can_be_trained(programs, tmp_path: Path):
    program = programs.load(saved(linear(), tmp_path))
    slope = programs.derive(program, gradient={"of": "loss", "with_respect_to": ["b"]})
    x, found = np.ones((2, 3), np.float32), np.zeros(4, np.float32)
    programs.run(slope, [x], [found])
    np.testing.assert_allclose(found, np.full(4, 0.25), rtol=1e-6)
    rows = programs.derive(program, vectorize={"x": 0})
    y, loss = np.zeros((5, 2, 4), np.float32), np.zeros(5, np.float32)
    many = np.ones((5, 2, 3), np.float32)
    programs.run(rows, [many], [y, loss])
    np.testing.assert_allclose(y[4], many[4] @ W + B, rtol=1e-6)
    for each in (rows, slope, program):
        programs.free(each)


def test_an_exported_function_of_mlx(programs, tmp_path: Path):
    """It runs without its captured weights, with others, differentiated, and for many rows."""
    path = tmp_path / "function.mlxfn"
    w, b = mx.array(W), mx.array(B)

    def function(x, *, scale):
        y = (x @ w + b) * scale
        return y, mx.mean(y)

    mx.export_function(str(path), function, mx.zeros((2, 3)), scale=mx.array(2.0))
    program = programs.load(path)
    described = programs.info(program)
    assert [each["name"] for each in described["inputs"]] == ["input_0", "scale"]
    assert [each["shape"] for each in described["parameters"]] == [[3, 4], [4]]
    x, scale = np.ones((2, 3), np.float32), np.array(3, np.float32)
    y, loss = np.zeros((2, 4), np.float32), np.zeros((), np.float32)
    programs.run(program, [x, scale], [y, loss])
    np.testing.assert_allclose(y, 3 * (x @ W + B), rtol=1e-6)
    programs.run(program, [x, scale, W * 0, B], [y, loss])
    np.testing.assert_array_equal(y, [3 * B, 3 * B])
    bias = described["parameters"][1]["name"]
    slope = programs.derive(program, gradient={"of": "output_1", "with_respect_to": [bias]})
    found = np.zeros(4, np.float32)
    programs.run(slope, [x, scale], [found])
    np.testing.assert_allclose(found, np.full(4, 0.75), rtol=1e-6)
    rows = programs.derive(program, vectorize={"input_0": 0})
    y, loss = np.zeros((5, 2, 4), np.float32), np.zeros(5, np.float32)
    programs.run(rows, [np.ones((5, 2, 3), np.float32), scale], [y, loss])
    np.testing.assert_allclose(y[4], 3 * (x @ W + B), rtol=1e-6)
    for each in (rows, slope, program):
        programs.free(each)
    fixed = programs.load(path, {"scale": 4})
    y = np.zeros((2, 4), np.float32)
    programs.run(fixed, [x], [y, np.zeros((), np.float32)])
    np.testing.assert_allclose(y, 4 * (x @ W + B), rtol=1e-6)
    programs.free(fixed)
    path.write_bytes(path.read_bytes()[:-9])
    assert refused(programs, path).status == EFORMAT


def test_dimensions_and_inputs_can_be_fixed(programs, tmp_path: Path):
    program = programs.load(saved(linear(), tmp_path), {"rows": 2})
    assert programs.info(program)["inputs"][0]["shape"] == [2, 3]
    programs.free(program)
    path = saved(linear(), tmp_path)
    for wrong in ({"columns": 2}, {"rows": -1}, {"rows": "many"}, {"x": [1, 2]}):
        assert refused(programs, path, **wrong).status == EINVAL
    assert "columns" in str(refused(programs, path, columns=1))


def test_json_with_safetensors_beside_it(programs, tmp_path: Path):
    written = graph(
        [value("x", [2])], [node("y", "add", "x", "b")], ["y"], parameters=[value("b", [2])]
    )
    path = tmp_path / "program.json"
    path.write_text(json.dumps(written))
    mx.save_safetensors(str(tmp_path / "program.safetensors"), {"b": mx.array([1.0, 2.0])})
    program = programs.load(path)
    y = np.zeros(2, np.float32)
    programs.run(program, [np.ones(2, np.float32)], [y])
    np.testing.assert_array_equal(y, [2, 3])
    programs.free(program)
    mx.save_safetensors(str(tmp_path / "program.safetensors"), {"b": mx.array([1.0])})
    assert "'b'" in str(refused(programs, path))
    assert refused(programs, path, rows=1).status == EINVAL


def test_files_that_are_not_there_or_of_another_kind(programs, tmp_path: Path):
    assert refused(programs, tmp_path / "none.onnx").status == ENOENT
    assert refused(programs, tmp_path / "none.json").status == ENOENT
    other = tmp_path / "network.pt"
    other.write_bytes(b"x")
    assert refused(programs, other).status == EINVAL
    assert ".onnx" in str(refused(programs, other))


def test_a_missing_package_is_named(programs, tmp_path: Path, monkeypatch):
    path = saved(linear(), tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    error = refused(programs, path)
    assert error.status == ENOENT
    details = error.details
    assert (error.reason, details["package"]) == ("package_not_found", "onnx")


def test_an_operator_that_is_not_possible_is_named(programs, tmp_path: Path):
    odd = helper.make_node("StringNormalizer", ["x"], ["y"], name="odd")
    made = model([odd], [info("x", [3])], [info("y", [3])])
    error = refused(programs, saved(made, tmp_path))
    assert error.status == EUNSUPPORTED
    details = error.details
    assert (details["op"], details["node"]) == ("StringNormalizer", "odd")


def external(folder: Path, location: str, **entries: int) -> Path:
    """A network whose weight is in another file."""
    made = linear()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **{k: str(v) for k, v in entries.items()}}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return saved(made, folder)


@pytest.mark.parametrize("name", ["a.json", "a.onnx", "a.mlxfn", "a.safetensors"])
def test_a_pipe_keeps_nobody_waiting(programs, tmp_path: Path, name: str):
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    path = tmp_path / name
    error = refused(programs, path if path.suffix != ".safetensors" else tmp_path / "a.json")
    assert error.status == EIO
    assert f"{name}: it is no regular file" in str(error)


def test_external_data_is_read_from_the_folder_alone(programs, tmp_path: Path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "w.bin").write_bytes(b"\0" * 16 + W.tobytes())
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    (inside / "link.bin").symlink_to(tmp_path / "w.bin")
    program = programs.load(external(inside, "w.bin", offset=16, length=48))
    y, loss = np.zeros((1, 4), np.float32), np.zeros((), np.float32)
    x = np.ones((1, 3), np.float32)
    programs.run(program, [x], [y, loss])
    np.testing.assert_allclose(y, x @ W + B, rtol=1e-6)
    programs.free(program)
    for location in ("../w.bin", str(tmp_path / "w.bin"), "link.bin", "", ".", "a/../../w.bin"):
        assert refused(programs, external(inside, location)).status == EFORMAT
    for entries in ({"offset": 32}, {"length": 40}, {"length": 1 << 31}, {"offset": 1 << 60}):
        assert refused(programs, external(inside, "w.bin", **entries)).status == EFORMAT
    assert refused(programs, external(inside, "gone.bin")).status == ENOENT


def hostile() -> list:
    """Networks that claim or ask for what is absurd."""
    relu = helper.make_node("Relu", ["a"], ["y"])
    cycle = [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    large = weight("a", np.zeros(1, np.float32))
    large.dims[:] = [1 << 29]
    negative = weight("a", np.zeros(1, np.float32))
    negative.dims[:] = [-1]
    wide = weight("a", np.zeros(1, np.float32))
    wide.dims[:] = [(1 << 31) - 1] * 8
    shape = weight("s", np.array([1 << 40]))
    filled = helper.make_node("ConstantOfShape", ["s"], ["y"])
    huge = weight("s", np.array([1 << 30, 1 << 30, 1 << 30]))
    back = weight("s", np.array([-5]))
    repeats = weight("s", np.array([1 << 30]))
    tile = helper.make_node("Tile", ["x", "s"], ["y"])
    window = helper.make_node("MaxPool", ["i"], ["y"], kernel_shape=[1 << 30, 1 << 30])
    taken = helper.make_node("Gather", ["x", "s"], ["y"])
    whole = [info("y", ["n"])]
    image = [info("i", [1, 1, 4, 4])]
    nested = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "leaf", [], whole)
    for _ in range(40):
        inner = helper.make_node("If", ["c"], ["y"], then_branch=nested, else_branch=nested)
        nested = helper.make_graph([inner], "nested", [], whole)
        if nested.ByteSize() > 1 << 16:
            break
    itself = helper.make_function(
        "own",
        "F",
        ["a"],
        ["b"],
        [helper.make_node("F", ["a"], ["b"], domain="own")],
        [helper.make_opsetid("own", 1)],
    )
    recursive = model([helper.make_node("F", ["x"], ["y"], domain="own")], [info("x", [3])], whole)
    recursive.functions.append(itself)
    recursive.opset_import.append(helper.make_opsetid("own", 1))
    x = [info("x", [3])]
    return [
        model(cycle, [], [info("a", [1])]),
        model([relu], [], whole, [large]),
        model([relu], [], whole, [negative]),
        model([relu], [], whole, [wide]),
        model([filled], [], whole, [shape]),
        model([filled], [], whole, [huge]),
        model([filled], [], whole, [back]),
        model([tile], [info("x", [1 << 30])], whole, [repeats]),
        model([window], image, whole),
        model([taken], x, whole, [weight("s", np.array([-9]))]),
        model(list(nested.node), [*x, info("c", [], TensorProto.BOOL)], whole),
        recursive,
        model([relu], [info("a", [-7, 3])], [info("z", [3])]),
        model([], x, [info("nothing", [3])]),
    ]


@pytest.mark.parametrize("at", range(14))
def test_hostile_networks_are_errors_before_anything_is_allocated(programs, tmp_path: Path, at):
    made = hostile()[at]
    before = mx.get_peak_memory()
    try:
        program = programs.load(saved(made, tmp_path))
    except StatusError as error:
        assert error.status in (EFORMAT, EUNSUPPORTED, EINVAL)
        assert "\n" not in str(error)
    else:  # only a run finds it, such as an index out of range
        with pytest.raises(StatusError):
            programs.run(program, [np.zeros(3, np.float32)], 1)
        programs.free(program)
    assert mx.get_peak_memory() - before < 1 << 26


def test_mutated_networks_load_or_are_errors(programs, tmp_path: Path):
    """Bytes that are changed, cut, doubled or left out never end the process."""
    rng = random.Random(5)
    whole = [saved(linear(), tmp_path).read_bytes()]
    whole += [made.SerializeToString() for made in hostile()]
    path = tmp_path / "mutated.onnx"
    outcomes = set()
    for round_ in range(200):
        data = bytearray(rng.choice([whole[0], rng.choice(whole)]))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(max(len(data), 1))
            kind = rng.randrange(4)
            if kind == 0 and data:
                data[at % len(data)] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            elif kind == 1:
                del data[at : at + rng.randint(1, 9)]
            elif kind == 2:
                data[at:at] = data[at : at + rng.randint(1, 30)]
            else:
                data[at:at] = bytes([255] * rng.randint(1, 9))
        path.write_bytes(bytes(data))
        try:
            program = programs.load(path)
        except StatusError as error:
            assert error.status in (EFORMAT, EUNSUPPORTED, EINVAL, ENOENT), (round_, error)
            outcomes.add(error.status)
        else:
            outcomes.add(0)
            programs.free(program)
    assert {0, EFORMAT, EUNSUPPORTED} <= outcomes


def test_only_files_of_networks_have_fixed_inputs(lib, programs):
    params = lib.params("program", fixed="{}")
    source, out = b"{}", c_int32(7)
    status = lib.c.cow_mlx_program_create(source, len(source), byref(params), byref(out))
    assert (status, out.value) == (EINVAL, 7)
    assert "fixed" in lib.message()
