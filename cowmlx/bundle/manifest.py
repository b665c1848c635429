"""The list of what is in a bundle, and the check that it still is."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path, PurePosixPath

from cowmlx.bundle import BundleError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

NAME = "MANIFEST.json"
FORMAT = 1


def describe(folder: Path, part_of: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return size, checksum and part of every file under a folder, by its relative path."""
    return {
        path: {**_describe(folder / path), "part": part_of.get(path, "")} for path in _walk(folder)
    }


def write(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a bundle's manifest."""
    text = json.dumps({"format": FORMAT, **manifest}, indent=1, ensure_ascii=False)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    """Return a bundle's manifest.

    Raises:
        BundleError: there is none that can be read.
    """
    path = folder / NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files = manifest["files"]
        known = manifest["format"] == FORMAT and isinstance(files, dict)
    except OSError as error:
        raise BundleError(
            f"{folder} is no bundle: {path.name}: {error.strerror or error}"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BundleError(f"{path} is malformed: {error!r}") from None
    if not known:
        raise BundleError(f"{path} has a format that this version does not know")
    for name in files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BundleError(f"{path} names {name!r}, which is outside of the bundle")
    return dict(manifest)


def verify(folder: Path) -> list[str]:
    """Return a sentence for every file that is missing, changed or extra.

    Raises:
        BundleError: there is no manifest that can be read.
    """
    files = read(folder)["files"]
    problems = []
    present = set(_walk(folder))
    for name, expected in sorted(files.items()):
        if name not in present:
            problems.append(f"missing: {name}")
            continue
        try:
            found = _describe(folder / name)
        except OSError as error:
            problems.append(f"unreadable: {name} ({error.strerror or error})")
            continue
        if any(found.get(key) != expected.get(key) for key in ("sha256", "bytes", "link")):
            problems.append(f"changed: {name}")
    problems += [f"extra: {name}" for name in sorted(present - set(files))]
    return problems


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        return {"link": os.readlink(path), "bytes": 0}
    return {"sha256": checksum(path), "bytes": path.stat().st_size}


def _walk(folder: Path) -> Iterator[str]:
    """Every file and link but the manifest, as a relative path with slashes."""
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(here) / name).is_symlink()]
        for name in sorted(files + links):
            path = (Path(here) / name).relative_to(folder).as_posix()
            if path != NAME:
                yield path
