"""Calls beside generations that do not fit into memory are refused before they take any."""

from __future__ import annotations

from contextlib import contextmanager

import mlx.core as mx
import numpy as np
import pytest
from driver import KV, greedy, prompt
from support import in_process, tiny_encoders
from support.arrays import Arrays
from support.callbacks import StatusError

from cowmlx import memory
from cowmlx.cache.sequence import Sequence
from cowmlx.errors import OutOfMemory
from cowmlx.generated.defaults import CONTEXT, GENERATION
from cowmlx.models.embedding import HiddenStates
from cowmlx.services import admission

MODEL = "llama-long"
SMALL, LARGE = 1 << 10, 1 << 40
TEXTS = [f"{word} fox is red, and it eats mice. " * 8 for word in ("a", "the", "no", "one")]


@contextmanager
def refused(what):
    """The block's call is refused, since something does not fit into the fake device."""
    with pytest.raises(StatusError) as failed:
        yield failed
    error = failed.value
    assert (error.name, error.reason) == ("ENOMEM", "no_memory")
    assert error.details["available"] < error.details["needed"]
    assert what in error.message


def sleep(lib, model):
    lib.check(lib.c.cow_mlx_model_sleep(model))


@pytest.fixture
def loaded(lib, folder):
    """A model that nobody else uses."""
    handles = []

    def loaded(path, **params):
        handles.append(lib.load(path, **params))
        return handles[-1]

    yield loaded
    for handle in handles:
        lib.free_model(handle)


# ------------------------------------------------------------------------ Weights


@pytest.mark.parametrize("lazy", [False, True], ids=["asleep", "lazy"])
def test_weights_that_do_not_fit_are_not_read(lib, folder, loaded, open_context, device, lazy):
    model = loaded(folder(KV), lazy=lazy)
    if not lazy:
        sleep(lib, model)
    context = open_context(model)
    device(SMALL)
    for call in (
        lambda: lib.embed(model, ["a fox"]),
        lambda: lib.begin(context, prompt(10), max_tokens=2),
    ):
        with refused("the model"):
            call()
    device(LARGE)
    assert len(greedy(lib, context, prompt(10))) > 0
    assert lib.info(model)["asleep"] is False


def test_weights_that_were_read_before_a_cancel_count_once(folder, monkeypatch):
    monkeypatch.setattr(admission, "RESERVE", 0)
    monkeypatch.setattr(admission, "FRESH", 0)
    with in_process.started() as engine:
        handle = in_process.loaded(engine, folder(KV))
        model = engine.models.get(handle)
        call = in_process.Call()
        engine.model_sleep(call, handle)
        in_process.finish(engine)
        assert call.error is None
        _, peak = model._unread.bytes_to_load(0)
        assert peak >= model.nbytes
        steps = model.read_steps()
        for _ in range(3):
            next(steps)
        steps.close()
        _, rest = model._unread.bytes_to_load(0)
        assert 0 < rest < peak
        left = memory.limit(rest + model.form.passing * model.nbytes, "a device")
        monkeypatch.setattr(memory, "rooms", lambda device: iter([left]))
        model.read_weights()
        assert model.is_read


# -------------------------------------------------------------------------- Texts


def test_texts_that_do_not_fit_are_not_embedded(lib, tiny, device):
    model = tiny(MODEL)
    vectors = lib.embed(model, TEXTS)
    device(SMALL)
    with refused("a batch of texts"):
        lib.embed(model, TEXTS)
    device(LARGE)
    assert lib.embed(model, TEXTS) == vectors


def test_texts_of_an_encoder_that_do_not_fit(lib, loaded, device, tmp_path):
    model = loaded(tiny_encoders.make(tmp_path, "bert", "SequenceClassification"))
    texts = [tiny_encoders.written(text) for text in tiny_encoders.TEXTS]
    device(SMALL)
    short = min(texts, key=len)
    for call in (
        lambda: lib.embed(model, texts),
        lambda: lib.rank(model, short, [short, short]),
        lambda: lib.classify(model, short),
    ):
        with refused("a batch of texts"):
            call()
    device(LARGE)
    assert len(lib.embed(model, texts)) == len(texts)


