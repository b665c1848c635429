"""The licences of what is in a bundle."""

from __future__ import annotations

import fnmatch
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import Distribution

TEXTS = Path(__file__).parent / "texts"

_NAMES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "AUTHORS*", "*.cdx.json", "*.cyclonedx.json")
# Texts of licences that a package names without bringing them.
_STANDARD = {"apache": TEXTS / "Apache-2.0.txt"}


def name(distribution: Distribution) -> str:
    """Return what a distribution says its licence is."""
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        return str(metadata["License-Expression"])
    for classifier in metadata.get_all("Classifier") or ():
        if classifier.startswith("License :: "):
            return str(classifier).rsplit(" :: ", 1)[-1]
    lines = metadata["License"].strip().splitlines() if "License" in metadata else []
    return lines[0] if lines else "unknown"


def texts(distribution: Distribution) -> list[Path]:
    """Return a distribution's licence texts, and lists of what is compiled into it."""
    files = [
        Path(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        if ".dist-info/" in str(file) and any(fnmatch.fnmatch(file.name, p) for p in _NAMES)
    ]
    found = [path for path in files if path.is_file()]
    if not any(path.suffix != ".json" for path in found):
        found += [
            path for word, path in _STANDARD.items() if name(distribution).lower().startswith(word)
        ]
    return found
