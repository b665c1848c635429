"""Derivations as JSON has them: a gradient, a vectorization, bound inputs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import mlx.core as mx

from cowmlx.errors import CowMlxError, Unsupported
from cowmlx.programs import dimensions
from cowmlx.programs.bounds import MAX_DECLARED, MAX_DERIVATIONS, Steps
from cowmlx.programs.checking import text
from cowmlx.programs.dimensions import Dim, DimensionError, names_of
from cowmlx.programs.failure import ProgramError, place_of, refused, shown
from cowmlx.programs.forms.dependence import Dependence
from cowmlx.programs.forms.derived import Bound, Gradient, Vectorized
from cowmlx.programs.forms.form import Form, Output
from cowmlx.programs.graph import Node
from cowmlx.programs.operations.rules import FLOATS

KINDS = ("gradient", "vectorize", "bind")


def derive(
    form: Form, spec: str | bytes, arrays: Mapping[str, mx.array] | None = None
) -> Steps[Form]:
    """Return what a JSON object derives of a form, in steps.

    Args:
        form: the form.
        spec: one of ``{"gradient": {"of": name, "with_respect_to": [names], "value": bool, "along":
            name}}``, ``{"vectorize": {name: axis}, "dimension": name or number}`` and ``{"bind":
            …}``.
        arrays: those that "bind" names, evaluated.

    Raises:
        ProgramError: the object is wrong, or asks for what cannot be.
        Unsupported: mlx cannot differentiate an operation.
    """
    read = yield from text.read_steps(spec, "the derivation")
    entry = text.section(read, "the derivation", (*KINDS, "dimension"))
    kinds = [kind for kind in KINDS if kind in entry]
    if len(kinds) != 1:
        raise ProgramError(
            "conflict" if kinds else "missing",
            f"the derivation has {' and '.join(kinds) or 'nothing'}, must have one of "
            f"{', '.join(KINDS)}",
            accepted=", ".join(KINDS),
        )
    if len(form.steps) >= MAX_DERIVATIONS:
        raise ProgramError(
            "limit_exceeded",
            f"the program is derived {len(form.steps)} times, which is the most",
            limit=MAX_DERIVATIONS,
        )
    if "dimension" in entry and "vectorize" not in entry:
        raise ProgramError(
            "conflict", '"dimension" goes with "vectorize" alone', argument="dimension"
        )
    if "gradient" in entry:
        return (yield from _gradient(form, entry["gradient"]))
    if "vectorize" in entry:
        return _vectorized(form, entry["vectorize"], entry.get("dimension"))
    return _bound(form, entry["bind"], arrays or {})


def _gradient(form: Form, value: object) -> Steps[Gradient]:
    keys = ("of", "with_respect_to", "value", "along")
    entry = text.section(value, "gradient", keys, keys[:2])
    results = {output.name: at for at, output in enumerate(form.outputs)}
    of = _index(entry["of"], "of", results, "result")
    result = form.outputs[of]
    along = None if entry.get("along") is None else _new_name(form, entry["along"])
    if result.spec.dtype not in FLOATS or (result.spec.shape and along is None):
        raise ProgramError(
            "wrong_type" if result.spec.dtype not in FLOATS else "conflict",
            f"gradient of {shown(result.name)}, which is {result.spec}, must be of a float of "
            'shape (): its sum or mean, for example; or have "along", the name of a new input of '
            "its shape",
            argument="of",
            shapes=str(result.spec),
            accepted='a float of shape (), or "along"',
        )
    names = text.listed(entry["with_respect_to"], "with_respect_to", MAX_DECLARED)
    if not names:
        raise ProgramError("missing", "with_respect_to is empty", argument="with_respect_to")
    known = _places(form)
    chosen = [_index(name, "with_respect_to", known, "input") for name in names]
    if len(set(chosen)) < len(chosen):
        raise ProgramError(
            "conflict", "with_respect_to has a name twice", argument="with_respect_to"
        )
    for index in chosen:
        name, spec = form.inputs[index].name, form.inputs[index].spec
        if spec.dtype not in FLOATS:
            raise ProgramError(
                "wrong_type",
                f"with_respect_to has {shown(name)}, which is {spec.dtype}: there is no "
                f"gradient but for {', '.join(FLOATS)}",
                argument=name,
                dtypes=spec.dtype,
                accepted=", ".join(FLOATS),
            )
    yield from _require_dependence(form, of, names)
    with_value = entry.get("value", False)
    if not isinstance(with_value, bool):
        raise refused("value", with_value, "true or false", argument="value")
    return Gradient(form, of, chosen, with_value, along=along)


def _new_name(form: Form, value: object) -> str:
    """Return the name of an input that neither the form nor the program has."""
    name = text.name(value, "along")
    if name in {each.name for each in (*form.inputs, *form.library.main.declared)}:
        raise ProgramError(
            "conflict",
            f"along has {shown(name)}, which is an input already, must be a new name",
            argument="along",
            accepted="a name that no input has",
        )
    return name


def _require_dependence(form: Form, of: int, names: list[str]) -> Steps[None]:
    """Check that a result depends on inputs in a way that can be differentiated.

    Raises:
        ProgramError: it does not depend on one.
        Unsupported: an operation on the way has no derivative.
    """
    declared = {each.name for each in form.library.main.declared}
    for name in names:
        if name not in declared:
            raise ProgramError(
                "conflict",
                f"with_respect_to has {shown(name)}, which is the direction of a gradient",
                argument=name,
                accepted="inputs of the program",
            )
    dependence = Dependence(form.library, names)
    reach = yield from dependence.of(form.source(of))
    result = shown(form.outputs[of].name)
    for bit, name in enumerate(names):
        if not reach.any >> bit & 1:
            raise ProgramError(
                "conflict",
                f"with_respect_to has {shown(name)}, on which {result} does not depend",
                argument=name,
                accepted="inputs that the result depends on",
            )
        if reach.blocked >> bit & 1:
            node, function = dependence.blocking[bit]
            raise _unsupported(
                node, function, f"{node.op} has no derivative with respect to {shown(name)}"
            )
        if not reach.smooth >> bit & 1:
            raise ProgramError(
                "conflict",
                f"with_respect_to has {shown(name)}, on which {result} depends through integers, "
                "bools and steps alone, which have no gradient",
                argument=name,
                accepted="inputs that the result depends on through floats",
            )


def _vectorized(form: Form, value: object, dimension: object) -> Vectorized:
    known = _places(form)
    entry: Any = text.section(value, "vectorize", known)
    if not entry:
        raise ProgramError("missing", "vectorize names no input", argument="vectorize")
    axes = {}
    for name, axis in entry.items():
        spec = form.inputs[known[name]].spec
        rank = len(spec.shape)
        if rank == dimensions.MAX_RANK:
            raise ProgramError(
                "limit_exceeded",
                f"vectorize: {shown(name)} has {rank} dimensions already",
                argument=name,
                limit=dimensions.MAX_RANK,
            )
        if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis <= rank:
            what = f"vectorize: the axis of {shown(name)}"
            raise refused(what, axis, f"0 to {rank}", "out_of_range", argument=name)
        axes[known[name]] = axis
    results: tuple[Output, ...] = form.outputs
    wide = next(
        (result for result in results if len(result.spec.shape) == dimensions.MAX_RANK), None
    )
    if wide is not None:
        raise ProgramError(
            "limit_exceeded",
            f"vectorize: the result {shown(wide.name)} has {dimensions.MAX_RANK} dimensions "
            "already",
            argument=wide.name,
            limit=dimensions.MAX_RANK,
        )
    return Vectorized(form, axes, _dimension(form, dimension))


def _dimension(form: Form, value: object) -> Dim:
    """Return the new axis' length: what is given, or a name that is free."""
    shapes = [input_.spec.shape for input_ in form.inputs]
    shapes += [output.spec.shape for output in form.outputs]
    taken = set(form.fixed).union(*(names_of(shape) for shape in shapes))
    if value is None:
        numbered = ("rows" if not number else f"rows{number}" for number in range(len(taken) + 1))
        return dimensions.named(next(name for name in numbered if name not in taken))
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= dimensions.MAX_DIMENSION:
            return value
    elif isinstance(value, str):
        try:
            return dimensions.named(value)
        except DimensionError as error:
            raise ProgramError(
                error.reason, f"dimension: {error}", **{"argument": "dimension", **error.details}
            ) from None
    accepted = f"a name or 0 to {dimensions.MAX_DIMENSION}"
    raise refused("dimension", value, accepted, "out_of_range", argument="dimension")


