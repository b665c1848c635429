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
    """

    place: str
    language: str
    title: str
    note: str
    code: str


def blocks_of(text: str, name: str) -> list[Block]:
    """The blocks of a page in their order; indented ones have no language."""
    found: list[Block] = []
    note = ""
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
            found.append(Block(place, language, title[1] if title else "", note, token.content))
        note = ""
    return found
