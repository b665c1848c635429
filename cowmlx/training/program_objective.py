"""A program's loss as an objective."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import mlx.core as mx

from cowmlx.errors import InvalidArgument
from cowmlx.memory import RequireRoom
from cowmlx.programs.failure import shown
from cowmlx.programs.forms.derived import Gradient
from cowmlx.programs.forms.form import Output
from cowmlx.programs.information import draw_text
from cowmlx.programs.operations.half import widened
from cowmlx.programs.operations.rules import FLOATS
from cowmlx.programs.program import Pending, Program, Run
from cowmlx.steps import finished
from cowmlx.training import initial
from cowmlx.training.objective import Gradients, key_of, weighted
from cowmlx.training.optimizers import matches

LOSS, TARGETS, CORRECT = "loss", "targets", "correct"
KEY = "key"
# Bytes of parameters that are hashed in a turn.
_HASHED = 4 << 20


class ProgramObjective:
    """The output "loss" of a program, a float of shape (): the mean over the targets of a batch.

    Targets are its rows, the first axis of the first input, or the output "targets" if there is
    one. An output "correct" is how many of them are predicted right. An input "key", uint32 (2,),
    is no data: it gets random numbers of the seed, the step and the micro-batch.

    Args:
        program: stays unchanged.
        given: values of parameters; others are made by their ``init``.
        seed: of random numbers.
        patterns: of the names of the trained parameters; None: all floats.
        require_room: raises where so many bytes may not be taken for a named purpose.

    Raises:
        InvalidArgument: it has no such loss, nothing to train, or a parameter has no value or no
            effect on the loss.
    """

    gives_means = True

    def __init__(
        self,
        program: Program,
        given: Mapping[str, mx.array],
        seed: int,
        patterns: list[str] | None = None,
        require_room: RequireRoom = lambda size, what: None,
    ) -> None:
        form = program.form
        outputs = {output.name: at for at, output in enumerate(form.outputs)}
        if LOSS not in outputs:
            text = f"the program has no output {LOSS!r} to minimize; its outputs are "
            text += ", ".join(list(outputs)[:16])
            raise InvalidArgument(text, reason="missing", argument=LOSS)
        declared = [input_ for input_ in form.inputs if input_.parameter]
        self._names = [input_.name for input_ in form.inputs]
        self._parameters = initial.parameters_of(declared, given, seed)
        self._trained = _trained(
            [(declaration.name, declaration.spec.dtype) for declaration in declared], patterns
        )
        for name in (TARGETS, CORRECT):
            if name in outputs:
                _require_number(form.outputs[outputs[name]])
        beside = [outputs[TARGETS]] if TARGETS in outputs else []
        chosen = [self._names.index(name) for name in self._trained]
        self._gradient = Program(Gradient(form, outputs[LOSS], chosen, True, beside))
        self._program = program
        self._outputs = outputs
        self._seed = seed
        self._pending: list[Pending] = []
        self._require_room = require_room
        self.takes_keys = _has_key(program)
        self._fingerprint: str | None = None
        self._text = draw_text(form) + "\n".join(form.steps)

    @classmethod
    def steps(
        cls,
        program: Program,
        given: Mapping[str, mx.array],
        seed: int,
        patterns: list[str] | None = None,
        require_room: RequireRoom = lambda size, what: None,
    ) -> Generator[None, None, ProgramObjective]:
        """Make one with its hash in bounded steps, once the program is known to have gradients.

        Raises:
            Unsupported: an operation that mlx cannot differentiate.
        """
        made = cls(program, given, seed, patterns, require_room)
        spec = {"gradient": {"of": LOSS, "with_respect_to": made._trained, "value": True}}
        yield from program.derive_steps(json.dumps(spec))
        made._fingerprint = yield from made._hashed()
        return made

    @property
    def inputs(self) -> list[str]:
        """The names of a batch's arrays, in their order."""
        return [
            name
            for name in self._names
            if name not in self._parameters and not (self.takes_keys and name == KEY)
        ]

    @property
    def all_parameters(self) -> dict[str, mx.array]:
        """All parameters, also untrained ones."""
        return dict(self._parameters)

    def parameters(self) -> dict[str, mx.array]:
        """Return the trained parameters."""
        return {name: self._parameters[name] for name in self._trained}

    def set_parameters(self, values: Mapping[str, mx.array]) -> None:
        """Give parameters other values."""
        self._parameters |= values

    def gradients(self, batch: Sequence[mx.array], key: mx.array | None) -> Gradients:
        """Return the mean loss, the targets and the gradients of the mean."""
        return self._named(self._run(self._gradient, batch, key), batch)

    def gradients_in_turns(
        self, batch: Sequence[mx.array], key: mx.array | None
    ) -> Generator[list[mx.array] | None, None, Gradients]:
        """Return the same, computed in turns if kernels alone compute it, and lazily if not."""
        run = self._begun(self._gradient, batch, key)
        steps = run.in_parts()
        results = self._lazily(run) if steps is None else (yield from steps)
        return self._named(results, batch)

    def _named(self, results: list[mx.array], batch: Sequence[mx.array]) -> Gradients:
        count = 1 + len(self._trained)
        targets = results[count] if len(results) > count else _rows(batch)
        return results[0], targets, dict(zip(self._trained, results[1:count], strict=True))

    def evaluate(self, batch: Sequence[mx.array]) -> tuple[mx.array, mx.array, mx.array]:
        """Return the sum of losses, the targets, and how many are right."""
        results = self._run(self._program, batch, key_of(self._seed, "evaluation"))
        outputs = {name: results[at] for name, at in self._outputs.items()}
        targets = outputs.get(TARGETS, _rows(batch)).astype(mx.float32)
        correct = outputs.get(CORRECT, mx.array(-1)).astype(mx.float32)
        return weighted(widened(outputs[LOSS]), targets), targets, correct

    def _run(
        self, program: Program, batch: Sequence[mx.array], key: mx.array | None
    ) -> list[mx.array]:
        return self._lazily(self._begun(program, batch, key))

    def _begun(self, program: Program, batch: Sequence[mx.array], key: mx.array | None) -> Run:
        data = dict(zip(self.inputs, batch, strict=True)) | self._parameters
        if self.takes_keys:
            data[KEY] = key_of(self._seed, "evaluation") if key is None else key
        run = program.run([data[name] for name in self._names])
        self._require_room(run.bytes, "a micro-batch")
        return run

    def _lazily(self, run: Run) -> list[mx.array]:
        pending = run.lazily()
        self._pending = [pending]
        return pending.results

    def flags(self) -> list[mx.array]:
        """Return arrays to evaluate with the last results."""
        return [flag for pending in self._pending for flag in pending.flags]

    def check(self) -> None:
        """Check the flags of the last results.

        Raises:
            CowMlxError: an index out of range.
        """
        waiting, self._pending = self._pending, []
        for pending in waiting:
            pending.check()

    def forget(self) -> None:
        """Drop the last results, if they were not checked."""
        self._pending = []

    def fingerprint(self) -> str:
        """Return a hash of the program, and of trained and other parameters."""
        if self._fingerprint is None:
            self._fingerprint = finished(self._hashed())
        return self._fingerprint

    def _hashed(self) -> Generator[None, None, str]:
        """Return the hash, yielding between parts of parameters that are not trained."""
        shapes = {
            name: [list(array.shape), str(array.dtype)] for name, array in self._parameters.items()
        }
        described: Any = [self._text, self._trained, shapes]
        digest = sha256(json.dumps(described).encode())
        for name, array in self._parameters.items():
            if name not in self._trained and array.size:
                bits = memoryview(mx.contiguous(array).reshape(-1).view(mx.uint8))  # type: ignore[arg-type]
                for begin in range(0, len(bits), _HASHED):
                    digest.update(bits[begin : begin + _HASHED])
                    yield
        return digest.hexdigest()


