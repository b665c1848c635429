"""Faults inside the engine: the call that meets one ends with a status, and nothing else does."""

from __future__ import annotations

import pytest
from support import in_process
from support.in_process import Call, Unspeakable

from cowmlx.errors import Canceled
from cowmlx.generated.defaults import CONTEXT
from cowmlx.generated.defaults import GENERATION as DEFAULTS


@pytest.fixture(scope="module")
def engine():
    with in_process.started() as engine:
        yield engine


@pytest.fixture
def model(engine, folder):
    model = in_process.loaded(engine, folder("llama"), prefix_cache_bytes=1 << 20)
    yield model
    engine.model_free(model)


def generate(engine, context, count=4):
    call = Call()
    engine.context_generate(call, context, [5, 6, 7], {**DEFAULTS, "max_tokens": count})
    while engine.step():
        pass
    return call


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("broken"), "RuntimeError: broken"),
        (Unspeakable(), "Unspeakable"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_step_that_raises_ends_its_call_alone(engine, model, monkeypatch, error, message, step):
    context, other = (engine.context_create(model, CONTEXT) for _ in range(2))
    sequence = engine.contexts.get(context).sequence
    steps = iter(range(1, 100))

    def failing(method):
        def fail(ids):
            if next(steps) == step:
                raise error
            return method(ids)

        return fail

    for name in ("forward", "decode"):
        monkeypatch.setattr(sequence, name, failing(getattr(sequence, name)))
    assert str(generate(engine, context).error).startswith(message)
    assert generate(engine, other).result.generated_tokens == 4
    monkeypatch.undo()
    assert generate(engine, context).result.generated_tokens == 4
    engine.context_free(context)
    engine.context_free(other)


def test_a_layer_that_fails_to_trim_empties_the_sequence(engine, model, monkeypatch):
    context = engine.context_create(model, CONTEXT)
    generate(engine, context)
    layers = engine.contexts.get(context).sequence._layers

    def fail(count):
        raise RuntimeError("broken")

    monkeypatch.setattr(layers[-1], "trim", fail)
    with pytest.raises(RuntimeError):
        engine.context_trim_end(Call(), context, 1)
    assert engine.context_tokens(context) == []
    monkeypatch.undo()
    assert generate(engine, context).result.reused_tokens == 0
    engine.context_free(context)


@pytest.mark.parametrize("failing", ["lane", "drafter"])
def test_no_stream_is_lost_with_a_generation_that_cannot_begin(engine, model, monkeypatch, failing):
    context = engine.context_create(model, CONTEXT)
    taken = []
    streams = engine.runtime.streams

    def take():
        if failing == "lane" and taken:
            raise RuntimeError("broken")
        taken.append(1)
        return type(streams).take(streams)

    def give_back(stream, *more):
        taken.pop()
        type(streams).give_back(streams, stream, *more)

    def fail(*arguments):
        raise RuntimeError("broken")

    monkeypatch.setattr(streams, "take", take)
    monkeypatch.setattr(streams, "give_back", give_back)
    if failing == "drafter":
        monkeypatch.setattr(engine.contexts.get(context)._draft, "drafter", fail)
    with pytest.raises(RuntimeError):
        generate(engine, context)
    assert taken == []
    monkeypatch.undo()
    assert generate(engine, context).result.generated_tokens == 4
    engine.context_free(context)


def test_a_cancel_of_background_work_does_not_wait_for_the_foreground(engine, model):
    front = engine.context_create(model, CONTEXT)
    back = engine.context_create(model, {**CONTEXT, "priority": -1})
    front_call, back_call = Call(), Call()
    engine.context_generate(back_call, back, [5, 6, 7], {**DEFAULTS, "max_tokens": 400})
    engine.context_generate(front_call, front, [5, 6, 7], {**DEFAULTS, "max_tokens": 400})
    engine.contexts.get(back).cancel_epoch = lambda: 1
    assert engine.step()
    assert isinstance(back_call.error, Canceled)
    assert front_call.result is None and front_call.error is None
    engine.context_free(front)
    engine.context_free(back)
