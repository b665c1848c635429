"""What is freed is gone."""

from __future__ import annotations

import gc

import pytest
from driver import KINDS, greedy, opened, prompt
from support.library import StatusError
from support.signatures import EHANDLE


@pytest.fixture(autouse=True, scope="module")
def warm(lib, tiny, folder):
    """Everything once: mlx-lm's modules make a few constants when they are first used."""
    for kind in KINDS:
        with opened(lib, tiny(kind)) as context:
            lib.generate(context, prompt(100), max_tokens=4)
    model = lib.load(folder("llama-big"))
    with opened(lib, model) as context:
        lib.generate(context, prompt(5), max_tokens=4)
    lib.free_model(model)


# Angles of positions and keys of random numbers that a first use makes. A context that left a
# number behind would leave thousands of bytes, since tests open many, or generate much.
CONSTANTS = 1024


def active(lib):
    gc.collect()  # the library is in the Python of the tests, whose garbage may hold arrays
    lib.trim_memory()
    memory = lib.info()["memory"]
    assert memory["cache"] == 0
    return memory["active"]


def test_a_thousand_contexts_come_and_go(lib, tiny):
    """Some used, some not; memory stays flat, and no handle comes twice."""
    models = [tiny(kind) for kind in KINDS]
    open_before = lib.info()["handles"]

    def use(numbers):
        for number in numbers:
            model = models[number % len(models)]
            context = lib.context(model)
            seen.append(context)
            if number % 20 < len(models):
                lib.begin(context, prompt(10), max_tokens=4)
                lib.next(context)
            lib.free(context)

    seen = []
    use(range(20))
    settled = active(lib)
    use(range(1000))
    assert active(lib) <= settled + CONSTANTS
    assert lib.info()["handles"] == open_before
    assert len(set(seen)) == len(seen)


def test_many_open_contexts_give_their_memory_back(lib, tiny):
    before = active(lib)
    contexts = [lib.context(tiny("llama")) for _ in range(60)]
    for context in contexts:
        lib.begin(context, prompt(20), max_tokens=0)
    held = sum(lib.info(context)["bytes"] for context in contexts)
    assert active(lib) - before >= held > 0
    assert lib.info()["handles"]["context"] >= 60
    for context in contexts:
        lib.free(context)
    assert active(lib) - before < CONSTANTS < held


def test_a_model_gives_its_memory_back(lib, folder):
    before = active(lib)
    for _ in range(3):
        model = lib.load(folder("llama-big"))
        assert active(lib) - before >= lib.info(model)["bytes"]
        lib.free_model(model)
        assert active(lib) <= before + CONSTANTS


def test_a_model_lives_until_its_last_context_is_freed(lib, folder):
    before = active(lib)
    model = lib.load(folder("llama-big"))
    size = lib.info(model)["bytes"]
    contexts = [lib.context(model) for _ in range(2)]
    lib.free_model(model)
    with pytest.raises(StatusError) as unknown:
        lib.info(model)
    assert unknown.value.status == EHANDLE
    expected = greedy(lib, contexts[0], prompt(5), 4)
    lib.free(contexts[0])
    assert active(lib) - before >= size
    assert greedy(lib, contexts[1], prompt(5), 4) == expected
    lib.free(contexts[1])
    assert active(lib) <= before + CONSTANTS


@pytest.mark.parametrize("kind", KINDS)
def test_a_reset_gives_the_cache_back(lib, tiny, open_context, kind):
    context = open_context(tiny(kind))
    before = active(lib)
    lib.begin(context, prompt(100), max_tokens=0)
    assert lib.info(context)["bytes"] > 0
    assert active(lib) > before
    lib.reset(context)
    assert lib.info(context)["bytes"] == 0
    assert active(lib) <= before + CONSTANTS


def test_generating_for_long_in_one_context_does_not_leak(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.generate(context, prompt(5), max_tokens=400)
    settled = active(lib)
    for _ in range(3):
        lib.reset(context)
        lib.generate(context, prompt(5), max_tokens=400)
    assert active(lib) <= settled + CONSTANTS


def test_the_handle_counts_are_those_of_open_handles(lib, tiny, folder):
    tiny("llama")
    before = lib.info()["handles"]
    model = lib.load(folder("llama"))
    contexts = [lib.context(model) for _ in range(3)]
    lib.checkpoint(contexts[0])
    counts = lib.info()["handles"]
    more = {"model": 1, "context": 3, "adapter": 0, "media": 0, "checkpoint": 1, "program": 0}
    more |= {"training": 0, "array": 0}
    assert counts == {kind: before[kind] + more[kind] for kind in before}
    for context in contexts:  # a checkpoint goes with its context
        lib.free(context)
    lib.free_model(model)
    assert lib.info()["handles"] == before


def test_a_handle_freed_twice(lib, tiny):
    context = lib.context(tiny("llama"))
    lib.free(context)
    with pytest.raises(StatusError) as unknown:
        lib.free(context)
    assert unknown.value.status == EHANDLE
    assert str(context) in unknown.value.message