def _trained(parameters: list[tuple[str, str]], patterns: list[str] | None) -> list[str]:
    floats = [name for name, dtype in parameters if dtype in FLOATS]
    if not floats:
        text = "the program has no parameters that are floats: there is nothing to train"
        raise InvalidArgument(text, reason="missing", argument="parameters")
    if patterns is None:
        return floats
    for at, pattern in enumerate(patterns):
        if not any(matches(name, [pattern]) for name in floats):
            raise InvalidArgument(
                f"train[{at}] is {shown(pattern)}, which no parameter that is a float has; they "
                f"are {', '.join(floats[:16])}",
                reason="out_of_range",
                argument=f"train[{at}]",
                value=shown(pattern),
                accepted=", ".join(floats[:16]),
            )
    return [name for name in floats if matches(name, patterns)]


def _require_number(output: Output) -> None:
    if output.spec.shape:
        raise InvalidArgument(
            f"the output {shown(output.name)} is {output.spec}, must be a number of shape ()",
            reason="shape_mismatch",
            argument=output.name,
            value=f"{output.spec}",
            accepted="a number of shape ()",
        )


def _has_key(program: Program) -> bool:
    return any(
        input_.name == KEY
        and not input_.parameter
        and input_.spec.dtype == "uint32"
        and input_.spec.shape == (2,)
        for input_ in program.inputs
    )


def _rows(batch: Sequence[mx.array]) -> mx.array:
    return mx.array(batch[0].shape[0] if batch and batch[0].ndim else 1, mx.float32)
