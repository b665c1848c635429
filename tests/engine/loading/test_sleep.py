"""Models asleep: no weights, no caches, the same tokens when something needs them."""

from __future__ import annotations

import shutil

import mlx.core as mx
import pytest
from driver import HYBRID, KV, RECURRENT, SLIDING, delivered, greedy, next_ok, prompt
from support import in_process, tiny_adapters, tiny_models
from support.library import StatusError
from support.prompt_hosts import Process
from support.signatures import EIO, ENOENT, ENOMEM, ESTATE

from cowmlx.cache.sequence import Sequence
from cowmlx.errors import Canceled, InputOutput
from cowmlx.folders import weight_samples, weights
from cowmlx.generated.constants import KIND_MODEL
from cowmlx.generated.defaults import CONTEXT, EMBED, GENERATION, MODEL, TRAINING
from cowmlx.models.embedded import EMBEDDED

START = prompt(60)
BIG = {"config": {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}}


@pytest.fixture
def model(lib, folder):
    """Loads models that nobody else uses."""
    handles = []

    def model(name, **params):
        handles.append(lib.load(name if "/" in str(name) else folder(name), **params))
        return handles[-1]

    yield model
    for handle in handles:
        lib.c.cow_mlx_model_free(handle)


def sleep(lib, handle):
    lib.check(lib.c.cow_mlx_model_sleep(handle))


def refused(lib, handle, status=ESTATE):
    with pytest.raises(StatusError) as failed:
        sleep(lib, handle)
    assert failed.value.status == status, failed.value.message
    return failed.value.message


@pytest.mark.parametrize("kind", [SLIDING, RECURRENT, HYBRID])
def test_points_are_of_no_use_to_a_context_without_layers(lib, model, open_context, oracle, kind):
    """Those of a prompt that another context has processed since the sleep."""
    handle = model(kind)
    start = prompt(150)
    settings = {"share_prefix": True, "checkpoint_interval": 32}
    asleep, other = (open_context(handle, **settings) for _ in range(2))
    greedy(lib, asleep, [*start, 7, 8, 9])
    sleep(lib, handle)
    greedy(lib, other, [*start, 10, 11, 12])
    later = [*start, 13, 14, 15]
    assert greedy(lib, asleep, later) == oracle(kind).after(later)


@pytest.mark.parametrize("kind", [KV, SLIDING, RECURRENT, HYBRID, "llama-rough"])
def test_a_context_goes_on_as_without_the_sleep(lib, model, open_context, oracle, kind):
    handle = model(kind)
    context = open_context(handle)
    answer = greedy(lib, context, START)
    held = lib.tokens(context)
    for _ in range(2):
        sleep(lib, handle)
        assert lib.info(handle)["asleep"] is True
        assert lib.tokens(context) == held
        assert lib.info(context)["tokens"] == len(held)
        assert lib.info(context)["bytes"] == 0
    longer = [*START, *answer, 11, 12]
    assert greedy(lib, context, longer) == oracle(kind).after(longer)
    info = lib.info(context)
    assert (info["reused"], info["recomputed"]) == (0, len(longer))
    assert "slept" in info["rebuilt"]
    assert lib.info(handle)["asleep"] is False


def test_the_memory_is_free(lib, model, open_context, tmp_path):
    folder = tiny_models.make(tmp_path / "big", KV, **BIG)
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    handle = model(folder)
    context = open_context(handle, share_prefix=True)
    lib.begin(context, START, max_tokens=0)
    saved = lib.checkpoint(context)
    size = lib.info(handle)["bytes"]
    assert lib.info()["memory"]["active"] - before > size
    sleep(lib, handle)
    assert lib.info()["memory"]["active"] - before < size // 20
    lib.rewind(context, saved)
    assert lib.tokens(context) == START


@pytest.mark.parametrize("kind", [KV, HYBRID])
def test_forks_trims_checkpoints_and_saves(lib, model, open_context, oracle, tmp_path, kind):
    handle = model(kind)
    contexts = [open_context(handle) for _ in range(5)]
    for context in contexts:
        lib.begin(context, START, max_tokens=0)
    saved = lib.checkpoint(contexts[1])
    greedy(lib, contexts[1], [*START, 11])
    sleep(lib, handle)
    fork = lib.fork(contexts[0])
    assert lib.trim_end(contexts[2], 10) == 10
    assert lib.trim_front(contexts[3], 10) == 10
    lib.rewind(contexts[1], saved)
    lib.save(contexts[4], tmp_path / "file")
    kept = [START, START, START[:-10], START[10:], START]
    assert [lib.tokens(context) for context in contexts] == kept
    loaded = open_context(handle)
    lib.restore(loaded, tmp_path / "file")
    for context, tokens in zip([*contexts, fork, loaded], [*kept, START, START], strict=True):
        longer = [*tokens, 13, 14]
        assert greedy(lib, context, longer) == oracle(kind).after(longer)
    assert lib.info(loaded)["reused"] == len(START)
    lib.free(fork)


