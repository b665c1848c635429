"""A model on two ranks does what the same model does in one process."""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest
from driver import Oracle, delivered, generate_at_once, greedy, prompt
from support import tiny_models
from support.library import StatusError
from support.meddlers import Meddler
from support.signatures import (
    DONE,
    EFORMAT,
    ESTATE,
    EUNSUPPORTED,
    GRAMMAR_REGEX,
    SPLIT_PIPELINE,
    SPLIT_TENSOR,
)
from support.workers import local_ranks, on

from cowmlx.errors import Lost, NotFound, OutOfMemory
from cowmlx.machines import wire
from cowmlx.machines.group import Group
from cowmlx.machines.network import Facts, RemoteNetwork
from cowmlx.machines.opening import Opening
from cowmlx.machines.wire import Connection
from cowmlx.ranks.ring import Together
from cowmlx.scheduling.remote_lane import RemoteBatch

START = prompt(40)
MAX_STEPS = 6
# An architecture that repeats heads of keys and values where there are fewer than ranks.
FEW_HEADS = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "vocab_size": 512,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "full_attention_interval": 2,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "type": "default",
            "mrope_section": [2, 1, 1],
            "rope_theta": 10000,
            "partial_rotary_factor": 0.25,
        },
    },
}
RECURRENT_FIRST = {"qwen3_5": "llama", "qwen3_next": "qwen3_next"}
SPLITS = {"tensor": SPLIT_TENSOR, "pipeline": SPLIT_PIPELINE}
kinds = pytest.mark.parametrize("kind", ["tensor", "pipeline"])


@pytest.fixture
def oracle(lib, whole):
    """What a fresh context of the whole model gives."""
    return lambda kind: Oracle(lib, whole(kind))


def drawn(lib, context, tokens, **params):
    lib.begin(context, tokens, **params)
    return [(piece.token, piece.logprob) for piece in lib.drain(context) if piece.status != DONE]


def test_its_machines_are_told(lib, split, worker):
    info = lib.info(split("tensor"))
    assert info["split"] == "tensor"
    assert [rank["address"] for rank in info["ranks"]] == ["local", worker.address]
    assert {rank["state"] for rank in info["ranks"]} == {"ready"}
    assert all(0.4 < rank["bytes"] / info["bytes"] < 0.7 for rank in info["ranks"])
    assert lib.info(split("pipeline"))["ranks"][1]["layers"] == 2


def test_a_model_on_one_machine_has_no_ranks(lib, whole):
    info = lib.info(whole("tensor"))
    assert (info["split"], info["ranks"]) == (None, None)


@kinds
def test_greedy_tokens_are_those_of_one_process(lib, split, oracle, open_context, kind):
    context = open_context(split(kind))
    assert greedy(lib, context, START, 24) == oracle(kind).after(START, 24)
    assert lib.tokens(context)[:40] == START


@kinds
def test_seeded_tokens_and_log_probabilities_are(lib, split, whole, open_context, kind):
    options = {"temperature": 0.8, "top_p": 0.9, "seed": 7, "max_tokens": 12, "logprobs": 1}
    options |= {"repetition_penalty": 1.2, "frequency_penalty": 0.3}
    made = drawn(lib, open_context(split(kind)), START, **options)
    expected = drawn(lib, open_context(whole(kind)), START, **options)
    assert [token for token, _ in made] == [token for token, _ in expected]
    assert [value for _, value in made] == pytest.approx([value for _, value in expected], abs=1e-4)


