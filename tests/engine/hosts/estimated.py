"""The estimate of a generation and the peak, both without weights, in a process without kernels.

Arguments: a model's folder, and kv_bits. Prints both as JSON.
"""

from __future__ import annotations

import json
import sys

import mlx.core as mx
from driver import prompt
from support.library import Library

TOKENS = 1000


def main(folder: str, kv_bits: str) -> None:
    """Process a prompt in chunks of one size."""
    from cowmlx.generation.pace import Pace

    Pace.observe = lambda *_: None  # type: ignore[method-assign]
    lib = Library()
    lib.start(device="cpu")
    assert lib.info()["kernels"]["instruction_set"] is None
    context = lib.context(lib.load(folder), kv_bits=int(kv_bits))
    lib.begin(context, prompt(40), max_tokens=0)
    lib.reset(context)
    lib.trim_memory()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    lib.begin(context, prompt(TOKENS), max_tokens=0)
    peak = mx.get_peak_memory() - before
    print(json.dumps([lib.info(context)["estimate"], peak]))
    lib.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
