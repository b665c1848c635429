"""A form for given dimensions, which all runs with them share; its trial before any run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.errors import InvalidArgument
from cowmlx.programs.bounds import MAX_TRACED_DEPTH, TURN
from cowmlx.programs.bounds import Steps as Work
from cowmlx.programs.dimensions import evaluate_shape, names_of
from cowmlx.programs.forms.form import Form, Tracing
from cowmlx.programs.graph import Library
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.operations.rules import mlx_dtype
from cowmlx.programs.running import flags as flagging
from cowmlx.programs.running.compiling import Launch, Running, Unit, explained
from cowmlx.programs.running.concrete import concrete, require_declared
from cowmlx.programs.running.cost import Needs
from cowmlx.programs.running.flags import Flags, Note
from cowmlx.programs.running.plan import SHORT_KERNEL_WORK, SHORT_WORK, Segment
from cowmlx.programs.running.rounds import Rounds, Steps, Units
from cowmlx.programs.running.row_rounds import RowRounds
from cowmlx.programs.running.tracing import Decisions, zeros

SIZE = 2
"""Of dimensions that have no value yet."""
MAX_NODES = 1_000
"""Longer programs are not tried: their first run shows it."""
DEPTH = 500


def rehearse(form: Form) -> Work[None]:
    """Trace a form once, in steps, lazily, with small dimensions and loops of one round.

    Programs that these dimensions do not fit are not tried.

    Raises:
        Unsupported: mlx lacks a derivative or a vectorization.
    """
    library = form.library
    if sum(len(graph.nodes) for graph in (library.main, *library.functions.values())) > MAX_NODES:
        return
    shapes = [input_.spec.shape for input_ in (*form.inputs, *library.main.declared)]
    values = {name: SIZE for shape in shapes for name in names_of(shape)} | dict(form.fixed)
    if form.copies(values) == 0:
        return
    try:
        arrays = [
            mx.zeros(evaluate_shape(input_.spec.shape, values), mlx_dtype(input_.spec.dtype))
            for input_ in form.inputs
        ]
        decisions: defaultdict[tuple[str | int, ...], int] = defaultdict(lambda: 1)
        chosen = None if form.selects else decisions
        concrete_library = yield from concrete(library, values)
        tracing = Tracing(concrete_library, chosen, False, DEPTH, rounds=decisions)
        yield
        with explained(form.steps):
            form.trace(arrays, tracing, range(len(form.outputs)))
    except InvalidArgument:  # these dimensions do not fit; a run's may
        return


GROWTH = 3
"""How much deeper a graph becomes when mlx differentiates it."""


class Traced:
    """What is computed for given dimensions.

    Args:
        form: the form.
        values: of all its dimensions.
        finite: whether numbers that are not finite are errors.
        library: the program that is written, for these dimensions.

    Attributes:
        specs: dtypes and shapes of the results.
        bytes: that a run needs beside its inputs.
        fits: what the host's memory for results was when it was last found to fit; None: never.

    Raises:
        ProgramError: shapes that cannot meet for these values.
    """

    fits: Sequence[tuple[int, tuple[int, ...]] | None] | None = None

    def __init__(
        self, form: Form, values: Mapping[str, int], finite: bool, library: Library
    ) -> None:
        self.specs = tuple(
            Spec(evaluate_shape(output.spec.shape, values), output.spec.dtype)
            for output in form.outputs
        )
        self._form = form
        self._library = library
        self._rows = form.copies(values)
        self.bytes = Needs(self._library).of_run(form.levels, self._rows)
        self._finite = finite
        self._units = Units(self._library, finite)
        self._depth = MAX_TRACED_DEPTH // GROWTH ** max(form.levels - 1, 0)
        self._derived: Unit | None = None
        main = self._library.main
        is_decided = self._units.planner.is_decided(main)
        self._is_written = form.levels == 0 and not form.selects
        has_loop = "" in library.users_of(("while",))
        self._is_decided = has_loop if form.selects else is_decided
        self._whole: tuple[Unit, list[int]] | None = None
        work = self._units.planner.costs.multiplications(main)
        assert isinstance(work, int)
        self._work = work * self._rows * GROWTH**form.levels
        self._longest = self._units.planner.costs.longest(main) * self._rows
        if self._is_written:
            self._prepare_whole()
        elif not self._is_decided:
            depth = self._units.planner.costs.unrolled(main).depth
            is_deep = depth * GROWTH**form.levels > MAX_TRACED_DEPTH
            compiles = self._units.compiles and not is_deep
            steady = form.levels == 0
            self._derived = Unit(lambda arrays: self._trace(arrays, None), compiles, steady)

    @classmethod
    def made(cls, form: Form, values: Mapping[str, int], finite: bool) -> Work[Traced]:
        """Return what is computed for given dimensions, in steps.

        Raises:
            ProgramError: shapes that cannot meet for these values.
        """
        library = yield from concrete(form.library, values)
        require_declared(form.library.main, library.main, form.sources(), values)
        yield
        return cls(form, values, finite, library)

    def _prepare_whole(self) -> None:
        """Prepare the way of most runs: one unit, which gives all results."""
        main = self._library.main
        stages = self._units.plan(main, main.outputs)
        if len(stages) != 1 or not isinstance(stages[0].part, Segment):
            return
        segment = stages[0].part
        if segment.gives == main.outputs:
            names = [declaration.name for declaration in main.declared]
            reads = [names.index(name) for name in segment.reads]
            self._whole = self._units.unit(main, segment), reads

    def steps(self, arrays: list[mx.array]) -> Steps:
        """Compute the results of a run; yields where others may have a turn.

        Args:
            arrays: the inputs; the list is emptied, so that those without other owners can be
                computed in place.

        Raises:
            CowMlxError: an index out of range, a loop that does not end, a number that is not
                finite, or what mlx cannot differentiate or vectorize.
        """
        if self.is_one_turn:
            return self.at_once(arrays)
        in_parts = self.in_parts(arrays)
        if in_parts is not None:
            return (yield from in_parts)
        if self._is_written:
            given = self._form.written(arrays)
            arrays.clear()
            if self._whole is not None:
                unit, reads = self._whole
                results, flags = unit([given[index] for index in reads])
                given.clear()
                return (yield from self._computed(results, flags, unit.notes))
            return (yield from self._in_rounds(given))
        if self._is_decided and self._form.selects:
            return (yield from self._in_row_rounds(arrays))
        if self._derived is not None:
            with explained(self._form.steps):
                results, flags = self._derived(arrays)
            arrays.clear()
            return (yield from self._computed(results, flags, self._derived.notes))
        return (yield from self._decided(arrays))

    def lazily(
        self, arrays: list[mx.array]
    ) -> tuple[list[mx.array], list[mx.array], Sequence[Note]] | None:
        """Return results, flags and what these are about; not computed unless that is short.

        Returns:
            None if something has to be computed first to know what the rest is.
        """
        if self._unit is not None and self._unit.is_short and self.is_one_turn:
            return self.at_once(arrays), [], ()
        if self._whole is not None:
            unit, reads = self._whole
            given = self._form.written(arrays)
            results, flags = unit([given[index] for index in reads])
            return results, flags, unit.notes
        if self._derived is None:
            return None
        with explained(self._form.steps):
            results, flags = self._derived(arrays)
        return results, flags, self._derived.notes

    @property
    def is_one_turn(self) -> bool:
        """Whether all runs take one turn."""
        unit = self._unit
        most = SHORT_KERNEL_WORK if unit is not None and unit.is_short else SHORT_WORK
        return unit is not None and self._work <= most

    @property
    def _unit(self) -> Unit | None:
        """The unit that computes all results of a run; None where a run takes several units."""
        return self._derived if self._whole is None else self._whole[0]

    def _read(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs of that unit, of a run's inputs."""
        if self._whole is None:
            return list(arrays)
        written = self._form.written(arrays)
        return [written[index] for index in self._whole[1]]

    def at_once(self, arrays: list[mx.array]) -> list[mx.array]:
        """Compute the results of a run that takes one turn, as :meth:`steps` does."""
        unit, given = self._unit, self._read(arrays)
        assert unit is not None
        arrays.clear()
        computed = unit.at_once(given)
        if computed is None:
            with explained(self._form.steps):
                computed = unit(given)
            given.clear()
            mx.eval(*computed)
        results, flags = computed
        if flags:
            flagging.raise_first(zip(unit.notes, flags, strict=True))
        return results

    def in_parts(self, arrays: list[mx.array]) -> Steps | None:
        """Return the steps of a run of kernels alone, which this thread computes.

        Args:
            arrays: the inputs; the list is emptied unless the result is None.

        Returns:
            None if a run is computed otherwise: in one turn, or by mlx.
        """
        if self._unit is None or self.is_one_turn or self._longest > SHORT_KERNEL_WORK:
            return None
        running = self._unit.begun(self._read(arrays))
        if running is None:
            return None
        arrays.clear()
        return self._advanced(running, self._unit.notes)

    @staticmethod
    def _advanced(running: Running, notes: Sequence[Note]) -> Steps:
        while not running.advance(TURN):
            yield None
        results, flags = running.results
        flagging.raise_first(zip(notes, flags, strict=True))
        return results

    def launch(self, arrays: Sequence[Any]) -> tuple[Launch, list[Any]] | None:
        """Return what computes the results without a graph of mlx's, as the last run was.

        Args:
            arrays: the inputs, or what stands for them.

        Returns:
            The function, and which of the arrays it takes, with those that are bound; None if
            there is none.
        """
        unit, given = self._derived, list(arrays)
        if self._whole is not None:
            unit, reads = self._whole
            written: list[Any] = self._form.written(arrays)
            given = [written[index] for index in reads]
        launch = None if unit is None else unit.launch
        return None if launch is None else (launch, given)

    def _in_rounds(self, arrays: list[mx.array]) -> Steps:
        main = self._library.main
        rounds = Rounds(self._units)
        results = yield from rounds.graph(main, arrays, main.outputs)
        yield from rounds.settle(results)
        return results

    def _decided(self, arrays: list[mx.array]) -> Steps:
        """Find out what control flow does, then compute what is derived of that."""
        main = self._library.main
        wanted = tuple(dict.fromkeys(self._form.source(index) for index in range(len(self.specs))))
        rounds = Rounds(self._units, values=False)
        yield from rounds.graph(main, self._form.written(arrays), wanted)
        yield None
        with explained(self._form.steps):
            results, flags = self._trace(arrays, rounds.decisions)
        arrays.clear()
        return (yield from self._computed(results, list(flags.values()), list(flags)))

    def _in_row_rounds(self, arrays: list[mx.array]) -> Steps:
        """Compute rows whose loops may end in different rounds."""
        if self._rows == 0:
            return [zeros(spec) for spec in self.specs]
        main = self._library.main
        sources = [self._form.source(index) for index in range(len(self.specs))]
        wanted = tuple(dict.fromkeys(sources))
        is_derived = self._form.levels > 0
        given, rows = self._form.spread(arrays, None)
        assert rows is not None
        rounds = RowRounds(self._units, rows.count, values=not is_derived)
        found = yield from rounds.graph(main, given, wanted)
        if is_derived:
            yield None
            with explained(self._form.steps):
                # A loop that no row reaches has no rounds.
                results, flags = self._trace(arrays, None, defaultdict(int, rounds.decisions))
            arrays.clear()
            return (yield from self._computed(results, list(flags.values()), list(flags)))
        arrays.clear()
        named = dict(zip(wanted, rounds.results(wanted, found), strict=True))
        shapes: list[Any] = [spec.shape for spec in self.specs]
        results = [named[name].reshape(shape) for name, shape in zip(sources, shapes, strict=True)]
        yield from rounds.settle(results)
        return results

    def _computed(
        self, results: list[mx.array], flags: list[mx.array], notes: Sequence[Note]
    ) -> Steps:
        """Compute results; others have turns meanwhile if that may take long."""
        if self._work > SHORT_WORK:
            yield [*results, *flags]
        mx.eval(results, flags)
        flagging.raise_first(zip(notes, flags, strict=True))
        return results

    def _trace(
        self,
        arrays: Sequence[mx.array],
        decisions: Decisions | None,
        rounds: Decisions | None = None,
    ) -> tuple[list[mx.array], Flags]:
        if self._rows == 0:  # mlx divides by it in places, and ends the process
            return [zeros(spec) for spec in self.specs], {}
        tracing = Tracing(self._library, decisions, self._finite, self._depth, rounds=rounds)
        return self._form.trace(arrays, tracing, range(len(self.specs)))
