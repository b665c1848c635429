"""Settings of mlx's build for NVIDIA GPUs, made before it is imported; no GPU is needed here."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from cowmlx import cuda, failures

NAMES = (cuda.EXACT, cuda.FOLDER)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with a driver, and a process without mlx; gives the folder for caches."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        del os.environ[name]  # and as it was before, afterwards
    monkeypatch.setattr(cuda, "_DRIVERS", (str(tmp_path),))
    monkeypatch.delitem(sys.modules, "mlx.core", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches"


def told():
    cuda.set_up()
    return tuple(os.environ.get(name) for name in NAMES)


def test_products_are_exact_and_kernels_are_kept_where_nobody_else_writes(machine):
    folder = machine / "cowmlx/cuda"
    assert told() == ("0", str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_the_host_has_set_stays(machine, monkeypatch):
    monkeypatch.setenv(cuda.EXACT, "1")
    monkeypatch.setenv(cuda.FOLDER, "")
    assert told() == ("1", "")
    assert not machine.exists()


def test_a_folder_that_others_write_to_is_not_used(machine):
    folder = machine / "cowmlx/cuda"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert told() == ("0", "")


def test_a_link_is_not_followed(machine, tmp_path):
    (machine / "cowmlx").mkdir(parents=True)
    (machine / "cowmlx/cuda").symlink_to(tmp_path)
    assert told() == ("0", "")


def test_without_a_folder_for_caches_none_is_used(machine, monkeypatch, tmp_path):
    (tmp_path / "caches").write_text("no folder")
    assert told() == ("0", "")
    monkeypatch.delenv(cuda.FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert told() == ("0", "")


def test_nothing_is_set_without_a_driver_or_after_mlx(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(cuda, "_DRIVERS", (str(tmp_path / "none"),))
    assert told() == (None, None)
    monkeypatch.setattr(cuda, "_DRIVERS", (str(tmp_path),))
    monkeypatch.setitem(sys.modules, "mlx.core", sys)
    assert told() == (None, None)


@pytest.mark.parametrize("name", ["libcuda.so.1", "libnccl.so.2", "libcublasLt.so.13"])
def test_a_missing_library_of_cuda_is_explained(name):
    error = ImportError(f"{name}: cannot open shared object file: No such file or directory")
    message = str(failures.of_import(error, "mlx and mlx-lm"))
    assert f"({name}: cannot open" in message
    assert "needs their driver and libraries: install them, or mlx-cpu in its place" in message
