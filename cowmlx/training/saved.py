"""The state of a training as metadata and arrays, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import mlx.core as mx

from cowmlx import json_text
from cowmlx.errors import BadFormat
from cowmlx.training.training import Best, Training

_PARAMETER, _OPTIMIZER, _BEST = "parameter.", "optimizer.", "best."
_STATE = "training"


def described(
    training: Training, options: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the current state: texts and arrays by name, which no later step changes.

    The options must be the same where the training continues.
    """
    best = training.best
    state = {
        "options": dict(options),
        "step": training.step,
        "skipped": training.skipped,
        "place": training.place,
        "evaluated": training.evaluated,
        "best": {
            "loss": best.loss if math.isfinite(best.loss) else None,
            "step": best.step,
            "since": best.since,
            "data": best.data,
        },
    }
    arrays = {_PARAMETER + name: array for name, array in training.objective.parameters().items()}
    arrays |= {_OPTIMIZER + name: array for name, array in training.optimizer.state().items()}
    arrays |= {_BEST + name: array for name, array in best.parameters.items()}
    metadata = {"objective": training.objective.fingerprint(), _STATE: json.dumps(state)}
    return metadata, arrays


class Mismatch(Exception):
    """A saved state is of another training; the message says why."""


def check(
    training: Training,
    options: Mapping[str, Any],
    metadata: Mapping[str, str],
    arrays: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the state in metadata, if all of it fits a training.

    Raises:
        Mismatch: it is of another objective, or was made with other options.
        BadFormat: it is malformed.
    """
    if metadata.get("objective") != training.objective.fingerprint():
        raise Mismatch("it was saved of another program or model, or of other parameters")
    try:
        state = json_text.parse(metadata.get(_STATE, ""))
    except json_text.Malformed:
        state = None
    if not isinstance(state, dict) or not _is_state(state):
        raise BadFormat("its state cannot be read")
    own = json_text.parse(json.dumps(dict(options)))
    given = state["options"]
    if given != own:
        names = [name for name in own if given.get(name) != own[name]] or ["options"]
        raise Mismatch(f"it was saved with another {', '.join(names)}")
    parameters = training.objective.parameters()
    wanted: dict[str, mx.array] = {
        _PARAMETER + name: parameter for name, parameter in parameters.items()
    }
    wanted |= {_OPTIMIZER + name: array for name, array in training.optimizer.state().items()}
    if any(name.startswith(_BEST) for name in arrays):
        wanted |= {_BEST + name: parameter for name, parameter in parameters.items()}
    _require_same(wanted, arrays)
    return state


def take_over(training: Training, state: Mapping[str, Any], arrays: Mapping[str, mx.array]) -> None:
    """Set a training to a checked state and its arrays."""
    names = list(training.objective.parameters())
    known = state["best"]
    loss = math.inf if known["loss"] is None else known["loss"]
    best = Best(loss, known["step"], _of(_BEST, arrays), known["since"], known["data"])
    training.optimizer.set_state(_of(_OPTIMIZER, arrays))
    training.objective.set_parameters({name: arrays[_PARAMETER + name] for name in names})
    training.best = best
    training.step, training.skipped = state["step"], state["skipped"]
    training.place, training.evaluated = state["place"], state["evaluated"]


def _of(prefix: str, arrays: Mapping[str, mx.array]) -> dict[str, mx.array]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _is_state(state: dict[str, Any]) -> bool:
    best, place = state.get("best"), state.get("place")
    if not isinstance(state.get("options"), dict) or not isinstance(best, dict):
        return False
    numbers = [state.get("step"), state.get("skipped"), best.get("step"), best.get("since")]
    if isinstance(place, dict):
        numbers += [place.get("epoch"), place.get("index")]
    elif place is not None:
        return False
    evaluated, loss = state.get("evaluated"), best.get("loss")
    return (
        _are_counts(numbers)
        and (evaluated == -1 or _are_counts([evaluated]))
        and (loss is None or (isinstance(loss, float) and math.isfinite(loss)))
        and isinstance(best.get("data", 0), str | None)
    )


def _are_counts(values: Iterable[object]) -> bool:
    return all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
        for value in values
    )


def _require_same(wanted: Mapping[str, mx.array], arrays: Mapping[str, Any]) -> None:
    for name, own in wanted.items():
        array = arrays.get(name)
        if array is None:
            raise BadFormat(f"it lacks {name!r}")
        if array.dtype != own.dtype or tuple(array.shape) != tuple(own.shape):
            raise BadFormat(
                f"{name!r} is {array.dtype} of {list(array.shape)}, must be {own.dtype} of "
                f"{list(own.shape)}"
            )
    if len(arrays) != len(wanted):
        raise BadFormat("it has unknown arrays")
