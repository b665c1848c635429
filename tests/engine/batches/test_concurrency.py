"""Contexts on many threads give exactly what each gives alone."""

from __future__ import annotations

import threading

import pytest
from driver import ENDLESS, delivered, greedy, prompt, text_of
from support.library import StatusError
from support.signatures import ECANCELED, EHANDLE, ESTATE, FINISH_LENGTH
from support.threads import together

MODELS = ["llama", "llama-other", "mamba2", "gemma3_text"]


@pytest.mark.parametrize("pair", [("llama", "llama-other"), ("mamba2", "gemma3_text")])
def test_eight_contexts_on_eight_threads_and_two_models(lib, tiny, oracle, open_context, pair):
    """Half of them take tokens with next, half with generate; each its own prompt and settings."""
    jobs = []
    for number in range(8):
        model = pair[number % 2]
        tokens = prompt(5 + 9 * number, seed=number)
        settings = {"max_tokens": 30}
        if number >= 4:
            settings |= {"temperature": 1.0 + number / 4, "seed": number}
        jobs.append((model, tokens, settings))

    def alone(model, tokens, settings):
        return lib.generate(open_context(tiny(model)), tokens, **settings).text

    expected = [alone(*job) for job in jobs]
    got = [None] * len(jobs)

    def work(number):
        model, tokens, settings = jobs[number]
        context = open_context(tiny(model))
        for _ in range(3):
            if number in (0, 3, 5, 6):
                lib.begin(context, tokens, **settings)
                got[number] = text_of(lib.drain(context))
            else:
                got[number] = lib.generate(context, tokens, **settings).text
            assert got[number] == expected[number]

    together(*(lambda number=number: work(number) for number in range(8)))
    assert got == expected


def test_begun_contexts_take_turns(lib, tiny, oracle, open_context):
    """One thread, four generations: a piece of each in turn."""
    contexts = {open_context(tiny(model)): model for model in MODELS}
    for context in contexts:
        lib.begin(context, prompt(9), max_tokens=16)
    pieces = {context: [] for context in contexts}
    for _ in range(17):
        for context in contexts:
            pieces[context].append(lib.next(context))
    for context, model in contexts.items():
        assert delivered(pieces[context]) == oracle(model).after(prompt(9))
        assert pieces[context][-1].finish == FINISH_LENGTH


def test_a_context_may_be_used_by_one_thread_after_the_other(lib, tiny, oracle, open_context):
    context = open_context(tiny("llama"))
    got = []
    together(lambda: lib.begin(context, prompt(9), max_tokens=16))
    for _ in range(16):
        together(lambda: got.append(lib.next(context).token))
    assert got == oracle("llama").after(prompt(9))


@pytest.mark.parametrize("model", MODELS)
def test_contexts_freed_while_they_generate(lib, tiny, oracle, open_context, model):
    """The call that runs is cancelled; other contexts notice nothing."""
    victim, other = lib.context(tiny(model)), open_context(tiny(model))
    started = threading.Event()
    outcome = []

    def generate():
        try:
            lib.generate(victim, prompt(20), lambda text: started.set(), max_tokens=ENDLESS)
        except StatusError as error:
            outcome.append(error.status)

    def free():
        started.wait()
        lib.free(victim)

    together(generate, free, lambda: outcome.append(greedy(lib, other, prompt(9))))
    assert sorted(outcome, key=str) == sorted([ECANCELED, oracle(model).after(prompt(9))], key=str)
    with pytest.raises(StatusError) as unknown:
        lib.next(victim)
    assert unknown.value.status == EHANDLE


def test_a_model_freed_while_its_contexts_generate(lib, folder, oracle):
    """It lives on until the last of them is freed."""
    model = lib.load(folder("llama"))
    contexts = [lib.context(model) for _ in range(3)]
    started = threading.Event()
    got = {}

    def work(context):
        lib.begin(context, prompt(9), max_tokens=16)
        pieces = [lib.next(context)]
        started.set()
        got[context] = delivered(pieces + lib.drain(context))

    def free():
        started.wait()
        lib.free_model(model)

    together(free, *(lambda context=context: work(context) for context in contexts))
    assert list(got.values()) == [oracle("llama").after(prompt(9))] * 3
    with pytest.raises(StatusError) as unknown:
        lib.context(model)
    assert unknown.value.status == EHANDLE
    for context in contexts:
        assert greedy(lib, context, prompt(10)) == oracle("llama").after(prompt(10))
        lib.free(context)


