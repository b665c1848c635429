"""Faults and changes of mind in a batch: who meets one ends or goes, and the mates lose nothing."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import mlx.core as mx
import pytest
from driver import (
    CACHES,
    HYBRID,
    KV,
    QUANTIZED_CACHES,
    RECURRENT,
    SLIDING,
    delivered,
    generate_at_once,
    greedy,
    next_ok,
    prompt,
    settle,
)
from support import in_process, tiny_adapters
from support.device_texts import SHORTAGES
from support.in_process import Call, Unspeakable
from support.signatures import DONE, ETIMEDOUT, FINISH_CONTEXT, GRAMMAR_REGEX, OK, OVERFLOW_ROLL
from support.threads import at_once
from support.wake import readable, wake_fd

from cowmlx.generated.defaults import CONTEXT
from cowmlx.generated.defaults import GENERATION as DEFAULTS
from cowmlx.scheduling import lane, row_samples

# ------------------------------------------------------- Faults inside an engine without a host


class Reader(Call):
    """A host that wants tokens."""

    def __init__(self):
        super().__init__()
        self.ended = False
        self.tokens = []

    def succeed(self, value=None):
        self.result, self.ended = value, True
        if isinstance(value, tuple):
            self.tokens.append(value[1].token)
        return True

    def done(self, value):
        self.result, self.ended = value[1], True

    def fail(self, error):
        self.error, self.ended = error, True


@pytest.fixture
def engine():
    with in_process.started() as engine:
        yield engine


@pytest.fixture
def model(engine, folder):
    return in_process.loaded(engine, folder(KV), prefix_cache_bytes=0)


SETTINGS = [
    {"max_tokens": 24},
    {"max_tokens": 24, "temperature": 0.9, "seed": 3},
    {"max_tokens": 24},
    {"max_tokens": 24, "repetition_penalty": 1.3},
]
VICTIM = 2


def begin(engine, context, number, **params):
    call = Reader()
    fields = {**DEFAULTS, **SETTINGS[number], **params}
    engine.context_begin(call, context, prompt(10 + number, number), fields)
    while not call.ended:
        assert engine.step(), "a call waits, but nobody has anything to do"
    assert call.error is None
    return engine.contexts.get(context).generation


def read(engine, contexts, rounds=40):
    """Read everything, a piece each in turn; gives tokens and errors."""
    tokens, errors = [[] for _ in contexts], [None for _ in contexts]
    for _ in range(rounds):
        calls = [Reader() for _ in contexts]
        for call, context in zip(calls, contexts, strict=True):
            engine.context_next(call, context)
        while not all(call.ended for call in calls):
            assert engine.step(), "a call waits, but nobody has anything to do"
        for number, call in enumerate(calls):
            tokens[number] += call.tokens
            errors[number] = errors[number] or call.error
    return tokens, errors


def alone(engine, model):
    given = []
    for number in range(len(SETTINGS)):
        context = engine.context_create(model, CONTEXT)
        begin(engine, context, number)
        given += read(engine, [context])[0]
        engine.context_free(context)
    return given


def failing_after(count, works, error):
    """A function that raises at its ``count``-th call."""
    calls = iter(range(1, 1000))

    def function(*arguments, **named):
        if next(calls) == count:
            raise error
        return works(*arguments, **named)

    return function


def failing_draw(generation, allowed):
    """Let the fifth draw of a generation be from a mask that it fails with.

    The first, behind the prompt, is another method's.
    """
    works, calls = generation._inputs.behind, iter(range(2, 1000))

    def function(*arguments, **named):
        each = works(*arguments, **named)
        if next(calls) == 5:
            each.allowed = allowed
        return each

    generation._inputs.behind = function


def break_sampler(generation):
    inputs = generation._inputs
    inputs.behind = failing_after(4, inputs.behind, RuntimeError("broken"))


def break_draw(generation):
    """It fails when it is asked for, with those of the batch mates."""
    failing_draw(generation, mx.ones((7,), mx.bool_))


def break_computation(generation):
    """It fails when it is computed, with those of the batch mates."""
    half = mx.ones((1, 32, 32), mx.float16)
    index = mx.array([0])
    broken = mx.gather_mm(half, half, lhs_indices=index, rhs_indices=index)  # float32 only
    failing_draw(generation, mx.max(broken) > 0)


def break_detokenizer(generation):
    generation._text.add = failing_after(5, generation._text.add, RuntimeError("broken"))


def break_text_that_cannot_be_told(generation):
    generation._text.add = failing_after(5, generation._text.add, Unspeakable())


def break_grammar(generation):
    constraint = generation._inputs.constraint
    constraint.accept = failing_after(5, constraint.accept, KeyboardInterrupt())


def break_mask(generation):
    constraint = generation._inputs.constraint
    constraint.allowed = failing_after(5, constraint.allowed, RuntimeError("broken"))


@pytest.mark.parametrize(
    "fault",
    [
        break_sampler,
        break_draw,
        break_computation,
        break_detokenizer,
        break_text_that_cannot_be_told,
        break_grammar,
        break_mask,
    ],
)
def test_who_meets_a_fault_in_a_batch_ends_alone(engine, model, fault):
    expected = alone(engine, model)
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]
    grammar = {"grammar": ".*", "grammar_kind": GRAMMAR_REGEX}
    for number, context in enumerate(contexts):
        needed = grammar if number == VICTIM and fault in (break_grammar, break_mask) else {}
        generation = begin(engine, context, number, **needed)
        if number == VICTIM:
            fault(generation)
    tokens, errors = read(engine, contexts)
    assert [error is not None for error in errors] == [False, False, True, False]
    assert engine.context_tokens(contexts[VICTIM]) == []
    for number in (0, 1, 3):
        assert tokens[number] == expected[number]
        assert engine.context_info(contexts[number])["batched"] > 12
    # It takes part again.
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    assert read(engine, contexts)[0] == expected


@pytest.mark.parametrize("where", ["network", "layer", "decode"])
@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_a_step_of_a_batch_that_fails_ends_those_who_took_it(
    engine, model, monkeypatch, where, error
):
    """One that has read no further keeps its row, and continues as if nothing had been."""
    expected = alone(engine, model)
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    first, _ = read(engine, contexts, 4)
    while engine.step():
        pass  # all run ahead as far as they may
    readers = contexts[1:]
    more, _ = read(engine, readers, 4)
    own = engine.runtime.lanes._of[engine.contexts.get(contexts[0])]
    broken = failing_after(1, None, error)
    with monkeypatch.context() as patch:
        if where == "network":
            patch.setattr(own.model, "network", broken)
        elif where == "decode":
            patch.setitem(vars(own.model.network), "_decode", SimpleNamespace(logits=broken))
        else:
            patch.setitem(vars(own.model.network), "_decode", None)
            for method in ("update_and_fetch", "room"):  # plain layers ask for one, fused ones too
                patch.setattr(own._batch.layers[-1], method, broken)
        calls = [Reader() for _ in range(8)]
        for call in calls:
            if not call.ended:
                engine.context_next(call, contexts[1])
            while not call.ended:
                assert engine.step()
            if call.error:
                break
        assert any(call.error and str(error) in str(call.error) for call in calls)
    rest, errors = read(engine, contexts)
    assert [error is not None for error in errors[1:]] == [True] * 3
    assert (errors[0], first[0] + rest[0]) == (None, expected[0])
    assert all(len(seen) == 4 for seen in more)
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    assert read(engine, contexts)[0] == expected


def test_a_cache_that_fails_to_join_goes_alone(engine, model, monkeypatch):
    expected = alone(engine, model)
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]

    def fail(batch):
        raise RuntimeError("broken")

    monkeypatch.setattr(engine.contexts.get(contexts[VICTIM]).sequence, "join", fail)
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    tokens, errors = read(engine, contexts)
    assert (tokens, errors) == (expected, [None] * len(SETTINGS))
    infos = [engine.context_info(context) for context in contexts]
    assert "RuntimeError" in infos[VICTIM]["alone"]
    assert [info["batched"] > 12 for info in infos] == [True, True, False, True]


def test_logits_that_cannot_be_joined_are_sampled_one_by_one(engine, model, monkeypatch):
    """Those behind tokens of a grammar, which are read before the next are sampled."""
    grammar = {"grammar": "[a-f]*", "grammar_kind": GRAMMAR_REGEX}
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]
    for number, context in enumerate(contexts):
        begin(engine, context, number, **grammar)
    expected, errors = read(engine, contexts)
    assert errors == [None] * len(SETTINGS)
    for number, context in enumerate(contexts):
        begin(engine, context, number, **grammar)
    joined = []

    def concatenate(arrays):
        joined.append(len(arrays))
        if len(joined) == 2:
            raise RuntimeError("broken")
        return mx.concatenate(arrays)

    own = SimpleNamespace(async_eval=mx.async_eval, concatenate=concatenate)
    monkeypatch.setattr(row_samples, "mx", own)
    assert read(engine, contexts) == (expected, errors)
    assert len(joined) > 2


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError(SHORTAGES[2])])
def test_one_that_finds_no_memory_to_join_joins_later(engine, model, monkeypatch, error):
    expected = alone(engine, model)
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]
    sequence = engine.contexts.get(contexts[VICTIM]).sequence
    monkeypatch.setattr(lane, "RETRY", 0)
    monkeypatch.setattr(sequence, "join", failing_after(1, sequence.join, error))
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    assert read(engine, contexts) == (expected, [None] * len(SETTINGS))
    infos = [engine.context_info(context) for context in contexts]
    assert [info["alone"] for info in infos] == [None] * len(SETTINGS)
    assert all(info["batched"] > 12 for info in infos)


def test_one_that_loses_its_tokens_as_it_joins_ends_alone(engine, model, monkeypatch):
    """Its layers lacked some, and these could not be processed."""
    expected = alone(engine, model)
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]
    sequence = engine.contexts.get(contexts[VICTIM]).sequence

    def lose(batch):
        sequence.reset()
        raise RuntimeError("broken")

    monkeypatch.setattr(sequence, "join", lose)
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    tokens, errors = read(engine, contexts)
    assert [error is not None for error in errors] == [False, False, True, False]
    assert "broken" in str(errors[VICTIM])
    assert [tokens[number] for number in (0, 1, 3)] == [expected[number] for number in (0, 1, 3)]
    assert engine.context_tokens(contexts[VICTIM]) == []


def test_an_abandoned_row_leaves(engine, model):
    """After PATIENCE steps of the others, with nothing lost."""
    expected = alone(engine, model)
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    first, _ = read(engine, contexts, 3)
    sequence = engine.contexts.get(contexts[0]).sequence
    assert sequence.row is not None
    others = [engine.context_create(model, CONTEXT) for _ in range(2)]
    for _ in range(3):
        for number, context in enumerate(others):
            begin(engine, context, number)
        read(engine, others)
    assert sequence.row is None
    assert first[0] + read(engine, contexts)[0][0] == expected[0]


def test_contexts_that_join_together_get_room_at_once(engine, model):
    """For three rows; one after the other they would get room for four."""
    expected = alone(engine, model)[:3]
    contexts = [engine.context_create(model, CONTEXT) for _ in range(3)]
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    together = [engine.contexts.get(context) for context in contexts]
    for context in together:
        context.sequence.leave_batch()
    own = engine.runtime.lanes._of[together[0]]
    assert own._join_all(together) == together
    assert {array.shape[0] for array in own._batch.arrays} == {3}
    assert read(engine, contexts)[0] == expected


def test_a_lane_ends_with_its_contexts(engine, model):
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    read(engine, contexts, 3)
    own = engine.runtime.lanes._of[engine.contexts.get(contexts[0])]
    for context in contexts:
        engine.context_free(context)
    assert (own.contexts, own._batch.rows.all, own._batch.arrays) == ([], [], [])
    assert not engine.runtime.lanes._lanes
    assert not engine.step()


class Scarce(dict):
    """Lanes that there is no memory to look through, a few times."""

    left = 3

    def items(self):
        if self.left:
            self.left -= 1
            raise MemoryError
        return super().items()


def all_are_free(engine):
    streams = engine.runtime.streams._all
    return bool(streams) and all(pooled.is_free for pooled in streams)


def test_freed_contexts_that_find_no_memory_to_leave_their_lane_leave_later(engine, model):
    """The lane alone knows them, and with it their model."""
    contexts = [engine.context_create(model, CONTEXT) for _ in SETTINGS]
    for number, context in enumerate(contexts):
        begin(engine, context, number)
    read(engine, contexts, 3)
    lanes = engine.runtime.lanes
    lanes._lanes = scarce = Scarce(lanes._lanes)
    for context in contexts:
        with suppress(MemoryError):
            engine.context_free(context)
    for _ in range(20):
        with suppress(MemoryError):
            engine.step()
    assert not scarce.left
    assert not lanes._lanes
    assert all_are_free(engine)
    assert not engine.step()


@pytest.mark.parametrize("refused", ["add", "lane"])
def test_a_lane_that_finds_no_memory_is_forgotten(engine, model, monkeypatch, refused):
    context, lanes = engine.context_create(model, CONTEXT), engine.runtime.lanes

    def refuse(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        if refused == "add":
            patch.setattr(engine.runtime.scheduler, "add", refuse)
        else:
            patch.setattr("cowmlx.scheduling.lanes.Lane", refuse)
        with pytest.raises(MemoryError):
            begin(engine, context, 0)
        assert not lanes._lanes
        assert all_are_free(engine)
    begin(engine, context, 0)
    assert read(engine, [context])[0] == alone(engine, model)[:1]


# ------------------------------------------------------------- Changes of mind, through the ABI


class Mates:
    """Contexts that generate throughout, and must lose nothing."""

    def __init__(self, lib, contexts, prompts, count):
        self.lib, self.contexts, self.prompts, self.count = lib, contexts, prompts, count
        self.given = [[] for _ in contexts]
        for context, tokens in zip(contexts, prompts, strict=True):
            lib.begin(context, tokens, max_tokens=count)

    def read(self, count=2):
        for _ in range(count):
            for own, context in zip(self.given, self.contexts, strict=True):
                own += delivered(next_ok(self.lib, context, 1))

    def check(self, oracle):
        for own, context, tokens in zip(self.given, self.contexts, self.prompts, strict=True):
            own += delivered(self.lib.drain(context))
            assert own == oracle.after(tokens, self.count)


@pytest.fixture
def mates(lib, tiny, open_context):
    def mates(kind, count=60, **params):
        contexts = [open_context(tiny(kind), **params) for _ in range(2)]
        return Mates(lib, contexts, [prompt(11), prompt(14, seed=1)], count)

    return mates


@pytest.mark.parametrize(("kind", "bits"), CACHES)
def test_what_is_done_to_one_of_a_batch_is_done_to_no_other(
    lib, tiny, open_context, oracle, mates, kind, bits, tmp_path
):
    """Fork, checkpoint, rewind, save, load, trims, reset, free, in the middle."""
    others, known = mates(kind, kv_bits=bits), oracle(kind, bits)
    own = open_context(tiny(kind), kv_bits=bits)

    def under_way():
        lib.begin(own, prompt(12), max_tokens=40)
        given = []
        for _ in range(4):
            given += delivered(next_ok(lib, own, 1))
            others.read(1)
        return given

    def goes_on_right(context):
        held = [*lib.tokens(context), 20]
        assert greedy(lib, context, held, 6) == known.after(held, 6)
        others.read(1)

    given = under_way()
    forked, kept = lib.fork(own), lib.checkpoint(own)
    held = lib.tokens(own)
    lib.save(own, tmp_path / "saved")
    assert given + delivered(lib.drain(own)) == known.after(prompt(12), 40)
    goes_on_right(forked)
    lib.free(forked)
    under_way()
    lib.rewind(own, kept)
    assert lib.tokens(own) == held
    goes_on_right(own)
    under_way()
    lib.restore(own, tmp_path / "saved")
    assert lib.tokens(own) == held
    goes_on_right(own)
    for trim in (lib.trim_end, lib.trim_front):
        under_way()
        assert trim(own, 3) == 3
        goes_on_right(own)
    under_way()
    lib.reset(own)
    assert lib.tokens(own) == []
    under_way()
    lib.free(own)
    others.check(known)


def test_the_model_is_freed_under_a_batch(lib, folder, oracle, tiny):
    model = lib.load(folder(KV))
    contexts = [lib.context(model) for _ in range(3)]
    mates = Mates(lib, contexts, [prompt(9, seed) for seed in range(3)], 40)
    mates.read()
    lib.free_model(model)
    mates.read()
    mates.check(oracle(KV))
    for context in contexts:
        lib.free(context)


def test_two_models_and_two_adapters_at_once(lib, tiny, folder, open_context, tmp_path):
    """Each with two contexts; then they change places in the middle of a generation."""
    model, other = tiny(KV), tiny("llama-other")
    paths = [
        tiny_adapters.make(tmp_path / f"{seed}", folder(KV), ["q_proj", "v_proj"], seed=seed)
        for seed in range(2)
    ]
    adapters = [0, *(lib.load_adapter(model, path) for path in paths)]
    tokens = prompt(13)

    def open_with(adapter):
        context = open_context(model)
        lib.set_adapter(context, adapter)
        return context

    expected = [greedy(lib, open_with(adapter), tokens, 24) for adapter in adapters]
    expected.append(greedy(lib, open_context(other), tokens, 24))
    assert len({tuple(each) for each in expected}) == 4
    contexts = [open_with(adapter) for adapter in adapters for _ in range(2)]
    contexts += [open_context(other) for _ in range(2)]
    wanted = [each for each in expected for _ in range(2)]
    assert generate_at_once(lib, contexts, [tokens] * 8, max_tokens=24) == wanted
    for context in contexts:
        lib.begin(context, tokens, max_tokens=24)
    first = [delivered(next_ok(lib, context, 3)) for context in contexts]
    lib.set_adapter(contexts[0], adapters[1])
    lib.set_adapter(contexts[2], 0)
    for number in (1, 3, 4, 5, 6, 7):
        assert first[number] + delivered(lib.drain(contexts[number])) == wanted[number]
    given = generate_at_once(lib, [contexts[0], contexts[2]], [tokens] * 2, max_tokens=24)
    assert given == [expected[1], expected[0]]
    for adapter in adapters[1:]:
        lib.free_adapter(adapter)


def test_what_is_not_batched_beside_a_batch(lib, tiny, open_context):
    """Drafting, solo, background, the only one that is quantized: each as alone."""
    model = tiny("llama-wide")
    kinds = [{}, {}, {"kv_bits": 8}, {"solo": True}, {"priority": -1}, {"priority": -1}, {}]
    contexts = [open_context(model, **params) for params in kinds]
    params = [{"max_tokens": 30} for _ in kinds]
    params[-1]["draft_tokens"] = 3
    prompts = [prompt(9 + seed, seed) for seed in range(len(kinds))]

    def generate(index):
        lib.begin(contexts[index], prompts[index], **params[index])
        given[index] = delivered(lib.drain(contexts[index]))

    given = [[] for _ in kinds]
    for index in range(len(kinds)):
        generate(index)
        lib.reset(contexts[index])
    expected, given = given, [[] for _ in kinds]
    at_once(len(kinds), generate)
    assert given == expected
    assert [lib.info(contexts[index])["batched"] for index in (2, 3, 6)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "bits"), [(KV, 0), (SLIDING, 0), (RECURRENT, 0), (HYBRID, 0), *QUANTIZED_CACHES]
)
def test_windows_that_roll_or_fill_in_a_batch(lib, tiny, open_context, kind, bits):
    model = tiny(kind)
    kinds = [
        {"max_tokens": 32, "overflow": OVERFLOW_ROLL, "keep_tokens": 4},
        {"max_tokens": 24, "overflow": OVERFLOW_ROLL},
        {"max_tokens": 40},
        {},
    ]
    prompts = [prompt(20), prompt(23, 1), prompt(40, 2), prompt(30, 3)]
    contexts = [open_context(model, kv_bits=bits, **params) for params in kinds]
    expected = []
    for context, tokens in zip(contexts, prompts, strict=True):
        lib.begin(context, tokens, max_tokens=50)
        pieces = lib.drain(context)
        expected.append((delivered(pieces), pieces[-1].finish, lib.tokens(context)))
        lib.reset(context)
    assert [len(tokens) for tokens, *_ in expected] == [50, 50, 1, 50]
    assert expected[2][1] == FINISH_CONTEXT
    given = [None] * len(kinds)

    def work(index):
        lib.begin(contexts[index], prompts[index], max_tokens=50)
        pieces = lib.drain(contexts[index])
        given[index] = (delivered(pieces), pieces[-1].finish, lib.tokens(contexts[index]))

    at_once(len(kinds), work)
    assert given == expected


def test_polls_that_never_wait_get_past_a_window_that_rolls(lib, tiny, open_context):
    """What rolls is computed meanwhile, though nobody waits for it."""
    rolling = {"max_tokens": 24, "overflow": OVERFLOW_ROLL}
    context, same = (open_context(tiny(KV), **rolling) for _ in range(2))
    expected = greedy(lib, same, prompt(20), 40)
    lib.begin(context, prompt(20), max_tokens=40)
    given, polls = [], 0
    while len(given) < 40:
        polls += 1
        assert polls < 100_000, "no piece comes any more"
        status = lib.c.cow_mlx_context_poll(context, 0)
        assert status in (OK, ETIMEDOUT)
        if status == OK:
            given.append(lib.next(context).token)
    assert given == expected


def test_the_descriptor_tells_of_pieces_behind_a_window_that_rolls(lib, tiny, open_context):
    rolling = {"max_tokens": 24, "overflow": OVERFLOW_ROLL}
    context, same = (open_context(tiny(KV), **rolling) for _ in range(2))
    expected = greedy(lib, same, prompt(20), 40)
    fd, given = wake_fd(lib, context), []
    lib.begin(context, prompt(20), max_tokens=40)
    while readable(fd, 30):
        piece = lib.next(context)
        if piece.status == DONE:
            break
        given.append(piece.token)
    assert given == expected


@pytest.mark.parametrize("kind", [KV, SLIDING, RECURRENT, HYBRID])
def test_readers_that_stop_hold_up_nobody(lib, tiny, open_context, oracle, kind):
    """They run ahead a little, which the host is not shown, and continue where they were."""
    model, known = tiny(kind), oracle(kind)
    slow = [open_context(model) for _ in range(3)]
    starts = [prompt(8 + seed, seed) for seed in range(3)]
    for context, tokens in zip(slow, starts, strict=True):
        lib.begin(context, tokens, max_tokens=40)
    first = [delivered(next_ok(lib, context, 2)) for context in slow]
    quick = [open_context(model) for _ in range(2)]
    tokens = [prompt(10), prompt(12)]
    given = generate_at_once(lib, quick, tokens, max_tokens=30)
    assert given == [known.after(token, 30) for token in tokens]
    settle(lib, model)
    for context, start, own in zip(slow, starts, first, strict=True):
        assert lib.tokens(context) == start + own
    rest = [delivered(lib.drain(context)) for context in slow]
    for start, own, more in zip(starts, first, rest, strict=True):
        assert own + more == known.after(start, 40)


def test_idle_contexts_keep_no_others_memory(lib, tiny, open_context):
    """After a batch, each holds its own row alone."""
    model = tiny("llama-wide")
    contexts = [open_context(model) for _ in range(12)]
    prompts = [prompt(30 + seed, seed) for seed in range(12)]
    generate_at_once(lib, contexts[:2], prompts[:2], max_tokens=4)
    for context in contexts:
        lib.reset(context)
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    generate_at_once(lib, contexts, prompts, max_tokens=20)
    assert sum(lib.info(context)["batched"] for context in contexts) > 100
    held = sum(lib.info(context)["bytes"] for context in contexts)
    lib.trim_memory()
    assert lib.info()["memory"]["active"] - before < 1.5 * held
