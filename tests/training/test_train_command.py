"""``python -m cowmlx train``: what it writes, resumes, shows, and refuses."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import termios
from typing import Any
from xml.etree import ElementTree

import mlx.core as mx
import pytest
from support import tiny_models
from support.loaded import load

from cowmlx.__main__ import main
from cowmlx.commands.train import events

OPTIONS = ["--learning-rate", "1e-3", "--batch", "3", "--dropout", "0.1", "--seed", "4"]
LINES = [{"prompt": f"Item {i}?", "completion": f"It is {'red' if i % 2 else 'blue'}."}
         for i in range(8)]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tiny_models.make(tmp_path_factory.mktemp("command") / "model", "llama")


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return file


def command(model: pathlib.Path, data: pathlib.Path, out: pathlib.Path, *more: str) -> list[str]:
    first = [sys.executable, "-m", "cowmlx", "train", str(model), str(data), "--out", str(out)]
    return [*first, *OPTIONS, *more]


def train(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=120, check=False
    )


def rows(out: pathlib.Path) -> list[dict[str, Any]]:
    file = out.with_name(out.name + ".run") / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def weights(out: pathlib.Path) -> dict[str, mx.array]:
    return mx.load(str(out / "adapters.safetensors"))  # type: ignore[return-value]


def test_it_writes_an_adapter_events_and_a_picture(
    model: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    done = train(model, data, out, "--epochs", "4", "--validation", data, "--mask-prompt")
    assert done.returncode == 0, done.stderr
    assert "8 rows" in done.stdout
    assert "an adapter, after 12 steps" in done.stdout
    assert done.stderr.count("step ") >= 12  # no terminal: lines
    assert sorted(file.name for file in out.iterdir()) == [
        "adapter_config.json",
        "adapters.safetensors",
    ]
    assert load(model, adapter=out).network
    told = rows(out)
    steps = [row for row in told if row["kind"] == "step"]
    assert [row["step"] for row in steps] == list(range(1, 13))
    evaluations = [row["validation_loss"] for row in told if row["kind"] == "evaluation"]
    assert len(evaluations) == 4
    assert evaluations[-1] < evaluations[0]
    assert (told[-1]["kind"], told[-1]["finish"]) == ("end", "epochs")
    picture = ElementTree.parse(tmp_path / "out.run" / "losses.svg").getroot()
    kinds = [line.get("class") for line in picture.iter("{http://www.w3.org/2000/svg}polyline")]
    assert sorted(set(kinds)) == ["rate", "training", "validation"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data.jsonl", "out", "out.run"]


def test_resumed_is_as_uninterrupted(
    model: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(model, data, whole, "--steps", "7").returncode == 0
    assert train(model, data, parts, "--steps", "4").returncode == 0
    assert "--resume" in train(model, data, parts, "--steps", "7").stderr
    done = train(model, data, parts, "--steps", "7", "--resume")
    assert done.returncode == 0, done.stderr
    expected, found = weights(whole), weights(parts)
    assert all(mx.array_equal(found[name], value).item() for name, value in expected.items())
    told = [[(row["step"], row["loss"]) for row in rows(out) if row["kind"] == "step"]
            for out in (whole, parts)]  # fmt: skip
    assert told[0] == told[1]
    other = train(model, data, parts, "--steps", "9", "--resume", "--rank", "4")
    assert other.returncode == 1
    assert "another" in other.stderr
    twin = tiny_models.make(tmp_path / "twin", "llama", seed=1)
    foreign = train(twin, data, parts, "--steps", "9", "--resume")
    assert foreign.returncode == 1
    assert "of another training: it was saved of another program or model" in foreign.stderr
    data.write_text(data.read_text() + '{"text": "more"}\n')
    changed = train(model, data, parts, "--steps", "9", "--resume")
    assert changed.returncode == 1
    assert "other data" in changed.stderr


def test_what_is_interrupted_goes_on(
    model: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    words = command(model, data, out, "--steps", "100000")
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        events = tmp_path / "out.run" / "events.jsonl"
        while not (events.exists() and len(events.read_text().splitlines()) >= 3):
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        stdout, stderr = run.communicate(timeout=60)
    assert run.returncode == 130, stderr
    assert "continue with --resume" in stdout
    assert "Traceback" not in stderr
    assert not out.exists()
    step = rows(out)[-1]["step"]
    done = train(model, data, out, "--steps", str(step + 2), "--resume")
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in rows(out) if row["kind"] == "step"] == [*range(1, step + 3)]


def test_a_fit_that_fails_can_be_resumed(
    model: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """From its last step, though none was to be saved before the end."""
    out = tmp_path / "out"
    options = ["--learning-rate", "1e38", "--save-every", "0"]
    done = train(model, data, out, "--steps", "9", *options)
    assert done.returncode == 1
    assert "must be finite" in done.stderr
    steps = [row["step"] for row in rows(out)]
    assert steps
    assert f"stopped after step {steps[-1]}; continue with --resume" in done.stdout
    assert (tmp_path / "out.run/losses.svg").exists()
    done = train(model, data, out, "--steps", str(steps[-1]), *options, "--resume")
    assert done.returncode == 0, done.stderr
    assert weights(out)


def test_a_picture_that_fails_takes_nothing_from_a_fit_that_fails(
    model: pathlib.Path,
    data: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved = []

    def draw(*_: Any) -> str:
        saved.append((tmp_path / "out.run/training.safetensors").exists())
        raise ValueError("no picture")

    words = command(model, data, tmp_path / "out", "--steps", "9", "--learning-rate", "1e38")
    monkeypatch.setattr(sys, "argv", [*words[2:], "--save-every", "0"])
    monkeypatch.setattr(events, "draw", draw)
    assert main() == 1
    told = capsys.readouterr()
    assert "must be finite" in told.err
    assert "continue with --resume" in told.out
    assert saved == [True]


def test_the_result_does_not_depend_on_the_picture(
    model: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Nor on a file of events that somebody has changed."""
    out = tmp_path / "out"
    assert train(model, data, out, "--steps", "2").returncode == 0
    expected = rows(out)[:2]
    with (tmp_path / "out.run/events.jsonl").open("a") as file:
        for row in ({"step": 1}, {"step": 1, "kind": []}, {"step": True, "kind": "step"},
                    {"step": 2, "kind": "step", "loss": "low"}, {"step": 2, "kind": "magic"},
                    {"step": 2, "kind": "step", "loss": 10**400}, [], 7):  # fmt: skip
            file.write(json.dumps(row) + "\n")
        file.write('{"step": 2, "kind": "step", "loss": 1e999}\n')
    assert train(model, data, out, "--steps", "3", "--resume").returncode == 0
    assert rows(out)[:2] == expected
    assert [row["step"] for row in rows(out) if row["kind"] == "step"] == [1, 2, 3]
    picture = tmp_path / "out.run/losses.svg"
    picture.unlink()
    picture.mkdir()
    before = weights(out)
    done = train(model, data, out, "--steps", "5", "--resume")
    assert done.returncode == 1
    assert "losses.svg" in done.stderr
    assert "Traceback" not in done.stderr
    assert not all(mx.array_equal(weights(out)[name], value) for name, value in before.items())


