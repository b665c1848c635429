"""Which models a worker has: folders under one, and nothing above or beside it."""

from __future__ import annotations

import os
from pathlib import Path

from cowmlx.errors import NotFound

MAX_NAME = 256
_ENTRY = "models--"


def found(folder: Path) -> dict[str, Path]:
    """Return the models under a folder by name, "org/name" for those of Hugging Face's cache."""
    models = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(_ENTRY):
            name = entry.name.removeprefix(_ENTRY).replace("--", "/", 1)
            if (entry / "snapshots").is_dir():
                models[name] = entry
        elif (entry / "config.json").is_file():
            models[entry.name] = entry
    return models


def place(folder: Path, name: object) -> str:
    """Return the folder of a model.

    Raises:
        NotFound: there is none of that name.
    """
    path = found(folder).get(name) if isinstance(name, str) and len(name) <= MAX_NAME else None
    if path is None:
        shown = ascii(name)[:MAX_NAME]
        raise NotFound(f"it has no model named {shown}; copy the host's folder there")
    return os.fspath(path)
