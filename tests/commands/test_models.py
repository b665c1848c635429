"""``python -m cowmlx models``: what lies in the cache and in folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest
from support.paths import CALF, ROOT


@pytest.fixture
def models(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command with a cache of its own, which has one model and half of another."""
    entry = tmp_path / "hub/models--farm--calf"
    shutil.copytree(CALF, entry / "snapshots/0a1b")
    (tmp_path / "hub/models--farm--half").mkdir()
    (tmp_path / "empty").mkdir()

    def run(*arguments: object, cache: str = "hub"):
        return subprocess.run(
            [sys.executable, "-m", "cowmlx", "models", *map(str, arguments)],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "HOME": str(tmp_path / "empty"),
                "HF_HUB_CACHE": str(tmp_path / cache),
            },
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


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
