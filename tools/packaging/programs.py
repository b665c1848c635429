"""Running the tools that make packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
