"""A bundle, made once and moved away from where it was made."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.paths import CALF, ROOT

from cowmlx.commands.bundle.assemble import Options, assemble


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> Path:
    """A bundle with nothing left out, at another place than it was made at."""
    folder = tmp_path_factory.mktemp("bundle")
    assemble(folder / "made", Options())
    (folder / "away from ümlauts").mkdir()
    return (folder / "made").rename(folder / "away from ümlauts" / "bundle")


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """A bundle with all left out that can be."""
    folder = tmp_path_factory.mktemp("small") / "bundle"
    assemble(folder, Options(without=frozenset(["chat", "grammar", "openblas"])))
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """The model, outside of the repository."""
    return Path(shutil.copytree(CALF, tmp_path_factory.mktemp("model") / "calf"))


@pytest.fixture(scope="session")
def linked_with(tmp_path_factory) -> Callable[[Path, Path], Path]:
    """Compiles a host against a bundle, as an application's build does."""

    def link(source: Path, bundle: Path) -> Path:
        program = tmp_path_factory.mktemp("host") / source.stem
        lib = bundle / "lib"
        options = [f"-L{lib}", "-lcowmlx", f"-Wl,-rpath,{lib}", f"-I{bundle / 'include'}"]
        return compile_c([source], program, *options)

    return link


@pytest.fixture(scope="session")
def hidden() -> list[Path]:
    """What the building machine has and a user's has not: this tree, its Python, its packages."""
    base = Path(sys.base_prefix)
    python = [base] if base.parts[:2] != ("/", "usr") or len(base.parts) > 3 else []
    own = [ROOT, Path(sys.prefix), Path(sysconfig.get_path("stdlib")), *python]
    others = [Path(sysconfig.get_path("purelib")), Path("/usr/lib/python3"), Path.home() / ".local"]
    return [path for path in dict.fromkeys(own + others) if path.is_dir()]


@pytest.fixture(scope="session")
def in_emptied_system(hidden) -> Callable[..., str]:
    """Runs a program with no environment where all of ``hidden`` is empty; gives its output."""
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    enter = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    tried = run([*enter, "mount", "-t", "tmpfs", "none", "/mnt"])
    if tried.returncode != 0:
        pytest.skip(f"unshare and mount are not allowed here: {tried.stderr.strip()}")
    mounts = " && ".join(
        f"{{ ! test -d '{path}' || mount -t tmpfs none '{path}'; }}" for path in hidden
    )
    gone = " && ".join(f"! test -e '{path}/include' -o -e '{path}/os.py'" for path in hidden)
    script = f'{mounts} && {gone} && cd / && exec env -i "$@"'

    def run_it(*command: object) -> str:
        done = run([*enter, "sh", "-c", script, "sh", *command])
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_it
