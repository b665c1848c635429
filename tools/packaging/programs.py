"""Run compilers and the tools that make packages."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# ``make V=1`` shows every command of a build.
VERBOSE = os.environ.get("V", "") not in ("", "0")


def announce(step: str, about: str) -> None:
    """Print one short line about a step of a build."""
    print(f"{step:<9} {about}", flush=True)


def compile_with(command: list[str], cwd: Path | None = None) -> None:
    """Run a compiler; print its warnings, and end this program where it fails."""
    if VERBOSE:
        print(shlex.join(command), flush=True)
    done = subprocess.run(
        command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}")
    if done.stdout:
        print(done.stdout, end="", flush=True)


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a tool and return what it prints; where it fails or is missing, exit."""
    words = [str(word) for word in command]
    env = {**os.environ, **environment}
    if not shutil.which(words[0], path=env.get("PATH")):
        sys.exit(f"{words[0]} is not installed, and is needed to make this")
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def bundle(folder: Path, *, headers: bool) -> Path:
    """Write a bundle without links into a new folder, or copy the one that $COWMLX_BUNDLE names.

    A bundle has the library, a Python, mlx and the other packages that the engine needs.
    """
    from cowmlx.commands.bundle import manifest  # setup.py makes what it imports

    if given := os.environ.get("COWMLX_BUNDLE"):
        run("cp", "-a", given, folder)
    else:
        run(sys.executable, "-m", "cowmlx", "bundle", folder)
    for path in list(folder.rglob("*")):
        if path.is_symlink():
            path.unlink()
    if not headers:
        shutil.rmtree(folder / "include")
    manifest.renew(folder)
    return folder
