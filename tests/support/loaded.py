"""Loading models without an engine."""

from __future__ import annotations

import pathlib
from typing import Any

from cowmlx.generated import constants
from cowmlx.models import registry


def drain(loading: Any) -> tuple[Any, list[tuple[float, str]]]:
    """Step a load to its end; return the model and what was yielded."""
    steps = []
    while True:
        try:
            steps.append(next(loading))
        except StopIteration as stop:
            return stop.value, steps


def load(
    path: pathlib.Path | str,
    *,
    adapter: pathlib.Path | None = None,
    lazy: bool = False,
    trust: bool = False,
    activations: int = constants.ACTIVATIONS_EXACT,
) -> Any:
    """Load a model in one go. Exact unless told otherwise."""
    loading = registry.load(
        str(path),
        adapter_path=None if adapter is None else str(adapter),
        lazy=lazy,
        trust_remote_code=trust,
        activations=activations,
    )
    return drain(loading)[0]
