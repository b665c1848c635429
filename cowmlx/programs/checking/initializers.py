"""How parameters begin: the functions of ``mlx.nn.init`` by name, and what they take."""

from __future__ import annotations

import math
from typing import Any

from cowmlx.programs.checking.text import section
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.operations.promotion import FLOATS
from cowmlx.programs.operations.row import Spec

FAN = ("fan_in", "fan_out")
# Arguments with their defaults, and the ranks that the function takes.
INITIALIZERS: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "constant": ({"value": None}, (0, 8)),
    "zeros": ({}, (0, 8)),
    "ones": ({}, (0, 8)),
    "normal": ({"mean": 0.0, "std": 1.0}, (0, 8)),
    "uniform": ({"low": 0.0, "high": 1.0}, (0, 8)),
    "identity": ({}, (2, 2)),
    "glorot_normal": ({"gain": 1.0}, (2, 8)),
    "glorot_uniform": ({"gain": 1.0}, (2, 8)),
    "he_normal": ({"mode": "fan_in", "gain": 1.0}, (2, 8)),
    "he_uniform": ({"mode": "fan_in", "gain": 1.0}, (2, 8)),
    "sparse": ({"sparsity": None, "mean": 0.0, "std": 1.0}, (2, 2)),
    "orthogonal": ({"gain": 1.0}, (2, 2)),
}


def read(parameter: str, value: object, spec: Spec) -> tuple[str, dict[str, Any]]:
    """Return an initializer's name and arguments.

    Args:
        parameter: the parameter's name.
        value: the name, or an object with it as "name" and the arguments.
        spec: the parameter's.

    Raises:
        ProgramError: there is none of that name, it takes no such arguments, or not this shape or
            dtype.
    """
    what = f"init of parameter {shown(parameter)}"
    given: Any = {"name": value} if isinstance(value, str) else value
    known = ", ".join(INITIALIZERS)
    chosen = given.get("name") if isinstance(given, dict) else None
    if not isinstance(chosen, str) or chosen not in INITIALIZERS:
        raise ProgramError(
            "out_of_range" if isinstance(chosen, str) else "wrong_type",
            f"{what} is {shown(given if chosen is None else chosen)}, must be one of {known}, or "
            'an object with it as "name"',
            argument=parameter,
            accepted=known,
        )
    defaults, (low, high) = INITIALIZERS[chosen]
    section(given, f"{what} ({chosen})", ("name", *defaults))
    arguments = {
        name: _argument(what, chosen, name, given.get(name, default))
        for name, default in defaults.items()
    }
    rank = len(spec.shape)
    if not low <= rank <= high:
        accepted = f"{low}" if low == high else f"{low} or more"
        raise ProgramError(
            "conflict",
            f"{what} is {chosen}, which needs {accepted} dimensions, but the parameter is {spec}",
            argument=parameter,
            shapes=str(spec),
            accepted=f"{accepted} dimensions",
        )
    if chosen == "identity" and spec.shape[0] != spec.shape[1]:
        raise ProgramError(
            "conflict",
            f"{what} is identity, which needs a square, but the parameter is {spec}",
            argument=parameter,
            shapes=str(spec),
        )
    if spec.dtype not in FLOATS and chosen not in ("constant", "zeros", "ones"):
        raise ProgramError(
            "wrong_type",
            f"{what} is {chosen}, which makes floats, but the parameter is {spec.dtype}",
            argument=parameter,
            dtypes=spec.dtype,
            accepted=", ".join(FLOATS),
        )
    return chosen, arguments


def _argument(what: str, chosen: str, name: str, value: object) -> Any:
    if name == "mode":
        accepted = " or ".join(FAN)
        if isinstance(value, str) and value in FAN:
            return value
    elif value is None:
        raise ProgramError("missing", f"{what} ({chosen}) needs {name!r}", argument=name)
    else:
        accepted = "a number from 0 to 1" if name == "sparsity" else "a number"
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if numeric and abs(value) <= 2**63:  # type: ignore[arg-type]
            number = float(value)  # type: ignore[arg-type]
            if math.isfinite(number) and (name != "sparsity" or 0 <= number <= 1):
                return number
    raise ProgramError(
        "out_of_range",
        f"{what} ({chosen}): {name} is {shown(value)}, must be {accepted}",
        argument=name,
        value=shown(value),
        accepted=accepted,
    )
