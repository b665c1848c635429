"""Runs the benchmarks, or the named ones: ``python -m benchmarks [--large] [NAME ...]``.

Every benchmark prints a table and writes ``benchmarks/results/<name>.json``, of which the tables of
docs/guides/performance.md and README.md are made; ``--tables`` makes these again and measures
nothing. Each is a module of this package with a function ``measure(large)`` that returns its rows.
``peers``, which builds llama.cpp, runs only when it is named, and can be told what to measure.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from benchmarks.support import choice
from benchmarks.support.plots import PICTURES
from benchmarks.support.report import publish
from benchmarks.support.tables import write_tables

NAMES = (
    "round_trip",
    "decode",
    "prefill",
    "split",
    "startup",
    "memory",
    "idle",
    "fairness",
    "first_token",
    "short_prompts",
    "drafting",
    "grammar",
    "saved",
    "soak",
    "blas",
    "throughput",
    "sampling",
    "interference",
    "cancel",
    "long_context",
    "recurrence",
    "branches",
    "packed",
    "activations",
    "roofline",
    "program_calls",
    "programs",
    "arrays",
    "beside",
    "beside_training",
    "gradients",
    "networks",
    "training",
)
NAMED = ("peers",)  # not among all


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(NAMES + NAMED))
    parser.add_argument("--large", action="store_true", help="also M and longer prompts: minutes")
    parser.add_argument("--tables", action="store_true", help="only write the pages' tables")
    choice.add_options(parser)
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in NAMES + NAMED:
            parser.error(f"no benchmark {name}; there are {', '.join(NAMES + NAMED)}")
    if "peers" not in arguments.names and choice.chosen(arguments) != choice.Choice():
        parser.error("what of peers is measured can be told only where peers is named")
    for name in [] if arguments.tables else arguments.names or NAMES:
        module = import_module(f"benchmarks.{name}")
        summary = str(module.__doc__).splitlines()[0]
        if name == "peers":
            rows = module.measure(arguments.large, choice.chosen(arguments))
        else:
            rows = module.measure(arguments.large)
        publish(name, summary, rows)
        if name in PICTURES:
            PICTURES[name]()
    if not arguments.large:
        write_tables()


if __name__ == "__main__":
    main()
