"""The bundle that packages bring: the library, a Python, mlx and what else the engine needs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from tools.packaging.programs import run


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
