"""mlx-vlm in a separate environment, beside llama.cpp, with the mlx of this one.

It is installed once, in some minutes. That takes pip and its package index.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.support.hosts import Peer
from benchmarks.support.paths import HOSTS

VERSION = "0.7.10"
EQUAL = ("mlx", "mlx-lm", "transformers")  # packages of the same version as here


def start(folder: Path, model: Path) -> Peer:
    """Start hosts/vlm.py with a model; the environment is a folder in `folder`."""
    place = folder / f"mlx-vlm-{VERSION}"
    python, finished = place / "bin" / "python", place / "finished"
    packages = " ".join(_packages())
    if not finished.exists() or finished.read_text() != packages:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *_packages()], check=True)
        finished.write_text(packages)
    return Peer([python, HOSTS / "vlm.py", model])


def _packages() -> list[str]:
    extra = "" if sys.platform == "darwin" else "[cpu]"
    return [f"mlx-vlm{extra}=={VERSION}", *(f"{name}=={version(name)}" for name in EQUAL)]
