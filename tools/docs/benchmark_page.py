"""Brings the pictures of the benchmarks into the documentation; a hook of MkDocs.

A page shows them where they lie in the tree, so that it can be read there too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "guides"
PAGE = f"{FOLDER}/performance.md"
PICTURE = re.compile(r"\((?:\.\./)+(benchmarks/results/\w+/(\w+\.png))\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pictures to the site."""
    from mkdocs.structure.files import File

    for path, name in PICTURE.findall((ROOT / "docs" / PAGE).read_text()):
        files.append(File.generated(config, f"{FOLDER}/{name}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Show them from there."""
    return PICTURE.sub(r"(\2)", markdown) if page.file.src_uri == PAGE else markdown
