"""Progress of a training on the standard error: a bar of rich or tqdm, or lines."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from cowmlx.commands.terminal import harmless

_LINES = 20  # of a training, where there is no bar


def make(steps: int, begin: int) -> _Lines | _Rich | _Tqdm:
    """Return an object that shows rows of events; ``steps`` is 0 if unknown."""
    if sys.stderr.isatty():
        for kind in (_Rich, _Tqdm):
            try:
                return kind(steps, begin)
            except ImportError:
                continue
    return _Lines(steps)


def summary(row: dict[str, Any]) -> str:
    """Return an event in a few words."""
    shown = [("loss", "loss"), ("validation_loss", "validation"), ("accuracy", "accuracy")]
    parts = [f"{name} {row[key]:.4g}" for key, name in shown if key in row]
    if "learning_rate" in row:
        parts.append(f"rate {row['learning_rate']:.3g}")
    if "tokens_per_second" in row:
        parts.append(f"{row['tokens_per_second']:.0f} tokens/s")
    return ", ".join(parts)


class _Lines:
    """A line now and then."""

    def __init__(self, steps: int) -> None:
        self._every = max(1, steps // _LINES)

    def show(self, row: dict[str, Any]) -> None:
        is_due = row["step"] % self._every == 0
        if row["kind"] == "evaluation" or (row["kind"] == "step" and is_due):
            place = f"{row['step']}/{row['steps']}" if row.get("steps") else f"{row['step']}"
            left = f", {row['remaining']:.0f} s left" if "remaining" in row else ""
            sys.stderr.write(harmless(f"step {place}: {summary(row)}{left}\n"))

    def close(self) -> None:
        sys.stderr.flush()


class _Rich:
    """A bar of rich, which shows the time that is left."""

    def __init__(self, steps: int, begin: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=steps or None, completed=begin)
        self._bar.start()

    def show(self, row: dict[str, Any]) -> None:
        if row["kind"] == "step":
            self._bar.update(self._task, completed=row["step"], description=summary(row))
        elif row["kind"] == "evaluation":
            self._bar.console.print(f"step {row['step']}: {summary(row)}", markup=False)

    def close(self) -> None:
        self._bar.stop()


class _Tqdm:
    """A bar of tqdm."""

    def __init__(self, steps: int, begin: int) -> None:
        tqdm: Any = importlib.import_module("tqdm").tqdm
        self._bar = tqdm(total=steps or None, initial=begin, file=sys.stderr)

    def show(self, row: dict[str, Any]) -> None:
        if row["kind"] == "step":
            self._bar.set_postfix_str(summary(row), refresh=False)
            self._bar.update(row["step"] - self._bar.n)
        elif row["kind"] == "evaluation":
            self._bar.write(f"step {row['step']}: {summary(row)}", file=sys.stderr)

    def close(self) -> None:
        self._bar.close()
