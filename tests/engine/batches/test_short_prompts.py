"""Short prompts of contexts that wait at the same time are processed as one batch."""

from __future__ import annotations

import pytest
from driver import CACHES, KV, prompt
from support import in_process
from support.in_process import Call

from cowmlx.generated.defaults import CONTEXT
from cowmlx.generated.defaults import GENERATION as DEFAULTS

LENGTHS = (9, 1, 30, 17, 64, 2)


class Ended(Call):
    """A call that ends."""

    ended = False

    def succeed(self, value=None):
        self.result, self.ended = value, True
        return True

    def done(self, value):
        self.result, self.ended = value, True

    def fail(self, error):
        self.error, self.ended = error, True


@pytest.fixture
def engine():
    with in_process.started() as engine:
        yield engine


@pytest.fixture
def load(engine, folder):
    return lambda kind: in_process.loaded(engine, folder(kind))


class Watched:
    """A network that calls a function first, with what it is given."""

    def __init__(self, network, before):
        self._network, self._before = network, before

    def __getattr__(self, name):
        return getattr(self._network, name)

    def __call__(self, ids, **named):
        self._before(ids)
        return self._network(ids, **named)


@pytest.fixture
def passes(engine, monkeypatch):
    """How many (rows, tokens) each pass through a model's network has."""

    def passes(model):
        seen = []
        own = engine.models.get(model)
        watched = Watched(own.network, lambda ids: seen.append(tuple(ids.shape)))
        monkeypatch.setattr(own, "network", watched)
        return seen

    return passes


def begin(engine, contexts, prompts, **params):
    """Begin on all contexts before any has a turn."""
    calls = [Ended() for _ in contexts]
    for call, context, tokens in zip(calls, contexts, prompts, strict=True):
        engine.context_begin(call, context, tokens, {**DEFAULTS, "max_tokens": 12, **params})
    while not all(call.ended for call in calls):
        assert engine.step(), "a call waits, but nobody has anything to do"
    return calls


def read(engine, contexts):
    """All tokens that follow, read in turn."""
    given = {context: [] for context in contexts}
    left = list(contexts)
    while left:
        for context in list(left):
            call = Ended()
            engine.context_next(call, context)
            while not call.ended:
                assert engine.step()
            assert call.error is None
            piece = call.result[1]
            if piece.finish:
                left.remove(context)
            given[context].append(piece.token)
    return list(given.values())


def one_by_one(engine, model, prompts, kv=0, **params):
    """What each prompt gives in a context alone."""
    given = []
    for tokens in prompts:
        context = engine.context_create(model, {**CONTEXT, "kv_bits": kv, "share_prefix": False})
        begin(engine, [context], [tokens], **params)
        given += read(engine, [context])
        engine.context_free(context)
    return given


@pytest.mark.parametrize(("kind", "bits"), CACHES)
@pytest.mark.parametrize("params", [{}, {"temperature": 0.8, "seed": 5, "repetition_penalty": 1.2}])
def test_prompts_together_are_what_they_are_alone(engine, load, kind, bits, params):
    model = load(kind)
    prompts = [prompt(length, seed) for seed, length in enumerate(LENGTHS)]
    expected = one_by_one(engine, model, prompts, bits, **params)
    contexts = [engine.context_create(model, {**CONTEXT, "kv_bits": bits}) for _ in prompts]
    calls = begin(engine, contexts, prompts, **params)
    assert [call.error for call in calls] == [None] * len(prompts)
    assert [engine.context_tokens(context) for context in contexts] == prompts
    assert read(engine, contexts) == expected


def test_two_passes_do_for_all_prompts(engine, load, passes):
    model = load(KV)
    prompts = [prompt(length, seed) for seed, length in enumerate((9, 30, 2))]
    pair = [engine.context_create(model, CONTEXT) for _ in range(2)]
    begin(engine, pair, prompts[:2])  # whether this network takes batches is found out once
    contexts = [engine.context_create(model, CONTEXT) for _ in prompts]
    seen = passes(model)
    for context in pair:
        engine.context_free(context)
    begin(engine, contexts, prompts)
    assert seen[:2] == [(3, 29), (3, 1)]


def test_prompts_follow_what_contexts_hold(engine, load, passes):
    """One continues a conversation, the other begins one."""
    model = load(KV)
    first, more = prompt(20, 1), prompt(12, 2)
    [expected] = one_by_one(engine, model, [[*first, *more]])
    contexts = [engine.context_create(model, {**CONTEXT, "share_prefix": False}) for _ in range(2)]
    begin(engine, contexts[:1], [first], max_tokens=0)
    seen = passes(model)
    begin(engine, contexts, [[*first, *more], more])
    assert (2, 11) in seen
    assert engine.context_info(contexts[0])["reused"] == 20
    assert read(engine, contexts)[0] == expected


def test_what_a_prompt_shares_is_shared(engine, load):
    """A prompt that was processed with others is known to the next context."""
    model = load(KV)
    prompts = [prompt(50, 1), prompt(60, 2)]
    contexts = [engine.context_create(model, CONTEXT) for _ in range(3)]
    begin(engine, contexts[:2], prompts)
    begin(engine, contexts[2:], prompts[:1])
    assert engine.context_info(contexts[2])["shared"] == 49
    again = read(engine, contexts)
    assert again[2] == again[0]


def test_long_prompts_are_processed_alone(engine, load, passes):
    model = load(KV)
    seen = passes(model)
    contexts = [engine.context_create(model, CONTEXT) for _ in range(2)]
    begin(engine, contexts, [prompt(65, 1), prompt(65, 2)])
    assert seen[:4] == [(1, 64), (1, 64), (1, 1), (1, 1)]


def test_a_fault_ends_those_who_took_part(engine, load, monkeypatch):
    model = load(KV)
    prompts = [prompt(9, 1), prompt(12, 2), prompt(7, 3)]
    expected = one_by_one(engine, model, prompts)
    contexts = [engine.context_create(model, CONTEXT) for _ in prompts]
    begin(engine, contexts[:2], prompts[:2])

    def broken(ids):
        raise RuntimeError("broken")

    own = engine.models.get(model)
    with monkeypatch.context() as patch:
        patch.setattr(own, "network", Watched(own.network, broken))
        calls = begin(engine, contexts, prompts)
    assert all("broken" in str(call.error) for call in calls)
    assert [engine.context_tokens(context) for context in contexts] == [[]] * 3
    begin(engine, contexts, prompts)
    assert read(engine, contexts) == expected