@pytest.mark.parametrize("is_encoder", [False, True], ids=["decoder", "encoder"])
def test_batches_shrink_where_memory_is_short(lib, tiny, loaded, device, tmp_path, is_encoder):
    model, texts = tiny(MODEL), TEXTS
    if is_encoder:
        model = loaded(tiny_encoders.make(tmp_path, "bert"))
        texts = [tiny_encoders.written(text) for text in tiny_encoders.TEXTS]
    vectors = lib.embed(model, texts)
    device(SMALL)

    def needed(text):
        with refused("a batch of texts") as failed:
            lib.embed(model, [text])
        return failed.value.details["needed"]

    alone = max(map(needed, texts))
    device(alone)
    np.testing.assert_allclose(lib.embed(model, texts), vectors, atol=1e-4)
    device(alone // 2)
    with refused("a batch of texts"):
        lib.embed(model, texts)


def test_a_long_text_is_embedded_in_small_chunks(lib, tiny, device, monkeypatch):
    model, text = tiny(MODEL), " ".join(TEXTS)
    vectors = lib.embed(model, [text])
    device(SMALL)
    with refused("a batch of texts") as failed:
        lib.embed(model, [text])
    device(failed.value.details["needed"])
    chunks, process = [], HiddenStates.__call__
    monkeypatch.setattr(
        HiddenStates,
        "__call__",
        lambda own, ids, cache: chunks.append(ids.size) or process(own, ids, cache),
    )
    np.testing.assert_allclose(lib.embed(model, [text]), vectors, atol=1e-4)
    assert max(chunks) <= admission.LEAST_CHUNK


# ----------------------------------------------------------------- Saved contexts


def test_a_saved_context_that_does_not_fit_is_not_read(lib, tiny, open_context, device, tmp_path):
    context, other = open_context(tiny(MODEL)), open_context(tiny(MODEL))
    lib.begin(context, prompt(300), max_tokens=0)
    lib.begin(other, prompt(20), max_tokens=0)
    lib.save(context, tmp_path / "file")
    array = Arrays(lib).create(np.frombuffer((tmp_path / "file").read_bytes(), np.uint8))
    calls = (
        lambda: lib.restore(other, tmp_path / "file"),
        lambda: lib.check(lib.c.cow_mlx_context_load_array(other, array)),
    )
    for call in calls:
        device(SMALL)
        with refused("the saved context"):
            call()
        assert lib.tokens(other) == prompt(20)
        device(LARGE)
        call()
        assert lib.tokens(other) == prompt(300)
        lib.begin(other, prompt(20), max_tokens=0)
    Arrays(lib).free(array)


def test_the_tokens_of_a_saved_context_are_not_processed_without_memory(
    lib, folder, loaded, open_context, device, tmp_path
):
    model = loaded(folder(KV))
    context = open_context(model)
    lib.begin(context, prompt(60), max_tokens=0)
    sleep(lib, model)
    lib.embed(model, ["a fox"])  # it is awake again
    device(SMALL)
    with refused("the tokens of the context"):
        lib.save(context, tmp_path / "file")
    assert lib.tokens(context) == prompt(60)
    device(LARGE)
    lib.save(context, tmp_path / "file")
    assert (tmp_path / "file").exists()


def test_the_tokens_of_a_saved_context_are_processed_in_small_chunks(
    lib, folder, loaded, open_context, device, tmp_path, monkeypatch
):
    model = loaded(folder(MODEL))
    context = open_context(model)
    lib.begin(context, prompt(300), max_tokens=0)
    sleep(lib, model)
    lib.embed(model, ["a fox"])  # it is awake again
    device(SMALL)
    with refused("the tokens of the context") as failed:
        lib.save(context, tmp_path / "file")
    device(failed.value.details["needed"])
    chunks, forward = [], Sequence.forward
    monkeypatch.setattr(
        Sequence, "forward", lambda own, ids: chunks.append(ids.size) or forward(own, ids)
    )
    lib.save(context, tmp_path / "file")
    assert sum(chunks) == 300
    assert max(chunks) <= admission.LEAST_CHUNK


def test_a_prompt_that_was_read_from_disk_counts_once(folder, device, tmp_path):
    with in_process.started(prompt_cache_dir=str(tmp_path / "prompts")) as engine:
        model = in_process.loaded(engine, folder(MODEL))

        def begin(share_prefix):
            call = in_process.Call()
            context = engine.context_create(model, {**CONTEXT, "share_prefix": share_prefix})
            engine.context_begin(call, context, prompt(400), {**GENERATION, "max_tokens": 0})
            in_process.finish(engine)
            assert call.error is None
            info = engine.context_info(context)
            engine.context_free(context)
            return info

        held = begin(share_prefix=True)["bytes"]
        engine.runtime.prompt_cache.finish()
        engine.memory_trim()
        device(SMALL)
        with pytest.raises(OutOfMemory) as failed:
            begin(share_prefix=False)
        device(failed.value.details["needed"] - held // 2)
        assert begin(share_prefix=True)["shared"] == 399


# ------------------------------------------------------------------ Idle contexts


def test_a_call_that_can_never_fit_leaves_idle_contexts_alone(lib, tiny, open_context, device):
    idle = open_context(tiny(MODEL))
    lib.generate(idle, prompt(100), max_tokens=4)
    device(SMALL)
    with pytest.raises(StatusError, match="ENOMEM"):
        lib.begin(open_context(tiny(MODEL)), prompt(4000), max_tokens=4000)
    assert lib.info(idle)["bytes"] > 0


def test_an_array_that_can_never_fit_leaves_idle_contexts_alone():
    slept = []
    with in_process.started() as engine:
        runtime, limit = engine.runtime, mx.get_memory_limit()
        runtime.idle_bytes = lambda context: 100
        runtime.put_to_sleep = lambda context: bool(slept.append(context))
        with pytest.raises(OutOfMemory):
            runtime.require_room(limit + 101, "the array")
        assert slept == []
        with pytest.raises(OutOfMemory):
            runtime.require_room(limit + 100, "the array")
        assert slept == [None]
