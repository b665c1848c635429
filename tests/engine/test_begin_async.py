"""Begins that do not wait: pieces are kept until a host takes them without the dispatch thread."""

from __future__ import annotations

import threading

import pytest
from driver import ENDLESS, KINDS, KV, RECURRENT, delivered, greedy, opened, prompt
from support import on_dispatch
from support.async_calls import FOREVER, begin, held, poll
from support.callbacks import Callbacks, StatusError
from support.signatures import (
    DONE,
    ECANCELED,
    ECONTEXT,
    EHANDLE,
    EINTERNAL,
    EINVAL,
    ENOMEM,
    ESTATE,
    ETIMEDOUT,
    FINISH_CANCELED,
    FINISH_LENGTH,
    FINISH_TIMEOUT,
    OK,
)
from support.wake import readable, wake_fd

from cowmlx.errors import Shortage
from cowmlx.generated import constants
from cowmlx.generation.generation import Generation

START = prompt(20)
LONG = prompt(1200)
kinds = pytest.mark.parametrize("kind", KINDS)


def failure(lib, context):
    """What next says of a begin that has failed."""
    assert poll(lib, context) == OK, "a failure is there to be taken"
    with pytest.raises(StatusError) as error:
        lib.next(context)
    return error.value


# ------------------------------------------------------------------ What comes


@kinds
def test_the_pieces_are_those_of_begin(lib, tiny, open_context, oracle, kind):
    context = open_context(tiny(kind))
    begin(lib, context, START, max_tokens=12)
    pieces = lib.drain(context)
    assert delivered(pieces) == oracle(kind).after(START, 12)
    assert pieces[-1].finish == FINISH_LENGTH
    again = lib.next(context)
    assert (again.status, again.finish) == (DONE, FINISH_LENGTH)


@kinds
def test_one_thread_drives_many_contexts_by_their_descriptors(
    lib, tiny, open_context, oracle, kind
):
    prompts = [prompt(5 + 3 * seed, seed) for seed in range(6)]
    contexts = {open_context(tiny(kind)): tokens for tokens in prompts}
    given: dict[int, list[int]] = {context: [] for context in contexts}
    for context, tokens in contexts.items():
        begin(lib, context, tokens, max_tokens=10)
    under_way = list(contexts)
    while under_way:
        for context in list(under_way):
            if not readable(wake_fd(lib, context), 0.01):
                continue
            assert poll(lib, context, 0) == OK
            piece = lib.next(context)
            if piece.status == DONE:
                under_way.remove(context)
            else:
                given[context].append(piece.token)
    for context, tokens in contexts.items():
        assert given[context] == oracle(kind).after(tokens, 10)


def test_nothing_waits_for_the_dispatch_thread(lib, tiny, open_context, oracle):
    """Which does nothing at all meanwhile: neither begins nor gives pieces."""
    context = open_context(tiny(KV))
    with held(lib):
        begin(lib, context, START, max_tokens=3)
        assert poll(lib, context, 0) == ETIMEDOUT
        assert "timeout_ms is 0" in lib.message()
        assert poll(lib, context, 1) == ETIMEDOUT
        assert not readable(wake_fd(lib, context))
    assert readable(wake_fd(lib, context), 60)
    with held(lib):
        assert poll(lib, context, 0) == OK
        first = lib.next(context)
        assert readable(wake_fd(lib, context)) == (poll(lib, context, 0) == OK)
    assert delivered([first, *lib.drain(context)]) == oracle(KV).after(START, 3)


def test_no_tokens_but_the_prompt(lib, tiny, open_context):
    context = open_context(tiny(KV))
    begin(lib, context, START, max_tokens=0)
    assert lib.next(context).finish == FINISH_LENGTH
    assert lib.tokens(context) == START


def test_params_are_copied(lib, calf, open_context):
    """Texts and lists among them; the helper overwrites the tokens itself."""
    tokens = lib.tokenize(calf, "Once upon a time")
    context, other = open_context(calf), open_context(calf)
    options = {"stop": ["bear", "swim"], "bias": {3: -100.0, 5: 1.0}}
    grammar = {"grammar": "[a-z ,A-Z]+", "grammar_kind": 2}
    for chosen in (options, grammar):
        with held(lib):
            begin(lib, context, tokens, max_tokens=30, **chosen)
        said = "".join(piece.text for piece in lib.drain(context))
        assert said == lib.generate(other, tokens, max_tokens=30, **chosen).text


# --------------------------------------------------- What the context holds


