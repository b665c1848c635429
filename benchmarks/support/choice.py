"""What of the `peers` benchmark is measured, and how the command line says so."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.support.llama_cpp import cache_folder
from benchmarks.support.twins import FORMATS

BLOCKS = {"S": 12, "M": 6, "L": 3}  # turns, by the model's size
SMALL = ("S", "M")
ACTIVATIONS = ("default", "exact", "int8")
PACKED = ("4bit", "8bit")
WORKLOADS = ("prefill", "decode", "rows8", "rows16", "start", "memory")


@dataclass(frozen=True)
class Choice:
    """What of it is measured.

    Attributes:
        models: which; none are all, or those that take no long time.
        formats: of the weights.
        workloads: what is measured of each model in each format.
        sides: the library's, by name: what their environment has besides.
        activations: how the library computes with packed weights, a side for each way.
        blocks: how often each side has its turn; None: by the model's size.
        threads: of llama.cpp; the library has its own mind.
        folder: where llama.cpp and the models are kept.
        amx: whether llama.cpp may use AMX.
    """

    models: tuple[str, ...] = ()
    formats: tuple[str, ...] = tuple(FORMATS)
    workloads: tuple[str, ...] = WORKLOADS
    sides: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {"library": {}})
    activations: tuple[str, ...] = ("default",)
    blocks: int | None = None
    threads: int = os.cpu_count() or 1
    folder: Path = field(default_factory=cache_folder)
    amx: bool = True

    def sides_of(self, stored: str) -> dict[str, dict[str, str]]:
        """The library's sides for a format of weights: activations matter where they are packed."""
        ways = self.activations if stored in PACKED else ("default",)
        made = {}
        for name, settings in self.sides.items():
            for way in ways:
                own = {} if way == "default" else {"ACTIVATIONS": way}
                label = name if way == "default" else way if name == "library" else f"{name}, {way}"
                made[label] = {**settings, **own}
        return made


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen to a command line."""
    group = parser.add_argument_group("peers")
    every = (
        ("models", tuple(BLOCKS)),
        ("formats", tuple(FORMATS)),
        ("workloads", WORKLOADS),
        ("activations", ACTIVATIONS),
    )
    for name, known in every:
        group.add_argument(
            f"--{name}", type=partial(_listed, known), metavar=",".join(known), default=None
        )
    group.add_argument(
        "--side",
        type=_side,
        action="append",
        metavar="NAME[:VARIABLE=VALUE,...]",
        help="measure the library with this environment, under this name; may be repeated",
    )
    group.add_argument("--blocks", type=_positive, help="how often each side has its turn")
    group.add_argument("--threads", type=_positive, help="of llama.cpp; as many as processors")
    group.add_argument("--folder", type=Path, help=f"of llama.cpp and models; {cache_folder()}")
    group.add_argument(
        "--no-amx",
        action="store_true",
        help="build llama.cpp without AMX, for where it crashes with it",
    )


def chosen(arguments: argparse.Namespace) -> Choice:
    """What a command line chose."""
    names = ("models", "formats", "workloads", "activations", "blocks", "threads", "folder")
    given = {name: getattr(arguments, name) for name in names}
    if arguments.side:
        given["sides"] = dict(arguments.side)
    said = {name: value for name, value in given.items() if value is not None}
    return Choice(**said, amx=not arguments.no_amx)


def _listed(known: tuple[str, ...], text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _side(text: str) -> tuple[str, dict[str, str]]:
    name, _, settings = text.partition(":")
    pairs = [setting.partition("=") for setting in settings.split(",") if setting]
    if not name or not all(variable and equals for variable, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME[:VARIABLE=VALUE,...]")
    return name, {variable: value for variable, _, value in pairs}
