"""A machine that is gone ends calls with ELOST, and nothing else: no hang, no other model."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from time import monotonic

import pytest
from driver import ENDLESS, Oracle, greedy, prompt, settle
from support import tiny_models
from support.lag import SLACK, Lag
from support.library import StatusError
from support.signatures import ECANCELED, ELOST, FINISH_TIMEOUT, SPLIT_PIPELINE
from support.threads import Working, at_once
from support.workers import local_ranks, on

START = prompt(40)
SILENCE_MS = 1500
BOUND = SILENCE_MS / 1000 + SLACK
LOADING_BOUND = 2 + SLACK  # which ranks have at least while they load


@pytest.fixture
def load(lib, place, worker, secret):
    """Loads a model on two ranks; their processes are returned with it."""
    models = []

    def load(name="tensor", **params):
        before = {*worker.ranks(), *local_ranks()}
        params = {"silence_timeout_ms": SILENCE_MS, **params}
        models.append(lib.load(place / "models" / name, **on([worker], secret, **params)))
        (remote,) = {*worker.ranks()} - before
        (local,) = {*local_ranks()} - before
        return models[-1], local, remote

    yield load
    for model in models:
        lib.c.cow_mlx_model_free(model)


def lost(call, *args, **kwargs):
    """Fail unless a call ends with ELOST, and before long."""
    began = monotonic()
    with pytest.raises(StatusError) as caught, Lag() as lag:
        call(*args, **kwargs)
    seconds = monotonic() - began
    assert caught.value.status == ELOST
    assert caught.value.reason == "machine_lost"
    assert seconds < BOUND + lag.seconds
    return caught.value


def stop(pid):
    os.kill(pid, signal.SIGSTOP)


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def kill_child(pid):
    """Kill a process of this one's, and wait until its connections are closed."""
    kill(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def continued(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("harm", [kill, stop])
@pytest.mark.parametrize("whom", ["local", "remote"])
def test_a_rank_is_lost_while_two_models_generate(
    lib, load, whole, worker, open_context, harm, whom
):
    model, local, remote = load("pipeline" if harm is stop else "tensor")
    victim = local if whom == "local" else remote
    context, other = open_context(model), open_context(whole("tensor"))
    lib.begin(context, START, max_tokens=ENDLESS)
    given = [lib.next(context).token for _ in range(3)]
    expected = Oracle(lib, whole("tensor")).after(START, 60)
    given_beside: list[int] = []
    beside = Working(lambda: given_beside.extend(greedy(lib, other, START, 60)))
    harm(victim)

    def drain():
        while True:
            given.append(lib.next(context).token)

    failure = lost(drain)
    assert beside.ended() == 0
    assert given_beside == expected
    continued(victim)
    rank = {"local": 0, "remote": 1}[whom]
    # The tokens are still told, and it is said what is to be done.
    assert "load the model again" in failure.message
    held = lib.tokens(context)
    assert held == (START + given)[: len(held)]
    assert len(held) >= len(START)
    info = lib.info(model)["ranks"]
    assert [each["state"] for each in info].count("lost") == 1
    assert info[rank]["state"] in ("lost", "ended")
    lost(lib.begin, context, [*held, 5])
    assert local not in local_ranks()
    worker.says("it is gone|its rank has ended")
    assert remote not in worker.ranks()


def test_a_lost_model_is_loaded_again_and_goes_on(lib, load, whole, open_context):
    name = "pipeline"
    model, _, remote = load(name)
    context = open_context(model)
    greedy(lib, context, START, 6)
    kill(remote)
    lost(greedy, lib, context, [*lib.tokens(context), 9], 30)
    held = lib.tokens(context)
    lib.free_model(model)
    again, _, _ = load(name)
    after = [*held, 9]
    made = greedy(lib, open_context(again), after, 8)
    assert made == Oracle(lib, whole(name)).after(after, 8)


@pytest.mark.parametrize("first", ["begin", "begin with other tokens", "cancel", "trim_end"])
def test_a_call_that_notices_the_loss_of_a_paused_context_keeps_its_tokens(
    lib, load, open_context, first
):
    model, local, _ = load("tensor")
    context = open_context(model)
    lib.begin(context, START, max_tokens=ENDLESS)
    lib.next(context)
    settle(lib, model)
    held = lib.tokens(context)
    assert len(held) >= len(START)
    kill_child(local)
    if first == "cancel":
        lib.cancel(context)
        lost(lib.drain, context)
    elif first == "trim_end":
        lost(lib.trim_end, context, 1)
    else:
        lost(lib.begin, context, [*held, 5] if first == "begin" else prompt(9, seed=1))
    assert lib.tokens(context) == held
    assert lib.info(model)["ranks"][0]["state"] == "lost"
    lost(lib.begin, context, [7, 8, 9])
    assert lib.tokens(context) == held


def test_contexts_of_a_batch_keep_their_tokens_though_their_end_notices_the_loss(
    lib, start_worker, tmp_path, secret, open_context
):
    """Their caches drop no tokens, so that nothing is posted before they leave the batch."""
    folder = tiny_models.make(tmp_path / "kept", "qwen3_next", config={"num_hidden_layers": 4})
    options = on([start_worker(models=tmp_path)], secret, split=SPLIT_PIPELINE)
    model = lib.load(folder, **options)
    (local,) = {*local_ranks()}
    contexts = [open_context(model) for _ in range(4)]
    for number, context in enumerate(contexts):
        lib.begin(context, prompt(20, seed=number), max_tokens=ENDLESS)
    for _ in range(50):
        at_once(4, lambda number: lib.next(contexts[number]))
        if any(lib.info(context)["batched"] for context in contexts):
            break
    assert any(lib.info(context)["batched"] for context in contexts)
    held = [lib.tokens(context) for context in contexts]
    kill_child(local)
    for context, tokens in zip(contexts, held, strict=True):
        lib.cancel(context)
        with contextlib.suppress(StatusError):
            lib.drain(context)
        assert lib.tokens(context) == tokens
    lib.free_model(model)


def test_forks_and_rewound_contexts_of_a_lost_model_are_saved(lib, load, open_context, tmp_path):
    model, local, _ = load("pipeline")
    context = open_context(model)
    greedy(lib, context, START, 4)
    held = lib.tokens(context)
    kill_child(local)
    lost(lib.begin, context, [*held, 5])
    fork, checkpoint = lib.fork(context), lib.checkpoint(context)
    lib.rewind(context, checkpoint)
    lost(lib.begin, fork, START)
    for number, each in enumerate((fork, context)):
        assert lib.tokens(each) == held
        lib.save(each, tmp_path / f"{number}")
    again = open_context(load("pipeline")[0])
    for number in range(2):
        lib.restore(again, tmp_path / f"{number}")
        assert lib.tokens(again) == held
    lib.free(fork)


def test_a_rank_is_killed_in_the_prompt_of_a_batch_and_between_steps(lib, load, open_context):
    model, local, _ = load("pipeline")
    contexts = [open_context(model) for _ in range(3)]
    for number, context in enumerate(contexts):
        lib.begin(context, prompt(20, seed=number), max_tokens=ENDLESS)
        lib.next(context)
    waiting = [Working(lost, lambda each: lib.drain(each), context) for context in contexts[:2]]
    kill(local)
    assert [each.ended() for each in waiting] == [0, 0]
    lost(lib.begin, contexts[2], prompt(300))
    fork = lib.fork(contexts[0])  # the tokens alone
    assert lib.tokens(fork) == lib.tokens(contexts[0])
    lost(lib.begin, fork, START)
    lib.free(fork)


def test_a_rank_is_killed_in_the_first_collective_of_a_step(lib, load, whole, open_context):
    model, _, remote = load("tensor")
    context = open_context(model)
    lib.begin(context, START, max_tokens=ENDLESS)
    lib.next(context)
    stop(remote)
    waiting = Working(lost, lib.drain, context)
    greedy(lib, open_context(whole("tensor")), START, 30)  # the other rank waits meanwhile
    kill(remote)
    assert waiting.ended() == 0
    assert lib.info(model)["ranks"][1]["state"] == "lost"


@pytest.mark.parametrize("whom", ["local", "remote"])
def test_a_rank_is_killed_amid_the_collectives_of_a_prompt(lib, load, whole, open_context, whom):
    model, local, remote = load("tensor")
    begun = threading.Event()

    def call():
        try:
            context = open_context(model, max_tokens=5000)
            progress = {"prompt_progress": lambda processed, total: begun.set()}
            lost(lib.begin, context, prompt(4000), **progress)
        finally:
            begun.set()

    waiting = Working(call)
    begun.wait()
    greedy(lib, open_context(whole("tensor")), START, 3)
    kill({"local": local, "remote": remote}[whom])
    assert waiting.ended() == 0
    assert lib.info(model)["ranks"][("local", "remote").index(whom)]["state"] == "lost"


def test_a_context_is_cancelled_and_has_its_deadline_while_a_rank_is_stopped(
    lib, load, open_context
):
    model, _, remote = load("pipeline")
    first, second = open_context(model), open_context(model)
    lib.begin(first, START, max_tokens=ENDLESS)
    lib.begin(second, START, max_tokens=ENDLESS, timeout=0.4)
    lib.next(first)
    stop(remote)
    timer = threading.Timer(0.2, lib.cancel, (first,))
    timer.start()
    began = monotonic()
    with contextlib.suppress(StatusError):
        pieces = lib.drain(first)
        assert len(pieces) < 10
    ended = [piece.finish for piece in lib.drain(second)][-1]
    assert ended == FINISH_TIMEOUT
    assert monotonic() - began < BOUND
    timer.join()
    continued(remote)


def test_a_context_is_freed_and_a_model_too_while_a_rank_is_stopped(lib, load, open_context):
    model, local, remote = load("pipeline")
    context = lib.context(model)
    lib.begin(context, START, max_tokens=ENDLESS)
    stop(remote)
    call = Working(lib.drain, context)
    lib.c.cow_mlx_context_free(context)
    lib.free_model(model)
    assert call.ended() in (0, ECANCELED, -2)
    assert local not in local_ranks()
    continued(remote)


def test_a_worker_that_ends_takes_its_ranks_along(lib, start_worker, place, secret, open_context):
    own = start_worker()
    model = lib.load(place / "models/tensor", **on([own], secret))
    context = open_context(model)
    greedy(lib, context, START, 2)
    own.end()
    lost(greedy, lib, context, START, 20)
    lib.free_model(model)


@pytest.mark.parametrize("harm", [kill, stop])
def test_a_rank_is_lost_while_it_loads(lib, place, worker, secret, harm):
    before = {*worker.ranks()}
    harmed: dict[int, float] = {}

    def progress(fraction, stage):
        if stage == "shard" and not harmed:
            for pid in {*worker.ranks()} - before:
                harm(pid)
                harmed[pid] = monotonic()
        return True

    params = on([worker], secret, silence_timeout_ms=SILENCE_MS, split=SPLIT_PIPELINE)
    with pytest.raises(StatusError) as caught, Lag() as lag:
        lib.load(place / "models/pipeline", progress, **params)
    (pid,) = harmed
    assert monotonic() - harmed[pid] < LOADING_BOUND + lag.seconds
    assert (caught.value.status, caught.value.reason) == (ELOST, "machine_lost")
    assert worker.address in caught.value.message
    assert local_ranks() == []
    continued(pid)