@kinds
def test_forks_trims_and_checkpoints_go_on_as_fresh_contexts(
    lib, split, oracle, open_context, kind
):
    context, expected = open_context(split(kind)), oracle(kind)
    greedy(lib, context, START, 6)
    held = lib.tokens(context)
    checkpoint, fork = lib.checkpoint(context), lib.fork(context)
    assert lib.info(fork)["bytes"] == lib.info(context)["bytes"] > 0
    other = [*held, 77, 78]
    assert greedy(lib, fork, other, 6) == expected.after(other, 6)
    assert lib.info(fork)["reused"] == len(held)
    assert lib.trim_end(context, 10) == 10
    shorter = [*held[:-10], 99]
    assert greedy(lib, context, shorter, 6) == expected.after(shorter, 6)
    assert lib.info(context)["reused"] == len(held) - 10
    lib.rewind(context, checkpoint)
    assert lib.tokens(context) == held
    assert greedy(lib, context, [*held, 5], 6) == expected.after([*held, 5], 6)
    assert lib.trim_front(context, 8) == 8
    assert lib.tokens(context)[:4] == START[8:12]
    lib.free(fork)


@kinds
def test_contexts_are_batched_and_none_notices(lib, split, oracle, open_context, kind):
    contexts = [open_context(split(kind)) for _ in range(4)]
    prompts = [prompt(12 + 5 * number, seed=number) for number in range(4)]
    made = generate_at_once(lib, contexts, prompts, max_tokens=24)
    assert made == [oracle(kind).after(each, 24) for each in prompts]
    assert max(lib.info(context)["batched"] for context in contexts) > 0
    assert lib.info(contexts[0])["alone"] is None


@kinds
def test_short_prompts_are_processed_together(
    lib, worker, place, secret, oracle, open_context, kind
):
    told: list[str] = []
    meddler = Meddler(worker.address, of_host=lambda head: told.append(head.get("op", "")))
    options = on([meddler], secret, split=SPLITS[kind])
    model = lib.load(place / "models" / kind, **options)
    contexts = [open_context(model) for _ in range(6)]
    prompts = [prompt(2 + 9 * number, seed=number) for number in range(6)]
    made = generate_at_once(lib, contexts, prompts, max_tokens=8)
    assert made == [oracle(kind).after(each, 8) for each in prompts]
    assert "feed" in told
    assert min(lib.info(context)["bytes"] for context in contexts) > 0
    lib.free_model(model)
    for context in contexts:
        lib.reset(context)
    meddler.close()


def test_ranks_share_heads_where_the_architecture_lets_them(
    lib, start_worker, tmp_path, secret, open_context
):
    folder = tiny_models.make(tmp_path / "few", "llama", config=FEW_HEADS)
    model = lib.load(folder, **on([start_worker(models=tmp_path)], secret, split=SPLITS["tensor"]))
    here = lib.load(folder)
    made = [greedy(lib, open_context(each), START, 12) for each in (model, here)]
    assert made[0] == made[1]
    lib.free_model(model)
    lib.free_model(here)


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next"])
def test_a_rank_that_cannot_take_several_prompts_keeps_no_other_waiting(
    lib, start_worker, tmp_path, secret, open_context, family
):
    """It has recurrent layers alone, and this process's rank attention alone."""
    config = FEW_HEADS if family == "qwen3_5" else {"num_hidden_layers": 2}
    folder = tiny_models.make(tmp_path / "kinds", RECURRENT_FIRST[family], config=config)
    options = on([start_worker(models=tmp_path)], secret, split=SPLITS["pipeline"])
    model, here = lib.load(folder, **options), lib.load(folder)
    contexts = [open_context(model) for _ in range(2)]
    expected = Oracle(lib, here)
    prompts = [START, prompt(12)]
    made = generate_at_once(lib, contexts, prompts, max_tokens=8)
    assert made == [expected.after(each, 8) for each in prompts]
    assert [lib.info(context)["alone"] for context in contexts] == [None, None]
    lib.free_model(model)
    lib.free_model(here)


def test_a_model_of_hugging_face_s_cache(lib, start_worker, tmp_path, secret, open_context):
    entry = tmp_path / "models--org--cached"
    tiny_models.make(entry / "snapshots/one", "qwen2", config={"num_hidden_layers": 2})
    model = lib.load(entry, **on([start_worker(models=tmp_path)], secret))
    assert lib.info(model)["name"] == "org/cached"
    assert len(greedy(lib, open_context(model), START, 4)) == 4
    lib.free_model(model)


