"""Hosts of 1.0 have room for the params structs of 1.0: an _init writes no more, for ever.

docs/abi.md tells how such a struct grows nevertheless.
"""

from __future__ import annotations

from ctypes import addressof, byref, c_char, memset, sizeof

import pytest
from support import signatures
from support.outputs import POISON

FIRST_SIZES = {"runtime": 64, "model": 48, "context": 56, "generation": 176, "embed": 24}


@pytest.mark.parametrize("noun", sorted(FIRST_SIZES))
def test_init_writes_no_more_than_the_first_version_s_struct(lib, noun):
    kind = signatures.STRUCTS[f"cow_mlx_{noun}_params"]
    room = (c_char * (sizeof(kind) + 64))()
    memset(addressof(room), POISON, sizeof(room))
    getattr(lib.c, f"cow_mlx_{noun}_params_init")(byref(kind.from_buffer(room)))
    assert set(bytes(room)[FIRST_SIZES[noun] :]) == {POISON}


def test_every_params_struct_of_the_first_version_is_covered():
    assert {f"cow_mlx_{noun}_params" for noun in FIRST_SIZES} <= set(signatures.STRUCTS)
