"""Greedy tokens and text are those of plain mlx-lm.

The text of random tokens is compared with what its tokenizer makes of all of
them at once: mlx-lm's streams drop a leading space, and show NUL as a letter.
"""

from __future__ import annotations

import pytest
from driver import delivered, text_of
from support import tiny_models
from support.signatures import FINISH_LENGTH, FINISH_STOP
from tasks import BEYOND_WINDOWS, COUNT, LONG, LONG_MODELS, SHORT, TASKS

TINY = [
    *(
        f"{family} {length}"
        for family in tiny_models.FAMILIES
        for length in (SHORT, BEYOND_WINDOWS)
    ),
    *(f"{model} {LONG}" for model in LONG_MODELS),
]


def test_there_are_families_enough():
    assert len(tiny_models.FAMILIES) >= 14


@pytest.mark.parametrize("name", TINY)
def test_next_gives_the_tokens_and_the_text_of_mlx_lm(lib, tiny, mlx_lm, open_context, name):
    task, expected = TASKS[name], mlx_lm(name)
    context = open_context(tiny(task["model"]))
    lib.begin(context, task["prompt"], max_tokens=COUNT)
    pieces = lib.drain(context)
    assert delivered(pieces) == expected["tokens"]
    assert text_of(pieces) == expected["decoded"]
    assert pieces[-1].finish == FINISH_LENGTH


@pytest.mark.parametrize("name", TINY[::5])
def test_generate_gives_the_same_as_next(lib, tiny, mlx_lm, open_context, name):
    task, expected = TASKS[name], mlx_lm(name)
    context = open_context(tiny(task["model"]))
    result = lib.generate(context, task["prompt"], max_tokens=COUNT)
    assert result.text == expected["decoded"]
    assert result.stats.generated_tokens == COUNT
    assert result.stats.prompt_tokens == len(task["prompt"])
    assert lib.tokens(context) == task["prompt"] + expected["tokens"][:-1]


def test_calf_tells_the_story_that_it_tells_mlx_lm(lib, calf, mlx_lm, open_context):
    task, expected = TASKS["calf"], mlx_lm("calf")
    prompt = lib.chat_prompt(calf, task["messages"])
    assert prompt == expected["prompt"]
    context = open_context(calf)
    lib.begin(context, prompt, max_tokens=task["max_tokens"])
    pieces = lib.drain(context)
    end = [pieces[-1].token] if pieces[-1].finish == FINISH_STOP else []
    assert delivered(pieces) + end == expected["tokens"]
    assert text_of(pieces) == expected["text"]