def test_the_files_of_a_folder_are_hashed_in_turns(lib, place, worker, secret):
    stages: list[str] = []
    options = on([worker], secret, progress=lambda fraction, stage: not stages.append(stage))
    lib.free_model(lib.load(place / "models/tensor", **options))
    assert stages.count("network") == 1 + len(["config.json", "model.safetensors"])


def test_logits_of_a_step_that_a_cancel_ends_are_not_given(
    lib, start_worker, tmp_path, secret, open_context
):
    """The caches drop no tokens, so that the host is given the token of the step."""
    folder = tiny_models.make(tmp_path / "kept", "qwen3_next", config={"num_hidden_layers": 2})
    canceled, given = Event(), Event()

    def cancel(head):
        if head.get("op") == "forward" and canceled.is_set():
            lib.cancel(context)
            assert given.wait(60)

    meddler = Meddler(start_worker(models=tmp_path).address, of_host=cancel)
    options = on([meddler], secret, split=SPLIT_PIPELINE, silence_timeout_ms=60000)
    model, here = lib.load(folder, **options), lib.load(folder)
    context = open_context(model)
    lib.begin(context, START, max_tokens=400)
    tokens = [lib.next(context).token for _ in range(3)]
    canceled.set()
    tokens.append(lib.next(context).token)
    with pytest.raises(StatusError, match="there are no logits") as caught:
        lib.logits(context)
    assert caught.value.status == ESTATE
    canceled.clear()
    given.set()
    assert lib.tokens(context) == [*START, *tokens]
    after = [*START, *tokens, 44]
    assert greedy(lib, context, after, 6) == Oracle(lib, here).after(after, 6)
    lib.reset(context)
    lib.free_model(model)
    lib.free_model(here)
    meddler.close()


def test_rows_of_hosts_that_pause_leave_the_batch():
    ours, its = socket.socketpair()
    group = Group(1.0, lambda: None)
    group.add("rank", Connection(ours))
    network = RemoteNetwork(group, Facts(8, "float32", True, None))
    with its:
        batch = RemoteBatch(network)
        paused, *fed = [batch.join(network.make_cache(), 0) for _ in range(3)]
        batch.feed(fed, [[1, 2], [3]])
        batch.step(fed[:1], [4])
        assert [row.missed for row in (paused, *fed)] == [2, 0, 1]
        assert [row.length for row in (paused, *fed)] == [0, 3, 1]
        group.close()


def test_prompts_are_shared(lib, split, oracle, open_context):
    first, second = (open_context(split("tensor"), share_prefix=True) for _ in range(2))
    begun = prompt(60, seed=3)
    greedy(lib, first, [*begun, 11], 2)
    assert greedy(lib, second, [*begun, 12], 6) == oracle("tensor").after([*begun, 12], 6)
    assert lib.info(second)["shared"] == len(begun)


def test_freed_contexts_are_dropped_by_ranks_that_rest(lib, worker, place, secret):
    entries: list[dict[str, Any]] = []
    meddler = Meddler(worker.address, of_host=entries.append)
    model = lib.load(place / "models/tensor", **on([meddler], secret))
    context = lib.context(model)
    greedy(lib, context, START, 2)
    lib.free(context)
    del entries[:]
    lib.trim_memory()
    other = lib.context(model)
    greedy(lib, other, START, 2)  # by then the ranks have heard of it
    assert entries[0]["op"] == "rest"
    assert entries[0]["drop"]
    lib.free(other)
    lib.free_model(model)
    lib.trim_memory()
    meddler.close()


