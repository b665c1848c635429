"""The table of the `peers` benchmark: lines of models and formats, columns of workloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

COLUMNS = {
    "prefill": "prompt of 512",
    "decode": "decode",
    "rows8": "8 together",
    "rows16": "16 together",
    "start": "start to first token",
    "memory": "memory",
}


def peers_table(rows: Iterable[dict[str, Any]]) -> str:
    """Return its lines, of the rows of its JSON file; nothing without rows."""
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        side = "" if row["side"] == "library" else f", {row['side']}"
        line = lines.setdefault(f"{row['model']} {row['format']}{side}", {})
        line[row["workload"]] = _cell(row)
    if not lines:
        return ""
    head = [
        f"| | {' | '.join(COLUMNS.values())} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    body = [
        f"| {label} | {' | '.join(line.get(column, '') for column in COLUMNS)} |"
        for label, line in lines.items()
    ]
    return "\n".join([*head, *body, ""])


def _cell(row: dict[str, Any]) -> str:
    share = f" ({row['of limit']:.0%})" if "of limit" in row else ""
    return f"{row['ratio']:.2f}{share}"
