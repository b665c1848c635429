"""Structs that grow: hosts compiled with an older or a newer header."""

from __future__ import annotations

from ctypes import addressof, byref, c_char, cast, memmove, memset, pointer, sizeof

import pytest
from support import signatures
from support.arguments import Call, parameters
from support.outputs import POISON
from support.signatures import EINVAL

TAIL = 24
NOUNS = [
    name.removeprefix("cow_mlx_").removesuffix("_params")
    for name in signatures.STRUCTS
    if name.endswith("_params")
]
WORD = sizeof(signatures.STRUCTS["cow_mlx_piece"].struct_size.size * c_char)

STRUCT_POINTERS = {
    (function, name): kind._type_
    for function, name in parameters(lambda *_: True)
    for kind in [dict(signatures.FUNCTIONS[function][1])[name]]
    if getattr(kind, "_type_", None) in signatures.STRUCTS.values()
}
INPUTS = [
    pair
    for pair in STRUCT_POINTERS
    if pair[1] in ("params", "from", "to") and not pair[0].endswith("_init")
]
OUTPUTS = [pair for pair in STRUCT_POINTERS if pair[1] in ("piece", "stats", "layout", "event")]


def test_every_struct_is_covered():
    rest = {pair for pair in STRUCT_POINTERS if not pair[0].endswith("_init")}
    lists = {("cow_mlx_model_embed", "texts"), ("cow_mlx_model_rank", "documents")}
    lists |= {("cow_mlx_program_run", name) for name in ("inputs", "outputs")}
    lists |= {("cow_mlx_training_step", "inputs")}
    assert rest == {*INPUTS, *OUTPUTS, *lists}


def sized(call: Call, name: str, size: int, tail: int = 0):
    """The call's struct with ``size`` as its struct_size, ``tail`` in every byte behind it."""
    original = call.outputs[name] if name in call.outputs else call.values[name]._obj
    kind = type(original)
    raw = (c_char * (sizeof(kind) + TAIL))()
    memset(addressof(raw), tail, sizeof(raw))
    memmove(addressof(raw), addressof(original), sizeof(kind))
    cast(raw, type(pointer(original))).contents.struct_size = size
    return raw, cast(raw, type(pointer(original)))


@pytest.mark.parametrize("size", [0, 1, 7, 2**20, 2**64 - 1])
@pytest.mark.parametrize(("function", "name"), INPUTS + OUTPUTS)
def test_size_that_none_can_have(call_of, function, name, size):
    call = call_of(function)
    _, struct = sized(call, name, size)
    assert call.failed(call(**{name: struct}), EINVAL)
    assert str(size) in call.lib.message()
    assert call.untouched()


@pytest.mark.parametrize(("function", "name"), INPUTS)
def test_newer_struct_with_unknown_options(call_of, function, name):
    call = call_of(function)
    kind = STRUCT_POINTERS[function, name]
    raw, struct = sized(call, name, sizeof(kind) + TAIL)
    raw[sizeof(kind) + TAIL - 1] = 1
    assert call.failed(call(**{name: struct}), EINVAL)
    assert str(sizeof(kind) + TAIL) in call.lib.message()
    assert call.untouched()


@pytest.mark.parametrize(("function", "name"), INPUTS)
def test_newer_struct_without_unknown_options(call_of, function, name):
    call = call_of(function)
    _, struct = sized(call, name, sizeof(STRUCT_POINTERS[function, name]) + TAIL)
    result = call(**{name: struct})
    assert result == signatures.OK, call.lib.message()
    call.undo(result)


@pytest.mark.parametrize(("function", "name"), INPUTS)
def test_older_struct(call_of, function, name):
    """Options behind the older end are not read, whatever lies there."""
    kind = STRUCT_POINTERS[function, name]
    # Of a tensor all is needed but its strides.
    optional = kind._fields_[1:] if name == "params" else [("strides", None)]
    if kind is signatures.cow_mlx_fit_params:  # and of a fit the data
        names = [field for field, _ in kind._fields_]
        optional = kind._fields_[names.index("next_batch") :]
    if kind is signatures.cow_mlx_rank_params:  # calf was not trained to answer yes or no
        names = [field for field, _ in kind._fields_]
        optional = kind._fields_[names.index("normalize") :]
    for cut in {getattr(kind, field).offset for field, _ in optional} | {sizeof(kind)}:
        call = call_of(function)
        raw, struct = sized(call, name, cut)
        memset(addressof(raw) + cut, 0xFF, sizeof(raw) - cut)
        result = call(**{name: struct})
        assert result == signatures.OK, call.lib.message()
        call.undo(result)


@pytest.mark.parametrize(("function", "name"), OUTPUTS)
def test_output_is_cut_to_the_older_struct(call_of, function, name):
    kind = STRUCT_POINTERS[function, name]
    cut = getattr(kind, kind._fields_[2][0]).offset
    call = call_of(function)
    raw, struct = sized(call, name, cut, tail=POISON)
    memset(addressof(raw) + WORD, POISON, sizeof(raw) - WORD)
    assert call(**{name: struct}) == signatures.OK, call.lib.message()
    data = bytes(raw)
    assert set(data[cut:]) == {POISON}
    assert set(data[WORD:cut]) != {POISON}


@pytest.mark.parametrize(("function", "name"), OUTPUTS)
def test_output_in_a_newer_struct(call_of, function, name):
    kind = STRUCT_POINTERS[function, name]
    call = call_of(function)
    raw, struct = sized(call, name, sizeof(kind) + TAIL, tail=POISON)
    assert call(**{name: struct}) == signatures.OK, call.lib.message()
    assert set(bytes(raw)[sizeof(kind) :]) == {POISON}


@pytest.mark.parametrize("noun", NOUNS)
def test_init_fills_every_byte_that_it_tells(lib, noun):
    params = signatures.STRUCTS[f"cow_mlx_{noun}_params"]()
    memset(addressof(params), POISON, sizeof(params))
    getattr(lib.c, f"cow_mlx_{noun}_params_init")(byref(params), sizeof(params))
    assert params.struct_size == sizeof(params)
    for field, _ in params._fields_[1:]:
        descriptor = getattr(type(params), field)
        data = bytes(params)[descriptor.offset : descriptor.offset + descriptor.size]
        assert set(data) != {POISON}, f"{field} has no default"
