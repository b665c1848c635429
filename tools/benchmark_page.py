"""Shows README's benchmarks in the documentation; a hook of MkDocs.

The benchmarks write their table into README.md: that stays the one place it is kept.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
PICTURE = re.compile(r"\((benchmarks/results/(\w+\.png))\)")
FOLDER = "guides"


def results() -> str:
    """The benchmarks' part of README.md."""
    return (ROOT / "README.md").read_text().split(BEGIN)[1].split(END)[0].strip()


def on_files(files: Any, config: Any) -> Any:
    """Add the pictures to the site."""
    from mkdocs.structure.files import File

    for path, name in PICTURE.findall(results()):
        files.append(File.generated(config, f"{FOLDER}/{name}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put the results where a page asks for them."""
    return (
        markdown.replace(BEGIN, PICTURE.sub(r"(\2)", results())) if BEGIN in markdown else markdown
    )
