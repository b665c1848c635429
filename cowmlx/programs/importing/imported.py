"""What an importer makes: a program as JSON has it, and arrays for its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from cowmlx.programs.bounds import Pace, Steps
from cowmlx.programs.importing.values import Weight, to_mlx


@dataclass
class Imported:
    """A program of a file.

    Args:
        entry: the program as JSON has it.
        weights: of parameters by their names.
    """

    entry: dict[str, Any]
    weights: dict[str, Weight]

    def arrays_steps(self) -> Steps[dict[str, mx.array]]:
        """Read the arrays of all parameters, in steps."""
        arrays = {}
        pace = Pace()
        for name, weight in self.weights.items():
            yield from pace.rest()
            arrays[name] = to_mlx(weight.read())
        return arrays
