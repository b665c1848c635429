"""The table of what users type, and wait for, before a model answers."""

from __future__ import annotations

from typing import Any

HEAD = "| you write | type | seconds | all, minutes |\n|---|---|---|---|"


def first_answer_table(report: dict[str, Any]) -> str:
    """The commands of each language's user, and how long they took."""
    lines = [HEAD]
    for row in report.get("rows", ()):
        commands = "<br>".join(f"`{command}`".replace("|", "\\|") for command in row["commands"])
        seconds = "<br>".join(f"{value:.1f}" for value in row["seconds"])
        minutes = sum(row["seconds"]) / 60
        lines.append(f"| {row['language']} | {commands} | {seconds} | {minutes:.2f} |")
    machine = f"{report.get('cpu', '')}, {report.get('cores', '')} shared cores"
    lines += ["", f"Measured on {machine}, with a load of {report.get('load', '')} by others."]
    return "\n".join([*lines, "", ""])
