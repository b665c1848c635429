"""What a program or a function declares: inputs, parameters with their start, and constants."""

from __future__ import annotations

import math
from typing import Any

from cowmlx.programs import dimensions
from cowmlx.programs.bounds import MAX_DECLARED, Pace, Steps
from cowmlx.programs.checking import constants
from cowmlx.programs.checking.text import listed, name, section
from cowmlx.programs.dimensions import Dim, DimensionError, Symbolic
from cowmlx.programs.failure import ProgramError, refused, shown
from cowmlx.programs.graph import Constant, Declared
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.operations.rules import DTYPES, FLOATS

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


def initializer_of(parameter: str, value: object, spec: Spec) -> tuple[str, dict[str, Any]]:
    """Return an initializer's name and arguments.

    Args:
        parameter: the parameter's name.
        value: the name, or an object with it as "name" and the arguments.
        spec: the parameter's.
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
    what = f"{what} ({chosen}): {name}"
    raise refused(what, value, accepted, "out_of_range", argument=name)


class Names:
    """The names of values in a program or a function, each for one.

    Args:
        place: what messages add, such as " in function 'f'".
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._taken: dict[str, str] = {}

    def take(self, wanted: str, kind: str) -> str:
        """Return a name that nothing else has."""
        if wanted in self._taken:
            raise ProgramError(
                "conflict",
                f"the name {shown(wanted)} of {kind} is also that of "
                f"{self._taken[wanted]}{self._place}; a name is for one value",
                argument=wanted,
                value=wanted,
            )
        self._taken[wanted] = kind
        return wanted


def declared(value: object, what: str, names: Names, parameter: bool) -> list[Declared]:
    """Return the inputs or the parameters of a list."""
    kind = "a parameter" if parameter else "an input"
    keys = ("name", "dtype", "shape", *(["init"] if parameter else []))
    declarations = []
    for at, entry in enumerate(listed(value, what, MAX_DECLARED)):
        place = f"{what}[{at}]"
        section(entry, place, keys, ("name", "dtype", "shape"))
        own = names.take(name(entry["name"], f"the name of {place}"), kind)
        place = f"{kind.split()[1]} {shown(own)}"
        spec = Spec(_shape(entry["shape"], place), _dtype(entry["dtype"], place))
        init = initializer_of(own, entry["init"], spec) if "init" in entry else None
        declarations.append(Declared(own, spec, parameter, init))
    return declarations


def constants_of(value: object, what: str, names: Names) -> Steps[dict[str, Constant]]:
    """Return the constants of a list by name, in steps."""
    found = {}
    pace = Pace()
    for at, entry in enumerate(listed(value, what, MAX_DECLARED)):
        yield from pace.rest()
        place = f"{what}[{at}]"
        section(entry, place, ("name", "dtype", "value"), ("name", "dtype", "value"))
        own = names.take(name(entry["name"], f"the name of {place}"), "a constant")
        dtype = _dtype(entry["dtype"], f"constant {shown(own)}")
        found[own] = constants.read(own, dtype, entry["value"])
    return found


def bound_names(given: list[Declared]) -> set[str]:
    """Return the names of dimensions that have a value in a run: those that stand alone."""
    found: set[str] = set()
    for each in given:
        for dimension in each.spec.shape:
            if isinstance(dimension, Symbolic):
                names = dimensions.names_of([dimension])
                if names == {str(dimension)}:
                    found |= names
    return found


def require_bound(names: set[str], known: set[str], what: str) -> None:
    """Check that every name of a dimension has a value in a run."""
    for missing in sorted(names - known):
        raise ProgramError(
            "missing",
            f"{what} has the dimension {shown(missing)}, which is a dimension of no input of the "
            "program, so a run could not tell its value",
            argument=missing,
            accepted=", ".join(sorted(known)[:16]) or None,
        )


def _dtype(value: object, what: str) -> str:
    if isinstance(value, str) and value in DTYPES:
        return value
    known = ", ".join(DTYPES)
    reason: Any = "out_of_range" if isinstance(value, str) else "wrong_type"
    what = f"dtype of {what}"
    raise refused(what, value, f"one of {known}", reason, argument="dtype")


def _shape(value: object, what: str) -> tuple[Dim, ...]:
    entries: list[Any] = listed(value, f"shape of {what}", dimensions.MAX_RANK)
    lengths: list[Dim] = []
    try:
        for entry in entries:
            if isinstance(entry, str):
                lengths.append(dimensions.parse(entry))
            elif isinstance(entry, int) and not isinstance(entry, bool):
                lengths.append(entry)
            else:
                raise ProgramError(
                    "wrong_type",
                    f"shape of {what} has {shown(entry)}, must be numbers and names of dimensions",
                    argument="shape",
                    value=shown(entry),
                    accepted="numbers from 0 and names",
                )
        dimensions.check_shape(tuple(lengths))
    except DimensionError as error:
        raise ProgramError(
            error.reason, f"shape of {what}: {error}", **{"argument": "shape", **error.details}
        ) from None
    return tuple(lengths)
