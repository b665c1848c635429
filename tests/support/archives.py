"""Archives of packages."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract(path: Path, folder: Path) -> None:
    """Write what an archive holds into a folder."""
    with tarfile.open(path) as archive:
        # Python 3.11.4 is the first with filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
