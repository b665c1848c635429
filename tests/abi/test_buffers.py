"""Results of variable size, for every function that takes a capacity."""

from __future__ import annotations

from ctypes import Array

import pytest
from support import details
from support.arguments import is_pointer, parameters
from support.library import TELLING
from support.outputs import Buffer
from support.signatures import COMPAT, EBUFFER, OK

SIZED = [f for f, _ in parameters(lambda name, _: name == "capacity") if f not in COMPAT]
SIZES = ("length", "needed", "count", "dims", "rank", "labels")
QUERIED = [function for function in SIZED if function != "cow_mlx_context_next"]


def ask(call, capacity):
    """Make the call with a buffer of that capacity; the buffer and the status."""
    names = [name for name, _ in call.params]
    at = names.index("capacity")
    out = Buffer(dict(call.params)[names[at - 1]]._type_, capacity)
    arguments = dict(zip(names[at - 1 : at + 2], out.arguments(), strict=True))
    # A second buffer of the same capacity.
    if at > 1 and isinstance(call.outputs.get(names[at - 2]), Array):
        pairs = Buffer(dict(call.params)[names[at - 2]]._type_, capacity)
        status = call(**arguments, **{names[at - 2]: pairs.arguments()[0]})
        pairs.check(out.length.value if capacity and status == OK else 0)
        return out, status
    return out, call(**arguments)


@pytest.mark.parametrize("function", QUERIED)
def test_null_asks_for_the_size(call_of, function):
    call = call_of(function)
    out, status = ask(call, 0)
    assert status == OK
    needed = out.length.value
    assert needed > 0
    out, status = ask(call, needed + 8)
    assert status == OK
    assert out.length.value == needed
    out.check(needed)


# Their size is that of a row, and the buffer is for all rows.
ROWS = ("cow_mlx_model_embed", "cow_mlx_model_rank")


@pytest.mark.parametrize("function", SIZED)
def test_small_buffer_is_told_the_size_and_loses_nothing(call_of, function):
    call = call_of(function)
    out, status = ask(call, 0)
    needed = out.length.value
    if function == "cow_mlx_context_next":
        assert status == EBUFFER
    call = call_of(function)  # a query may have written other outputs
    for capacity in {1, needed - 1} - {0, needed}:
        out, status = ask(call, capacity)
        assert status == EBUFFER
        assert out.length.value == needed
        out.check_untouched(size_allowed=True)
        assert call.untouched()
        if function == TELLING:
            continue
        assert str(capacity) in call.lib.message()
        assert str(needed) in call.lib.message()
        told = details.read(call.lib.c)
        assert told["reason"] == "buffer_too_small"
        elements = (told["details"]["needed"], told["details"]["capacity"])
        assert elements == (needed, capacity) or function in ROWS
    out, status = ask(call, needed)
    assert status == OK
    assert out.length.value == needed
    out.check(needed)


def test_next_gives_the_same_piece_after_a_small_buffer(lib, calf):
    """No token is lost, whatever sizes are tried."""
    prompt = lib.tokenize(calf, "Once upon a time")
    expected = lib.generate(context := lib.context(calf), prompt, max_tokens=12).text
    lib.reset(context)
    lib.begin(context, prompt, max_tokens=12)
    text = ""
    while (piece := lib.next(context, capacity=0)).status != 1:
        if piece.status == EBUFFER:
            assert lib.next(context, capacity=piece.needed - 1).needed == piece.needed
            piece = lib.next(context, capacity=piece.needed)
        text += piece.text
    assert text == expected
    lib.free(context)


def test_capacity_is_a_parameter_of_every_buffer():
    """The list above is found by this name."""
    written = parameters(lambda name, kind: name in SIZES and is_pointer(kind))
    assert {function for function, _ in written} == set(SIZED)
