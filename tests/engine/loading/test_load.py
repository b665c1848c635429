"""Loading: progress, cancelling, several at once, lazily."""

from __future__ import annotations

import threading

import pytest
from driver import greedy, prompt
from support.library import StatusError
from support.signatures import ECANCELED

BIG = "llama-big"
FREQUENCIES = 64  # bytes of a rotation's frequencies, which the process keeps


def test_progress_rises_from_0_to_1(lib, folder):
    seen = []
    lib.free_model(lib.load(folder(BIG), lambda *progress: seen.append(progress)))
    fractions = [fraction for fraction, _ in seen]
    assert fractions[0] == 0
    assert fractions[-1] == 1
    assert fractions == sorted(fractions)
    assert len({fraction for fraction in fractions if 0 < fraction < 1}) > 4
    assert {stage for _, stage in seen} >= {"weights"}
    assert all(stage for _, stage in seen)


def test_progress_is_that_of_weights_in_memory(lib, folder):
    memory = []

    def progress(fraction, stage):
        memory.append((fraction, lib.info()["memory"]["active"]))

    before = lib.info()["memory"]["active"]
    model = lib.load(folder(BIG), progress)
    size = lib.info(model)["bytes"]
    lib.free_model(model)
    for fraction, active in memory:
        # Of the next group, one more may have been started.
        assert active - before >= 0.9 * fraction * size


@pytest.mark.parametrize("at", [0.0, 0.3, 0.6, 1.0])
def test_false_cancels_at_once_and_nothing_stays(lib, folder, at):
    lib.trim_memory()
    before = lib.info()
    seen = []

    def progress(fraction, stage):
        seen.append(fraction)
        return fraction < at

    with pytest.raises(StatusError) as canceled:
        lib.load(folder(BIG), progress)
    assert canceled.value.status == ECANCELED
    assert canceled.value.message.startswith("model_load: ")
    assert [fraction >= at for fraction in seen] == [False] * (len(seen) - 1) + [True]
    lib.trim_memory()
    after = lib.info()
    assert after["handles"] == before["handles"]
    assert after["memory"]["active"] <= before["memory"]["active"] + FREQUENCIES
    assert after["memory"]["cache"] <= before["memory"]["cache"]


def test_refused_at_the_very_first_call(lib, folder):
    calls = []
    with pytest.raises(StatusError) as canceled:
        lib.load(folder(BIG), lambda *_: calls.append(1) or False)
    assert canceled.value.status == ECANCELED
    assert len(calls) == 1


def test_loading_without_a_callback(lib, folder, oracle, open_context):
    model = lib.load(folder("llama"))
    assert greedy(lib, open_context(model), prompt(5)) == oracle("llama").after(prompt(5))
    lib.free_model(model)


def test_two_loads_at_once(lib, folder, oracle, open_context):
    """Each one's callback waits until the other is under way."""
    under_way = threading.Barrier(2)
    models = {}

    def load(name):
        waited = []

        def progress(fraction, stage):
            if not waited and fraction < 1:
                waited.append(under_way.wait(60))

        models[name] = lib.load(folder(name), progress)

    threads = [threading.Thread(target=load, args=(name,)) for name in ("llama", "mamba2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, model in models.items():
        assert greedy(lib, open_context(model), prompt(5)) == oracle(name).after(prompt(5))
        lib.free_model(model)
    assert len(models) == 2


def test_one_cancelled_load_leaves_the_other_alone(lib, folder, oracle, open_context):
    inner = []

    def progress(fraction, stage):
        if not inner:
            with pytest.raises(StatusError) as canceled:
                lib.load(folder("mamba2"), lambda *_: False)
            inner.append(canceled.value.status)

    model = lib.load(folder("llama"), progress)
    assert inner == [ECANCELED]
    assert greedy(lib, open_context(model), prompt(5)) == oracle("llama").after(prompt(5))
    lib.free_model(model)


def test_loading_while_contexts_generate(lib, tiny, folder, oracle, open_context):
    """Tokens come between the groups of weights, and both are right."""
    context = open_context(tiny("llama"))
    lib.begin(context, prompt(9), max_tokens=16)
    tokens = []

    def progress(fraction, stage):
        if len(tokens) < 16:
            tokens.append(lib.next(context).token)

    model = lib.load(folder("mamba2"), progress)
    assert len(tokens) > 3
    while len(tokens) < 16:
        tokens.append(lib.next(context).token)
    assert tokens == oracle("llama").after(prompt(9))
    assert greedy(lib, open_context(model), prompt(9)) == oracle("mamba2").after(prompt(9))
    lib.free_model(model)


def test_lazy_weights_come_with_their_first_use(lib, folder, open_context):
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    fractions = []
    model = lib.load(folder(BIG), lambda fraction, stage: fractions.append(fraction), lazy=True)
    assert fractions[-1] == 1
    size = lib.info(model)["bytes"]
    assert lib.info()["memory"]["active"] - before < size / 10
    lazily = greedy(lib, open_context(model), prompt(5), 8)
    assert lib.info()["memory"]["active"] - before >= size * 0.9
    eager = lib.load(folder(BIG))
    assert greedy(lib, open_context(eager), prompt(5), 8) == lazily
    lib.free_model(model)
    lib.free_model(eager)


def test_the_same_folder_twice(lib, folder, oracle, open_context):
    """Two models, each with its own handle and weights."""
    models = [lib.load(folder("llama")) for _ in range(2)]
    assert models[0] != models[1]
    lib.free_model(models[0])
    assert greedy(lib, open_context(models[1]), prompt(5)) == oracle("llama").after(prompt(5))
    lib.free_model(models[1])


def test_the_model_is_described(lib, tiny, folder):
    info = lib.info(tiny("llama"))
    assert info["architecture"] == "llama"
    assert info["route"] == "light"
    assert info["path"] == str(folder("llama"))
    assert info["bytes"] == 4 * info["parameters"]
    assert info["quantization"] is None
    assert info["context_length"] == 512
    assert info["end_tokens"]
    assert info["chat_template"] is True
    assert {"special_tokens", "tools", "thinking", "cache", "vocabulary_size"} <= info.keys()
    assert info["architecture"] in lib.info()["architectures"]


def test_a_load_leaves_no_buffers_behind(lib, folder):
    model = lib.load(folder("llama"))
    assert lib.info()["memory"]["cache"] == 0
    lib.free_model(model)
