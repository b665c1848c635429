"""The names of CowMLX: a whole conversation, and their failures."""

from __future__ import annotations

from ctypes import c_int32, create_string_buffer

import pytest
from support import signatures
from support.paths import CALF

PROGRESS = signatures.FUNCTIONS["cow_mlx_load_model"][1][1][1]
TEXT = b"Once upon a time"


@pytest.fixture
def c(lib):
    """The library's functions."""
    return lib.c


@pytest.fixture
def compat_context(lib, calf):
    handle = lib.c.cow_mlx_create_context(calf, 64)
    yield handle
    lib.c.cow_mlx_free_context(handle)


def tokenize(c, model: int, text: bytes = TEXT) -> list[int]:
    tokens = (c_int32 * 64)()
    count = c.cow_mlx_tokenize(model, text, -1, tokens, 64, True)
    return tokens[:count]


def begin(c, context: int, tokens: list[int]) -> bool:
    array = (c_int32 * len(tokens))(*tokens)
    return c.cow_mlx_generate_begin(context, array, len(tokens), 0.0, 0.0, 0, 0.0, 0.0, 0, 0)


def rest(c, context: int) -> bytes:
    """All that is still to come."""
    text, buffer = b"", create_string_buffer(256)
    while (length := c.cow_mlx_generate_next(context, buffer, 256)) >= 0:
        text += buffer.raw[:length]
    assert c.cow_mlx_get_error() is None, "the generation ended with an error"
    return text


def test_start_and_load(c, calf):
    fractions = []
    assert c.cow_mlx_init()
    progress = PROGRESS(lambda fraction, _: fractions.append(fraction) or True)
    model = c.cow_mlx_load_model(bytes(CALF), progress, None)
    assert model > 0
    assert fractions[-1] == 1
    number = c.cow_mlx_model_get_id(model)
    assert c.cow_mlx_model_from_id(number) == model
    c.cow_mlx_free_model(model)
    assert c.cow_mlx_model_from_id(number) == -1
    c.cow_mlx_shutdown()


def test_load_that_is_refused(c, calf):
    assert c.cow_mlx_load_model(bytes(CALF), PROGRESS(lambda *_: False), None) == -1
    assert b"progress" in c.cow_mlx_get_error()
    assert c.cow_mlx_load_model(b"/nowhere", PROGRESS(), None) == -1
    assert b"/nowhere" in c.cow_mlx_get_error()


def test_generation_is_that_of_the_other_names(lib, c, calf, compat_context):
    tokens = tokenize(c, calf)
    assert tokens == lib.tokenize(calf, TEXT, signatures.ADD_SPECIAL)
    assert begin(c, compat_context, tokens)
    text = rest(c, compat_context)
    other = lib.context(calf, max_tokens=64)
    expected = lib.generate(other, tokens, max_tokens=signatures.NUL).text
    lib.free(other)
    assert text.decode() == expected


def test_tokenize_tells_the_size_needed(c, calf):
    needed = len(tokenize(c, calf))
    assert needed > 1
    small = (c_int32 * 1)(-5)
    assert c.cow_mlx_tokenize(calf, TEXT, -1, small, 1, True) == -needed
    assert small[0] == -5
    assert c.cow_mlx_tokenize(calf, TEXT, -1, None, 0, True) == -needed
    assert c.cow_mlx_tokenize(calf, TEXT, 4, small, 1, False) in (1, -2, -3, -4)
    assert c.cow_mlx_tokenize(calf, b"\xff\xff", -1, small, 1, True) == -1
    assert b"UTF-8" in c.cow_mlx_get_error()


def test_small_buffer_loses_no_text(c, calf, compat_context):
    tokens = tokenize(c, calf)
    assert begin(c, compat_context, tokens)
    expected = rest(c, compat_context)
    c.cow_mlx_reset_context(compat_context)
    assert begin(c, compat_context, tokens)
    buffer = create_string_buffer(256)
    needed = -c.cow_mlx_generate_next(compat_context, buffer, 0)
    assert needed > 0
    first = c.cow_mlx_generate_next(compat_context, buffer, needed)
    assert first == needed
    assert buffer.raw[:first] + rest(c, compat_context) == expected


def test_cache(c, calf, compat_context):
    tokens = tokenize(c, calf)
    assert c.cow_mlx_cache_token_count(compat_context) == 0
    assert begin(c, compat_context, tokens)
    assert c.cow_mlx_cache_token_count(compat_context) == len(tokens)
    assert c.cow_mlx_cache_trim_end(compat_context, 1) == 1
    assert c.cow_mlx_cache_trim_front(compat_context, 1) == 1
    assert c.cow_mlx_cache_token_count(compat_context) == len(tokens) - 2
    assert c.cow_mlx_reset_context(compat_context)
    assert c.cow_mlx_cache_token_count(compat_context) == 0


@pytest.mark.parametrize(
    ("function", "replaced", "failure"),
    [
        ("cow_mlx_tokenize", {"capacity": -1}, -1),
        ("cow_mlx_generate_begin", {"count": -1}, False),
        ("cow_mlx_generate_next", {"capacity": -1}, -1),
        ("cow_mlx_cache_trim_end", {"count": -1}, -1),
        ("cow_mlx_cache_trim_front", {"count": -1}, -1),
    ],
)
def test_negative_size(call_of, function, replaced, failure):
    call = call_of(function)
    assert call(**replaced) == failure
    assert b"-1" in call.lib.c.cow_mlx_get_error()
    assert call.untouched()


def test_end_token(c, lib, calf):
    end = lib.info(calf)["end_tokens"][0]["id"]
    assert c.cow_mlx_is_eog(calf, end)
    assert not c.cow_mlx_is_eog(calf, tokenize(c, calf)[-1])
    assert not c.cow_mlx_is_eog(0, end)
