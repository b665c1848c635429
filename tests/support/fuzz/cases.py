"""Cases of all kinds, each from its seed alone."""

from __future__ import annotations

import random
from typing import Any

from support.fuzz import runs
from support.fuzz.draw import Draw
from support.fuzz.draw_graph import DrawGraph

KINDS = ("operation",) * 6 + ("graph",) * 3 + ("runs",)


def draw(seed: str, kind: str | None = None, names: list[str] | None = None) -> dict[str, Any]:
    """A case of a kind, or of any; of operations the named ones alone."""
    kind = "operation" if names else kind or random.Random(f"kind {seed}").choice(KINDS)
    if kind == "graph":
        return DrawGraph(seed).graph()
    return runs.draw(seed) if kind == "runs" else Draw(seed).operation(names)
