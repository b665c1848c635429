"""Where things lie in the tree."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
CPP = ROOT / "bindings/cpp"
CSRC = ROOT / "csrc"
CALF = Path(os.environ.get("COWMLX_TEST_MODEL") or ROOT / "models/calf")
EYES = ROOT / "models/calf-eyes"
LIBRARY = (
    ROOT / "cowmlx/lib" / ("libcowmlx.1.dylib" if sys.platform == "darwin" else "libcowmlx.so.1")
)
