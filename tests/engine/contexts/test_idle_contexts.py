"""Contexts without work: they have no thread, and continue as if they had never been idle."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from driver import KV, RECURRENT, SLIDING, greedy, prompt
from support import in_process
from support.compiler import run

from cowmlx.errors import OutOfMemory
from cowmlx.generated.defaults import CONTEXT, GENERATION

HOST = Path(__file__).parents[1] / "hosts/idle.py"


@pytest.mark.parametrize("family", [KV, SLIDING, RECURRENT])
def test_many_idle_contexts_have_no_threads(folder, family):
    if not Path("/proc/self/task").exists():
        pytest.skip("no /proc/self/task")
    done = run([sys.executable, HOST, folder(family), 200])
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["wrong"] == 0
    assert max(found["many"], found["again"]) <= found["few"]


@pytest.fixture
def engine():
    with in_process.started() as engine:
        yield engine


@pytest.fixture
def used(engine, folder):
    """A context that has generated, and is idle."""
    model = in_process.loaded(engine, folder(KV))
    context = engine.context_create(model, CONTEXT)
    call = in_process.Call()
    params = {**GENERATION, "max_tokens": 4}
    engine.context_generate(call, context, [5, 6, 7], params)
    in_process.finish(engine)
    assert call.error is None
    return context


@pytest.mark.parametrize("change", ["begin", "trim"])
def test_where_no_thread_can_be_had_nothing_is_lost(engine, used, monkeypatch, change):
    def fail():
        raise OutOfMemory("no thread")

    held, stats = engine.context_tokens(used), engine.context_stats(used)
    logits = engine.context_logits(used).tolist()
    monkeypatch.setattr(engine.runtime.streams, "take", fail)
    call = in_process.Call()
    with pytest.raises(OutOfMemory):
        if change == "begin":
            engine.context_begin(call, used, [*held, 9], GENERATION)
        else:
            engine.context_trim_front(call, used, 1)
    assert engine.context_tokens(used) == held
    assert engine.context_stats(used) is stats
    assert engine.context_logits(used).tolist() == logits
    monkeypatch.undo()
    engine.context_generate(call, used, [*held, 9], {**GENERATION, "max_tokens": 4})
    in_process.finish(engine)
    assert call.result.reused_tokens == len(held)


def test_an_idle_context_keeps_what_its_tokens_need(lib, tiny, open_context):
    """Its tokens' share of the buffers that a sequence grows in."""
    context = open_context(tiny("llama-long"))
    greedy(lib, context, prompt(300))
    long = lib.info(context)["bytes"]
    lib.reset(context)
    greedy(lib, context, prompt(15))
    held = len(lib.tokens(context))
    assert lib.info(context)["bytes"] * 300 <= long * held
