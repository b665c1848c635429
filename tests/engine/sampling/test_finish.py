"""Why a generation ends, and that it ends there."""

from __future__ import annotations

import pytest
from driver import ENDLESS, KINDS, delivered, greedy, opened, prompt, text_of
from support.library import StatusError
from support.signatures import (
    DONE,
    ECONTEXT,
    FINISH_CONTEXT,
    FINISH_LENGTH,
    FINISH_STOP,
    OK,
)

START = prompt(8)
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="session")
def ending(lib, folder, once, tiny):
    """A tiny model for which a token that it gives greedily is an end token."""
    import json
    import shutil

    with opened(lib, tiny("llama")) as context:
        tokens = greedy(lib, context, START, 12)
    end = next(token for place, token in enumerate(tokens) if place > 4 and token not in tokens[:4])

    def write(path):
        shutil.copytree(folder("llama"), path, dirs_exist_ok=True)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "eos_token_id": [1, end]}))

    return lib.load(once("tiny-ending", write)), tokens[: tokens.index(end)], end


@kinds
def test_no_tokens(lib, tiny, open_context, kind):
    """Only the prompt is processed, all of it."""
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=0)
    piece = lib.next(context)
    assert (piece.status, piece.token, piece.finish) == (DONE, -1, FINISH_LENGTH)
    assert lib.tokens(context) == START
    result = lib.generate(context, START, max_tokens=0)
    assert (result.text, result.stats.generated_tokens) == ("", 0)


@kinds
def test_one_token(lib, tiny, open_context, oracle, kind):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=1)
    piece = lib.next(context)
    assert (piece.status, piece.finish) == (OK, FINISH_LENGTH)
    assert piece.token == oracle(kind).after(START)[0]
    assert lib.next(context).status == DONE


@kinds
def test_the_window_fills_up(lib, tiny, open_context, oracle, kind):
    """The token after a full window is known, and is the last."""
    context = open_context(tiny(kind), max_tokens=len(START) + 5)
    lib.begin(context, START, max_tokens=ENDLESS)
    pieces = lib.drain(context)
    assert pieces[-1].finish == FINISH_CONTEXT
    assert delivered(pieces) == oracle(kind).after(START)[:6]
    assert len(lib.tokens(context)) == len(START) + 5


@kinds
def test_a_prompt_that_fills_the_window(lib, tiny, open_context, oracle, kind):
    context = open_context(tiny(kind), max_tokens=len(START))
    lib.begin(context, START)
    assert lib.next(context).token == oracle(kind).after(START)[0]
    assert lib.next(context).finish == FINISH_CONTEXT
    assert lib.tokens(context) == START


@kinds
def test_a_prompt_beyond_the_window_is_refused_before_any_work(lib, tiny, open_context, kind):
    context = open_context(tiny(kind), max_tokens=10)
    lib.begin(context, START, max_tokens=2)
    calls = []
    with pytest.raises(StatusError) as refused:
        lib.begin(context, prompt(11), prompt_progress=lambda *_: calls.append(1))
    assert refused.value.status == ECONTEXT
    assert "11" in refused.value.message
    assert "10" in refused.value.message
    assert not calls
    assert lib.tokens(context) == START
    assert lib.next(context).status == OK, "the generation under way was not touched"


def test_max_tokens_comes_before_the_window(lib, tiny, open_context):
    context = open_context(tiny("llama"), max_tokens=len(START) + 2)
    lib.begin(context, START, max_tokens=3)
    pieces = lib.drain(context)
    assert len(delivered(pieces)) == 3
    assert pieces[-1].finish in (FINISH_LENGTH, FINISH_CONTEXT)


def test_an_end_token(lib, open_context, ending):
    model, before, end = ending
    assert lib.is_end(model, end)
    assert lib.is_end(model, 1)
    context = open_context(model)
    lib.begin(context, START, max_tokens=50)
    pieces = lib.drain(context)
    assert (pieces[-1].finish, pieces[-1].token) == (FINISH_STOP, end)
    assert delivered(pieces)[: len(before)] == before
    assert delivered(pieces) in (before, [*before, end]), "an end token may bring held-back text"
    assert lib.stats(context).generated_tokens == len(before) + 1
    assert text_of(pieces) == lib.detokenize(model, before)


def test_an_end_token_that_is_the_last_allowed_is_an_end_token(lib, open_context, ending):
    model, before, _ = ending
    context = open_context(model)
    lib.begin(context, START, max_tokens=len(before) + 1)
    assert lib.drain(context)[-1].finish == FINISH_STOP
    lib.begin(context, START, max_tokens=len(before))
    assert lib.drain(context)[-1].finish == FINISH_LENGTH


def test_an_end_token_is_not_seen_before_it_is_told(lib, tiny, open_context, ending):
    """A cache that runs ahead has it early; the host has not."""
    model, before, end = ending
    context = open_context(model)
    lib.begin(context, START, max_tokens=50)
    for given in range(len(before)):
        lib.generate(open_context(tiny("llama")), [20], max_tokens=3)  # others have had turns
        assert lib.tokens(context) == START + before[:given]
        assert lib.info(context)["generating"]
        assert lib.next(context).token == before[given]
    lib.generate(open_context(tiny("llama")), [20], max_tokens=3)
    assert lib.tokens(context) == START + before
    assert lib.drain(context)[-1].token == end


def test_generate_ends_for_the_same_reasons(lib, open_context, ending):
    model, before, _ = ending
    context = open_context(model)
    result = lib.generate(context, START, max_tokens=50)
    assert result.text == lib.detokenize(model, before)
    assert lib.next(context).finish == FINISH_STOP


def test_the_default_is_256_tokens(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    assert lib.generate(context, START).stats.generated_tokens == 256


def test_stats_count(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.generate(context, START, max_tokens=4)
    stats = lib.generate(context, [*START, 40, 41], max_tokens=7).stats
    assert (stats.prompt_tokens, stats.generated_tokens) == (10, 7)
    assert stats.reused_tokens == len(START)
    assert 0 < stats.prompt_seconds <= stats.first_token_seconds
    assert stats.generation_seconds > 0
    assert stats.peak_memory > 0
    again = lib.stats(context)
    assert (again.prompt_tokens, again.generated_tokens) == (10, 7)
    assert again.generation_seconds == stats.generation_seconds
