"""``python -m cowmlx models``: what lies in the cache and in folders."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.paths import CALF, ROOT

from cowmlx.__main__ import make_parser
from cowmlx.commands import models as listing
from cowmlx.host.library import HostError, Library


class Commands:
    """Runs commands with a separate cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: object, cache: str = "hub"):
        return self.run("models", *arguments, cache=cache)

    def run(self, *arguments: object, cache: str = "hub", **options: Any):
        return subprocess.run(
            [sys.executable, "-m", "cowmlx", *map(str, arguments)],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "HOME": str(self.folder / "empty"),
                "HF_HUB_CACHE": str(self.folder / cache),
            },
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )


@pytest.fixture
def models(tmp_path) -> Commands:
    """Runs the command with a separate cache, which has one model and half of another."""
    entry = tmp_path / "hub/models--farm--calf"
    shutil.copytree(CALF, entry / "snapshots/0a1b")
    (tmp_path / "hub/models--farm--half").mkdir()
    (tmp_path / "empty").mkdir()

    return Commands(tmp_path)


def test_the_cache_and_folders_are_listed(models):
    done = models(CALF.parent)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == [
        "model",
        "farm/calf",
        "models--farm--half",
        "calf",
    ]
    assert lines[1].endswith("yes") and lines[2].endswith("does not load")
    assert "download has not ended" in done.stdout


def test_json_has_all(models):
    found = json.loads(models("--json", CALF).stdout)
    assert [each["name"] for each in found] == ["farm/calf", "models--farm--half", "calf"]
    assert found[0]["fits"] == "yes" and found[0]["needed_bytes"] > found[0]["bytes"]
    assert found[1]["loads"] is False
    smaller = json.loads(models("--json", "--kv-bits", 4, CALF).stdout)
    assert smaller[0]["needed_bytes"] < found[0]["needed_bytes"]


def test_nothing_is_told(models):
    assert models(cache="empty").stdout.startswith("no models; ")


def test_a_folder_that_is_missing_is_told(models):
    done = models("/no/such/folder")
    assert done.returncode == 1
    assert done.stderr == "cowmlx models: no such directory: /no/such/folder\n"


def test_a_folder_that_cannot_be_read_is_passed_over(monkeypatch, tmp_path):
    """Root could read it, so the system's answer is replaced."""
    (tmp_path / "closed").mkdir()
    shutil.copytree(CALF, tmp_path / "calf")
    listed = os.listdir

    def closed(path: str) -> list[str]:
        if os.path.basename(path) == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", closed)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    assert listing._folders([str(tmp_path)]) == [str(tmp_path / "calf")]


def test_a_library_that_does_not_start_is_told(monkeypatch, capsys):
    def fail(*_: object) -> None:
        raise HostError(-1, "ENOMEM", "there is too little memory")

    monkeypatch.setattr(Library, "__init__", fail)
    arguments = make_parser().parse_args(["models"])
    assert arguments.run(arguments) == 1
    assert capsys.readouterr().err == "cowmlx models: ENOMEM: there is too little memory\n"


@pytest.mark.parametrize(
    "command",
    [
        ["models", "farm/calf"],
        ["chat", "farm/calf", "--temperature", "0"],
        ["doctor", "farm/calf"],
        ["train", "farm/calf", "lines.jsonl", "--out", "out", "--steps", "1"],
        [
            "machines",
            "check",
            "127.0.0.1:1",
            "--secret-file",
            "secret",
            "--model",
            "farm/calf",
            "--timeout",
            "1",
        ],
        ["bundle", "missing/x", "--with-model", "farm/calf"],
        ["wiring", "validate", "farm/calf"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_takes_the_name_that_models_prints(models, tmp_path, command):
    """Each finds the folder: what some say then is about what is in it."""
    (tmp_path / "secret").write_text("s" * 40)
    (tmp_path / "lines.jsonl").write_text('{"text": "A fox is red."}\n')
    done = models.run(*command, cwd=tmp_path, input="")
    told = done.stdout + done.stderr
    assert "no such" not in told and "does not exist: farm" not in told
    words = {
        "bundle": "missing does not exist; make it first",
        "wiring": "has no wiring: its model_type",
        "machines": "model: 0.0 GB",
        "models": "farm/calf",
        "doctor": "generate",
        "train": "after 1 steps",
    }
    assert words.get(command[0], "") in told
    assert done.returncode == (1 if command[0] in ("bundle", "wiring", "machines") else 0), told
