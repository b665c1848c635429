"""The table of how long users wait before a model answers."""

from __future__ import annotations

from typing import Any

HEAD = "| you write | install, s | build and run, s | together, s |\n|---|---|---|---|"


def first_answer_table(report: dict[str, Any]) -> str:
    """How long the commands of each language's user took; the page has the commands."""
    lines = [HEAD]
    for row in report.get("rows", ()):
        install, answer = row["seconds"]
        total = sum(row["seconds"])
        lines.append(f"| {row['language']} | {install:.1f} | {answer:.1f} | {total:.1f} |")
    machine = f"{report.get('cpu', '')}, {report.get('cores', '')} shared cores"
    lines += ["", f"Measured on {machine}, with a load of {report.get('load', '')} by others."]
    return "\n".join([*lines, "", ""])
