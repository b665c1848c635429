"""Train a language model on JSON lines: a LoRA or DoRA adapter of it, or all its weights."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cowmlx.commands import origin, terminal
from cowmlx.commands.terminal import CommandError, show_progress, write
from cowmlx.errors import CowMlxError
from cowmlx.steps import finished

if TYPE_CHECKING:
    from cowmlx.commands.train.events import Table
    from cowmlx.models.model import Model
    from cowmlx.services.training_runs import Trainee
    from cowmlx.training.language.data import LanguageData
    from cowmlx.training.language.objective import LanguageObjective
    from cowmlx.training.training import Settings

RUN = ".run"  # after the name of the folder: the state of a training
EVENTS, PICTURE = "events.jsonl", "losses.svg"
# Besides the options of the objective and of the data.
_OWN = ("optimizer", "learning_rate", "seed", "clip_norm")


class Run:
    """A training of a command."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from cowmlx.ranks import start

        start.lend_blas()  # before mlx is loaded
        import mlx.core as mx

        from cowmlx.training.language import export

        mx.disable_compile()  # it would run a compiler
        self._arguments = arguments
        self._out = os.path.abspath(arguments.out)
        self._place = self._out + RUN
        self._check_places()
        self._settings = self._make_settings()
        show_progress(f"loading {arguments.model}")
        self._model = finished(_loading(arguments.model))
        self._data = self._read(arguments.data, shuffle=True)
        self._validation = (
            self._read(arguments.validation, shuffle=False) if arguments.validation else None
        )
        self._objective = self._make_objective()
        export.check_place(self._objective, self._out, fuse=arguments.fuse)
        self._trainee = self._make_trainee()

    def _check_places(self) -> None:
        from cowmlx.services.training_files import FILE

        saved = os.path.exists(os.path.join(self._place, FILE))
        if self._arguments.resume and not saved:
            raise CommandError(f"there is nothing to resume: {self._place} has no {FILE}")
        if not self._arguments.resume and saved:
            raise CommandError(
                f"{self._place} has a training; continue it with --resume, or remove it, or name "
                "another folder with --out"
            )
        above = os.path.dirname(self._out)
        if not os.path.isdir(above):
            raise CommandError(f"there is no folder {above}")

    def _read(self, path: str, *, shuffle: bool) -> LanguageData:
        from cowmlx.training.language.data import DataOptions, read_lines

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
        data = finished(read_lines(self._model, path, DataOptions(options)))
        info = data.info()
        write(
            f"{path}: {info['rows']:,} rows of {info['tokens']:,} tokens, of which "
            f"{info['targets']:,} are trained on; {info['cut']:,} were cut, and "
            f"{info['without_targets']:,} left out, which had nothing to train on\n"
        )
        return data

    def _make_objective(self) -> LanguageObjective:
        from cowmlx.training.language.objective import LanguageObjective
        from cowmlx.training.language.options import LanguageOptions

        given = self._arguments
        options = {"type": given.type, "seed": given.seed, "grad_checkpoint": given.grad_checkpoint}
        for name in ("rank", "scale", "dropout", "num_layers", "keys"):
            if getattr(given, name) is not None:
                options[name] = getattr(given, name)
        objective = finished(LanguageObjective.steps(self._model, LanguageOptions(options)))
        numbers = sum(value.size for value in objective.parameters().values())
        write(f"{self._model.summary}; {numbers:,} numbers are trained\n")
        return objective

    def _make_settings(self) -> Settings:
        from cowmlx.training.training import Settings

        given = self._arguments
        optimizer = {"name": given.optimizer, "learning_rate": given.learning_rate}
        return Settings(json.dumps(optimizer), seed=given.seed, clip_norm=given.clip_norm)

    def _make_trainee(self) -> Trainee:
        from cowmlx.services.training_runs import Trainee
        from cowmlx.training.language.token_inputs import TokenInputs
        from cowmlx.training.training import Training

        training = Training(self._objective, self._settings)
        # Data have their hash in the place.
        options = {name: getattr(self._arguments, name) for name in _OWN}
        return Trainee(training, TokenInputs(self._model), options, takes_lines=True)

    def train(self) -> None:
        """Train, and write the result; an interrupted training can be resumed."""
        from cowmlx.commands.train import progress
        from cowmlx.commands.train.events import Table
        from cowmlx.services import training_files

        os.makedirs(self._place, exist_ok=True)
        training = self._trainee.training
        if self._arguments.resume:
            finished(training_files.load(self._trainee, self._place))
            place = training.place
            if place is not None and place.get("data") != self._data.state()["data"]:
                raise CommandError(
                    f"{self._place} was trained on other data, or on batches made otherwise"
                )
        table = Table(os.path.join(self._place, EVENTS), training.step)
        terminal.clear_progress()
        first = training.step
        shown = progress.make(self._arguments.steps or 0, first)
        try:
            self._fit(table, shown.show)
        except (KeyboardInterrupt, Exception) as error:
            shown.close()
            self._stop(table, error, first)
            raise
        finally:
            shown.close()
            table.close()
        self._export(table)

    def _stop(self, table: Table, error: BaseException, first: int) -> None:
        """Save a training that has ended early, and draw it; its error counts before others."""
        from cowmlx.services import training_files

        step = self._trainee.training.step
        is_stopped = isinstance(error, KeyboardInterrupt)
        if is_stopped or step > first:
            try:
                finished(training_files.save(self._trainee, self._place))
            except CowMlxError:
                if is_stopped:
                    raise
            else:
                write(f"stopped after step {step}; continue with --resume\n")
        with suppress(Exception):
            self._draw(table)

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
            for event in turns:
                if isinstance(event, Report):
                    show(table.add(event))
        finally:
            turns.close()

    def _draw(self, table: Table) -> None:
        from cowmlx.commands.train import events

        title = f"{os.path.basename(self._out)}: {self._arguments.type} of {self._arguments.model}"
        with open(os.path.join(self._place, PICTURE), "w", encoding="utf-8") as file:
            file.write(events.draw(table.rows, title))

    def _export(self, table: Table) -> None:
        from cowmlx.services import training_files
        from cowmlx.training.language import export

        show_progress(f"writing {self._arguments.out}")
        finished(training_files.save(self._trainee, self._place))
        finished(export.export(self._objective, self._out, fuse=self._arguments.fuse))
        self._draw(table)
        training = self._trainee.training
        kind = "a model" if self._arguments.fuse or self._arguments.type == "full" else "an adapter"
        write(
            f"{self._arguments.out}: {kind}, after {training.step} steps; events, a picture of the "
            f"losses and the state for --resume are in {self._arguments.out}{RUN}\n"
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


def train(arguments: argparse.Namespace) -> None:
    """Train a language model on JSON lines: a LoRA or DoRA adapter, or all weights."""
    origin.require_python()
    Run(arguments).train()


_NUMBERS: tuple[tuple[str, type, object, str], ...] = (
    ("steps", int, None, "steps of the optimizer; default: 1000, with --epochs no limit"),
    ("epochs", int, None, "passes over the data; default: no limit"),
    ("batch", int, 4, "rows in a step"),
    ("micro-batch", int, 0, "rows computed at a time, 0 for all"),
    ("learning-rate", float, 1e-5, "learning rate of the optimizer"),
    ("clip-norm", float, 0.0, "largest norm of the gradients, 0 for none"),
    ("rank", int, None, "rank of the adapter; default: 8"),
    ("scale", float, None, "scale of the adapter; default: 20"),
    ("dropout", float, None, "dropout in the adapter; default: 0"),
    ("num-layers", int, None, "train so many blocks, counted from the last; default: all"),
    (
        "max-seq-length",
        int,
        None,
        "tokens in a row; default: 2048, or the model's context length",
    ),
    ("evaluate-every", int, 0, "steps between evaluations, 0 for each epoch"),
    ("patience", int, 0, "end after so many evaluations without a better one, 0 for never"),
    ("save-every", int, 100, "steps between saves for --resume, 0 for the end alone"),
    ("seed", int, 0, "seed of everything random"),
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``train``."""
    parser = commands.add_parser("train", help=train.__doc__, description=train.__doc__)
    option = parser.add_argument
    option("model", metavar="MODEL", help="a model's folder, or its name in the cache")
    text = 'lines with "messages" (and "tools"), "prompt" and "completion", or "text"'
    option("data", metavar="DATA.jsonl", help=text)
    text = "receives the adapter, or with --type full and --fuse the model, as mlx-lm reads it"
    option("--out", metavar="FOLDER", required=True, help=text)
    text = "continue from FOLDER.run; default: begin a new training"
    option("--resume", action="store_true", help=text)
    text = "parameters to train; default: lora"
    option("--type", choices=("lora", "dora", "full"), default="lora", help=text)
    text = "write a model with the adapter merged in; default: the adapter"
    option("--fuse", action="store_true", help=text)
    option("--optimizer", default="adam", help="an optimizer of mlx; default: adam")
    option("--validation", metavar="FILE", help="JSON lines to evaluate on; default: none")
    text = "train on answers alone; default: all tokens"
    option("--mask-prompt", action="store_true", help=text)
    option("--packing", action="store_true", help="join short rows to long ones; default: off")
    text = "compute layers again for gradients: less memory, more time; default: off"
    option("--grad-checkpoint", action="store_true", help=text)
    text = "rows above --max-seq-length; default: cut"
    option("--long-rows", choices=("cut", "refuse"), default="cut", help=text)
    text = "names of the layers to adapt; default: all linear layers of a block"
    option("--keys", nargs="+", metavar="LAYER", help=text)
    for name, kind, default, text in _NUMBERS:
        shown = "" if default is None else f"; default: {default}"
        option(f"--{name}", type=kind, default=default, help=text + shown)
    run = terminal.running(train, "", "data")

    def checked(arguments: argparse.Namespace) -> int:
        if arguments.steps is None and arguments.epochs is None:
            arguments.steps = 1000
        for name in ("steps", "epochs"):
            if getattr(arguments, name) == 0:
                parser.error(f"--{name} is 0, must be 1 or more")
        for name in ("steps", "epochs", "evaluate_every", "patience", "save_every", "seed"):
            if (getattr(arguments, name) or 0) < 0:
                parser.error(f"--{name.replace('_', '-')} is below 0")
        if arguments.patience and not arguments.validation:
            parser.error("--patience needs --validation")
        return run(arguments)

    parser.set_defaults(run=checked)
