"""``python -m cowmlx wiring``: what it shows, finds and draws, whatever the folder holds."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from random import Random
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from support import tiny_models
from support.compiler import require
from support.paths import ROOT

from cowmlx.commands import wiring as command
from cowmlx.errors import WiringError
from cowmlx.networks.architectures.xlstm import create_xlstm_wiring
from cowmlx.networks.wiring import WiredModel, Wiring
from cowmlx.networks.wiring.drawing import draw_dot, draw_text
from cowmlx.networks.wiring.outline import Outline

HREF = "{http://www.w3.org/1999/xlink}href"
NASTY = 'x"];\n b0 [URL="file:///"]; &lt;\\N\x1b[31m'


def signed() -> Wiring:
    """Three branches, one of them with polarity -1."""
    wiring = Wiring().add_block("embedding", "embedding", num_embeddings=32, dims=16)
    wiring.add_block("fast", "attention", dims=16, num_heads=2)
    wiring.add_block("deep", "mlp", dims=16, hidden_dims=32)
    wiring.add_block("brake", "mlp", dims=16, hidden_dims=32, activation="tanh")
    wiring.add_block("sum", "identity", dims=16)
    wiring.add_block("head", "lm_head", dims=16, num_embeddings=32, embedding="embedding")
    for name in ("fast", "deep", "brake"):
        wiring.connect("embedding", name).connect(name, "sum", -1 if name == "brake" else 1)
    return wiring.connect("sum", "head")


def residual(layers: int) -> Wiring:
    """Layers of three blocks, the third of which skips the others."""
    wiring = Wiring().add_block("embedding", "embedding", num_embeddings=32, dims=16)
    stream = "embedding"
    for index in range(layers):
        norm, ffn, total = (f"{kind}_{index}" for kind in ("norm", "ffn", "sum"))
        wiring.add_block(norm, "rms_norm", dims=16).connect(stream, norm)
        wiring.add_block(ffn, "swiglu", dims=16, hidden_dims=32).connect(norm, ffn)
        wiring.add_block(total, "identity", dims=16).connect(ffn, total).connect(stream, total)
        stream = total
    wiring.add_block("head", "lm_head", dims=16, num_embeddings=32)
    return wiring.connect(stream, "head")


def save(folder: pathlib.Path, wiring: Wiring, *, weights: bool = True) -> pathlib.Path:
    """Write a folder with a wiring, and random weights that fit it."""
    folder.mkdir(exist_ok=True)
    write(folder, {"model_type": "mad", "wiring": wiring.to_json()})
    if weights:
        save_weights(folder, dict(tree_flatten(WiredModel(wiring).parameters())))
    return folder


def write(folder: pathlib.Path, config: Any) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def save_weights(folder: pathlib.Path, weights: dict[str, mx.array]) -> None:
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})


def run(*words: Any) -> int:
    """Run ``wiring`` with arguments; returns the exit status."""
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    arguments = parser.parse_args(["wiring", *map(str, words)])
    status: int = arguments.run(arguments)
    return status


# What is shown.


def test_text_tells_of_a_block_all_that_it_is():
    shown = draw_text(signed())
    assert "fast · attention · 16 → 16 · state · 1,024 parameters\n" in shown
    assert "      dims=16, num_heads=2\n      ← +embedding\n" in shown


def test_text_tells_the_polarity_of_edges():
    assert "← +fast +deep -brake\n" in draw_text(signed())


def test_text_puts_branches_into_one_stage():
    stage = draw_text(signed()).split("stage 2\n")[1].split("stage 3\n")[0]
    assert [name in stage for name in ("fast", "deep", "brake", "sum")] == [True] * 3 + [False]


def test_text_tells_where_weights_are_borrowed():
    assert "with the weights of embedding\n" in draw_text(signed())


def test_xlstm_7b_is_outlined_without_weights():
    assert "; 6,865,424,896 parameters\n" in draw_text(create_xlstm_wiring({}))


def test_parameters_are_those_of_the_network():
    for wiring in (signed(), residual(5)):
        arrays = [array for _, array in tree_flatten(WiredModel(wiring).parameters())]
        assert Outline(wiring).parameters == sum(array.size for array in arrays)


def test_a_run_of_equal_blocks_is_shown_once():
    shown = draw_text(create_xlstm_wiring({}))
    assert "stages 2 … 33: 32 x the same stage\n  xlstm_0 … xlstm_31 · mlstm" in shown
    assert "xlstm_7 " not in shown


def test_equal_layers_of_several_blocks_are_shown_once():
    shown = draw_text(residual(7))
    assert "stages 2 … 22: 7 x the same 3 stages\n" in shown
    assert "← +ffn_0 +embedding; then +ffn_1 +sum_0 …\n" in shown


def test_a_block_with_another_parameter_ends_a_run():
    wiring = create_xlstm_wiring({"hidden_size": 64, "num_heads": 4, "num_hidden_layers": 9})
    wiring["xlstm_4"].parameters["chunk_size"] = 16
    shown = draw_text(wiring)
    assert "xlstm_0 … xlstm_3 ·" in shown
    assert "xlstm_5 … xlstm_8 ·" in shown


def test_a_run_ends_where_its_order_of_edges_does():
    wiring = residual(6)
    wiring.connect("embedding", "sum_3", -1)
    labels = [place.label for part in Outline(wiring).parts for place in part.stages[0]]
    assert labels == ["embedding", "norm_0 … norm_2", "norm_3", "ffn_3", "sum_3", *labels[5:]]


def test_no_line_of_the_text_is_wider_than_asked():
    wiring = signed().add_block("n" * 300, "identity", dims=16).connect("embedding", "n" * 300)
    wiring.connect("n" * 300, "sum")
    for width in (40, 100):
        assert max(map(len, draw_text(wiring, width).splitlines())) <= width


@pytest.mark.parametrize("seed", range(40))
def test_an_outline_loses_nothing(seed):
    """Of random wirings, made of a few patterns that repeat, nested and disturbed."""
    random = Random(seed)
    names = ["embedding"]
    wiring = Wiring().add_block("embedding", "embedding", num_embeddings=32, dims=16)
    for _ in range(random.randrange(1, 5)):
        kinds = [random.choice(["identity", "rms_norm"]) for _ in range(random.randrange(1, 4))]
        skips = [{1, random.randrange(1, 4)} for _ in kinds]
        for kind, steps in list(zip(kinds, skips, strict=True)) * random.randrange(1, 7):
            name = f"b{len(names)}"
            wiring.add_block(name, kind, dims=16)
            back = {min(step, len(names)) for step in steps}
            if random.random() < 0.03:
                back = {random.randrange(1, len(names) + 1)}
            for step in sorted(back):
                wiring.connect(names[-step], name, -1 if step == 3 else 1)
            names.append(name)
    outline = Outline(wiring)
    places = [place for part in outline.parts for stage in part.stages for place in stage]
    assert sorted(name for place in places for name in place.names) == sorted(names)
    starts = [part.first for part in outline.parts]
    assert starts == [1, *(part.last + 1 for part in outline.parts[:-1])]
    assert outline.stages == len(wiring.stages())
    arriving = wiring.inputs()
    for place in places:
        polarities = {tuple(sorted(sign for _, sign in arriving[name])) for name in place.names}
        assert len(polarities) == 1
        for name in place.names:
            assert (wiring[name].type, wiring[name].parameters) == (
                place.spec.type,
                place.spec.parameters,
            )


@pytest.mark.parametrize("draw", [draw_text, draw_dot])
def test_a_cycle_is_not_drawn(draw):
    wiring = signed().connect("sum", "deep")
    with pytest.raises(WiringError, match="cycle"):
        draw(wiring)


@pytest.mark.parametrize("draw", [draw_text, draw_dot])
def test_a_wiring_without_blocks_is_not_drawn(draw):
    with pytest.raises(WiringError, match="no blocks"):
        draw(Wiring())


def test_widths_that_do_not_fit_are_shown_as_they_are():
    wiring = Wiring().add_block("embedding", "embedding", num_embeddings=32, dims=16)
    wiring.add_block("wide", "identity", dims=32).connect("embedding", "wide")
    assert "wide · identity · 32 → 32" in draw_text(wiring)


def test_show_prints_the_text(tmp_path, capsys):
    assert run("show", save(tmp_path / "m", signed(), weights=False), "--width", 90) == 0
    assert capsys.readouterr().out == draw_text(signed(), 90)


def test_show_needs_no_more_than_the_config_of_an_xlstm(tmp_path, capsys):
    assert run("show", write(tmp_path / "m", {"model_type": "xlstm"})) == 0
    assert "xlstm_0 … xlstm_31" in capsys.readouterr().out


def test_parameters_print_no_escapes(tmp_path, capsys):
    wiring = signed()
    wiring["fast"].parameters["rope_scaling"] = {"type": "linear", "factor": 2.0, NASTY: NASTY}
    run("show", save(tmp_path / "m", wiring, weights=False))
    printed = capsys.readouterr()
    assert "rope_scaling" in printed.out + printed.err
    assert "\x1b" not in printed.out + printed.err


# What is found.


@pytest.mark.parametrize("family", ["mad-hybrid", "mad-parallel", "xlstm"])
def test_a_sound_folder_passes(family, tmp_path, capsys):
    assert run("validate", tiny_models.make(tmp_path / "m", family)) == 0
    assert "as they should be" in capsys.readouterr().out


def problems(folder: pathlib.Path, capsys: Any) -> list[str]:
    """What validate finds, less its prefix."""
    assert run("validate", folder) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    prefix = "cowmlx wiring validate: "
    assert all(line.startswith(prefix) for line in printed.err.splitlines())
    return [line.removeprefix(prefix) for line in printed.err.splitlines()]


def test_all_misfits_of_weights_are_found_at_once(tmp_path, capsys):
    folder = save(tmp_path / "m", signed())
    weights = dict(tree_flatten(WiredModel(signed()).parameters()))
    weights["blocks.deep.up_proj.weight"] = mx.zeros((3, 16))
    weights["blocks.deep.gate"] = mx.zeros((1,))
    weights["elsewhere"] = mx.zeros((1,))
    del weights["blocks.brake.down_proj.bias"]
    save_weights(folder, weights)
    assert problems(folder, capsys) == [
        "block brake (mlp): down_proj.bias is not among the stored weights",
        "block deep (mlp): gate is stored, but has no place in the wiring",
        "block deep (mlp): up_proj.weight is 3x16, not 32x16",
        "the weight elsewhere is stored, but has no place in the wiring",
    ]


def test_a_missing_shard_is_named(tmp_path, capsys):
    folder = save(tmp_path / "m", signed())
    weights = dict(tree_flatten(WiredModel(signed()).parameters()))
    del weights["blocks.embedding.table.weight"]
    save_weights(folder, weights)
    index = {"weight_map": {"blocks.embedding.table.weight": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "has no model-2.safetensors" in problems(folder, capsys)[0]


def test_all_bad_declarations_are_found_at_once(tmp_path, capsys):
    config: Any = {"model_type": "mad", "wiring": signed().to_json()}
    config["wiring"]["blocks"][1]["name"] = "1st"
    del config["wiring"]["blocks"][2]["type"]
    first, second = problems(write(tmp_path / "m", config), capsys)
    assert "'1st'" in first
    assert "'deep'" in second
    assert "'type'" in second


def test_all_blocks_that_cannot_be_made_are_found_at_once(tmp_path, capsys):
    wiring = signed()
    wiring["fast"].parameters["num_heads"] = 3
    wiring["deep"].parameters["depth"] = 1
    first, second = problems(save(tmp_path / "m", wiring, weights=False), capsys)
    assert first.startswith("block fast (attention)")
    assert second.startswith("block deep (mlp) has an unknown parameter 'depth'")


@pytest.mark.parametrize("width", ["abc", "-1", "39", "9" * 5000])
def test_a_wrong_width_is_told(capsys, width):
    with pytest.raises(SystemExit, match="2"):
        run("show", "folder", f"--width={width}")
    assert f"{width} is no number from 40 to 10000" in capsys.readouterr().err


def test_all_widths_that_do_not_fit_are_found_at_once(tmp_path, capsys):
    wiring = signed()
    wiring["fast"].parameters["dims"] = 8
    wiring["sum"].parameters["dims"] = 32
    found = problems(save(tmp_path / "m", wiring, weights=False), capsys)
    misfits = [line.partition(" gives")[0] for line in found]
    assert sorted(misfits) == ["brake", "deep", "embedding", "fast", "sum"]


def test_a_bad_graph_is_found(tmp_path, capsys):
    wiring = signed().add_block("lonely", "identity", dims=16)
    wiring.output = "head"
    (found,) = problems(save(tmp_path / "m", wiring, weights=False), capsys)
    assert "no token reaches lonely" in found


def test_many_problems_are_cut_short(tmp_path, capsys):
    wiring = create_xlstm_wiring({"num_hidden_layers": 150})
    for spec in wiring.blocks:
        spec.parameters["dims"] = 0
    found = problems(save(tmp_path / "m", wiring, weights=False), capsys)
    assert len(found) == 101
    assert found[-1] == "and 53 more problems"


def test_names_of_weights_print_no_escapes(tmp_path, capsys):
    folder = save(tmp_path / "m", signed())
    weights = dict(tree_flatten(WiredModel(signed()).parameters()))
    save_weights(folder, {**weights, "blocks.deep.\x1b[31m": mx.zeros((1,))})
    (found,) = problems(folder, capsys)
    assert "\\x1b[31m" in found


@pytest.mark.parametrize("action", ["show", "validate", "draw"])
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ('{"model_type": "llama"}', "its model_type is 'llama'"),
        ('{"model_type": ["xlstm"]}', "has no wiring"),
        ('{"model_type": "mad"}', "lacks wiring"),
        ('{"model_type": "mad", "wiring": []}', "not an object"),
        ('{"model_type": "mad", "wiring": {"blocks": [], "adjacency": []}}', "no blocks"),
        ('{"model_type": "xlstm", "num_hidden_layers": 1000000000000}', "num_hidden_layers"),
        ('{"model_type": "xlstm", "hidden_size": 1073741824}', "hidden_dims"),
        ('{"model_type": "xlstm", "gate_soft_cap": []}', "gate_soft_cap"),
        ('{"model_type": "xlstm", "vocab_size": ' + "9" * 5000 + "}", "digits"),
        ('{"model_type": "xlstm", "x": ' + "[" * 100_000, "nested"),
        ("\x00", "not JSON"),
        (None, "no config.json"),
    ],
)
def test_a_bad_config_ends_with_a_message(action, config, reason, tmp_path, capsys):
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert run(action, tmp_path) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert reason in printed.err


def test_a_wiring_of_a_thousand_blocks_is_shown(tmp_path, capsys):
    names = [f"b{index}" for index in range(1000)]
    wiring = Wiring().add_block("embedding", "embedding", num_embeddings=32, dims=16)
    for name in names:
        wiring.add_block(name, "identity", dims=16)
    folder = save(tmp_path / "m", wiring.chain("embedding", *names), weights=False)
    assert run("show", folder) == 0
    assert "b0 … b999" in capsys.readouterr().out


# Drawings.


def rendered(dot: str, kind: str = "svg") -> bytes:
    program = require("dot", "-V")
    done = subprocess.run([program, f"-T{kind}"], input=dot.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return done.stdout


def texts(svg: bytes) -> list[str]:
    """All texts of a picture."""
    names = ("{http://www.w3.org/2000/svg}text",)
    return [node.text or "" for node in ElementTree.fromstring(svg).iter() if node.tag in names]


def test_dot_has_an_edge_for_every_edge():
    edges = [line for line in draw_dot(signed()).splitlines() if "->" in line]
    borrowed, ends = 1, 2
    assert len(edges) == len(signed().edges) + borrowed + ends


def test_dot_draws_negative_edges_otherwise():
    dashed = [line for line in draw_dot(signed()).splitlines() if "arrowhead=tee" in line]
    (line,) = dashed
    assert "b3 -> b4" in line
    assert "style=dashed" in line


def test_dot_puts_stages_into_ranks():
    assert "{ rank=same; b1; b2; b3 }" in draw_dot(signed())


def test_dot_boxes_repeated_stages():
    dot = draw_dot(residual(5))
    assert dot.count("subgraph cluster") == 1
    assert '"norm_0 … norm_4\\nrms_norm' in dot


@pytest.mark.parametrize("wiring", [signed(), residual(5), create_xlstm_wiring({})])
def test_graphviz_takes_every_drawing(wiring):
    assert "tokens" in texts(rendered(draw_dot(wiring)))


def test_nothing_in_a_title_is_dot():
    svg = rendered(draw_dot(signed(), NASTY))
    assert 'x"];' in texts(svg)
    assert any(text.endswith("&lt;\\N�[31m") for text in texts(svg))
    assert b"file:///" in svg
    assert not [node for node in ElementTree.fromstring(svg).iter() if HREF in node.attrib]


def test_nothing_in_a_parameter_is_dot():
    wiring = signed()
    wiring["deep"].parameters["activation"] = "gelu"
    plain = rendered(draw_dot(wiring))
    wiring["fast"].parameters["rope_scaling"] = {"rope_type": "default", "x": NASTY}
    nasty = rendered(draw_dot(wiring))
    assert texts(plain) == texts(nasty)


def test_draw_prints_dot(tmp_path, capsys):
    folder = save(tmp_path / "m", signed(), weights=False)
    assert run("draw", folder) == 0
    assert capsys.readouterr().out == draw_dot(signed(), "m")


def test_draw_writes_a_dot_file_without_graphviz(tmp_path, capsys, monkeypatch):
    folder = save(tmp_path / "m", signed(), weights=False)
    monkeypatch.setenv("PATH", "")
    assert run("draw", folder, "-o", tmp_path / "m.dot") == 0
    assert (tmp_path / "m.dot").read_text() == draw_dot(signed(), "m")


@pytest.mark.parametrize(("kind", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_draw_writes_pictures(kind, start, tmp_path):
    require("dot", "-V")
    folder = save(tmp_path / "m", signed(), weights=False)
    assert run("draw", folder, "-o", tmp_path / f"m.{kind}") == 0
    assert (tmp_path / f"m.{kind}").read_bytes().startswith(start)


def test_draw_without_graphviz_names_the_tool(tmp_path, capsys, monkeypatch):
    folder = save(tmp_path / "m", signed(), weights=False)
    monkeypatch.setenv("PATH", "")
    assert run("draw", folder, "-o", tmp_path / "m.svg") == 1
    assert "dot is not installed" in capsys.readouterr().err
    assert not (tmp_path / "m.svg").exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("m.jpeg", ".svg"), ("m", ".svg"), ("none/m.dot", "No such file")]
)
def test_draw_refuses_what_it_cannot_write(name, reason, tmp_path, capsys):
    folder = save(tmp_path / "m0", signed(), weights=False)
    assert run("draw", folder, "-o", tmp_path / name) == 1
    assert reason in capsys.readouterr().err


# As a program.


def wiring_program(*words: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
    start = [sys.executable, "-m", "cowmlx", "wiring", *map(str, words)]
    return subprocess.run(start, cwd=ROOT, stderr=subprocess.PIPE, timeout=120, **options)


def test_an_ascii_terminal_is_no_error(tmp_path):
    folder = save(tmp_path / "m", signed(), weights=False)
    environment = {"PYTHONIOENCODING": "ascii", "PATH": ""}
    done = wiring_program("show", folder, stdout=subprocess.PIPE, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"16 -> 16" in done.stdout


def test_a_closed_pipe_is_no_traceback(tmp_path):
    folder = save(tmp_path / "m", signed(), weights=False)
    reader, writer = os.pipe()
    os.close(reader)
    done = wiring_program("show", folder, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_wrong_arguments_are_status_2():
    done = wiring_program("show", stdout=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: python -m cowmlx wiring show")
