"""Installed distributions: those of a part, their requirements, and their licences."""

from __future__ import annotations

import contextlib
import fnmatch
import re
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path

from cowmlx.commands import origin
from cowmlx.commands.bundle import BundleError
from cowmlx.commands.bundle.parts import Part

TEXTS = Path(__file__).parent / "texts"

_NAMES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "AUTHORS*", "*.cdx.json", "*.cyclonedx.json")
# Texts of licences that a package names without bringing them.
_STANDARD = {"apache": TEXTS / "Apache-2.0.txt"}
# Requirements of options, and of Windows.
_ELSEWHERE = re.compile(r"extra\s*==|==\s*[\"'](?:win32|Windows)[\"']")


def licence(distribution: Distribution) -> str:
    """Return the name of a distribution's licence."""
    fields = distribution.metadata
    if "License-Expression" in fields:
        return str(fields["License-Expression"])
    for classifier in fields.get_all("Classifier") or ():
        if classifier.startswith("License :: "):
            return str(classifier).rsplit(" :: ", 1)[-1]
    lines = fields["License"].strip().splitlines() if "License" in fields else []
    return lines[0] if lines else "unknown"


def licence_texts(distribution: Distribution) -> list[Path]:
    """Return a distribution's licence texts, and lists of libraries compiled into it."""
    files = [
        Path(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        if ".dist-info/" in str(file) and any(fnmatch.fnmatch(file.name, p) for p in _NAMES)
    ]
    texts = [path for path in files if path.is_file()]
    if not any(path.suffix != ".json" for path in texts):
        named = licence(distribution).lower()
        texts += [path for word, path in _STANDARD.items() if named.startswith(word)]
    return texts


def installed(part: Part, names: str) -> Distribution:
    """Return the installed distribution of a part, one of ``a|b``.

    Raises:
        BundleError: none is installed.
    """
    for name in names.split("|"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.distribution(name)
    leave = f", or leave it out with --without {part.name}" if part.refused else ""
    raise BundleError(f"{names.replace('|', ' or ')} is not installed; install it{leave}")


def closure(found: list[Distribution], known: set[str]) -> list[Distribution]:
    """Return distributions and their installed requirements, without those of other parts."""
    named = {name for names in known for name in names.split("|")}
    result = {origin.normal(distribution.metadata["Name"]): distribution for distribution in found}
    waiting = list(found)
    while waiting:
        for line in waiting.pop().requires or ():
            name = origin.normal(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0])
            if _ELSEWHERE.search(line) or name in result or name in named:
                continue
            with contextlib.suppress(metadata.PackageNotFoundError):
                result[name] = metadata.distribution(name)
                waiting.append(result[name])
    return list(result.values())
