"""Programs: checked once, derived, and run many times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import mlx.core as mx

from cowmlx.errors import CowMlxError, Unsupported
from cowmlx.programs.bounds import MAX_TRACES
from cowmlx.programs.bounds import Steps as Work
from cowmlx.programs.checking.functions import check, check_entry
from cowmlx.programs.dimensions import compare
from cowmlx.programs.failure import ProgramError, require_count, shown
from cowmlx.programs.forms.derive import derive
from cowmlx.programs.forms.form import Form, Output, Written
from cowmlx.programs.graph import Declared, Library
from cowmlx.programs.information import information
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.operations.rules import described, is_as_declared, name_of
from cowmlx.programs.running import flags as flagging
from cowmlx.programs.running.flags import Note
from cowmlx.programs.running.rounds import Steps
from cowmlx.programs.sizes import solve
from cowmlx.programs.traced import Traced, rehearse
from cowmlx.steps import finished

Signature = tuple[tuple[tuple[int, ...], mx.Dtype], ...]


class Program:
    """A computation as data; made by :meth:`parse` and :meth:`derive`.

    Everything happens on the caller's thread, and on mlx's default stream of the moment.

    Args:
        form: what it computes.

    Attributes:
        longest_turn: the seconds of the longest step of a run so far; 0 before the first.
        launches: what repeats runs, by the types of inputs.
    """

    def __init__(self, form: Form) -> None:
        self.longest_turn = 0.0
        self.launches: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._values: tuple[mx.array, ...] | None = None
        self._form = form
        self._traces: OrderedDict[tuple[Any, ...], Traced] = OrderedDict()
        # What most runs ask for: the shapes and dtypes of the last tuples of inputs.
        self._known: OrderedDict[tuple[Any, ...], Traced] = OrderedDict()

    @classmethod
    def parse(cls, text: str | bytes, gpu: bool = False) -> Program:
        """Return the program of a JSON text, as :meth:`parse_steps`."""
        return finished(cls.parse_steps(text, gpu))

    @classmethod
    def parse_steps(cls, text: str | bytes, gpu: bool = False) -> Work[Program]:
        """Return the program of a JSON text, in steps.

        Args:
            text: the program.
            gpu: whether it will run on a GPU, which has no float64.

        Raises:
            ProgramError: what is wrong with it, with the node, its operation and shapes.
            Unsupported: it needs a dtype that the device lacks.
        """
        library = yield from check(text)
        if gpu:
            _require_dtypes(library)
        return cls(Written(library))

    @classmethod
    def of_entry_steps(
        cls, entry: dict[str, Any], values: Mapping[str, mx.array], gpu: bool = False
    ) -> Work[Program]:
        """Return the program of a JSON object, in steps.

        Args:
            entry: the program.
            values: arrays of parameters by their names.
            gpu: whether it will run on a GPU, which has no float64.

        Raises:
            ProgramError, Unsupported: as :meth:`parse_steps`; also an array without a parameter,
                or of another dtype or shape.
        """
        library = yield from check_entry(entry)
        if gpu:
            _require_dtypes(library)
        declared = _with_values(library.main.declared, values)
        return cls(Written(replace(library, main=replace(library.main, declared=declared))))

    @property
    def form(self) -> Form:
        """What it computes."""
        return self._form

    @property
    def inputs(self) -> tuple[Declared, ...]:
        """What a run takes: inputs, then parameters."""
        return self._form.inputs

    @property
    def values(self) -> tuple[mx.array, ...]:
        """The arrays of the last inputs, if a run may leave these out: those of a file."""
        if self._values is None:
            declared = self._form.inputs
            first = next((at for at, each in enumerate(declared) if each.value is not None), None)
            tail = declared[first:] if first is not None else ()
            self._values = tuple(each.value for each in tail if each.value is not None)
            if len(self._values) < len(tail):
                self._values = ()
        return self._values

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What a run gives."""
        return self._form.outputs

    def derive(self, spec: str | bytes, arrays: Mapping[str, mx.array] | None = None) -> Program:
        """Return what is derived, as :meth:`derive_steps`."""
        return finished(self.derive_steps(spec, arrays))

    def derive_steps(
        self, spec: str | bytes, arrays: Mapping[str, mx.array] | None = None
    ) -> Work[Program]:
        """Return a gradient, a vectorization, or a program with inputs bound; in steps.

        Args:
            spec: which, as JSON: see :func:`cowmlx.programs.forms.derive.derive`.
            arrays: those that "bind" names.

        Raises:
            ProgramError: it asks for what cannot be.
            Unsupported: mlx cannot differentiate or vectorize an operation.
        """
        form = yield from derive(self._form, spec, arrays)
        yield from rehearse(form)
        return Program(form)

    def run(self, inputs: Sequence[mx.array], *, check_finite: bool = False) -> Run:
        """Return a run, which computes nothing before its steps are taken.

        Args:
            inputs: evaluated arrays, in the order of :attr:`inputs`. Those that the caller lets go
                of before the first step, handles and all, are computed in place where mlx can.
            check_finite: whether an operation that makes a NaN or an infinity of finite numbers
                is an error, which names the first.

        Raises:
            ProgramError: a wrong number, dtype or shape, names of dimensions that disagree, or
                shapes that cannot meet for the values that they have now.
        """
        prepared = self.prepared(inputs, check_finite)
        if prepared is None:
            prepared = finished(self.prepare(inputs, check_finite))
        return Run(self, prepared, list(inputs))

    def prepared(self, inputs: Sequence[mx.array], check_finite: bool) -> Traced | None:
        """Return what is known for runs of inputs like these; None if it is to be prepared."""
        return self._known.get(_key(inputs, check_finite))

    def prepare(self, inputs: Sequence[mx.array], check_finite: bool) -> Work[Traced]:
        """Prepare runs of inputs like these, in steps.

        Raises:
            ProgramError: as :meth:`run`.
        """
        values = self.solve(inputs)
        key = (check_finite, *sorted(values.items()))
        traced = self._traces.get(key)
        if traced is None:
            traced = yield from Traced.made(self._form, values, check_finite)
        _keep(self._traces, key, traced)
        _keep(self._known, _key(inputs, check_finite), traced)
        return traced

    def solve(self, inputs: Sequence[mx.array]) -> dict[str, int]:
        """Return the values of all dimensions for some inputs.

        Raises:
            ProgramError: a wrong number, dtype or shape, or names that disagree.
        """
        declared = self._form.inputs
        require_count("inputs", len(inputs), len(declared), declared)
        for declaration, array in zip(declared, inputs, strict=True):
            dtype = name_of(array.dtype)
            if dtype != declaration.spec.dtype:
                raise ProgramError(
                    "wrong_type",
                    f"input {shown(declaration.name)} is {dtype}, must be {declaration.spec.dtype}",
                    argument=declaration.name,
                    dtypes=dtype,
                    accepted=declaration.spec.dtype,
                )
        shapes = [(declaration.name, declaration.spec.shape) for declaration in declared]
        return solve(shapes, [tuple(array.shape) for array in inputs], self._form.fixed)

    def info(self, dimensions: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return the result of ``program_info``, as :meth:`info_steps`."""
        return finished(self.info_steps(dimensions))

    def info_steps(self, dimensions: Mapping[str, int] | None = None) -> Work[dict[str, Any]]:
        """Return the result of ``program_info``, in steps.

        Args:
            dimensions: values of dimensions, for which memory and multiplications are included.

        Raises:
            ProgramError: a dimension that there is not, or shapes that cannot meet for these.
        """
        found = yield from information(self._form, dimensions)
        return found | {"longest_turn": self.longest_turn or None, "traces": len(self._traces)}

    def note_turn(self, seconds: float) -> None:
        """Record how long a step of a run has taken."""
        self.longest_turn = max(self.longest_turn, seconds)

    def keep_launch(self, types: tuple[Any, ...], launch: object) -> None:
        """Keep what repeats runs for inputs of some types."""
        _keep(self.launches, types, launch)


class Run:
    """One run of a program.

    Args:
        program: whose it is.
        traced: what is computed.
        inputs: the arrays; the list is emptied.

    Attributes:
        specs: dtypes and shapes of the results.
        bytes: that it needs beside its inputs.
    """

    def __init__(self, program: Program, traced: Traced, inputs: list[mx.array]) -> None:
        self._program = program
        self.specs = traced.specs
        self.bytes = traced.bytes
        self._traced = traced
        self._inputs = inputs

    def steps(self) -> Steps:
        """Compute the results, once; yields where others may have a turn.

        Returns:
            The results, evaluated.

        Raises:
            CowMlxError: an index out of range, a loop that does not end, numbers that are not
                finite where that is checked; a result that is not as declared; what mlx raises.
        """
        return self._noted(self._traced.steps(self._inputs))

    def _noted(self, steps: Steps) -> Steps:
        """Take steps, whose results are checked, and note how long they take."""
        try:
            while True:
                began = perf_counter()
                try:
                    computing = next(steps)
                except StopIteration as stop:
                    results: list[mx.array] = stop.value
                    return self._declared(results)
                finally:
                    self._program.note_turn(perf_counter() - began)
                yield computing
        finally:
            steps.close()
            self._inputs.clear()

    def in_parts(self) -> Steps | None:
        """Return the steps of a run that takes several turns of kernels alone, once.

        Returns:
            None if it is to be computed otherwise.
        """
        steps = self._traced.in_parts(self._inputs)
        return None if steps is None else self._noted(steps)

    def lazily(self) -> Pending:
        """Return the results, once, without waiting for them where nothing is to be decided first.

        Runs of kernels alone are computed at once, as by :meth:`at_once`.

        Raises:
            CowMlxError: what control flow that has to be decided before runs into; of a run that
                is computed at once, all that :meth:`steps` raises.
        """
        found = self._traced.lazily(self._inputs)
        if found is None:
            return Pending(self.finish(), [], ())
        self._inputs.clear()
        results, flags, notes = found
        return Pending(self._declared(results), flags, notes)

    def at_once(self) -> list[mx.array]:
        """Compute the results of a run that takes one turn (``Traced.is_one_turn``).

        Raises:
            CowMlxError: as :meth:`steps`.
        """
        began = perf_counter()
        try:
            return self._declared(self._traced.at_once(self._inputs))
        finally:
            self._program.note_turn(perf_counter() - began)

    def _declared(self, results: list[mx.array]) -> list[mx.array]:
        """Return results, all of which have the dtype and shape that were declared.

        Raises:
            CowMlxError: one has not. Hosts have made room for what was declared.
        """
        for at, (spec, array) in enumerate(zip(self.specs, results, strict=True)):
            if not is_as_declared(array, spec):
                raise _not_as_declared(self._program.form, at, array, spec)
        return results

    def finish(self) -> list[mx.array]:
        """Take all steps, where no other work waits."""
        return finished(self.steps())


def _not_as_declared(form: Form, at: int, array: mx.array, spec: Spec) -> CowMlxError:
    """Return the error for a result of another dtype or shape, with what it is made of."""
    main = form.library.main
    operations = sorted({node.op for node in main.needed([form.source(at)])})
    steps = f" ({', then '.join(form.steps)})" if form.steps else ""
    return CowMlxError(
        f"the result {shown(form.outputs[at].name)}{steps} is {described(array)}, declared is "
        f"{spec}: a fault of one of {', '.join(operations[:16])}"
    )


def _key(inputs: Sequence[mx.array], check_finite: bool) -> tuple[Any, ...]:
    return (check_finite, *[(array.shape, array.dtype) for array in inputs])


class Pending:
    """What a run gives before it is computed.

    Args:
        results: the results.
        flags: what has to be evaluated with them.
        notes: what the flags are about.
    """

    def __init__(
        self, results: list[mx.array], flags: list[mx.array], notes: Sequence[Note]
    ) -> None:
        self.results = results
        self.flags = flags
        self._notes = notes

    def check(self) -> None:
        """Look at the flags, which are evaluated.

        Raises:
            CowMlxError: an index out of range, or a number that is not finite.
        """
        flagging.raise_first(zip(self._notes, self.flags, strict=True))


def _keep(cache: OrderedDict[tuple[Any, ...], Any], key: tuple[Any, ...], value: object) -> None:
    """Keep what was used last, and only so many."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > MAX_TRACES:
        cache.popitem(last=False)


def _require_dtypes(library: Library) -> None:
    """Check that a GPU has all dtypes.

    Raises:
        Unsupported: a value is float64.
    """
    for graph in (library.main, *library.functions.values()):
        for name, spec in graph.specs.items():
            if spec.dtype == "float64":
                raise Unsupported(
                    f"{shown(name)} is float64, which a GPU does not have; use float32, or start "
                    "the runtime on the CPU",
                    argument=name,
                    dtypes="float64",
                )


def _with_values(
    declared: Sequence[Declared], values: Mapping[str, mx.array]
) -> tuple[Declared, ...]:
    """Return what a program declares, its parameters with the arrays of these names.

    Raises:
        ProgramError: an array has no parameter, or another dtype or shape.
    """
    parameters = {each.name: each for each in declared if each.parameter}
    for name, array in values.items():
        if name not in parameters:
            raise ProgramError(
                "unknown_option",
                f"there is an array {shown(name)}, but no parameter of that name",
                argument=name,
                accepted=", ".join(list(parameters)[:16]) or None,
            )
        spec = parameters[name].spec
        same = len(spec.shape) == array.ndim and all(
            compare(side, own) is not False
            for side, own in zip(spec.shape, array.shape, strict=True)
        )
        if name_of(array.dtype) != spec.dtype or not same:
            raise ProgramError(
                "shape_mismatch",
                f"the array {shown(name)} is {name_of(array.dtype)}{tuple(array.shape)}, but the "
                f"parameter is {spec}",
                argument=name,
                shapes=str(spec),
            )
    return tuple(replace(each, value=values.get(each.name)) for each in declared)
