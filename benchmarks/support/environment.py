"""Copies of the virtual environment and the package, with or without their .pyc files."""

from __future__ import annotations

import compileall
import shutil
import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path

from benchmarks.support.paths import BUILD, LIBRARY, ROOT

# What a C host imports; the others are links, since nothing imports them.
PACKAGES = ("mlx", "mlx_lm", "tokenizers", "jinja2", "markupsafe")
SKIPPED = shutil.ignore_patterns("__pycache__", "*.c", "*.pyx", "include", "share")


def copy_environment(name: str, compiled: Collection[str]) -> tuple[Path, Path]:
    """Make an environment where the ``compiled`` packages have .pyc files, no others.

    Returns:
        its folder, for COWMLX_PYTHON_HOME, and the library in it.
    """
    folder = BUILD / "environments" / name
    shutil.rmtree(folder, ignore_errors=True)
    real = Path(sysconfig.get_path("purelib"))
    site = folder / real.relative_to(sys.prefix)
    (folder / "bin").mkdir(parents=True)
    site.mkdir(parents=True)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", folder)
    python = f"python3.{sys.version_info.minor}"
    (folder / "bin" / python).symlink_to(Path(sys.prefix) / "bin" / python)
    for path in real.iterdir():
        if path.name in PACKAGES:
            shutil.copytree(path, site / path.name, ignore=SKIPPED, copy_function=_copy)
        elif path.name != "__pycache__":
            (site / path.name).symlink_to(path)
    shutil.copytree(ROOT / "cowmlx", folder / "cowmlx", ignore=SKIPPED)
    for package in compiled:
        where = folder if package == "cowmlx" else site
        compileall.compile_dir(where / package, quiet=2)
    return folder, folder / LIBRARY.relative_to(ROOT)


def _copy(source: str, target: str) -> None:
    """Copy sources, whose bytecode lies beside them, and link the large rest."""
    if source.endswith(".py"):
        shutil.copy2(source, target)
    else:
        Path(target).symlink_to(source)