def test_logits_stay(lib, model, open_context):
    handle = model(KV)
    context = open_context(handle)
    lib.begin(context, START, max_tokens=0)
    logits = lib.logits(context)
    sleep(lib, handle)
    assert lib.logits(context) == logits


def test_embeddings_and_chats_wake_it(lib, model, open_context):
    handle = model("calf")
    context = open_context(handle)
    messages = [{"role": "user", "content": "Hello"}]
    vectors, said = lib.embed(handle, ["a fox"]), lib.chat(context, messages, max_tokens=8).said()
    sleep(lib, handle)
    assert lib.embed(handle, ["a fox"]) == vectors
    sleep(lib, handle)
    assert lib.chat(context, messages, max_tokens=8).said() == said


def test_others_generate_meanwhile(lib, model, open_context, oracle):
    asleep, awake = model(KV), model(RECURRENT)
    context, other = open_context(asleep), open_context(awake)
    lib.begin(context, START, max_tokens=0)
    lib.begin(other, START, max_tokens=12)
    pieces = next_ok(lib, other, 3)
    sleep(lib, asleep)
    pieces += next_ok(lib, other, 3)
    assert greedy(lib, context, START) == oracle(KV).after(START)
    pieces += lib.drain(other)
    assert delivered(pieces) == oracle(RECURRENT).after(START, 12)


def test_a_draft_model_sleeps(lib, model, open_context, oracle):
    handle, draft = model(KV), model("llama-rough")
    context = open_context(handle)
    for _ in range(2):
        lib.begin(context, START, max_tokens=8, draft=draft)
        assert delivered(lib.drain(context)) == oracle(KV).after(START, 8)
        sleep(lib, draft)
        assert lib.info(draft)["asleep"] is True


def test_a_model_at_work_stays_awake(lib, model, open_context, folder, tmp_path):
    handle = model(KV)
    context = open_context(handle)
    lib.begin(context, START, max_tokens=50)
    assert f"context {context}" in refused(lib, handle)
    lib.cancel(context)
    assert lib.next(context).status >= 0
    tiny_adapters.make(tmp_path, folder(KV), ["q_proj"])
    adapter = lib.load_adapter(handle, tmp_path)
    assert f"adapter {adapter}" in refused(lib, handle)
    lib.set_adapter(context, adapter)
    lib.free_adapter(adapter)
    assert "uses an adapter" in refused(lib, handle)
    lib.set_adapter(context, 0)
    sleep(lib, handle)


def test_an_adapter_of_the_load_comes_back(lib, model, open_context, folder, tmp_path):
    tiny_adapters.make(tmp_path, folder(KV), ["q_proj"])
    handle = model(KV, adapter_path=tmp_path)
    expected = greedy(lib, open_context(handle), START)
    sleep(lib, handle)
    assert greedy(lib, open_context(handle), START) == expected


def without_memory(patched, owner, name, at):
    """Let a function find no memory at one of its calls; how often it was called."""
    own, calls = getattr(owner, name), []

    def fail(*arguments, **more):
        calls.append(1)
        if len(calls) == at:
            raise MemoryError
        return own(*arguments, **more)

    patched.setattr(owner, name, fail)
    return calls


# Where a sleep takes memory: of the owner's function, the call that gets none.
SLEEPING = {
    "the weights are hashed": (weight_samples, "_samples", 1),
    "the folder is read again": (weights, "read", 1),
    "caches are dropped": (Sequence, "drop_layers", 1),
    "the weights are left on disk": (weights, "Unread", 2),
}


def test_an_adapter_wakes_its_model(lib, model, open_context, oracle, folder, tmp_path):
    tiny_adapters.make(tmp_path / "adapter", folder(KV), ["q_proj"])
    handle = model(KV)
    context, plain = open_context(handle), open_context(handle)
    adapter = lib.load_adapter(handle, tmp_path / "adapter")
    lib.set_adapter(context, adapter)
    answer = greedy(lib, context, START)
    lib.set_adapter(context, 0)
    lib.free_adapter(adapter)
    sleep(lib, handle)
    adapter = lib.load_adapter(handle, tmp_path / "adapter")
    assert lib.info(handle)["asleep"] is False
    lib.set_adapter(context, adapter)
    assert greedy(lib, context, START) == answer
    assert greedy(lib, plain, START) == oracle(KV).after(START)
    lib.free_adapter(adapter)


