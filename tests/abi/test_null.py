"""NULL for every pointer of every function."""

from __future__ import annotations

import pytest
from support import details
from support.arguments import is_pointer, parameters
from support.signatures import COMPAT, EINVAL, FUNCTIONS

# "May be NULL" in the header; every other pointer must not be.
MAY_BE_NULL = {
    *parameters(lambda name, _: name == "user_data"),
    *parameters(lambda name, kind: name == "params" and "fit_params" not in str(kind)),
    ("cow_mlx_fit_params_init", "params"),
    ("cow_mlx_load_model", "progress"),
    ("cow_mlx_model_chat_prompt", "options_json"),
    ("cow_mlx_context_next", "piece"),
    ("cow_mlx_context_generate", "on_text"),
    ("cow_mlx_context_generate", "stats"),
    ("cow_mlx_context_chat", "options_json"),
    ("cow_mlx_context_chat", "on_event"),
    ("cow_mlx_context_chat", "stats"),
    ("cow_mlx_context_chat_async", "options_json"),
    ("cow_mlx_array_view", "layout"),
    ("cow_mlx_array_apply", "attributes_json"),
    ("cow_mlx_program_info", "dimensions"),
    ("cow_mlx_training_step", "event"),
    ("cow_mlx_training_fit", "on_event"),
    ("cow_mlx_training_export", "options_json"),
}
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
    call = call_of(function)
    result = call()
    assert call.lib.message() == ""
    assert FUNCTIONS[function][0] is None or result >= 0
    call.undo(result)