@kinds
def test_what_the_host_has_taken_is_what_is_held(lib, tiny, open_context, oracle, kind):
    """Other calls, which come by the dispatch thread, know what was taken without it."""
    context = open_context(tiny(kind))
    begin(lib, context, START, max_tokens=ENDLESS, logprobs=2)
    given = []
    for _ in range(5):
        assert poll(lib, context) == OK
        with held(lib):
            given.append(lib.next(context))
    assert lib.tokens(context) == START + delivered(given)
    assert lib.stats(context).generated_tokens == 5
    assert lib.logprobs(context)[0][0] == given[-1].token
    lib.cancel(context)
    while (piece := lib.next(context)).status != DONE:  # what the cache could not forget
        given.append(piece)
    assert piece.finish == FINISH_CANCELED
    assert lib.tokens(context) == START + delivered(given)
    held_now = [*lib.tokens(context), *prompt(3)]
    assert greedy(lib, context, held_now) == oracle(kind).after(held_now)


def test_a_fork_between_pieces(lib, tiny, open_context, oracle):
    context = open_context(tiny(KV))
    begin(lib, context, START, max_tokens=20)
    given = delivered([lib.next(context) for _ in range(4)])
    forked = lib.fork(context)
    assert lib.tokens(forked) == START + given
    lib.free(forked)
    assert given + delivered(lib.drain(context)) == oracle(KV).after(START, 20)


def test_a_piece_that_the_cache_cannot_forget_waits(lib, tiny, open_context):
    context = open_context(tiny(RECURRENT))
    begin(lib, context, START, max_tokens=20)
    assert poll(lib, context) == OK
    with pytest.raises(StatusError) as refused:
        lib.fork(context)
    assert (refused.value.status, refused.value.reason) == (ESTATE, "piece_waiting")


def test_a_small_buffer_loses_nothing(lib, calf, open_context):
    context = open_context(calf)
    tokens = lib.tokenize(calf, "Once upon a time")
    begin(lib, context, tokens, max_tokens=20)
    expected = lib.generate(open_context(calf), tokens, max_tokens=20).text
    said = ""
    while True:
        piece = lib.next(context, capacity=1)
        if piece.needed:
            assert "capacity is 1" in lib.message()
            piece = lib.next(context, capacity=piece.needed)
        if piece.status == DONE:
            break
        said += piece.text
    assert said == expected


# ----------------------------------------------------------------- Progress


def test_progress_is_told_by_polls(lib, tiny, open_context):
    context = open_context(tiny("llama-long"))
    callbacks, told = Callbacks(), []

    def progress(processed, total):
        told.append((threading.get_ident(), processed, total))

    begin(lib, context, LONG, callbacks, max_tokens=2, prompt_progress=progress)
    while poll(lib, context, 50) == ETIMEDOUT:
        pass
    assert told
    assert {thread for thread, *_ in told} == {threading.get_ident()}
    processed = [done for _, done, _ in told]
    assert processed == sorted(processed)
    assert told[-1][1:] == (len(LONG), len(LONG))
    assert len(delivered(lib.drain(context))) == 2


def test_a_descriptor_tells_of_progress(lib, tiny, open_context):
    context = open_context(tiny(KV))
    callbacks, told = Callbacks(), []
    with held(lib):
        begin(lib, context, START, callbacks, prompt_progress=lambda *how: told.append(how))
        fd = wake_fd(lib, context)
    while not told:
        assert readable(fd, 60)
        poll(lib, context, 0)


def test_false_cancels(lib, tiny, open_context, oracle):
    context = open_context(tiny("llama-long"))
    callbacks = Callbacks()
    begin(lib, context, LONG, callbacks, prompt_progress=lambda done, total: False)
    error = failure(lib, context)
    assert (error.status, error.reason) == (ECANCELED, "callback_refused")
    assert lib.tokens(context) == LONG[: len(lib.tokens(context))]
    assert greedy(lib, context, LONG) == oracle("llama-long").after(LONG)


# ----------------------------------------------------------------- Failures


@pytest.mark.parametrize(
    ("tokens", "params", "status", "reason"),
    [
        ([1, 2, 10**6], {}, EINVAL, "out_of_range"),
        ([], {}, EINVAL, "missing"),
        ([1], {"top_p": 7.0}, EINVAL, "out_of_range"),
        ([1], {"draft": 1}, EHANDLE, "unknown_handle"),
        ([1], {"grammar": "(", "grammar_kind": 2}, EINVAL, "invalid_grammar"),
        ([1] * 9000, {}, ECONTEXT, "context_full"),
    ],
)
def test_a_failure_is_told_by_next_until_the_next_begin(
    lib, tiny, open_context, oracle, tokens, params, status, reason
):
    context = open_context(tiny(KV))
    fd = wake_fd(lib, context)
    begin(lib, context, tokens, **params)
    assert readable(fd, 60)
    for _ in range(2):
        error = failure(lib, context)
        assert (error.status, error.reason) == (status, reason)
        assert error.message.startswith("context_begin_async: ")
    assert lib.info(context)["error"]["message"] == error.message
    begin(lib, context, START, max_tokens=8)
    assert delivered(lib.drain(context)) == oracle(KV).after(START, 8)
    assert lib.info(context)["error"] is None


