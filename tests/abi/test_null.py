"""NULL for every pointer of every function."""

from __future__ import annotations

import pytest
from support import details
from support.arguments import is_pointer, parameters
from support.signatures import COMPAT, EINVAL, FUNCTIONS

from tools.bindings.generate import PUBLIC
from tools.bindings.header import read_headers

COUNTS = ("length", "count", "capacity")


def is_counted(names, name):
    """Whether NULL is accepted only with a count of 0, as for texts, lists and buffers."""
    next_names = names[names.index(name) + 1 :]
    return next_names[0] in COUNTS or next_names[:2] == ["logprobs", "capacity"]


# COW_MLX_NULLABLE in the header; every other pointer must not be NULL.
MAY_BE_NULL = {
    *parameters(lambda name, _: name == "user_data"),
    ("cow_mlx_load_model", "progress"),
}
for function in read_headers([PUBLIC])[0].functions:
    names = [name for name, _ in function.signature.params]
    for name, type_ in function.signature.params:
        if type_.nullable and not is_counted([*names, ""], name):
            MAY_BE_NULL.add((function.name, name))
POINTERS = parameters(lambda _, kind: is_pointer(kind))


@pytest.mark.parametrize(("function", "parameter"), POINTERS)
def test_null(call_of, function, parameter):
    call = call_of(function)
    result = call(**{parameter: None})
    if (function, parameter) in MAY_BE_NULL:
        assert not call.failed(result, EINVAL), call.lib.message()
        call.undo(result)
    else:
        assert call.failed(result, EINVAL)
        assert parameter in call.lib.message()
        if function not in COMPAT:
            assert details.read(call.lib.c)["details"]["argument"] == parameter
        assert "NULL" in call.lib.message()
        assert call.untouched()


@pytest.mark.parametrize("function", sorted({function for function, _ in POINTERS}))
def test_without_null_the_call_succeeds(call_of, function):
    """The other test would hold for calls that fail for another reason, too."""
    if function == "cow_mlx_media_from_file":
        pytest.importorskip("PIL", reason="pillow is not installed")
    call = call_of(function)
    result = call()
    assert call.lib.message() == ""
    assert FUNCTIONS[function][0] is None or result >= 0
    call.undo(result)