def test_a_folder_that_is_gone_or_changed(lib, model, open_context, folder, tmp_path):
    path = tmp_path / "model"
    shutil.copytree(folder(KV), path)
    handle = model(path)
    context = open_context(handle)
    expected = greedy(lib, context, START)
    path.rename(tmp_path / "elsewhere")
    refused(lib, handle, ENOENT)
    assert greedy(lib, context, START) == expected
    shutil.copytree(folder("llama-other"), path)
    sleep(lib, handle)
    for _ in range(2):
        with pytest.raises(StatusError, match="another model than it was") as failed:
            lib.begin(context, START)
        assert failed.value.status == EIO


def test_weights_of_a_changed_folder_do_not_stay_in_memory(lib, model, open_context, tmp_path):
    path = tiny_models.make(tmp_path / "big", KV, **BIG)
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    handle = model(path)
    context = open_context(handle)
    lib.begin(context, START, max_tokens=0)
    size = lib.info(handle)["bytes"]
    shutil.rmtree(path)
    tiny_models.make(path, KV, seed=1, **BIG)
    sleep(lib, handle)
    for _ in range(2):
        with pytest.raises(StatusError, match="another model than it was"):
            lib.begin(context, START)
        assert lib.info()["memory"]["active"] - before < size // 20
    assert lib.info(handle)["bytes"] == size
    assert lib.tokens(context) == START
    sleep(lib, handle)  # what was refused does not become what the next wake expects
    with pytest.raises(StatusError, match="another model than it was"):
        lib.embed(handle, ["a fox"])


def test_a_refused_model_takes_no_place_of_others(folder, tmp_path):
    path = tmp_path / "model"
    shutil.copytree(folder(KV), path)
    with in_process.started() as engine:
        first, second = (in_process.loaded(engine, at) for at in (path, folder(KV)))
        shutil.rmtree(path)
        shutil.copytree(folder("llama-other"), path)
        call = in_process.Call()
        engine.model_sleep(call, first)
        in_process.finish(engine)
        assert call.error is None
        call = in_process.Call()
        engine.model_embed(call, first, ["a"], EMBED)
        in_process.finish(engine)
        assert isinstance(call.error, InputOutput)
        engine.runtime.model_memory = int(2.1 * engine.model_info(second)["bytes"])
        in_process.loaded(engine, folder(KV))
        assert not engine.model_info(second)["asleep"]
        assert engine.model_info(first)["asleep"]


def test_a_cancel_while_it_wakes_changes_nothing(folder):
    with in_process.started() as engine:
        model = in_process.loaded(engine, folder(KV))
        context = engine.context_create(model, CONTEXT)
        call = in_process.Call()
        engine.model_sleep(call, model)
        in_process.finish(engine)
        assert call.error is None
        call = in_process.Call()
        engine.context_begin(call, context, START, GENERATION)
        assert engine.step()
        assert engine.model_info(model)["asleep"]
        engine.runtime.cancel_epoch = lambda handle: 1
        in_process.finish(engine)
        assert isinstance(call.error, Canceled)
        assert engine.context_tokens(context) == []


WAKING = {
    "embed": lambda engine, call, model, adapter: engine.model_embed(
        call, model, ["a", "b c"], EMBED
    ),
    "adapter_load": lambda engine, call, model, adapter: engine.adapter_load(
        call, model, str(adapter), 1.0
    ),
    "context_hidden_states": lambda engine, call, model, adapter: engine.context_hidden_states(
        call, engine.context_create(model, CONTEXT), START
    ),
    "context_begin_embeddings": lambda engine, call, model, adapter: (
        engine.context_begin_embeddings(
            call, engine.context_create(model, CONTEXT), [*START, EMBEDDED], 1, GENERATION
        )
    ),
    "training_create_for_model": lambda engine, call, model, adapter: (
        engine.training_create_for_model(call, model, TRAINING)
    ),
}


