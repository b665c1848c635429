"""Every field of every params struct has an effect, or is refused by its name."""

from __future__ import annotations

import math
from ctypes import POINTER, c_char_p, c_float, c_int32, cast

import pytest
from driver import delivered, prompt
from support import signatures
from support.library import StatusError
from support.signatures import EINVAL, ESTATE, EUNSUPPORTED

START = prompt(8)

# What is not supported yet: the values that must be refused.
UNSUPPORTED = {
    "generation": {
        "typical_p": [0.5, 0.0, 2.0, -1.0, math.nan, math.inf],
        "xtc_probability": [0.5, 1.0, -1.0, math.nan, math.inf],
        "xtc_threshold": [0.1, math.nan],
        "presence_penalty": [0.5, -0.5, math.nan, math.inf],
        "frequency_penalty": [0.5, -0.5, math.nan, math.inf],
        "bias_count": [1],
        "grammar": ["root ::= 'a'", ""],
        "grammar_kind": [1, 2, 3, 4, 5, -1],
        "logprobs": [1, -1, 5],
        "draft": [1, -1],
        "draft_tokens": [1, -1],
    },
    "context": {"kv_bits": [2, 3, 4, 6, 8, 16, -1], "kv_group_size": [32, 64, -1]},
    "model": {},
    "runtime": {},
}
# Out of range: the values, and a number or word of the message that says what is accepted.
INVALID = {
    "generation": {
        "temperature": [-0.1, -math.inf, math.inf, math.nan],
        "top_p": [0.0, -0.5, 1.01, math.inf, math.nan],
        "min_p": [-0.01, 1.01, math.inf, math.nan],
        "top_k": [-1, -(2**31)],
        "repetition_penalty": [0.0, -1.0, math.inf, math.nan],
    },
    "context": {"max_tokens": [513, 2**64 - 1]},
    "model": {},
    "runtime": {},
}
# Where a test shows the effect of a field, if it is not in this file.
SHOWN = {
    "generation": {
        "max_tokens": "test_finish",
        "temperature": "test_sampling",
        "top_p": "test_sampling",
        "min_p": "test_sampling",
        "top_k": "test_sampling",
        "repetition_penalty": "test_sampling",
        "repetition_window": "test_sampling",
        "seed": "test_sampling",
        "stop": "test_stop_texts",
        "stop_count": "test_stop_texts",
        "prompt_progress": "test_callbacks",
        "user_data": "here",
        "bias_tokens": "goes with bias_count",
        "bias_values": "goes with bias_count",
    },
    "context": {"max_tokens": "test_finish", "solo": "here", "priority": "test_concurrency"},
    "model": {
        "adapter_path": "here",
        "progress": "test_load",
        "user_data": "here",
        "lazy": "test_load",
        "trust_remote_code": "test_bad_models",
    },
    "runtime": {
        "python_home": "tests/boot",
        "device": "here",
        "memory_limit": "here",
        "cache_limit": "here",
        "log": "tests/boot",
        "log_user_data": "tests/boot",
        "log_level": "tests/boot",
    },
}
NOUNS = sorted(SHOWN)


def cases(table):
    return [
        pytest.param(noun, field, value, id=f"{noun}.{field}={value}")
        for noun, fields in table.items()
        for field, values in fields.items()
        for value in values
    ]


def call_with(lib, model, noun, field, value):
    """Make the call that takes these params."""
    params = lib.params(noun, **{"max_tokens": 1} if noun == "generation" else {field: 0})
    kind = dict(params._fields_)[field]
    setattr(params, field, value.encode() if kind is c_char_p else value)
    if field == "bias_count":
        params.bias_tokens = cast((c_int32 * 1)(5), POINTER(c_int32))
        params.bias_values = cast((c_float * 1)(1.0), POINTER(c_float))
    if noun == "context":
        out = c_int32(-77)
        status = lib.c.cow_mlx_context_create(model, params, out)
        assert out.value == -77 or status == 0
        return status
    context = lib.context(model)
    try:
        return lib.c.cow_mlx_context_begin(context, (c_int32 * 3)(11, 12, 13), 3, params)
    finally:
        message = lib.message()
        tokens = lib.tokens(context)
        lib.free(context)
        assert not message or tokens == [], "refused, but something was done"
        call_with.message = message


@pytest.mark.parametrize("noun", NOUNS)
def test_every_field_is_shown_somewhere(noun):
    fields = {name for name, _ in signatures.STRUCTS[f"cow_mlx_{noun}_params"]._fields_}
    known = {*UNSUPPORTED[noun], *INVALID[noun], *SHOWN[noun]}
    assert fields - {"struct_size"} == known


def refused(lib, tiny, noun, field, value, status):
    model = tiny("llama")
    if noun == "context":
        with pytest.raises(StatusError) as error:
            lib.context(model, **{field: value})
        got, message = error.value.status, error.value.message
    else:
        got = call_with(lib, model, noun, field, value)
        message = call_with.message
    assert got == status, message
    assert field in message
    operation = "context_create" if noun == "context" else "context_begin"
    assert message.startswith(f"{operation}: ")
    return message


@pytest.mark.parametrize(("noun", "field", "value"), cases(UNSUPPORTED))
def test_what_is_not_supported_is_refused_by_name(lib, tiny, noun, field, value):
    message = refused(lib, tiny, noun, field, value, EUNSUPPORTED)
    assert "not supported" in message


