"""One training from its options to its folder."""

from __future__ import annotations

import json
import os

from cowmlx.commands import quick_products
from cowmlx.commands.terminal import CommandError, clear_progress, show_progress, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.commands.train.events import Table
    from cowmlx.models.model import Model
    from cowmlx.services.training_runs import Trainee
    from cowmlx.training.language.data import LanguageData
    from cowmlx.training.language.objective import LanguageObjective

RUN = ".run"  # behind the name of the folder: where a training goes on from
EVENTS, PICTURE = "events.jsonl", "losses.svg"
# Beside the options of what is trained and of the data.
_OWN = ("optimizer", "learning_rate", "seed", "clip_norm")


class Run:
    """A training of a command.

    Args:
        arguments: of the command.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        quick_products.bring()
        import mlx.core as mx

        mx.disable_compile()  # it would run a compiler
        self._arguments = arguments
        self._out = os.path.abspath(arguments.out)
        self._place = self._out + RUN
        self._check_places()
        show_progress(f"loading {arguments.model}")
        self._model = _finished(_loading(arguments.model))
        self._data = self._read(arguments.data, shuffle=True)
        self._validation = (
            self._read(arguments.validation, shuffle=False) if arguments.validation else None
        )
        self._objective = self._make_objective()
        self._trainee = self._make_trainee()

    def _check_places(self) -> None:
        from cowmlx.services.training_files import FILE

        saved = os.path.exists(os.path.join(self._place, FILE))
        if self._arguments.resume and not saved:
            raise CommandError(f"there is nothing to resume: {self._place} has no {FILE}")
        if not self._arguments.resume and saved:
            raise CommandError(
                f"{self._place} has a training; go on with --resume, or remove it, or name "
                "another folder with --out"
            )
        above = os.path.dirname(self._out)
        if not os.path.isdir(above):
            raise CommandError(f"there is no folder {above}")

    def _read(self, path: str, *, shuffle: bool) -> LanguageData:
        from cowmlx.training.language import reading
        from cowmlx.training.language.data import DataOptions

        given = self._arguments
        options = {
            "batch_size": given.batch,
            "micro_batch": given.micro_batch,
            "long_rows": given.long_rows,
            "mask_prompt": given.mask_prompt,
            "packing": given.packing,
            "shuffle": shuffle,
            "seed": given.seed,
        }
        if given.max_seq_length is not None:
            options["max_seq_length"] = given.max_seq_length
        show_progress(f"reading {path}")
        found = _finished(reading.read(self._model, path, DataOptions(options)))
        info = found.info()
        write(
            f"{path}: {info['rows']:,} rows of {info['tokens']:,} tokens, of which "
            f"{info['targets']:,} are to be learnt; {info['cut']:,} were cut, and "
            f"{info['without_targets']:,} left out, which had nothing to learn\n"
        )
        return found

    def _make_objective(self) -> LanguageObjective:
        from cowmlx.training.language.objective import LanguageObjective
        from cowmlx.training.language.options import LanguageOptions

        given = self._arguments
        options = {"type": given.type, "seed": given.seed, "grad_checkpoint": given.grad_checkpoint}
        for name in ("rank", "scale", "dropout", "num_layers", "keys"):
            if getattr(given, name) is not None:
                options[name] = getattr(given, name)
        found = _finished(LanguageObjective.steps(self._model, LanguageOptions(options)))
        numbers = sum(value.size for value in found.parameters().values())
        write(f"{self._model.summary}; {numbers:,} numbers are trained\n")
        return found

    def _make_trainee(self) -> Trainee:
        from cowmlx.services.training_runs import Trainee
        from cowmlx.training.language.token_inputs import TokenInputs
        from cowmlx.training.training import Settings, Training

        given = self._arguments
        optimizer = {"name": given.optimizer, "learning_rate": given.learning_rate}
        settings = Settings(json.dumps(optimizer), seed=given.seed, clip_norm=given.clip_norm)
        training = Training(self._objective, settings)
        # The data tell themselves whether they are the same.
        options = {name: getattr(given, name) for name in _OWN}
        return Trainee(training, TokenInputs(self._model), options, takes_lines=True)

    def train(self) -> None:
        """Train, and write what came out of it; what is broken off can be gone on with."""
        from cowmlx.commands.train import progress
        from cowmlx.commands.train.events import Table
        from cowmlx.services import training_files

        os.makedirs(self._place, exist_ok=True)
        training = self._trainee.training
        if self._arguments.resume:
            _finished(training_files.load(self._trainee, self._place))
            place = training.place
            if place is not None and place.get("data") != self._data.state()["data"]:
                raise CommandError(
                    f"{self._place} was trained on other data, or on batches made otherwise"
                )
        table = Table(os.path.join(self._place, EVENTS), training.step)
        clear_progress()
        shown = progress.make(self._arguments.steps or 0, training.step)
        try:
            self._fit(table, shown.show)
        except KeyboardInterrupt:
            shown.close()
            _finished(training_files.save(self._trainee, self._place))
            write(f"stopped after step {training.step}; go on with --resume\n")
            raise
        finally:
            shown.close()
            table.close()
            self._draw(table)
        self._export()

    def _fit(self, table: Table, show: Callable[[dict[str, Any]], None]) -> None:
        from cowmlx.services import training_files
        from cowmlx.training.fit import Fit, Limits, Report

        given = self._arguments
        limits = Limits(
            steps=given.steps or 0,
            epochs=given.epochs or 0,
            evaluate_every=given.evaluate_every,
            patience=given.patience,
            save_every=given.save_every,
        )
        fit = Fit(
            self._trainee.training,
            self._data,
            self._validation,
            limits,
            lambda: training_files.save(self._trainee, self._place),
        )
        turns = fit.run()
        try:
            for told in turns:
                if isinstance(told, Report):
                    show(table.add(told))
        finally:
            turns.close()

    def _draw(self, table: Table) -> None:
        from cowmlx.commands.train import plot

        title = f"{os.path.basename(self._out)}: {self._arguments.type} of {self._arguments.model}"
        with open(os.path.join(self._place, PICTURE), "w", encoding="utf-8") as file:
            file.write(plot.draw(table.rows, title))

    def _export(self) -> None:
        from cowmlx.services import training_files
        from cowmlx.training.language import export

        show_progress(f"writing {self._arguments.out}")
        _finished(training_files.save(self._trainee, self._place))
        _finished(export.export(self._objective, self._out, fuse=self._arguments.fuse))
        training = self._trainee.training
        what = "a model" if self._arguments.fuse or self._arguments.type == "full" else "an adapter"
        write(
            f"{self._arguments.out}: {what}, after {training.step} steps; events, a picture of the "
            f"losses and what --resume goes on with are in {self._arguments.out}{RUN}\n"
        )


def _loading(path: str) -> Generator[Any, None, Model]:
    from cowmlx.generated import constants
    from cowmlx.models import registry

    return registry.load(
        path,
        adapter_path=None,
        lazy=False,
        trust_remote_code=False,
        activations=constants.ACTIVATIONS_EXACT,
    )


def _finished(steps: Generator[Any, None, Any]) -> Any:
    """Do all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
