"""``python -m cowmlx program``: checks, shows, draws and runs programs of files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from support import onnx_models
from support.paths import ROOT
from support.programs import graph, node, value

from cowmlx.commands import array_files
from cowmlx.commands.terminal import CommandError

PROGRAM = graph(
    [value("x", ["n", 3])],
    [
        node("z", "matmul", "x", "w"),
        node("y", "call", "z", function="act"),
        node("s", "sum", "y", axis=0),
    ],
    ["s", "y"],
    parameters=[{**value("w", [3, 2]), "init": "glorot_uniform"}],
    functions=[graph([value("a", ["n", 2])], [node("b", "tanh", "a")], ["b"], name="act")],
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.json"
    path.write_text(json.dumps(PROGRAM))
    return path


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cowmlx", "program", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def told(*arguments: object) -> str:
    done = command(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(*arguments: object) -> str:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_check(program):
    assert "3 nodes and 1 functions, 2 inputs, 2 results" in told("check", program)


def test_check_names_the_node(program):
    program.write_text(
        json.dumps({**PROGRAM, "nodes": [node("s", "matmul", "w", "w")], "outputs": ["s"]})
    )
    assert refused("check", program).startswith(
        "cowmlx program check: node 's' (matmul): matmul cannot take (3, 2) and (3, 2)"
    )


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"[" * 3000, b'{"outputs": ["\\u001b[2J"]}'])
def test_what_is_no_program_is_refused_harmlessly(program, text):
    program.write_bytes(text)
    error = refused("check", program)
    assert error.startswith("cowmlx program check: ") and "\x1b" not in error


def test_a_file_that_is_missing_is_named(tmp_path):
    assert "No such file" in refused("check", tmp_path / "none.json")


def test_show(program):
    lines = told("show", program).splitlines()
    assert "input     x: float32(n, 3)" in lines
    assert "parameter w: float32(3, 2) = glorot_uniform" in lines
    assert "  s: float32(2) = sum(y) axis=0" in lines
    assert "  y: float32(n, 2) = call(z) function=act" in lines


def test_draw(program, tmp_path):
    drawing = told("draw", program)
    assert drawing.startswith("digraph program {") and 'label="function act"' in drawing
    told("draw", program, "-o", tmp_path / "p.dot")
    assert (tmp_path / "p.dot").read_text() == drawing
    assert "ends with .dot" in refused("draw", program, "-o", tmp_path / "p.gif")


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")
def test_graphviz_takes_the_drawing(program, tmp_path):
    told("draw", program, "-o", tmp_path / "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_run_takes_and_writes_npy_and_safetensors(program, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
    w = np.ones((3, 2), np.float32)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    mx.save_safetensors(str(tmp_path / "w.safetensors"), {"w": mx.array(w)})
    arguments = ["-i", f"x={tmp_path / 'x.npy'}", "-i", tmp_path / "w.safetensors"]
    results = [f"y={tmp_path / 'y.npy'}", tmp_path / "all.safetensors"]
    told("run", program, *arguments, "-o", results[0], "-o", results[1])
    wanted = np.tanh(x @ w)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5)
    found = mx.load(str(tmp_path / "all.safetensors"))
    assert set(found) == {"s", "y"}
    np.testing.assert_allclose(np.array(found["s"]), wanted.sum(0), rtol=1e-5)
    assert told("run", program, *arguments).startswith("s: array([")
    assert "no array for w" in refused("run", program, *arguments[:2])
    assert "there is no input q" in refused(
        "run", program, *arguments, "-i", f"q={arguments[1][2:]}"
    )


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Options that give the program its arrays."""
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "w.npy", np.ones((3, 2), np.float32))
    return ["-i", f"x={tmp_path}/x.npy", "-i", f"w={tmp_path}/w.npy"]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("y={}/y.txt", "a name ends with .npy or .safetensors"),
        ("q={}/q.npy", "there is no result 'q'; results are s, y"),
        ("{}/y.npy", "holds one array, and there are 2"),
    ],
)
def test_wrong_outputs_are_refused_before_anything_is_written(
    program, inputs, tmp_path, wrong, problem
):
    options = ["-o", f"s={tmp_path}/s.npy", "-o", wrong.format(tmp_path)]
    assert problem in refused("run", program, *inputs, *options)
    assert not (tmp_path / "s.npy").exists()


@pytest.mark.parametrize("ending", ["npy", "safetensors"])
def test_a_failed_write_keeps_the_old_file(program, inputs, tmp_path, ending):
    old = tmp_path / "out" / f"s.{ending}"
    old.parent.mkdir()
    old.write_text("old")
    limit = "import resource, signal, sys\nsys.dont_write_bytecode = True\n"  # it would be cut off
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))\n"
    start = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfrom cowmlx.__main__ import main\n"
    arguments = ["program", "run", str(program), *inputs, "-o", f"s={old}"]
    done = subprocess.run(
        [sys.executable, "-c", f"{limit}{start}sys.exit(main())", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith(f"cowmlx program run: cannot write {old}: ")
    assert old.read_text() == "old" and os.listdir(old.parent) == [old.name]
    missing = tmp_path / "none" / f"s.{ending}"
    assert "no such folder" in refused("run", program, *inputs, "-o", f"s={missing}")


@pytest.mark.parametrize(
    "dtype", ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_are_numpy_s(tmp_path, dtype, shape, order):
    wanted = (np.arange(int(np.prod(shape))).reshape(shape) * 3).astype(dtype, order=order)
    path = str(tmp_path / "a.npy")
    np.save(path, wanted)
    found = array_files.read(path)
    again = str(tmp_path / "b.npy")
    array_files.write(again, {"a": found})
    back = np.load(again)
    assert back.dtype == wanted.dtype and back.shape == wanted.shape
    assert back.tobytes() == wanted.tobytes()


def test_bfloat16_is_for_safetensors(tmp_path):
    with pytest.raises(CommandError, match=r"a is bfloat16, which \.npy files do not have"):
        array_files.write(str(tmp_path / "a.npy"), {"a": mx.zeros(3, mx.bfloat16)})


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_npy_file_is_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    np.save(path, np.arange(6, dtype=np.int16).reshape(2, 3))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 13))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    try:
        found = array_files.read(str(path))
    except CommandError as error:
        assert "damaged" in str(error)
    else:
        assert found.nbytes <= 12


def test_a_network_is_shown_run_and_converted(tmp_path):
    """Whatever is converted gives the same results, without ONNX."""
    w = np.array([[1, 2], [3, 4]], np.float32)
    made = onnx_models.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [onnx_models.info("x", ["rows", 2])],
        [onnx_models.info("y", ["rows", 2])],
        [onnx_models.weight("w", w)],
    )
    network, converted = onnx_models.saved(made, tmp_path), tmp_path / "out.json"
    assert "parameter w: float32(2, 2)" in told("show", network)
    assert "input     x: float32(3, 2)" in told("show", network, "--fix", "rows=3")
    assert "digraph" in told("draw", network)
    said = told("convert", network, converted)
    assert said == f"{converted}: 1 nodes, 1 parameters of 16 bytes\n"
    np.save(tmp_path / "x.npy", np.array([[1, 1]], np.float32))
    for file in (network, converted):
        assert "array([[4, 6]]" in told("run", file, "-i", f"x={tmp_path / 'x.npy'}")
    assert "must end with .json" in refused("convert", network, tmp_path / "out.onnx")
    assert "NAME=VALUE" in refused("show", network, "--fix", "rows")