@pytest.mark.parametrize(("noun", "field", "value"), cases(INVALID))
def test_what_is_out_of_range_is_refused_with_the_range(lib, tiny, noun, field, value):
    message = refused(lib, tiny, noun, field, value, EINVAL)
    shown = str(value) if isinstance(value, int) else f"{value:g}"
    assert shown in message
    assert any(word in message for word in ("must be", "is accepted", "stands for"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0),
        ("temperature", 1e-30),
        ("temperature", 3e38),
        ("top_p", 1e-30),
        ("top_p", 1.0),
        ("min_p", 0.0),
        ("min_p", 1.0),
        ("top_k", 0),
        ("top_k", 2**31 - 1),
        ("repetition_penalty", 1e-30),
        ("repetition_penalty", 3e38),
        ("repetition_window", 1),
        ("repetition_window", 2**64 - 1),
        ("seed", 2**64 - 1),
    ],
)
def test_the_ends_of_the_ranges_work(lib, tiny, open_context, field, value):
    context = open_context(tiny("llama"))
    settings = {"temperature": 1.0, "repetition_penalty": 1.1, "top_p": 0.9, "max_tokens": 4}
    lib.begin(context, START, **{**settings, field: value})
    pieces = lib.drain(context)
    assert all(
        0 <= token < lib.info(tiny("llama"))["vocabulary_size"] for token in delivered(pieces)
    )
    assert len(delivered(pieces)) == 4


def test_a_window_of_no_tokens_for_a_penalty_is_refused(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    with pytest.raises(StatusError) as error:
        lib.begin(context, START, repetition_penalty=1.5, repetition_window=0)
    assert error.value.status == EINVAL
    assert "repetition_window" in error.value.message


@pytest.mark.parametrize("count", [1, 3, 5000, 2**64 - 1])
def test_stop_texts_that_are_not_there(lib, tiny, count):
    call_with(lib, tiny("llama"), "generation", "stop_count", count)
    assert "stop" in call_with.message
    assert str(count) in call_with.message


def test_a_null_and_an_empty_stop_text(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    for texts in ((b"a", None), (b"a", b"")):
        params = lib.params("generation", max_tokens=1)
        params.stop = (c_char_p * 2)(*texts)
        params.stop_count = 2
        status = lib.c.cow_mlx_context_begin(context, (c_int32 * 1)(11), 1, params)
        assert status == EINVAL
        assert "stop[1]" in lib.message()


def test_a_stop_text_that_is_not_utf8(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    params = lib.params("generation", max_tokens=1)
    params.stop = (c_char_p * 1)(b"a\xff")
    params.stop_count = 1
    assert lib.c.cow_mlx_context_begin(context, (c_int32 * 1)(11), 1, params) == EINVAL
    assert "stop[0]" in lib.message()
    assert "UTF-8" in lib.message()


# ------------------------------------------- Fields whose effect is shown here


def test_user_data_reaches_the_callbacks(lib, tiny, folder, open_context):
    """The pointer itself, whatever it is."""
    seen = []
    kind = signatures.cow_mlx_prompt_fn
    params = lib.params("generation", max_tokens=0)
    params.prompt_progress = prompt_progress = kind(lambda done, total, data: not seen.append(data))
    params.user_data = 0x1234
    context = open_context(tiny("llama"))
    assert lib.c.cow_mlx_context_begin(context, (c_int32 * 1)(11), 1, params) == 0
    assert set(seen) == {0x1234}
    assert prompt_progress

    seen.clear()
    params = lib.params("model", lazy=False)
    progress = signatures.cow_mlx_progress_fn(lambda *arguments: not seen.append(arguments[-1]))
    params.progress, params.user_data = progress, 0x5678
    out = c_int32()
    assert lib.c.cow_mlx_model_load(bytes(folder("llama-other")), params, out) == 0
    lib.free_model(out.value)
    assert set(seen) == {0x5678}


def test_context_params_are_reported(lib, tiny, open_context):
    context = open_context(tiny("llama"), max_tokens=77, solo=True, priority=-3)
    info = lib.info(context)
    assert (info["max_tokens"], info["solo"], info["priority"]) == (77, True, -3)
    info = lib.info(open_context(tiny("llama")))
    assert (info["max_tokens"], info["solo"], info["priority"]) == (512, False, 0)


@pytest.mark.parametrize(
    "changes",
    [{"device": "cpu"}, {"device": "tpu"}, {"memory_limit": 1 << 30}, {"cache_limit": 1 << 20}],
    ids=str,
)
def test_another_start_with_other_params_is_refused(lib, changes):
    """The runtime runs with the defaults here; a test of its own process shows the effects."""
    if changes == {"device": "cpu"} and lib.info()["device"] == "cpu":
        changes = {"device": "gpu"}
    with pytest.raises(StatusError) as error:
        lib.start(**changes)
    assert error.value.status == ESTATE
    assert lib.info()["device"]


def test_an_adapter_that_is_not_there(lib, folder, tmp_path):
    with pytest.raises(StatusError) as error:
        lib.load(folder("llama"), adapter_path=tmp_path / "none")
    assert error.value.name == "ENOENT"
    assert str(tmp_path / "none") in error.value.message
