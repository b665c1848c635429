"""Tries whether mlx can differentiate and vectorise what is derived, before any run."""

from __future__ import annotations

from collections import defaultdict

import mlx.core as mx

from cowmlx.errors import InvalidArgument
from cowmlx.programs.dimensions import evaluate_shape, names_of
from cowmlx.programs.forms.form import Form, Tracing
from cowmlx.programs.operations.promotion import mlx_dtype
from cowmlx.programs.pace import Steps
from cowmlx.programs.running import unsupported
from cowmlx.programs.running.concrete import concrete

SIZE = 2
"""Of dimensions that have no value yet."""
MAX_NODES = 1_000
"""Longer programs are not tried: their first run tells."""
DEPTH = 500


def rehearse(form: Form) -> Steps[None]:
    """Trace a form once, in steps, lazily, with small dimensions and loops of one round.

    Programs that these dimensions do not fit are not tried.

    Raises:
        Unsupported: mlx lacks a derivative or a vectorisation.
    """
    library = form.library
    if sum(len(graph.nodes) for graph in (library.main, *library.functions.values())) > MAX_NODES:
        return
    shapes = [each.spec.shape for each in (*form.inputs, *library.main.declared)]
    values = {name: SIZE for shape in shapes for name in names_of(shape)} | dict(form.fixed)
    if form.copies(values) == 0:
        return
    try:
        arrays = [
            mx.zeros(evaluate_shape(each.spec.shape, values), mlx_dtype(each.spec.dtype))
            for each in form.inputs
        ]
        decisions: defaultdict[tuple[str | int, ...], int] = defaultdict(lambda: 1)
        chosen = None if form.selects else decisions
        tracing = Tracing((yield from concrete(library, values)), chosen, False, DEPTH)
        yield
        with unsupported.told(form.steps):
            form.trace(arrays, tracing, range(len(form.outputs)))
    except InvalidArgument:  # these dimensions do not fit; a run's may
        return
