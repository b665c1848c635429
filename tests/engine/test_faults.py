"""Faults inside the engine: the call that meets one ends with a status, and nothing else does."""

from __future__ import annotations

import pytest

from cowmlx import _constants as constants
from cowmlx.engine import Engine
from cowmlx.errors import Canceled
from cowmlx.generation.params import DEFAULTS

CONTEXT = {
    "max_tokens": 0,
    "kv_bits": 0,
    "kv_group_size": 0,
    "solo": False,
    "priority": 0,
    "overflow": 0,
    "keep_tokens": 0,
    "share_prefix": True,
}


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Call:
    """A host's call, for an engine without a host."""

    ready = True
    refused = False
    cancel_epoch = 0

    def __init__(self):
        self.error = None
        self.result = None

    def post_progress(self, fraction, stage):
        pass

    def post_prompt(self, processed, total):
        pass

    def post_text(self, text):
        pass

    def note(self, message):
        pass

    def succeed_with_handle(self, handle):
        self.result = handle

    def succeed_with_stats(self, stats):
        self.result = stats

    def succeed_with_count(self, count):
        self.result = count

    def fail(self, error):
        self.error = error


@pytest.fixture(scope="module")
def engine():
    engine = Engine(lambda handle: 0, lambda handle: None, lambda handle: None)
    engine.start(None, 0, 0, "")
    yield engine
    engine.stop()


@pytest.fixture
def model(engine, folder):
    call = Call()
    engine.load_model(call, str(folder("llama")), None, False, False, 1 << 20)
    while engine.step():
        pass
    yield call.result
    engine.free_model(call.result)


def generate(engine, context, count=4):
    call = Call()
    engine.generate(call, context, [5, 6, 7], {**DEFAULTS, "max_tokens": count})
    while engine.step():
        pass
    return call


@pytest.mark.parametrize("error", [RuntimeError("broken"), Unspeakable(), KeyboardInterrupt()])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_step_that_raises_ends_its_call_alone(engine, model, monkeypatch, error, step):
    context, other = (engine.create_context(model, CONTEXT) for _ in range(2))
    sequence = engine._context(context).sequence
    forward, steps = sequence.forward, iter(range(1, 100))

    def fail(ids):
        if next(steps) == step:
            raise error
        return forward(ids)

    monkeypatch.setattr(sequence, "forward", fail)
    assert generate(engine, context).error is error
    assert generate(engine, other).result.generated_tokens == 4
    monkeypatch.undo()
    assert generate(engine, context).result.generated_tokens == 4
    engine.free_context(context)
    engine.free_context(other)


def test_a_layer_that_fails_to_trim_empties_the_sequence(engine, model, monkeypatch):
    context = engine.create_context(model, CONTEXT)
    generate(engine, context)
    layers = engine._context(context).sequence._layers

    def fail(count):
        raise RuntimeError("broken")

    monkeypatch.setattr(layers[-1], "trim", fail)
    with pytest.raises(RuntimeError):
        engine.trim_end(Call(), context, 1)
    assert engine.context_tokens(context) == []
    monkeypatch.undo()
    assert generate(engine, context).result.reused_tokens == 0
    engine.free_context(context)


@pytest.mark.parametrize("failing", ["handles", "sequence"])
def test_no_stream_is_lost_with_a_context_that_cannot_be_made(engine, model, monkeypatch, failing):
    taken = []
    streams = engine._streams
    monkeypatch.setattr(streams, "take", lambda: taken.append(1) or type(streams).take(streams))
    monkeypatch.setattr(streams, "give_back", lambda stream: taken.pop())

    def fail(*arguments):
        raise RuntimeError("full")

    if failing == "handles":
        monkeypatch.setattr(engine._handles, "add", fail)
    else:
        monkeypatch.setattr("cowmlx.generation.context.Sequence", fail)
    with pytest.raises(RuntimeError):
        engine.create_context(model, CONTEXT)
    assert taken == []
    monkeypatch.undo()
    assert not engine._handles.handles(constants.KIND_CONTEXT)


def test_a_cancel_of_background_work_does_not_wait_for_the_foreground(engine, model):
    front = engine.create_context(model, CONTEXT)
    back = engine.create_context(model, {**CONTEXT, "priority": -1})
    front_call, back_call = Call(), Call()
    engine.generate(back_call, back, [5, 6, 7], {**DEFAULTS, "max_tokens": 400})
    engine.generate(front_call, front, [5, 6, 7], {**DEFAULTS, "max_tokens": 400})
    engine._context(back).cancel_epoch = lambda: 1
    assert engine.step()
    assert isinstance(back_call.error, Canceled)
    assert front_call.result is None and front_call.error is None
    engine.free_context(front)
    engine.free_context(back)
