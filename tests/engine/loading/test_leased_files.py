"""Files that a file server has leased, and gives back when somebody opens them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ctypes import c_char
from pathlib import Path

import pytest
from support.library import StatusError
from support.paths import CALF
from support.signatures import EIO

from cowmlx.folders import opening

HOLDER = """
import fcntl, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
file = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except (OSError, AttributeError) as exc:
    sys.exit(f"no leases here: {exc}")
print("leased", flush=True)
signal.sigwait({signal.SIGIO} if sys.argv[2] == "gives back" else {signal.SIGTERM})
"""


@pytest.fixture
def lease(monkeypatch) -> Iterator[Callable[..., None]]:
    """Leases a file to a process, which ends when somebody opens the file, or never does."""
    with ExitStack() as held:

        def start(path: Path, how: str = "gives back") -> None:
            seconds = 60 if how == "gives back" else 0
            monkeypatch.setattr(opening, "_LEASE_SECONDS", seconds)
            command = [sys.executable, "-c", HOLDER, str(path), how]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            holder = held.enter_context(subprocess.Popen(command, **pipes))
            held.callback(holder.kill)
            if not holder.stdout.readline():
                pytest.skip(holder.stderr.read())

        yield start


@pytest.fixture
def model(tmp_path) -> Path:
    """A copy of a model."""
    return Path(shutil.copytree(CALF, tmp_path / "model"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_model_loads_while_a_file_of_it_is_leased(lib, model, lease, name):
    lease(model / name)
    lib.free_model(lib.load(model))


def test_a_model_is_inspected_while_its_config_is_leased(lib, model, lease):
    lease(model / "config.json")
    told = json.loads(lib._fill(c_char, lib.c.cow_mlx_model_inspect, os.fsencode(model), 0))
    assert told["loads"]


def test_a_saved_context_loads_while_its_file_is_leased(lib, lease, tmp_path):
    model = lib.load(CALF)
    context = lib.context(model)
    lib.save(context, tmp_path / "saved")
    lease(tmp_path / "saved")
    lib.restore(context, tmp_path / "saved")
    lib.free(context)
    lib.free_model(model)


def test_a_lease_that_is_never_given_back_is_told(lib, model, lease):
    lease(model / "tokenizer.json", "keeps")
    with pytest.raises(
        StatusError, match=r"cannot read .*tokenizer\.json: another process"
    ) as caught:
        lib.load(model)
    assert caught.value.status == EIO
