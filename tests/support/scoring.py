"""The calls that score given tokens, as functions of Python."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_double, c_float, c_int32, c_size_t

from support.library import Library
from support.outputs import Buffer, poisoned


def prompt_logprobs(
    lib: Library, context: int, tokens: Sequence[int], top: int = 0
) -> list[list[tuple[int, float]]]:
    """A row for each token: itself and the most probable ones, with log probabilities."""
    given = context, (c_int32 * len(tokens))(*tokens), len(tokens), top
    function = lib.c.cow_mlx_context_prompt_logprobs
    size = poisoned(c_size_t)
    lib.check(function(*given, None, None, 0, byref(size)), size)
    room = size.value
    ids, values = Buffer(c_int32, room), Buffer(c_float, room)
    status = function(*given, ids.arguments()[0], values.arguments()[0], room, byref(size))
    lib.check(status, ids, values)
    assert size.value == room
    ids.check(room)
    values.check(room)
    pairs = list(zip(ids.data[:room], values.data[:room], strict=True))
    return [pairs[start : start + 1 + top] for start in range(0, room, 1 + top)]


def prompt_logits(
    lib: Library, context: int, tokens: Sequence[int], positions: Sequence[int]
) -> list[list[float]]:
    """The logits behind the tokens at some positions."""
    given = (c_int32 * len(tokens))(*tokens), len(tokens)
    chosen = (c_int32 * len(positions))(*positions), len(positions)
    flat = lib._fill(c_float, lib.c.cow_mlx_context_prompt_logits, context, *given, *chosen)
    width = len(flat) // len(positions)
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def hidden_states(lib: Library, context: int, tokens: Sequence[int]) -> list[list[float]]:
    """The hidden states of tokens."""
    given = (c_int32 * len(tokens))(*tokens), len(tokens)
    flat = lib._fill(c_float, lib.c.cow_mlx_context_hidden_states, context, *given)
    width = len(flat) // len(tokens)
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def perplexity(lib: Library, context: int, text: str, window: int = 0) -> tuple[float, float, int]:
    """The perplexity of a text, its standard error, and the scored tokens."""
    data = text.encode()
    outputs = poisoned(c_double), poisoned(c_double), poisoned(c_size_t)
    function = lib.c.cow_mlx_context_perplexity
    status = function(context, data, len(data), window, *map(byref, outputs))
    lib.check(status, *outputs)
    found, deviation, scored = (output.value for output in outputs)
    return found, deviation, scored
