"""Train a language model on JSON lines: a LoRA or DoRA adapter of it, or all its weights."""

from __future__ import annotations

import argparse

from cowmlx.commands.terminal import running


def train(arguments: argparse.Namespace) -> None:
    """Train a language model on JSON lines: a LoRA or DoRA adapter, or all weights."""
    from cowmlx.commands.train.run import Run

    Run(arguments).train()


def _numbers(parser: argparse.ArgumentParser, *options: tuple[str, type, object, str]) -> None:
    for name, kind, default, what in options:
        shown = "" if default is None else f"; default: {default}"
        parser.add_argument(f"--{name}", type=kind, default=default, help=what + shown)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``train``."""
    parser = commands.add_parser("train", help=train.__doc__, description=train.__doc__)
    parser.add_argument("model", metavar="MODEL", help="a model's folder, or its name in the cache")
    parser.add_argument(
        "data",
        metavar="DATA.jsonl",
        help='lines with "messages" (and "tools"), "prompt" and "completion", or "text"',
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        required=True,
        help="receives the adapter, or with --type full and --fuse the model, as mlx-lm reads it",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from FOLDER.run; default: begin anew"
    )
    parser.add_argument(
        "--type",
        choices=("lora", "dora", "full"),
        default="lora",
        help="what is trained; default: lora",
    )
    parser.add_argument(
        "--fuse",
        action="store_true",
        help="write a model with the adapter merged in; default: the adapter",
    )
    parser.add_argument("--optimizer", default="adam", help="an optimizer of mlx; default: adam")
    parser.add_argument(
        "--validation", metavar="FILE", help="JSON lines to evaluate on; default: none"
    )
    parser.add_argument(
        "--mask-prompt", action="store_true", help="train on answers alone; default: all tokens"
    )
    parser.add_argument(
        "--packing", action="store_true", help="join short rows to long ones; default: off"
    )
    parser.add_argument(
        "--grad-checkpoint",
        action="store_true",
        help="compute layers again for gradients: less memory, more time; default: off",
    )
    parser.add_argument(
        "--long-rows",
        choices=("cut", "refuse"),
        default="cut",
        help="rows above --max-seq-length; default: cut",
    )
    parser.add_argument(
        "--keys",
        nargs="+",
        metavar="LAYER",
        help="names of the layers to adapt; default: all linear layers of a block",
    )
    _numbers(
        parser,
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
            "tokens in a row; default: 2048, or the model's context length if that is less",
        ),
        ("evaluate-every", int, 0, "steps between evaluations, 0 for each epoch"),
        ("patience", int, 0, "end after so many evaluations without a better one, 0 for never"),
        ("save-every", int, 100, "steps between saves for --resume, 0 for the end alone"),
        ("seed", int, 0, "seed of everything random"),
    )
    run = running(train, "", "data")

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
