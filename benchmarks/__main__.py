"""Runs the benchmarks, or the named ones: ``python -m benchmarks [--large] [NAME ...]``.

Every benchmark prints a table and writes ``benchmarks/results/<make>/<name>.json``, where the
make is the processor's: intel, amd, apple, or its architecture. They are the source of the tables
in docs/guides/performance.md and README.md; ``--tables`` writes these again and measures
nothing. Each is a function marked ``@benchmark``. ``peers``, ``encoders``, ``images`` and
``small_images``, which build llama.cpp or install mlx-vlm, run only if they are named, and have
their own options.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks import (
    calls,
    contexts,
    decoding,
    encoders,
    images,
    inference,
    layers,
    memory,
    peers,
    prompts,
    small_images,
    training,
)
from benchmarks.support.cases import BENCHMARKS, publish
from benchmarks.support.plots import PICTURES
from benchmarks.support.tables import write_tables

# Importing a module registers its benchmarks.
MODULES = (calls, contexts, decoding, inference, layers, memory, prompts, training)
# Those that build llama.cpp, or install mlx-vlm.
OTHERS = {"peers": peers, "encoders": encoders, "images": images, "small_images": small_images}


def main() -> None:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = (*BENCHMARKS, *OTHERS)
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(names))
    parser.add_argument("--large", action="store_true", help="also M and longer prompts: minutes")
    parser.add_argument("--tables", action="store_true", help="only write the pages' tables")
    peers.add_options(parser)
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in names:
            parser.error(f"no benchmark {name}; there are {', '.join(names)}")
    choice = peers.choice(arguments)
    if OTHERS.keys().isdisjoint(arguments.names) and choice != peers.Choice():
        parser.error(f"options of peers need one of the names {', '.join(OTHERS)}")
    known = {
        **BENCHMARKS,
        **{name: partial(getattr(own, name), choice=choice) for name, own in OTHERS.items()},
    }
    for name in [] if arguments.tables else arguments.names or BENCHMARKS:
        document = OTHERS[name].__doc__ if name in OTHERS else BENCHMARKS[name].__doc__
        publish(name, str(document).splitlines()[0], known[name](arguments.large))
        if name in PICTURES:
            PICTURES[name]()
    if not arguments.large:
        write_tables()


if __name__ == "__main__":
    main()
