"""Train a language model on JSON lines: a LoRA or DoRA adapter of it, or all its weights."""

from __future__ import annotations

import argparse

from cowmlx.commands.terminal import running


def train(arguments: argparse.Namespace) -> None:
    """Train a model."""
    from cowmlx.commands.train.run import Run

    Run(arguments).train()


def _numbers(parser: argparse.ArgumentParser, *options: tuple[str, type, object, str]) -> None:
    for name, kind, default, what in options:
        shown = "" if default is None else f"; default: {default}"
        parser.add_argument(f"--{name}", type=kind, default=default, help=what + shown)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``train``."""
    parser = commands.add_parser("train", help=__doc__, description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a model's folder")
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
    parser.add_argument("--resume", action="store_true", help="go on where FOLDER.run is")
    parser.add_argument("--type", choices=("lora", "dora", "full"), default="lora")
    parser.add_argument("--fuse", action="store_true", help="write a model with the adapter in it")
    parser.add_argument("--optimizer", default="adam", help="one of mlx's; default: adam")
    parser.add_argument("--validation", metavar="FILE", help="JSON lines to evaluate on")
    parser.add_argument("--mask-prompt", action="store_true", help="learn answers alone")
    parser.add_argument("--packing", action="store_true", help="put short rows behind each other")
    parser.add_argument("--grad-checkpoint", action="store_true", help="less memory, more time")
    parser.add_argument("--long-rows", choices=("cut", "refuse"), default="cut")
    parser.add_argument("--keys", nargs="+", metavar="LAYER", help="names of layers to adapt")
    _numbers(
        parser,
        ("steps", int, None, "of the optimizer; without it and --epochs 1000"),
        ("epochs", int, None, "of the data"),
        ("batch", int, 4, "rows of a step"),
        ("micro-batch", int, 0, "rows that are computed at once, 0: all"),
        ("learning-rate", float, 1e-5, "of the optimizer"),
        ("clip-norm", float, 0.0, "of the gradients, 0: none"),
        ("rank", int, None, "of adapters (8)"),
        ("scale", float, None, "of adapters (20)"),
        ("dropout", float, None, "of adapters (0)"),
        ("num-layers", int, None, "blocks that are trained, from the last one (all)"),
        ("max-seq-length", int, None, "tokens of a row (2048, or the model's context length)"),
        ("evaluate-every", int, 0, "steps, 0: after each epoch"),
        ("patience", int, 0, "evaluations without a better one until it ends, 0: no end"),
        ("save-every", int, 100, "steps after which --resume could go on, 0: the last alone"),
        ("seed", int, 0, "of all that is random"),
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
