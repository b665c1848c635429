"""Where things lie in the tree."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
HOSTS = ROOT / "benchmarks" / "hosts"
RESULTS = ROOT / "benchmarks" / "results"  # a folder for each make of processor
BUILD = ROOT / "build" / "benchmarks"  # compiled hosts, random models
CALF = ROOT / "models" / "calf"
LIBRARY = (
    ROOT / "cowmlx/lib" / ("libcowmlx.1.dylib" if sys.platform == "darwin" else "libcowmlx.so.1")
)