def _bound(form: Form, value: object, arrays: Mapping[str, mx.array]) -> Bound:
    names = list(text.section(value, "bind", _places(form)))
    if not names:
        raise ProgramError("missing", "bind names no input", argument="bind")
    for name in names:
        if name not in arrays:
            raise ProgramError("missing", f"bind: no array for {shown(name)}", argument=name)
    chosen = {name: arrays[name] for name in names}
    mx.eval(list(chosen.values()))
    return Bound(form, chosen)


def _places(form: Form) -> dict[str, int]:
    """Return the indices of inputs by their names."""
    return {input_.name: at for at, input_ in enumerate(form.inputs)}


def _index(name: object, argument: str, known: Mapping[str, int], kind: str) -> int:
    if isinstance(name, str) and name in known:
        return known[name]
    accepted = ", ".join(shown(each) for each in islice(known, 16))
    raise ProgramError(
        "missing" if isinstance(name, str) else "wrong_type",
        f"{argument} has {shown(name)}, which is no {kind}, must be one of {accepted}",
        argument=argument,
        value=shown(name),
        accepted=accepted,
    )


def _unsupported(node: Node, function: str, sentence: str) -> CowMlxError:
    return Unsupported(
        f"{place_of(node.name, node.op, function)}: {sentence}",
        node=node.name,
        op=node.op,
        function=function or None,
    )
