"""Running the tools that make packages."""

from __future__ import annotations

import os
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
