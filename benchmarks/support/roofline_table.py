"""The table of the `roofline` benchmark: lines of kernels, columns of rows given together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def roofline_table(rows: Iterable[dict[str, Any]]) -> str:
    """Return its lines, of the rows of its JSON file; nothing without rows."""
    measured = [row for row in rows if "of limit" in row]
    if not measured:
        return ""
    lines: dict[str, dict[int, str]] = {}
    for row in measured:
        unit = "GB/s" if row["bound"] == "reading" else "10⁹ multiply-adds/s"
        cell = f"{row[unit]:.3g} {'GB/s' if row['bound'] == 'reading' else 'G/s'}"
        lines.setdefault(row["what"], {})[row["rows"]] = f"{cell} ({row['of limit']:.0%})"
    columns = sorted({row["rows"] for row in measured})
    head = [
        f"| | {' | '.join(f'{count} rows' if count > 1 else '1 row' for count in columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    body = [
        f"| {what} | {' | '.join(line.get(count, '') for count in columns)} |"
        for what, line in lines.items()
    ]
    return "\n".join([*head, *body, ""])
