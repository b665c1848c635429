"""Writes what the documentation says of the types of blocks, from their declarations.

``python tools/docs/block_types.py`` replaces what stands between the markers of docs/wiring.md.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cowmlx.networks.blocks import BLOCKS, block_class  # noqa: E402

PAGE = ROOT / "docs/wiring.md"
BEGIN, END = "<!-- block types: begin -->\n", "<!-- block types: end -->"
# What a wiring gives for an annotation.
KINDS = {
    "bool": "true or false",
    "int": "integer",
    "float": "number",
    "str": "string",
    "dict[str, Any]": "object",
}


def sections() -> str:
    """A section for every type, by name."""
    return "\n".join(section(name) for name in sorted(BLOCKS))


def section(name: str) -> str:
    """What a type is, and a table of its parameters."""
    kind = block_class(name, name)
    text = inspect.getdoc(kind) or ""
    state = " It has a state." if kind.stateful else ""
    meanings = arguments(text)
    lines = [f"### {name}", "", escaped(summary(text)) + state, ""]
    lines += ["| parameter | value | default | meaning |", "| --- | --- | --- | --- |"]
    for parameter in inspect.signature(kind.__init__).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            annotation, _, nullable = str(parameter.annotation).partition(" | ")
            value = KINDS[annotation] + (" or null" if nullable else "")
            cells = [f"`{parameter.name}`", value, default(parameter), meanings[parameter.name]]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def default(parameter: inspect.Parameter) -> str:
    """A parameter's default as JSON; nothing if it must be given."""
    value: Any = parameter.default
    return "" if value is inspect.Parameter.empty else f"`{json.dumps(value)}`"


def summary(text: str) -> str:
    """The first paragraph of a docstring."""
    return " ".join(text.split("\n\n")[0].split())


def arguments(text: str) -> dict[str, str]:
    """What a docstring says under "Args", by name."""
    listed = re.search(r"^Args:\n((?:[ ]+.*\n?)+)", text, re.M)
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed[1] if listed else "", re.M)
    return {name: escaped(" ".join(meaning.split())) for name, meaning in entries}


def escaped(text: str) -> str:
    """Text of a docstring as Markdown, in a table too, with the words of JSON."""
    prose, *rest = re.split(r"``(.*?)``", text)
    parts = [prose] + [f"`{part}`" if index % 2 == 0 else part for index, part in enumerate(rest)]
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\`*_|<>\[\]])", r"\\\1", _json_words(part))
        for part in parts
    )


def _json_words(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)


def updated(page: str) -> str:
    """A page with the text between its markers replaced."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{sections()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