def test_all_weights_become_a_model(
    model: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    full, fused = tmp_path / "full", tmp_path / "fused"
    options = ["--steps", "2", "--batch", "4", "--dropout"]
    words = command(model, data, full, "--type", "full", "--steps", "2")
    at = words.index("--dropout")
    del words[at : at + 2]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert train(model, data, fused, *options, "0", "--fuse").returncode == 0
    for out in (full, fused):
        made = load(out)
        assert made.parameters == load(model).parameters
        assert made.chat_template is not None
        assert not mx.array_equal(
            mx.load(str(out / "model.safetensors"))["model.layers.0.mlp.up_proj.weight"],  # type: ignore[index]
            mx.load(str(model / "model.safetensors"))["model.layers.0.mlp.up_proj.weight"],  # type: ignore[index]
        ).item()


@pytest.mark.parametrize("package", ["rich", "tqdm", None])
def test_a_terminal_gets_a_bar(
    package: str | None, model: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Whichever of the two is there; lines without them."""
    for name in {"rich", "tqdm"} - {package}:
        (tmp_path / "path" / name).mkdir(parents=True)
        (tmp_path / "path" / name / "__init__.py").write_text("raise ImportError('hidden')\n")
    root = pathlib.Path(__file__).parents[2]
    path = os.pathsep.join([str(tmp_path / "path"), str(root)])
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 120))
    try:
        done = subprocess.run(
            command(model, data, tmp_path / "out", "--steps", "3"),
            stdout=subprocess.DEVNULL,
            stderr=slave,
            timeout=120,
            check=False,
            env={**os.environ, "PYTHONPATH": path, "TERM": "xterm", "COLUMNS": "120"},
        )
        os.close(slave)
        shown = os.read(master, 1 << 16).decode("utf-8", "replace")
    finally:
        os.close(master)
    assert done.returncode == 0, shown
    assert "3/3" in shown
    assert "loss" in shown
    assert ("step 3/3" in shown) == (package is None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rank", "0"], "rank is 0, must be 1 to"),
        (["--keys", "nowhere"], "'nowhere'"),
        (["--optimizer", "magic"], "magic"),
        (["--learning-rate", "nan"], "learning_rate"),
        (["--clip-norm", "-1"], "clip_norm is -1, must be 0 or more"),
        (["--clip-norm", "nan"], "clip_norm is nan"),
        (["--max-seq-length", "4", "--long-rows", "refuse"], "8 of 8 lines .* more than max_seq"),
        (["--resume"], "there is nothing to resume"),
        (["--out", "/nowhere/at/all"], "there is no folder /nowhere/at"),
        (["--validation", "/nowhere"], "no such file"),
        (["--patience", "2"], "--patience needs --validation"),
        (["--steps", "-1"], "--steps is below 0"),
        (["--steps", "0"], "--steps is 0, must be 1 or more"),
        (["--epochs", "0"], "--epochs is 0, must be 1 or more"),
    ],
)
def test_bad_options_are_refused(
    options: list[str],
    message: str,
    model: pathlib.Path,
    data: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = command(model, data, tmp_path / "out", "--steps", "1", *options)
    monkeypatch.setattr(sys, "argv", words[2:])
    try:
        status = main()
    except SystemExit as end:
        status = int(str(end.code))
    told = capsys.readouterr().err
    assert status in (1, 2)
    assert re.search(message, told), told
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data.jsonl"]


def test_a_folder_that_must_stay_is_refused_before_the_training(
    model: pathlib.Path,
    data: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").write_text("Dear")
    places = {model: "the model that is trained is there", tmp_path / "home": "has other files"}
    for place, message in places.items():
        monkeypatch.setattr(sys, "argv", command(model, data, place, "--steps", "1")[2:])
        assert main() == 1
        assert message in capsys.readouterr().err
        assert not place.with_name(place.name + ".run").exists()
