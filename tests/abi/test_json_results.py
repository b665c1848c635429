"""The JSON that calls give, and what the header says of it, name the same keys."""

from __future__ import annotations

import json
import re

import pytest
from support.arguments import Call
from support.headers import HEADERS
from support.library import Library

# What stands in quotes in an entry and is a value, or the key of something else.
VALUES = {
    "cow_mlx_runtime_info": {"booted", "joined", "openblas", "reference", "accelerate"},
    "cow_mlx_model_info": {
        *("light", "mlx-lm", "in_place", "recomputed", "no"),
        *("tensor", "pipeline", "local", "ready", "lost", "ended"),
        *("generate", "embed", "classify"),
    },
    "cow_mlx_model_inspect": {"status", "message", "reason", "details"},  # of a problem
    "cow_mlx_context_info": {"ECANCELED", "canceled"},
}
# Objects whose keys are data: the model's own, or a list of them.
FREE = {("cow_mlx_model_info", "special_tokens"), ("cow_mlx_model_info", "quantization")}


def quoted(function: str) -> set[str]:
    """The words in quotes in a function's entry."""
    for header in HEADERS:
        found = re.search(
            rf"/\*\*((?:(?!\*/).)*)\*/\s*COW_MLX_API [^;/]*?\b{function}\(",
            header.read_text(),
            re.S,
        )
        if found:
            return set(re.findall(r'"([\w-]+)"', found[1]))
    raise AssertionError(f"{function} has no entry")


def keys_of(function: str, value: dict) -> set[str]:
    """All keys of a result, those of the objects in it included."""
    keys = set(value)
    for key, inner in value.items():
        if isinstance(inner, dict) and (function, key) not in FREE:
            keys |= keys_of(function, inner)
    return keys


# Keys of values that a runtime without cached files, calf, or a context without a failure has none
# of.
ABSENT = {
    "cow_mlx_runtime_info": {"path", "folder", "files", "bytes", "written", "found"},
    "cow_mlx_context_info": {"status", "message", "reason", "details"},
    "cow_mlx_model_info": {
        *("rank", "address", "state", "error"),
        *("pooling", "normalized", "prompts", "default_prompt", "max_tokens", "truncate_dims"),
        *("width", "height", "tokens", "max_pixels"),
    },
}


@pytest.mark.parametrize("function", sorted(VALUES))
def test_the_header_names_every_key(lib: Library, calf, call_of, function):
    call: Call = call_of(function)
    assert call() == 0
    found = keys_of(function, json.loads(call.outputs["buffer"].value))
    assert found | ABSENT.get(function, set()) == quoted(function) - VALUES[function]