def test_a_step_that_fails(lib, tiny, open_context, oracle, monkeypatch):
    """In the prompt, or later: next says so, and the context continues with the next begin."""
    context = open_context(tiny(KV))

    def broken(*_, **__):
        raise RuntimeError("broken on purpose")

    for method, taken in (("start_chunk", 0), ("decode", 1)):
        begin(lib, context, START, max_tokens=50) if taken else None
        given = [lib.next(context) for _ in range(taken)]
        with monkeypatch.context() as patch:
            patch.setattr(Generation, method, broken)
            if not taken:
                begin(lib, context, START, max_tokens=50)
            with pytest.raises(StatusError, match="broken on purpose") as error:
                while True:
                    given.append(lib.next(context))
        assert error.value.status == EINTERNAL
        assert failure(lib, context).status == EINTERNAL
        assert "broken on purpose" in lib.info(context)["error"]["message"]
    begin(lib, context, START, max_tokens=8)
    assert delivered(lib.drain(context)) == oracle(KV).after(START, 8)


def test_what_is_no_open_context(lib, tiny):
    closed = lib.context(tiny(KV))
    lib.free(closed)
    for handle in (closed, tiny(KV), 0, -1):
        with pytest.raises(StatusError) as error:
            begin(lib, handle, START)
        assert (error.value.status, error.value.reason) == (EHANDLE, "unknown_handle")


# ------------------------------------------------------- Cancel, free, others


def test_a_cancel_before_it_has_begun(lib, tiny, open_context, oracle):
    context = open_context(tiny(KV))
    with held(lib):
        begin(lib, context, START, max_tokens=50)
        lib.cancel(context)
    assert failure(lib, context).status == ECANCELED
    begin(lib, context, START, max_tokens=8)
    assert delivered(lib.drain(context)) == oracle(KV).after(START, 8)


@kinds
@pytest.mark.parametrize("taken", [1, 4])
def test_after_a_cancel_nothing_comes_that_lay_ready(lib, tiny, open_context, kind, taken):
    context = open_context(tiny(kind))
    begin(lib, context, START, max_tokens=50)
    given = [lib.next(context) for _ in range(taken)]
    assert poll(lib, context) == OK
    with held(lib):
        lib.cancel(context)
        assert poll(lib, context, 0) == ETIMEDOUT
    assert poll(lib, context) == OK
    with held(lib):
        lib.cancel(context)
        assert poll(lib, context, 0) == OK, "another one has nothing to take back"
    pieces = lib.drain(context)
    assert pieces[-1].finish == FINISH_CANCELED
    assert len(pieces) == 1 or kind not in (KV,)
    assert lib.tokens(context) == START + delivered(given + pieces)


def test_a_cancel_when_all_was_computed(lib, tiny, open_context):
    """The generation has ended, but its host has not been given all."""
    context, other = open_context(tiny(KV)), open_context(tiny(KV))
    begin(lib, context, START, max_tokens=2)
    assert poll(lib, context) == OK
    lib.generate(other, START, max_tokens=8)  # it goes along
    lib.cancel(context)
    assert poll(lib, context) == OK
    piece = lib.next(context)
    assert (piece.status, piece.finish) == (DONE, FINISH_CANCELED)
    assert lib.tokens(context) == START


@kinds
@pytest.mark.parametrize("watched", ["before", "behind"])
def test_a_cancel_when_its_context_rests(lib, tiny, open_context, kind, watched):
    """All was computed, and no other context works: neither poll nor next waits for a step."""
    context = open_context(tiny(kind))
    for _ in range(2):
        if watched == "before":
            begin(lib, context, START, max_tokens=1)
        else:
            lib.begin(context, START, max_tokens=1)
        assert poll(lib, context) == OK
        assert lib.info(context)["bytes"]
        fd = wake_fd(lib, context)
        with held(lib):
            lib.cancel(context)
            assert poll(lib, context, 0) == ETIMEDOUT
        assert readable(fd, 60)
        assert poll(lib, context) == OK
        with held(lib):
            assert poll(lib, context, 0) == OK
            pieces = lib.drain(context)
        assert pieces[-1].finish == FINISH_CANCELED
        assert len(pieces) == 1 or kind != KV
        assert lib.tokens(context) == START


def test_a_batch_that_ends_outside_of_a_turn_tells_its_hosts(lib, tiny, open_context):
    """A call of one context meets the failure of a step, and no other call wakes the engine."""
    contexts = [open_context(tiny(KV)) for _ in range(2)]
    for context in contexts:
        begin(lib, context, START, max_tokens=ENDLESS)
    for _ in range(4):
        for context in contexts:
            assert lib.next(context).status == OK
    for context in contexts:
        assert poll(lib, context) == OK

    def fail(service) -> bool:
        own = service._runtime.handles.get(constants.KIND_CONTEXT, contexts[0])
        shares = own.shares_steps
        own.fail(Shortage("no memory is left"))
        return shares

    with on_dispatch.runner(lib) as run:
        assert run(fail)
    for context in contexts:
        error = failure(lib, context)
        assert (error.status, "no memory" in error.message) == (ENOMEM, True)


