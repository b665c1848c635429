"""An operation copies an input, and then gets no memory for its result.

Argument: the library that refuses. Prints the bytes of arrays before and after.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np
from support.c_programs import Programs
from support.library import Library, StatusError
from support.programs import graph, node, value
from support.signatures import ENOMEM

SIDE, COUNT = 100, 1000
# The transposed input is copied before memory for the result is asked for.
NODES = [
    node("t", "transpose", "x"),
    node("b", "broadcast_to", "t", shape=[COUNT, SIDE, SIDE]),
    node("s", "add", "b", "b"),
    node("y", "multiply", "s", "b"),
]

lib = Library()
programs = Programs(lib)


def active() -> int:
    """Bytes of arrays when nothing runs."""
    lib.trim_memory()
    return int(lib.info()["memory"]["active"])


def main(refusing: str) -> None:
    """Run a program while every large request is refused."""
    switch = ctypes.CDLL(refusing)
    switch.refuse_arm.argtypes = [ctypes.c_uint64] * 4 + [ctypes.c_size_t]
    lib.start()
    x = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
    made = programs.create(graph([value("x", [SIDE, SIDE])], NODES, ["y"]))
    before = active()
    switch.refuse_spare()
    switch.refuse_arm(1, 0, 1, 0, 4 * SIDE * SIDE * COUNT)
    try:
        programs.run(made, [x])
        raise AssertionError("the result was not refused")
    except StatusError as error:
        assert error.status == ENOMEM, error
    switch.refuse_disarm()
    print(before, active())
    programs.free(made)
    lib.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
