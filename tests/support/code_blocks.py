"""Finds the code blocks of Markdown pages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from markdown_it import MarkdownIt


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        place: page and line, for messages.
        language: the first word behind the fence.
        title: the file that the block is, as ``title="hello.c"`` says; or "".
        note: what an HTML comment right before it says, such as "wrap: context"; or "".
        code: its lines.
        tabs: the number of the set of tabs that it is in, from 1; or 0.
    """

    place: str
    language: str
    title: str
    note: str
    code: str
    tabs: int


def without_tabs(text: str) -> tuple[str, list[int]]:
    """A page with what stands in tabs (``=== "C"``) moved out of them, and the set of each line."""
    lines: list[str] = []
    sets: list[int] = []
    count, inside = 0, False
    for line in text.splitlines():
        if line.startswith('=== "'):
            count += not inside
            inside, line = True, ""
        elif inside and line and not line.startswith("    "):
            inside = False
        lines.append(line.removeprefix("    ") if inside else line)
        sets.append(count if inside else 0)
    return "\n".join(lines), sets


def blocks_of(page: str, name: str) -> list[Block]:
    """The blocks of a page in their order; indented ones have no language."""
    found: list[Block] = []
    note = ""
    text, sets = without_tabs(page)
    for token in MarkdownIt().parse(text):
        if token.type == "html_block":
            comment = re.fullmatch(r"\s*<!-- (.*?) -->\s*", token.content, re.S)
            note = comment[1] if comment else ""
            continue
        if token.type in ("fence", "code_block"):
            language, _, rest = token.info.partition(" ")
            title = re.search(r'title="([^"]+)"', rest)
            line = token.map[0] + 1 if token.map else 0
            place = f"{name}:{line}"
            tabs = sets[line - 1]
            name_of_file = title[1] if title else ""
            found.append(Block(place, language, name_of_file, note, token.content, tabs))
        note = ""
    return found