def test_the_reason_of_a_rank_that_has_closed_is_known_to_a_call_that_posts():
    ours, its = socket.socketpair()
    group = Group(1.0, lambda: None)
    group.add("rank", Connection(ours))
    with its:
        said = {"failed": {"kind": "OutOfMemory", "reason": "", "message": "too little memory"}}
        wire.write(its, {"fraction": 0.5})
        wire.write(its, said)
    with pytest.raises(Lost, match="too little memory"):
        group.post({"op": "nothing"})
    assert isinstance(group.failure, OutOfMemory)


def test_thousands_of_sequences_that_are_freed_at_once_are_told_in_several_messages():
    ours, its = socket.socketpair()
    group = Group(1.0, lambda: None)
    group.add("rank", Connection(ours))
    for number in range(20000):
        group.drop(number)
    told: list[int] = []
    with its:
        while len(told) < 20000:
            group.post({"op": "nothing"})
            told += wire.read(its, 0)[0]["drop"]
        assert told == [*range(20000)]
        group.close()


def test_what_a_rank_said_keeps_no_frames():
    """It is raised for every caller, and stays with the group."""
    ours, its = socket.socketpair()
    with its:
        opening = Opening.__new__(Opening)
        opening.group = Group(1.0, lambda: None)
        opening.group.add("rank", Connection(ours))
        said = {"failed": {"kind": "NotFound", "reason": "", "message": "no such model"}}
        wire.write(its, said)
        for _ in range(2):
            with pytest.raises(NotFound, match="no such model") as error:
                opening._poll()
            assert error.value.__traceback__ is not None
            assert opening.group.failure is not error.value
            assert opening.group.failure.__traceback__ is None


def passed_over(run, make, cache):
    """Make a pass; if it fails that is no reason to give."""
    with suppress(Exception):
        run(mx.zeros(1), cache)


def test_a_pass_that_failed_keeps_no_frames(monkeypatch):
    together = Together(lambda ids, cache: mx.zeros(1), None)
    layer = SimpleNamespace(state=mx.zeros(1))

    def fails(*given):
        raise MemoryError

    monkeypatch.setattr(mx, "eval", fails)
    with pytest.raises(OutOfMemory) as error:
        together.find_out(partial(passed_over, cache=[layer]), list)
    assert error.value.__traceback__ is not None
    assert together._torn.__traceback__ is None
    assert together._torn is not error.value


@kinds
def test_guesses_change_nothing(lib, split, whole, oracle, open_context, kind):
    repeated = prompt(8) * 4
    for options in ({"draft_tokens": 3}, {"draft": whole(kind), "draft_tokens": 3}):
        context = open_context(split(kind))
        lib.begin(context, repeated, max_tokens=16, **options)
        assert delivered(lib.drain(context)) == oracle(kind).after(repeated, 16)
    assert lib.stats(context).accepted_tokens > 0


def test_a_grammar_holds(lib, split, whole, open_context):
    options = {"grammar": "[a-z]{1,6}", "grammar_kind": GRAMMAR_REGEX, "max_tokens": 12}
    texts = []
    for model in (split("tensor"), whole("tensor")):
        context = open_context(model)
        lib.begin(context, START, **options)
        texts.append("".join(piece.text for piece in lib.drain(context)))
    assert texts[0] == texts[1]
    assert texts[0].isalpha()


def test_both_models_and_one_of_this_process_generate_at_once(
    lib, split, whole, oracle, open_context
):
    models = [split("tensor"), whole("tensor"), split("pipeline")]
    contexts = [open_context(model) for model in models]
    made = generate_at_once(lib, contexts, [START] * 3, max_tokens=20)
    expected = [oracle(kind).after(START, 20) for kind in ("tensor", "tensor", "pipeline")]
    assert made == expected