@pytest.mark.parametrize("name", WAKING)
def test_others_go_on_while_a_call_wakes_a_model(folder, tmp_path, monkeypatch, name):
    """As they do while a generation wakes one."""
    adapter = tmp_path / "adapter"
    tiny_adapters.make(adapter, folder(KV), ["q_proj"])
    with in_process.started() as engine:
        awake, asleep = (in_process.loaded(engine, folder(KV)) for _ in range(2))
        context = engine.context_create(awake, CONTEXT)
        call = in_process.Call()
        engine.model_sleep(call, asleep)
        in_process.finish(engine)
        assert call.error is None
        width = engine.model_info(asleep)["embedding_width"]
        monkeypatch.setattr(engine.arrays, "get", lambda handle: mx.zeros((1, width)))
        call, other = in_process.Call(), in_process.Call()
        WAKING[name](engine, call, asleep, adapter)
        engine.context_begin(other, context, START, GENERATION)
        turns = 0
        while engine.model_info(asleep)["asleep"]:
            assert engine.step()
            turns += 1
        assert turns > 2
        assert len(engine.context_tokens(context)) > 0
        in_process.finish(engine)
        assert (call.error, other.error) == (None, None)
        assert call.result is not None or name == "context_begin_embeddings"


def test_others_go_on_while_a_model_falls_asleep_to_make_room(folder, lib, model):
    """For one that is read, and for one that wakes."""
    size = lib.info(model(KV))["bytes"]
    with in_process.started(model_memory=int(2.1 * size)) as engine:
        handles = [in_process.loaded(engine, folder(KV)) for _ in range(2)]
        context = engine.context_create(handles[1], CONTEXT)

        def turns_until_asleep(handle):
            engine.context_begin(
                in_process.Call(), context, START, {**GENERATION, "max_tokens": 99}
            )
            turns, before = 0, len(engine.context_tokens(context))
            while not engine.model_info(handle)["asleep"]:
                assert engine.step()
                turns += 1
            assert len(engine.context_tokens(context)) > before
            in_process.finish(engine)
            return turns

        engine.model_load(in_process.Call(), str(folder(KV)), MODEL)
        assert turns_until_asleep(handles[0]) > 2
        other = next(h for h in engine.runtime.handles.handles(KIND_MODEL) if h not in handles)
        engine.model_embed(in_process.Call(), handles[0], ["a"], EMBED)
        assert turns_until_asleep(other) > 2


def test_the_least_used_models_sleep_by_themselves(folder, lib, model):
    size = lib.info(model(KV))["bytes"]
    host, folders = Process(), [str(folder(name)) for name in (KV, "llama-other", "llama-rough")]
    assert host.start(model_memory=int(2.1 * size)) == {}
    told = [host.generate(path, START)["told"] for path in folders[:2]]
    assert list(host.asleep().values()) == [False, False]
    assert host.generate(folders[0], START)["told"] == told[0]
    host.generate(folders[2], START)
    assert list(host.asleep().values()) == [False, True, False]
    assert host.generate(folders[1], START)["told"] == told[1]
    assert list(host.asleep().values()) == [True, False, False]
    host.stop()
    host.end()


@pytest.mark.parametrize("place", SLEEPING)
def test_a_sleep_without_memory_changes_nothing(lib, model, open_context, monkeypatch, place):
    handle = model(KV)
    context = open_context(handle, share_prefix=True)
    answer = greedy(lib, context, START)
    held, kernels = lib.tokens(context), lib.info(handle)["kernels"]
    checkpoint = lib.checkpoint(context)
    owner, name, at = SLEEPING[place]
    with monkeypatch.context() as patched:
        calls = without_memory(patched, owner, name, at)
        refused(lib, handle, ENOMEM)
    assert len(calls) == at
    assert lib.info(handle)["asleep"] is False
    assert lib.info(handle)["kernels"] == kernels
    lib.rewind(context, checkpoint)
    assert lib.tokens(context) == held
    for _ in range(2):
        assert greedy(lib, context, START) == answer
        sleep(lib, handle)
        assert lib.info(handle)["asleep"] is True


def test_a_shortage_while_it_wakes_skips_no_check(
    lib, model, open_context, folder, tmp_path, monkeypatch
):
    path = tmp_path / "model"
    shutil.copytree(folder(KV), path)
    handle = model(path)
    context = open_context(handle)
    shutil.rmtree(path)
    shutil.copytree(folder("llama-other"), path)
    sleep(lib, handle)
    with monkeypatch.context() as patched:
        without_memory(patched, weight_samples, "_samples", 1)
        with pytest.raises(StatusError, match="ENOMEM"):
            lib.begin(context, START)
    with pytest.raises(StatusError, match="another model than it was"):
        lib.begin(context, START)
