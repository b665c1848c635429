"""Arrays in forked children: kept while the runtime runs, freed once it has stopped."""

import gc
import os
import sys

import mlx.core as mx
from support.library import Library


class Shaped(mx.array):
    """A class of a host's own."""


def freed_by_a_child() -> list[bool]:
    """For an array, an object of a subclass and a cycle: whether a child frees it."""
    read, write = os.pipe()
    cycle: list[object] = []
    cycle += [cycle, mx.zeros(1 << 20)]
    kinds = {"array": mx.zeros(1 << 20), "shaped": Shaped(mx.zeros(1 << 20)), "cycle": cycle}
    mx.eval(kinds["array"], kinds["shaped"], cycle[1])
    del cycle
    child = os.fork()
    if child == 0:
        for kind in list(kinds):
            before = mx.get_active_memory()
            del kinds[kind]
            gc.collect()
            os.write(write, b"1" if mx.get_active_memory() < before else b"0")
        sys.exit(7)
    os.close(write)
    with os.fdopen(read) as told:
        freed = [digit == "1" for digit in told.read()]
    assert os.waitpid(child, 0)[1] == 7 << 8
    return freed


mx.set_default_device(mx.cpu)
lib = Library()
lib.start()
print("running:", freed_by_a_child(), flush=True)  # or a child would write it, too
lib.stop()
print("stopped:", freed_by_a_child())
