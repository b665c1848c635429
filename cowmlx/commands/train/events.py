"""The table of a training's events: a JSON object a line, which a resumed training goes on with."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict

from cowmlx import json_text
from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.training.fit import Report

STEP, EVALUATION = "step", "evaluation"
_KINDS = {
    constants.TRAINING_STEP: STEP,
    constants.TRAINING_EVALUATION: EVALUATION,
    constants.TRAINING_CHECKPOINT: "checkpoint",
    constants.TRAINING_END: "end",
}
_FINISHES = {
    constants.FIT_NONE: None,
    constants.FIT_STEPS: "steps",
    constants.FIT_EPOCHS: "epochs",
    constants.FIT_DATA: "data",
    constants.FIT_EARLY: "early",
}


def as_row(event: Report) -> dict[str, Any]:
    """Return an event as JSON has it: what it does not tell is left out."""
    told: dict[str, Any] = {**asdict(event), "kind": _KINDS[event.kind]}
    told["finish"] = _FINISHES[event.finish]
    return {
        name: value
        for name, value in told.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


class Table:
    """A file of events.

    Args:
        path: the file.
        step: that the training goes on from: rows of later ones are dropped; 0: all are.

    Attributes:
        rows: of all of the training.
    """

    def __init__(self, path: str, step: int) -> None:
        self.rows = _read(path, step) if step else []
        self._file = open(f"{path}.partial", "w", encoding="utf-8")  # noqa: SIM115
        for row in self.rows:
            self._write(row)
        os.replace(self._file.name, path)

    def add(self, event: Report) -> dict[str, Any]:
        """Write an event, and return its row."""
        row = as_row(event)
        self.rows.append(row)
        self._write(row)
        return row

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()


def _read(path: str, step: int) -> list[dict[str, Any]]:
    """Return the rows of a file up to a step; what was cut off by a kill is no row."""
    if not os.path.exists(path):
        return []
    rows = []
    with open(path, "rb") as file:
        for line in file:
            try:
                row = json_text.parse(line)
            except json_text.Malformed:
                continue
            number = row.get("step") if isinstance(row, dict) else None
            if isinstance(number, int) and number <= step and row.get("kind") != "end":
                rows.append(row)
    return rows