def test_the_timeout_of_the_generation(lib, tiny, open_context):
    context = open_context(tiny(KV))
    begin(lib, context, START, max_tokens=ENDLESS, timeout=0.05)
    while (piece := lib.next(context)).status != DONE:
        pass
    assert piece.finish == FINISH_TIMEOUT


def test_begin_again(lib, tiny, open_context, oracle):
    """While it generates that ends the generation; what lay ready of it is gone."""
    context = open_context(tiny(KV))
    for seed in range(5):
        begin(lib, context, prompt(9, seed), max_tokens=ENDLESS)
        assert poll(lib, context) == OK
    begin(lib, context, START, max_tokens=8)
    assert delivered(lib.drain(context)) == oracle(KV).after(START, 8)
    lib.begin(context, START, max_tokens=6)
    assert delivered(lib.drain(context)) == oracle(KV).after(START, 6), "and in the other way"


def test_until_the_prompt_is_processed_the_context_is_busy(lib, tiny, open_context, oracle):
    context = open_context(tiny(KV))
    with held(lib):
        begin(lib, context, START, max_tokens=8)
        with pytest.raises(StatusError) as refused:
            begin(lib, context, LONG, max_tokens=8)
    assert (refused.value.status, refused.value.reason) == (ESTATE, "context_busy")
    assert delivered(lib.drain(context)) == oracle(KV).after(START, 8), "the first continues"


def test_other_calls_end_what_lies_ready(lib, tiny, open_context):
    context = open_context(tiny(KV))
    begin(lib, context, START, max_tokens=ENDLESS)
    assert poll(lib, context) == OK
    assert lib.trim_end(context, 4) == 4
    piece = lib.next(context)
    assert (piece.status, piece.finish) == (DONE, FINISH_CANCELED)
    begin(lib, context, START, max_tokens=ENDLESS)
    assert poll(lib, context) == OK
    lib.reset(context)
    assert poll(lib, context, 0) == ESTATE
    assert not readable(wake_fd(lib, context))
    with pytest.raises(StatusError, match="context_begin"):
        lib.next(context)


def test_a_context_is_freed_while_others_wait_for_it(lib, tiny):
    context = lib.context(tiny("llama-long"))
    statuses = []
    with held(lib):
        begin(lib, context, LONG, max_tokens=ENDLESS)
        fd = wake_fd(lib, context)
        waits = [
            threading.Thread(target=lambda: statuses.append(poll(lib, context))) for _ in range(3)
        ]
        frees = threading.Thread(target=lambda: lib.free(context))
        for thread in (frees, *waits):
            thread.start()
    for thread in (frees, *waits):
        thread.join()
    # Those that came late found no context.
    assert set(statuses) <= {ECANCELED, EHANDLE, OK}
    assert poll(lib, context, 0) == EHANDLE
    with pytest.raises(OSError, match="Bad file descriptor"):
        readable(fd)


def test_a_generation_ends_while_threads_wait_for_pieces(lib, tiny, open_context, oracle):
    """Each piece comes once."""
    context = open_context(tiny(KV))
    begin(lib, context, START, max_tokens=30)
    given = []

    def take():
        while (piece := lib.next(context)).status != DONE:
            given.append(piece.token)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == sorted(oracle(KV).after(START, 30))


def test_nobody_looks(lib, tiny, oracle):
    """Contexts that are begun and freed, without a look at them, leave nothing behind."""
    before = lib.info()["handles"]
    for _ in range(20):
        with opened(lib, tiny(KV)) as context:
            begin(lib, context, START)
            wake_fd(lib, context)
    assert lib.info()["handles"] == before
    with opened(lib, tiny(KV)) as context:
        assert greedy(lib, context, START) == oracle(KV).after(START)


def test_forever_is_as_long_as_it_takes(lib, tiny, open_context):
    context = open_context(tiny("llama-long"))
    begin(lib, context, LONG, max_tokens=1)
    assert poll(lib, context, FOREVER) == OK
    assert lib.next(context).status == OK


def test_a_context_is_freed_as_a_context_alone(lib, tiny):
    """Also one whose last call has failed, which frees a model that could not be loaded."""
    context = lib.context(tiny(KV))
    begin(lib, context, [2**31 - 1])
    assert poll(lib, context, FOREVER) == OK
    assert lib.c.cow_mlx_model_free(context) == EHANDLE
    assert lib.c.cow_mlx_context_cancel(context) == OK
    lib.free(context)
