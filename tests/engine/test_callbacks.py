"""Callbacks run on the caller's thread, may call the library, and stall nobody else."""

from __future__ import annotations

import itertools
import threading

import pytest
from driver import FIRST_PLAIN, KINDS, greedy, prompt
from support.library import StatusError
from support.signatures import ECANCELED, EHANDLE, ESTATE

START = prompt(20)
LONG = prompt(1100)


def test_they_run_on_the_thread_that_called(lib, tiny, folder, open_context):
    context = open_context(tiny("llama-long"))
    threads = {"load": set(), "prompt": set(), "text": set()}
    here = {}

    def note(name):
        threads[name].add(threading.get_ident())

    def work():
        here["ident"] = threading.get_ident()
        lib.free_model(lib.load(folder("llama"), lambda *_: note("load")))
        lib.generate(
            context,
            LONG,
            lambda text: note("text"),
            prompt_progress=lambda *_: note("prompt"),
            max_tokens=9,
        )

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert all(idents == {here["ident"]} for idents in threads.values()), threads


def test_the_prompt_is_told_chunk_by_chunk_to_its_end(lib, tiny, open_context):
    context = open_context(tiny("llama-long"))
    seen = []
    lib.begin(context, LONG, prompt_progress=lambda *progress: seen.append(progress), max_tokens=0)
    processed = [done for done, _ in seen]
    assert {total for _, total in seen} == {len(LONG)}
    assert processed == sorted(set(processed))
    assert processed[-1] == len(LONG)
    assert len(processed) > 2
    assert max(b - a for a, b in itertools.pairwise(processed)) <= 512


def test_the_prompt_is_told_from_where_it_was_reused(lib, tiny, open_context):
    context = open_context(tiny("llama-long"))
    lib.begin(context, LONG, max_tokens=0)
    seen = []
    lib.begin(
        context,
        LONG + prompt(5, seed=1),
        prompt_progress=lambda *progress: seen.append(progress),
        max_tokens=1,
    )
    assert all(len(LONG) <= done <= len(LONG) + 5 for done, _ in seen)
    assert seen[-1] == (len(LONG) + 5, len(LONG) + 5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_is_there_for_a_text_callback(lib, tiny, oracle, open_context, kind):
    model = tiny(kind)
    context, other = open_context(model), open_context(model)
    seen = []

    def on_text(text):
        assert lib.info(model)["vocabulary_size"] > 0
        assert lib.detokenize(model, lib.tokenize(model, "the fox")) == "the fox"
        assert lib.info()["handles"]["context"] >= 2
        assert greedy(lib, other, START) == oracle(kind).after(START)
        seen.append(text)

    text = lib.generate(context, START, on_text, max_tokens=5).text
    assert "".join(seen) == text == lib.generate(context, START, max_tokens=5).text


def test_the_library_is_there_for_a_prompt_callback_and_a_load_callback(
    lib, tiny, folder, oracle, open_context
):
    model = tiny("llama")
    context, other = open_context(model), open_context(model)
    calls = []

    def work(*_):
        calls.append(greedy(lib, other, START))

    lib.begin(context, prompt(30), prompt_progress=work, max_tokens=0)
    lib.free_model(lib.load(folder("llama-other"), work))
    assert len(calls) > 3
    assert calls == [oracle("llama").after(START)] * len(calls)


@pytest.mark.parametrize(
    "call",
    ["begin", "generate", "next", "reset", "trim_end", "trim_front"],
)
def test_the_same_context_is_busy_inside_its_callback(lib, tiny, open_context, call):
    context = open_context(tiny("llama"))
    arguments = {
        "begin": (context, START),
        "generate": (context, START),
        "trim_end": (context, 1),
        "trim_front": (context, 1),
    }
    seen = []

    def on_text(text):
        with pytest.raises(StatusError) as busy:
            getattr(lib, call)(*arguments.get(call, (context,)))
        seen.append((busy.value.status, busy.value.message))

    expected = lib.generate(context, START, max_tokens=4).text
    assert lib.generate(context, START, on_text, max_tokens=4).text == expected
    assert {status for status, _ in seen} == {ESTATE}
    assert all(f"context_{call}" in message for _, message in seen)
    assert all("another call" in message for _, message in seen)


def test_what_may_be_asked_of_a_busy_context(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    seen = []

    def on_text(text):
        seen.append(lib.info(context)["tokens"] == len(lib.tokens(context)) >= len(START))
        assert lib.stats(context).prompt_tokens == len(START)

    lib.generate(context, START, on_text, max_tokens=6)
    assert all(seen)
    assert seen


def test_a_context_freed_in_its_own_callback(lib, tiny):
    context = lib.context(tiny("llama"))
    with pytest.raises(StatusError) as freed:
        lib.generate(context, START, lambda text: lib.free(context), max_tokens=50)
    assert freed.value.status == ECANCELED
    with pytest.raises(StatusError) as unknown:
        lib.tokens(context)
    assert unknown.value.status == EHANDLE


def test_a_callback_that_blocks_stalls_no_other_context(lib, tiny, oracle, open_context):
    """It blocks until the others have done all their work: would they wait, nobody would end."""
    model = tiny("llama")
    blocked, others_done = threading.Event(), threading.Event()

    def on_text(text):
        blocked.set()
        assert others_done.wait(60), "the other contexts were stalled"

    def blocking():
        lib.generate(open_context(model), START, on_text, max_tokens=3)

    thread = threading.Thread(target=blocking)
    thread.start()
    assert blocked.wait(60)
    for _ in range(3):
        assert greedy(lib, open_context(model), START) == oracle("llama").after(START)
    others_done.set()
    thread.join()


def test_a_load_callback_that_blocks_stalls_no_context(lib, tiny, folder, oracle, open_context):
    blocked, others_done = threading.Event(), threading.Event()
    loaded = []

    def progress(*_):
        blocked.set()
        assert others_done.wait(60), "the contexts were stalled"

    thread = threading.Thread(
        target=lambda: loaded.append(lib.load(folder("llama-other"), progress))
    )
    thread.start()
    assert blocked.wait(60)
    assert greedy(lib, open_context(tiny("llama")), START) == oracle("llama").after(START)
    others_done.set()
    thread.join()
    lib.free_model(loaded[0])


def test_a_callback_that_raises_ends_its_call_alone(lib, tiny, oracle, open_context):
    """The exception of a host in Python never crosses the library."""
    context = open_context(tiny("llama"))
    with pytest.raises(ZeroDivisionError):
        lib.generate(context, START, lambda text: 1 / 0, max_tokens=9)
    assert greedy(lib, context, START) == oracle("llama").after(START)


def test_callbacks_inside_callbacks(lib, tiny, open_context):
    """Three generations deep, each in the other's callback."""
    model = tiny("llama")
    contexts = [open_context(model) for _ in range(3)]
    order = []

    def at(depth):
        def on_text(text):
            order.append(depth)
            if depth + 1 < len(contexts):
                lib.generate(
                    contexts[depth + 1], [FIRST_PLAIN + depth], at(depth + 1), max_tokens=2
                )

        return on_text

    lib.generate(contexts[0], START, at(0), max_tokens=2)
    assert order.count(0) >= 1
    assert order.count(2) >= order.count(1) >= order.count(0)
