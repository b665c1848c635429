"""Where a Markdown text that still grows can be cut."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_LISTED = re.compile(r"(?: {2,}|\t|[-*+] |\d{1,9}[.)] )")


def parted(text: str) -> tuple[str, str]:
    """Part a text behind its last complete block: what stays as it is, and what may still change.

    A block ends at an empty line that lies in no fence of code. One line that goes on with a list
    does not end it, so that items stay numbered.
    """
    lines = text.split("\n")
    fence = ""
    cut = 0
    for at, line in enumerate(lines[:-1]):
        if found := _FENCE.fullmatch(line):
            marks, rest = found.groups()
            if not fence:
                fence = marks
            elif marks.startswith(fence) and not rest.strip():
                fence = ""
        following = lines[at + 1]
        if not line.strip() and not fence and following.strip() and not _LISTED.match(following):
            cut = at + 1
    return "\n".join(lines[:cut]).strip("\n"), "\n".join(lines[cut:])
