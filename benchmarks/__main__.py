"""Runs all benchmarks, or the named ones: ``python -m benchmarks [--large] [NAME ...]``.

Every benchmark prints a table and writes ``benchmarks/results/<name>.json``, of which the tables of
docs/guides/performance.md and README.md are made; ``--tables`` makes these again and measures
nothing. Each is a module of this package with a function ``measure(large)`` that returns its rows.
"""

from __future__ import annotations

import argparse
from importlib import import_module

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
    "drafting",
    "grammar",
    "saved",
    "soak",
    "blas",
    "throughput",
    "interference",
    "long_context",
    "recurrence",
    "branches",
    "packed",
)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--large", action="store_true", help="also M and longer prompts: minutes")
    parser.add_argument("--tables", action="store_true", help="only write the pages' tables")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in NAMES:
            parser.error(f"no benchmark {name}; there are {', '.join(NAMES)}")
    for name in [] if arguments.tables else arguments.names or NAMES:
        module = import_module(f"benchmarks.{name}")
        summary = module.__doc__.splitlines()[0]
        publish(name, summary, module.measure(arguments.large))
        if name in PICTURES:
            PICTURES[name]()
    if not arguments.large:
        write_tables()


if __name__ == "__main__":
    main()