def test_cancelled_contexts_hold_what_they_were_given_and_go_on(lib, split, oracle, open_context):
    context = open_context(split("pipeline"))
    lib.begin(context, START, max_tokens=400)
    given = [lib.next(context).token for _ in range(5)]
    lib.cancel(context)
    rest = delivered(lib.drain(context))
    held = lib.tokens(context)
    assert held == (START + given + rest)[: len(held)]
    assert len(held) >= len(START) + len(given) - 1
    after = [*held, 44]
    assert greedy(lib, context, after, 8) == oracle("pipeline").after(after, 8)


def test_logits_are_those_of_one_process(lib, split, whole, open_context):
    found = []
    for model in (split("tensor"), whole("tensor")):
        context = open_context(model)
        lib.begin(context, START, max_tokens=0)
        found.append(lib.logits(context))
    assert found[0] == pytest.approx(found[1], abs=1e-3)


@kinds
def test_saved_contexts_hold_tokens_which_are_processed_again(
    lib, split, oracle, open_context, tmp_path, kind
):
    context, other = (open_context(split(kind)) for _ in range(2))
    greedy(lib, context, START, 6)
    held = lib.tokens(context)
    lib.save(context, tmp_path / "saved")
    greedy(lib, other, prompt(20, seed=5), 3)
    lib.restore(other, tmp_path / "saved")
    assert lib.tokens(other) == held
    after = [*held, 44]
    assert greedy(lib, other, after, 8) == oracle(kind).after(after, 8)
    assert lib.info(other)["reused"] == len(held)
    lib.save(open_context(split(kind)), tmp_path / "empty")
    lib.restore(other, tmp_path / "empty")
    assert lib.tokens(other) == []


def test_saved_contexts_of_one_machine_are_no_others(lib, split, whole, open_context, tmp_path):
    models = {"several machines": split("tensor"), "one machine": whole("tensor")}
    for name, other in (("several machines", "one machine"), ("one machine", "several machines")):
        context, saved = open_context(models[name]), tmp_path / name.replace(" ", "-")
        greedy(lib, context, START, 2)
        lib.save(context, saved)
        with pytest.raises(StatusError, match=f"was saved with a model on {name}") as caught:
            lib.restore(open_context(models[other]), saved)
        assert caught.value.status == EFORMAT


def test_what_ranks_cannot_do_is_refused_by_name(lib, split, tmp_path):
    model = split("tensor")
    refused = {
        "kv_bits": lambda: lib.context(model, kv_bits=8),
        "adapter_load": lambda: lib.load_adapter(model, tmp_path),
        "model_embed": lambda: lib.embed(model, ["text"]),
        "model_rank": lambda: lib.rank(model, "query", ["text"]),
    }
    for name, call in refused.items():
        with pytest.raises(StatusError, match=name) as caught:
            call()
        assert caught.value.status == EUNSUPPORTED
        assert "several machines" in caught.value.message
    assert lib.info(model)["tasks"] == ["generate"]
    cache = lib.info(model)["cache"]
    assert cache["quantise"] == "no" and "several machines" in cache["why_not"]


def test_a_model_that_is_freed_leaves_no_process(lib, place, worker, secret):
    before, ours = worker.ranks(), local_ranks()
    model = lib.load(place / "models/tensor", workers=[worker.address], secret_path=secret)
    context = lib.context(model)
    lib.free_model(model)
    assert len(greedy(lib, context, START, 3)) == 3  # it keeps the model
    assert len(local_ranks()) == len(ours) + 1
    lib.free(context)
    assert local_ranks() == ours
    worker.says("its rank has ended|it is gone")
    assert worker.ranks() == before


@kinds
def test_a_host_s_own_processor_changes_logits(lib, split, whole, open_context, kind):
    """It runs on this machine, where tokens are sampled."""

    def not_the_best(tokens, count, logits, vocabulary):
        logits[max(range(vocabulary), key=lambda token: logits[token])] = -1e9

    made, expected = (
        drawn(lib, open_context(where(kind)), START, max_tokens=3, logits_fn=not_the_best)
        for where in (split, whole)
    )
    assert [token for token, _ in made] == [token for token, _ in expected]
