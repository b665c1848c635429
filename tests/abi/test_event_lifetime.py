"""Callbacks: they may call the library, and what they get lives as long as they run."""

from __future__ import annotations

import threading
from ctypes import c_int32, string_at

import pytest
from support.library import StatusError
from support.signatures import ECANCELED, EHANDLE, ESTATE, cow_mlx_text_fn

PROMPT = "Once upon a time"


@pytest.fixture
def prompt(lib, calf) -> list[int]:
    return lib.tokenize(calf, PROMPT)


def churn(lib, calf) -> None:
    """Make the interpreter reuse what was freed."""
    for number in range(100):
        lib.detokenize(calf, [5 + number] * (number % 7 + 1))
        lib.info(calf)


def test_callback_runs_on_the_calling_thread(lib, context, prompt):
    threads = set()
    lib.generate(context, prompt, lambda _: threads.add(threading.get_ident()), max_tokens=4)
    assert threads == {threading.get_ident()}


def test_false_is_the_last_thing_a_callback_says(lib, context, prompt):
    for turn in range(50):
        said: list[bool] = []
        with pytest.raises(StatusError) as error:
            lib.generate(context, prompt, lambda _, said=said: said.append(True) or False)
        assert error.value.status == ECANCELED
        assert len(said) == 1, turn


def test_success_after_a_failed_call_in_a_callback_has_no_message(lib, context, prompt):
    statuses = []

    def fail(_: str) -> None:
        statuses.append(lib.c.cow_mlx_context_free(0))
        assert lib.message().startswith("context_free: ")

    lib.generate(context, prompt, fail, max_tokens=4)
    assert set(statuses) == {EHANDLE}
    assert lib.message() == ""


def test_failure_has_its_own_message_after_a_call_in_a_callback(lib, calf, prompt):
    context = lib.context(calf)

    def free(_: str) -> None:
        lib.free(context)
        lib.tokenize(calf, "Hello")

    with pytest.raises(StatusError) as error:
        lib.generate(context, prompt, free)
    assert error.value.status == ECANCELED
    assert error.value.message.startswith("context_generate: ")


def test_busy_context_is_refused_in_its_own_callback(lib, context, prompt):
    statuses = []
    lib.generate(
        context,
        prompt,
        lambda _: statuses.append(lib.c.cow_mlx_context_reset(context)),
        max_tokens=2,
    )
    assert set(statuses) == {ESTATE}


@pytest.mark.parametrize("ending", ["free", "cancel"])
def test_text_lives_until_the_callback_returns(lib, calf, prompt, ending):
    """Even if the context does not."""
    context = lib.context(calf)
    texts: list[tuple[bytes, bytes]] = []

    @cow_mlx_text_fn
    def look_twice(data, length, _):
        before = string_at(data, length)
        if len(before) > 2:  # shorter texts are never freed
            getattr(lib, ending)(context)
            churn(lib, calf)
            texts.append((before, string_at(data, length)))
        return True

    array = (c_int32 * len(prompt))(*prompt)
    status = lib.c.cow_mlx_context_generate(
        context, array, len(prompt), None, look_twice, None, None
    )
    assert status == ECANCELED
    assert [before for before, _ in texts] == [after for _, after in texts]
    assert texts
    if ending == "cancel":
        lib.free(context)


def test_stage_lives_until_the_callback_returns(lib, calf):
    """While other calls come and go."""
    stages = []

    def look(fraction: float, stage: str) -> None:
        churn(lib, calf)
        stages.append((fraction, stage))

    lib.free_model(lib.load(lib.info(calf)["path"], look))
    fractions = [fraction for fraction, _ in stages]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert all(stage.isascii() and stage for _, stage in stages)
