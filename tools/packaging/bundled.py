"""The bundle that packages bring: the library, a Python, mlx and what else the engine needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a tool and return what it prints; where it fails, that ends this program."""
    words = [str(word) for word in command]
    env = {**os.environ, **environment}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def bundle(folder: Path, *, headers: bool) -> Path:
    """Write a bundle without links into a new folder, or copy the one that $COWMLX_BUNDLE names."""
    if given := os.environ.get("COWMLX_BUNDLE"):
        run("cp", "-a", given, folder)
    else:
        run(sys.executable, "-m", "cowmlx", "bundle", folder)
    manifest = folder / "MANIFEST.json"
    told = json.loads(manifest.read_text())
    for name in list(told["files"]):
        path = folder / name
        if path.is_symlink() or (not headers and name.startswith("include/")):
            path.unlink()
            del told["files"][name]
    if not headers:
        shutil.rmtree(folder / "include")
    manifest.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    return folder
