"""A training's events: a table, a JSON object a line, and a picture of it as SVG."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from cowmlx import json_text
from cowmlx.generated import constants

if TYPE_CHECKING:
    from cowmlx.training.fit import Report

Points = list[tuple[float, float]]

STEP, EVALUATION, CHECKPOINT = "step", "evaluation", "checkpoint"
_KINDS = {
    constants.TRAINING_STEP: STEP,
    constants.TRAINING_EVALUATION: EVALUATION,
    constants.TRAINING_CHECKPOINT: CHECKPOINT,
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
    """Return an event for JSON, without fields that it does not have."""
    row = {**asdict(event), "kind": _KINDS[event.kind], "finish": _FINISHES[event.finish]}
    return {
        name: value
        for name, value in row.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


class Table:
    """A file of events, without rows after ``step``, where the training continues."""

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
    """Return the rows of a file up to a step, without a line that a kill cut off."""
    if not os.path.exists(path):
        return []
    rows = []
    with open(path, "rb") as file:
        for line in file:
            try:
                row = json_text.parse(line)
            except json_text.Malformed:
                continue
            if isinstance(row, dict) and _is_event(row) and row["step"] <= step:
                rows.append(row)
    return rows


def _is_event(row: dict[str, Any]) -> bool:
    """Whether a row of a file, which others may have changed, is an event before an end."""
    numbers = [value for name, value in row.items() if name not in ("kind", "finish")]
    return (
        row.get("kind") in (STEP, EVALUATION, CHECKPOINT)
        and isinstance(row.get("step"), int)
        and all(map(_is_number, numbers))
    )


def _is_number(value: object) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) < _LARGEST  # type: ignore[arg-type]


_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP = 70, 20, 40
_LOSSES, _RATE, _GAP = 230, 80, 30
_TICKS = 5
_MOST = 2000  # points of a line; more than pixels
_SMALLEST, _LARGEST = 1e-300, 1e300  # of numbers with room for differences and quotients
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.axis{stroke:#999}.grid{stroke:#ddd}"
    "polyline{fill:none;stroke-width:1.5}.training{stroke:#36c}.validation{stroke:#c33}"
    ".rate{stroke:#393}"
)


def draw(rows: list[dict[str, Any]], title: str) -> str:
    """Return the picture of a table of events."""
    training = _points(rows, "step", "loss")
    validation = _points(rows, "evaluation", "validation_loss")
    rate = _points(rows, "step", "learning_rate")
    steps = [x for x, _ in (*training, *validation)] or [0.0]
    across = _Scale(min(steps), max(steps), _LEFT, _WIDTH - _RIGHT)
    parts = [f'<text x="{_LEFT}" y="20">{escape(title)}</text>']
    parts += _panel(across, _TOP, _LOSSES, "loss", {"training": training, "validation": validation})
    below = _TOP + _LOSSES + _GAP
    parts += _panel(across, below, _RATE, "learning rate", {"rate": rate})
    parts += _steps(across, below + _RATE)
    for index, (name, points) in enumerate((("training", training), ("validation", validation))):
        if points:
            x = _WIDTH - 220 + 110 * index
            parts.append(f'<polyline class="{name}" points="{x},16 {x + 20},16"/>')
            parts.append(f'<text x="{x + 25}" y="20">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


class _Scale:
    """Numbers from ``low`` to ``high`` as places from ``first`` to ``last``."""

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        if high - low < _SMALLEST:
            beside = abs(low) / 2 if abs(low) > _SMALLEST else 0.5
            low, high = low - beside, high + beside
        self.low, self.high = low, high
        self._first, self._last = first, last

    def place(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return round(self._first + part * (self._last - self._first), 2)

    def ticks(self) -> list[float]:
        """Return round numbers within, a few."""
        rough = (self.high - self.low) / _TICKS
        unit: float = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        first = math.ceil(self.low / step)
        return [step * index for index in range(first, math.floor(self.high / step) + 1)]


def _points(rows: list[dict[str, Any]], kind: str, key: str) -> Points:
    points = [
        (float(row["step"]), float(row[key])) for row in rows if row["kind"] == kind and key in row
    ]
    every = -(-len(points) // _MOST)
    return points[::every] if every > 1 else points


def _panel(across: _Scale, top: int, height: int, name: str, lines: dict[str, Points]) -> list[str]:
    values = [y for points in lines.values() for _, y in points] or [0.0]
    up = _Scale(min(values), max(values), top + height, top)
    end = _WIDTH - _RIGHT
    parts = [f'<text x="{_LEFT}" y="{top - 6}">{name}</text>']
    for tick in up.ticks():
        y = up.place(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{end}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{tick:.4g}</text>')
    parts.append(
        f'<line class="axis" x1="{_LEFT}" x2="{end}" y1="{top + height}" y2="{top + height}"/>'
    )
    for kind, points in lines.items():
        if points:
            places = " ".join(f"{across.place(x)},{up.place(y)}" for x, y in points)
            parts.append(f'<polyline class="{kind}" points="{places}"/>')
    return parts


def _steps(across: _Scale, y: int) -> list[str]:
    parts = [
        f'<text x="{across.place(tick)}" y="{y + 18}" text-anchor="middle">{tick:.6g}</text>'
        for tick in across.ticks()
        if tick == int(tick)
    ]
    middle = (_LEFT + _WIDTH - _RIGHT) // 2
    return [*parts, f'<text x="{middle}" y="{y + 36}" text-anchor="middle">step</text>']
