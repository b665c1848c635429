"""Learning rates that change with the steps: mlx's schedules, named by JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import mlx.core as mx
from mlx.optimizers import schedulers

from cowmlx.training.options import REQUIRED, Number, Option, out_of_range, read, wrong_type

Schedule = Callable[[Any], mx.array]
Rate = float | Schedule
"""A learning rate: a number, or a function of the optimizer's step."""

MAX_JOINED = 64
MAX_NESTED = 8

RATE = Number("a number, 0 or more", low=0, default=REQUIRED)
_STEPS = Number("a whole number, 1 or more", low=1, high=2**53, integer=True, default=REQUIRED)
_DECAY = Number("a number above 0", low=0, open_low=True, default=REQUIRED)

# mlx's functions with the names of their arguments.
SCHEDULES: Mapping[str, tuple[Callable[..., Schedule], Mapping[str, Option]]] = {
    "linear_schedule": (
        schedulers.linear_schedule,
        {"init": RATE, "end": RATE, "steps": _STEPS},
    ),
    "cosine_decay": (
        schedulers.cosine_decay,
        {"init": RATE, "decay_steps": _STEPS, "end": Number("a number, 0 or more", 0, default=0.0)},
    ),
    "step_decay": (
        schedulers.step_decay,
        {"init": RATE, "decay_rate": _DECAY, "step_size": _STEPS},
    ),
    "exponential_decay": (
        schedulers.exponential_decay,
        {"init": RATE, "decay_rate": _DECAY},
    ),
}
NAMES = ("constant", *SCHEDULES, "join_schedules", "warmup")


def rate_of(value: object, place: str, depth: int = 0) -> Rate:
    """Return the learning rate that JSON describes.

    Args:
        value: a number, or an object with the "name" of a schedule and its arguments: one of mlx's
            under mlx's names; "constant" with "value"; "warmup" with "steps", "init" (0) and
            "then", a schedule: it grows linearly to the first value of that.
        place: its name in messages.
        depth: the number of schedules around it.

    Raises:
        InvalidArgument: the value is malformed.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(RATE.read(value, place))
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str):
        accepted = f'a number, or an object with "name", one of {", ".join(NAMES)}'
        raise wrong_type(place, value, accepted)
    if name not in NAMES:
        raise out_of_range(f"{place}.name", name, f"one of {', '.join(NAMES)}")
    if depth == MAX_NESTED:
        raise out_of_range(place, "deeper", f"schedules in each other, at most {MAX_NESTED}")
    if name == "constant":
        known = {"value": RATE}
        return float(read(value, place, known, ("name",))["value"])
    if name == "join_schedules":
        return _joined(value, place, depth)
    if name == "warmup":
        return _warmup(value, place, depth)
    make, options = SCHEDULES[name]
    return make(**read(value, place, options, ("name",)))


def _joined(value: dict[str, Any], place: str, depth: int) -> Schedule:
    read(value, place, {}, ("name", "schedules", "boundaries"))
    parts, boundaries = value.get("schedules"), value.get("boundaries")
    if not isinstance(parts, list) or not 1 <= len(parts) <= MAX_JOINED:
        accepted = f"a list of 1 to {MAX_JOINED} schedules"
        raise wrong_type(f"{place}.schedules", parts, accepted)
    if not isinstance(boundaries, list) or len(boundaries) != len(parts) - 1:
        accepted = f"a list of {len(parts) - 1} steps, one less than schedules"
        raise wrong_type(f"{place}.boundaries", boundaries, accepted)
    steps = [
        int(_STEPS.read(boundary, f"{place}.boundaries[{at}]"))
        for at, boundary in enumerate(boundaries)
    ]
    for at, (earlier, later) in enumerate(pairwise(steps)):
        if later <= earlier:
            accepted = f"more than {earlier}, the one before"
            raise out_of_range(f"{place}.boundaries[{at + 1}]", later, accepted)
    rates = [rate_of(part, f"{place}.schedules[{at}]", depth + 1) for at, part in enumerate(parts)]
    return schedulers.join_schedules([_function_of(rate) for rate in rates], steps)


def _warmup(value: dict[str, Any], place: str, depth: int) -> Schedule:
    known = {"steps": _STEPS, "init": Number("a number, 0 or more", 0, default=0.0)}
    options = read(value, place, known, ("name", "then"))
    then = _function_of(rate_of(value.get("then"), f"{place}.then", depth + 1))
    goal: Any = mx.array(then(mx.array(0, mx.uint64))).item()
    rising = schedulers.linear_schedule(options["init"], goal, options["steps"])
    return schedulers.join_schedules([rising, then], [options["steps"]])


def _function_of(rate: Rate) -> Schedule:
    if callable(rate):
        return rate
    return lambda step: mx.array(rate)