def test_the_runtime_answers_during_a_long_prompt_and_a_long_generation(lib, tiny, open_context):
    """Every answer is there before the work is: the work waits for it."""
    model = tiny("llama-long")
    context = open_context(model)
    asked = []

    def ask():
        asked.append(lib.info(model)["architecture"])
        asked.append(lib.info()["handles"]["model"] > 0)
        assert lib.tokenize(model, "fox")
        assert lib.info(context)["generating"]

    def from_another_thread(*_):
        if len(asked) < 20:
            together(ask)

    lib.generate(
        context,
        prompt(1100),
        from_another_thread,
        prompt_progress=from_another_thread,
        max_tokens=60,
    )
    assert asked == ["llama", True] * 10


def test_the_runtime_answers_during_a_load(lib, tiny, folder):
    asked = []

    def ask(*_):
        together(lambda: asked.append(lib.info(tiny("llama"))["architecture"]))

    lib.free_model(lib.load(folder("llama-other"), ask))
    assert len(asked) > 2


def test_a_second_call_on_a_busy_context(lib, tiny, open_context):
    """Refused, whatever it is, and without an effect on the first."""
    context = open_context(tiny("llama"))
    started, refused = threading.Event(), threading.Event()
    seen = []

    def generate():
        def on_text(text):
            started.set()
            assert refused.wait(60)

        seen.append(lib.generate(context, prompt(9), on_text, max_tokens=6).stats.generated_tokens)

    def disturb():
        started.wait()
        calls = {
            "begin": lambda: lib.begin(context, prompt(4)),
            "next": lambda: lib.next(context),
            "generate": lambda: lib.generate(context, prompt(4)),
            "reset": lambda: lib.reset(context),
            "trim_end": lambda: lib.trim_end(context, 1),
            "trim_front": lambda: lib.trim_front(context, 1),
        }
        try:
            for name, call in calls.items():
                with pytest.raises(StatusError) as busy:
                    call()
                assert busy.value.status == ESTATE, name
                assert f"context_{name}" in busy.value.message
                assert "context_cancel" in busy.value.message, "a remedy"
        finally:
            refused.set()

    together(generate, disturb)
    assert seen == [6]


def test_background_contexts_finish_too(lib, tiny, oracle, open_context):
    model = tiny("llama")
    background = open_context(model, priority=-1)
    foreground = [open_context(model) for _ in range(2)]
    got = {}

    def work(context):
        got[context] = greedy(lib, context, prompt(9))

    together(*(lambda context=context: work(context) for context in [background, *foreground]))
    assert list(got.values()) == [oracle("llama").after(prompt(9))] * 3


def test_background_yields_to_the_foreground(lib, tiny, open_context):
    """Once a foreground prompt is under way, a background one waits for its end."""
    model = tiny("llama-long")
    front, back = open_context(model), open_context(model, priority=-1)
    accepted = threading.Event()
    under_way = []

    def on_chunk(done, total):
        if 0 < done < total:
            under_way.append(lib.info(front)["generating"])
        if len(under_way) == 1:
            accepted.set()
            while not lib.info(front)["tokens"]:
                pass

    def run_front():
        accepted.wait()
        lib.begin(front, prompt(5000), max_tokens=0)  # longer than the other takes for two chunks

    together(
        run_front,
        lambda: lib.begin(back, prompt(1600), prompt_progress=on_chunk, max_tokens=0),
    )
    assert len(under_way) > 1
    assert not any(under_way)


@pytest.mark.parametrize("solo", [False, True])
def test_solo_contexts_give_the_same(lib, tiny, oracle, open_context, solo):
    context = open_context(tiny("llama"), solo=solo)
    assert lib.info(context)["solo"] is solo
    got = []
    together(
        lambda: got.append(greedy(lib, context, prompt(9))),
        lambda: greedy(lib, open_context(tiny("llama")), prompt(30)),
    )
    assert got == [oracle("llama").after(prompt(9))]
