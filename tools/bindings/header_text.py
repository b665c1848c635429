"""The text of a public header with the headers of the same library that it includes."""

from __future__ import annotations

import re
from pathlib import Path

INCLUDE = re.compile(r'^#include "(cow_mlx/\w+\.h)"\n', re.M)
# What keeps a header from being read twice, and what only a C++ compiler needs.
FRAME = re.compile(
    r"\A/\*(?:(?!\*/).)*\*/\s*"  # what the part is about
    r"#ifndef (\w+_H)\n#define \1\n|#endif /\* \w+_H \*/\n|"
    r'#ifdef __cplusplus\n(?:extern "C" \{|\})\n#endif\n|^#include ["<][^\n]*\n',
    re.M | re.S,
)


def text_of(path: Path) -> str:
    """The text of a header, its parts in the place of their includes."""
    return INCLUDE.sub(lambda found: part(path.parent / found[1]), path.read_text())


def part(path: Path) -> str:
    """What a part declares."""
    return FRAME.sub("", path.read_text()).strip() + "\n\n"


def files_of(path: Path) -> list[Path]:
    """A header and its parts."""
    return [path, *(path.parent / name for name in INCLUDE.findall(path.read_text()))]
