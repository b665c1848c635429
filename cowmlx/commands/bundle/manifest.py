"""The list of a bundle's files, and the check that they are unchanged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from cowmlx import json_text
from cowmlx.commands.bundle import BundleError

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


def count(manifest: dict[str, Any]) -> None:
    """Fill in how many files each part has, and their bytes, from the list of files."""
    files = manifest["files"].values()
    for name, part in manifest["parts"].items():
        sizes = [file["bytes"] for file in files if file["part"] == name]
        part |= {"files": len(sizes), "bytes": sum(sizes)}
    manifest["bytes"] = sum(file["bytes"] for file in files)


def renew(folder: Path, part: str = "", purpose: str = "") -> None:
    """Write a bundle's manifest again after files were removed or added.

    Args:
        folder: the bundle.
        part: the name of a part for new files, or "" if there are none.
        purpose: of that part.

    Raises:
        BundleError: there is no manifest that can be read.
    """
    manifest = read(folder)
    part_of = {name: file["part"] for name, file in manifest["files"].items()}
    if part:
        manifest["parts"][part] = {"purpose": purpose, "components": []}
        part_of = {name: part_of.get(name, part) for name in _walk(folder)}
    manifest["files"] = describe(folder, part_of)
    count(manifest)
    write(folder, manifest)


def read(folder: Path) -> dict[str, Any]:
    """Return a bundle's manifest.

    Raises:
        BundleError: there is none that can be read.
    """
    path = folder / NAME
    try:
        manifest = json_text.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BundleError(
            f"{folder} is no bundle: {path.name}: {error.strerror or error}"
        ) from None
    except ValueError as error:
        raise BundleError(f"{path} is no JSON: {error}") from None
    if lack := _lack(manifest):
        raise BundleError(f"{path} is no manifest of a bundle: {lack}")
    return dict(manifest)


def _lack(manifest: Any) -> str:
    """Return what is wrong with a manifest's contents; "" if nothing."""
    if not isinstance(manifest, dict):
        return "it is no JSON object"
    if "format" not in manifest:
        return "it names no format"
    if manifest["format"] != FORMAT:
        return f"its format is {manifest['format']!r}, and this version knows {FORMAT} alone"
    files = manifest.get("files")
    if not isinstance(files, dict):
        return "it has no object of files"
    for name, expected in files.items():
        if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            return f"it names {name!r}, which is outside of the bundle"
        if not isinstance(expected, dict):
            return f"the entry of {name} is no object"
    return ""


def verify(folder: Path) -> list[str]:
    """Return a line for every file that is missing, changed or extra, and extra folders.

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
    problems += [f"extra: {name}/" for name in _empty(folder, present | set(files))]
    return problems


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        return {"link": os.readlink(path), "bytes": 0}
    return {"sha256": checksum(path), "bytes": path.stat().st_size}


def _empty(folder: Path, names: set[str]) -> list[str]:
    """Return the outermost folders that hold none of ``names``."""
    used = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    found = []
    for here, folders, _ in os.walk(folder):
        for name in sorted(folders):
            path = (Path(here) / name).relative_to(folder).as_posix()
            if path not in used:
                folders.remove(name)  # nothing below it is reported
                if path not in names:  # a link
                    found.append(path)
    return sorted(found)


def _walk(folder: Path) -> Iterator[str]:
    """Every file and link but the manifest, as a relative path with slashes."""
    for here, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(here) / name).is_symlink()]
        for name in sorted(files + links):
            path = (Path(here) / name).relative_to(folder).as_posix()
            if path != NAME:
                yield path
