"""An _init fills as many bytes as its caller's struct has, older or newer than the library's."""

from __future__ import annotations

from ctypes import addressof, c_char, c_size_t, memset, sizeof

import pytest
from support import signatures
from support.outputs import POISON

STRUCTS = [name for name in signatures.STRUCTS if name.endswith("_params")]


def filled(lib, struct: str, size: int) -> bytes:
    """Poisoned memory after an _init of a struct that is that large, as bytes."""
    room = (c_char * (size + 64))()
    memset(addressof(room), POISON, sizeof(room))
    getattr(lib.c, f"{struct}_init")(
        signatures.STRUCTS[struct].from_address(addressof(room)), c_size_t(size)
    )
    return bytes(room)


@pytest.mark.parametrize("struct", STRUCTS)
def test_an_older_host_gets_the_beginning(lib, struct):
    known = sizeof(signatures.STRUCTS[struct])
    whole = filled(lib, struct, known)
    for size in range(sizeof(c_size_t), known, 4):
        room = filled(lib, struct, size)
        assert int.from_bytes(room[:8], "little") == size
        assert room[8:size] == whole[8:size]
        assert set(room[size:]) == {POISON}


@pytest.mark.parametrize("struct", STRUCTS)
def test_a_newer_host_gets_zeros_behind_what_is_known(lib, struct):
    known = sizeof(signatures.STRUCTS[struct])
    whole = filled(lib, struct, known)
    room = filled(lib, struct, known + 40)
    assert int.from_bytes(room[:8], "little") == known + 40
    assert room[8:known] == whole[8:known]
    assert set(room[known : known + 40]) == {0}
    assert set(room[known + 40 :]) == {POISON}


@pytest.mark.parametrize("size", [0, 7, 2**63])
def test_a_size_that_is_none_changes_nothing(lib, size):
    for struct in STRUCTS:
        room = (c_char * 512)()
        memset(addressof(room), POISON, sizeof(room))
        getattr(lib.c, f"{struct}_init")(
            signatures.STRUCTS[struct].from_address(addressof(room)), c_size_t(size)
        )
        assert set(bytes(room)) == {POISON}


def test_null_is_ignored(lib):
    for struct in STRUCTS:
        getattr(lib.c, f"{struct}_init")(None, c_size_t(64))
