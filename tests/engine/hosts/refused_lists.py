"""Calls whose numbers become lists, while Python gets no memory for some of these.

Arguments: the library that refuses, a model's folder. Prints how often a call was refused.
"""

from __future__ import annotations

import ctypes
import sys

from support.library import Library, StatusError
from support.signatures import EINVAL, ENOMEM

CALLS, ONE_IN = 2000, 20
# Numbers that Python keeps no object for, and more of them than fit into a small list.
TOKENS = [(1 << 20) + number for number in range(600)]

lib = Library()


def main(refusing: str, folder: str) -> None:
    """Pass tokens that the model does not have, again and again."""
    switch = ctypes.CDLL(refusing)
    switch.refuse_arm.argtypes = [ctypes.c_uint64] * 4 + [ctypes.c_size_t]
    lib.start()
    model = lib.load(folder)
    switch.refuse_spare()
    switch.refuse_arm(1, ONE_IN, 0, 0, 1 << 16)
    refused = 0
    for _ in range(CALLS):
        try:
            lib.detokenize(model, TOKENS)
        except StatusError as error:
            assert error.status in (EINVAL, ENOMEM), error
            refused += error.status == ENOMEM
    switch.refuse_disarm()
    assert lib.detokenize(model, lib.tokenize(model, "a fox")) == "a fox"
    lib.stop()
    print(refused)


if __name__ == "__main__":
    main(*sys.argv[1:])
