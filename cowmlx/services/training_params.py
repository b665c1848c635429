"""Params of trainings and fits: checked, as the engine works with them."""

from __future__ import annotations

import math

from cowmlx.errors import InvalidArgument, OutOfRange
from cowmlx.programs.failure import shown
from cowmlx.training import optimizers
from cowmlx.training.fit import Limits
from cowmlx.training.training import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def settings_of(params: dict[str, Any]) -> Settings:
    """Return what holds for all steps.

    Raises:
        OutOfRange: clip_value or clip_norm is negative or not finite.
    """
    return Settings(
        params["optimizer"] or optimizers.DEFAULT,
        params["seed"],
        params["clip_value"],
        params["clip_norm"],
        bool(params["skip_non_finite"]),
    )


def limits_of(params: dict[str, Any], is_evaluated: bool, ends: bool) -> Limits:
    """Return when a fit ends.

    Raises:
        InvalidArgument: it would not, or an option has nothing to work on.
    """
    if not (params["steps"] or params["epochs"] or ends):
        raise InvalidArgument(
            "nothing ends the fit: steps and epochs are 0", reason="missing", argument="steps"
        )
    if params["event_every"] < 1:
        raise OutOfRange("event_every", params["event_every"], "1 or more")
    if not (math.isfinite(params["min_delta"]) and params["min_delta"] >= 0):
        raise OutOfRange("min_delta", params["min_delta"], "0 or more")
    for name in ("evaluate_every", "patience", "min_delta"):
        if params[name] and not is_evaluated:
            raise _lacks(name, params[name], "validation")
    if params["save_every"] and not params["folder"]:
        raise _lacks("save_every", params["save_every"], "folder")
    if params["folder"] is not None and not params["save_every"]:
        raise _lacks("folder", shown(params["folder"]), "save_every")
    return Limits(
        params["steps"],
        params["epochs"],
        params["event_every"],
        params["evaluate_every"],
        params["patience"],
        params["min_delta"],
        params["save_every"],
    )


def _lacks(name: str, value: object, other: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name} is {value}, but there is no {other}",
        reason="conflict",
        argument=name,
        other=other,
    )


_OF_DATA = (
    *("inputs", "batch_size", "shuffle", "event_every"),
    *("lines", "lines_file", "lines_options"),
)


def require_unset(params: dict[str, Any]) -> None:
    """Check that no option is set that an evaluation would ignore.

    Raises:
        InvalidArgument: one is.
    """
    for name, value in params.items():
        if name not in _OF_DATA and value:
            raise InvalidArgument(
                f"{name} is set, but an evaluation only has inputs or next_batch, and batch_size",
                reason="unknown_option",
                argument=name,
            )
