"""A full window: the end of a generation, or a window that rolls on."""

from __future__ import annotations

import pytest
from driver import (
    KINDS,
    KV,
    delivered,
    greedy,
    next_ok,
    opened,
    prompt,
    settle,
    text_of,
)
from support.library import StatusError
from support.signatures import (
    DONE,
    ECONTEXT,
    EINVAL,
    FINISH_CANCELED,
    FINISH_CONTEXT,
    FINISH_LENGTH,
    FINISH_STOP_TEXT,
    OVERFLOW_ROLL,
    OVERFLOW_STOP,
)

SIZE, KEEP = 24, 5
LONG = prompt(60)
kinds = pytest.mark.parametrize("kind", KINDS)


def rolling(size=SIZE, keep=KEEP):
    return {"max_tokens": size, "overflow": OVERFLOW_ROLL, "keep_tokens": keep}


def check_held(held, full, size, keep):
    """The context holds the kept front and the end of all tokens, with or without the last."""
    assert len(held) <= size
    if len(held) >= len(full) - 1 and held == full[: len(held)]:
        return
    assert held[:keep] == full[:keep]
    rest = held[keep:]
    assert rest in (full[len(full) - len(rest) :], full[len(full) - 1 - len(rest) : -1])


def follow(lib, oracle, context, tokens, count, size=SIZE, keep=KEEP, each=lambda: None, **params):
    """Generate, and compare every token with a fresh context's behind the same tokens."""
    lib.begin(context, tokens, max_tokens=count, **params)
    full = list(tokens)
    check_held(lib.tokens(context), full, size, keep)
    for number in range(count):
        each()
        before = lib.tokens(context)
        check_held(before, full, size, keep)
        piece = lib.next(context)
        assert piece.status != DONE, number
        full.append(piece.token)
        held = lib.tokens(context)
        check_held(held, full, size, keep)
        # The new token is the last one held, or one that has no place yet.
        bases = [held[:-1], held] if held != before else [held]
        assert [piece.token] in [oracle.after(base, 1) for base in bases if base], number
    assert lib.next(context).finish == FINISH_LENGTH
    return full


# ---------------------------------------------------------------- Stop


@kinds
def test_a_window_that_stops_ends_there(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind), max_tokens=SIZE, overflow=OVERFLOW_STOP)
    with pytest.raises(StatusError) as full:
        lib.begin(context, LONG)
    assert full.value.status == ECONTEXT
    lib.begin(context, LONG[:20], max_tokens=100)
    pieces = lib.drain(context)
    assert pieces[-1].finish == FINISH_CONTEXT
    assert delivered(pieces) == oracle(kind).after(LONG[:20], 5)
    assert lib.info(context)["dropped"] == 0


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"overflow": OVERFLOW_ROLL, "max_tokens": 8, "keep_tokens": 8}, "keep_tokens"),
        ({"overflow": OVERFLOW_ROLL, "max_tokens": 8, "keep_tokens": 2**64 - 1}, "keep_tokens"),
        ({"overflow": OVERFLOW_ROLL, "keep_tokens": 512}, "keep_tokens"),
        ({"overflow": OVERFLOW_STOP, "keep_tokens": 1}, "keep_tokens"),
        ({"keep_tokens": 1}, "keep_tokens"),
        ({"overflow": 2}, "overflow"),
        ({"overflow": -1}, "overflow"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(lib, tiny, params, name):
    with pytest.raises(StatusError) as refused:
        lib.context(tiny(KV), **params)
    assert refused.value.status == EINVAL
    assert f"{name} is {params[name]}" in refused.value.message


def test_info_tells_how_a_window_overflows(lib, tiny, open_context):
    info = lib.info(open_context(tiny(KV), **rolling()))
    assert (info["overflow"], info["keep_tokens"], info["max_tokens"]) == ("roll", KEEP, SIZE)
    info = lib.info(open_context(tiny(KV)))
    assert (info["overflow"], info["keep_tokens"]) == ("stop", 0)


# ---------------------------------------------------------------- Roll


@kinds
def test_a_prompt_longer_than_the_window_loses_tokens_behind_its_front(
    lib, tiny, oracle, open_context, kind
):
    context = open_context(tiny(kind), **rolling())
    for length in (SIZE, SIZE + 1, SIZE + 7, len(LONG)):
        lib.begin(context, LONG[:length], max_tokens=0)
        held = lib.tokens(context)
        assert held[:KEEP] == LONG[:KEEP]
        assert LONG[:length][-(len(held) - KEEP) :] == held[KEEP:]
        assert len(held) > SIZE // 2
        assert lib.info(context)["dropped"] == length - len(held)
        assert greedy(lib, context, LONG[:length], 1) == oracle(kind).after(held, 1)


@kinds
def test_every_token_is_a_fresh_context_s_while_the_window_rolls(
    lib, tiny, oracle, open_context, kind
):
    context = open_context(tiny(kind), **rolling())
    full = follow(lib, oracle(kind), context, prompt(10), 50)
    dropped = lib.info(context)["dropped"]
    assert dropped >= len(full) - 1 - SIZE
    assert lib.tokens(context)[:KEEP] == full[:KEEP]


def test_rolling_while_running_ahead(lib, tiny, oracle, open_context):
    """Another context's steps give this one's turns."""
    model = tiny(KV)
    context = open_context(model, **rolling())
    follow(lib, oracle(KV), context, prompt(10), 40, each=lambda: settle(lib, model))


@kinds
@pytest.mark.parametrize(("size", "keep"), [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (5, 4)])
def test_tiny_windows_roll(lib, tiny, oracle, open_context, kind, size, keep):
    context = open_context(tiny(kind), **rolling(size, keep))
    for length in (1, 2, 9):
        follow(lib, oracle(kind), context, LONG[:length], 8, size, keep)


@kinds
def test_a_conversation_that_grows_goes_on_from_what_is_held(lib, tiny, oracle, open_context, kind):
    """A cut depends on the length alone, so the next prompt is cut as the generation was."""
    context = open_context(tiny(kind), **rolling(40))
    full, reused = prompt(30), 0
    for turn in range(12):
        full = full + prompt(2, seed=turn)
        held, dropped = lib.tokens(context), lib.info(context)["dropped"]
        lib.begin(context, full, max_tokens=0)
        info = lib.info(context)
        if info["dropped"] == dropped and held:
            assert info["reused"] == len(held)
            reused += 1
        full = follow(lib, oracle(kind), context, full, 3, 40)
    assert reused > 4


def test_a_window_that_rolls_keeps_at_least_its_front(lib, tiny, oracle, open_context):
    context = open_context(tiny(KV), **rolling())
    full = follow(lib, oracle(KV), context, prompt(10), 30)
    for _ in range(6):
        full = full + prompt(7)
        lib.begin(context, full, max_tokens=0)
        assert lib.info(context)["reused"] >= KEEP
        held = lib.tokens(context)
        assert greedy(lib, context, full, 1) == oracle(KV).after(held, 1)


@kinds
def test_a_seed_gives_the_same_tokens_in_one_call_and_many(lib, tiny, open_context, kind):
    model = tiny(kind)
    params = {"temperature": 1.5, "seed": 4, "max_tokens": 40, "repetition_penalty": 1.3}
    with opened(lib, model, **rolling()) as context:
        lib.begin(context, LONG, **params)
        expected = text_of(lib.drain(context))
        held = lib.tokens(context)
    context = open_context(model, **rolling())
    assert lib.generate(context, LONG, **params).text == expected
    assert lib.tokens(context) == held


@kinds
def test_max_tokens_end_exactly_around_a_roll(lib, tiny, open_context, kind):
    context = open_context(tiny(kind), **rolling())
    lib.begin(context, LONG, max_tokens=30)
    expected = delivered(lib.drain(context))
    for count in range(12):
        lib.begin(context, LONG, max_tokens=count)
        pieces = lib.drain(context)
        assert delivered(pieces) == expected[:count]
        assert pieces[-1].finish == FINISH_LENGTH
        check_held(lib.tokens(context), LONG + expected[:count], SIZE, KEEP)


@kinds
def test_a_cancel_at_every_length_around_a_roll(lib, tiny, oracle, open_context, kind):
    """The context holds the delivered tokens, and the next begin continues from them."""
    model = tiny(kind)
    for length in range(14):
        context = open_context(model, **rolling())
        start = prompt(SIZE - 5)
        lib.begin(context, start, max_tokens=50)
        full = start + delivered(next_ok(lib, context, length))
        settle(lib, model)
        check_held(lib.tokens(context), full, SIZE, KEEP)
        lib.cancel(context)
        assert lib.next(context).finish == FINISH_CANCELED
        check_held(lib.tokens(context), full, SIZE, KEEP)
        after = full + prompt(1)
        lib.begin(context, after, max_tokens=0)
        held = lib.tokens(context)
        check_held(held, after, SIZE, KEEP)
        assert greedy(lib, context, after, 1) == oracle(kind).after(held, 1)


@kinds
def test_a_stop_text_at_every_place_around_a_roll(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind), **rolling())
    start = prompt(SIZE - 3)
    lib.begin(context, start, max_tokens=20)
    text = text_of(lib.drain(context))
    for cut in range(1, len(text) - 2, 2):
        stop = text[cut : cut + 2]
        lib.begin(context, start, max_tokens=20, stop=[stop])
        pieces = lib.drain(context)
        assert text_of(pieces) == text[: text.index(stop)]
        assert pieces[-1].finish == FINISH_STOP_TEXT
        assert lib.next(context).status == DONE
        after = start + delivered(pieces)
        assert len(greedy(lib, context, after, 2)) == 2


@kinds
def test_a_context_between_two_rolls_can_be_forked_and_rewound(
    lib, tiny, oracle, open_context, kind
):
    context = open_context(tiny(kind), **rolling())
    lib.begin(context, prompt(SIZE), max_tokens=30)
    for _ in range(9):
        lib.next(context)
        held = lib.tokens(context)
        assert len(held) > SIZE // 2
        fork, checkpoint = lib.fork(context), lib.checkpoint(context)
        assert lib.tokens(fork) == held
        lib.free(fork)
        lib.free_checkpoint(checkpoint)
    held = lib.tokens(context)
    checkpoint = lib.checkpoint(context)
    next_ok(lib, context, 15)
    lib.rewind(context, checkpoint)
    assert lib.tokens(context) == held
    lib.begin(context, held + prompt(1), max_tokens=0)
    held = lib.tokens(context)
    assert greedy(lib, context, held, 1) == oracle(kind).after(held, 1)


@pytest.mark.parametrize("draft", ["llama", "llama-rough", None])
def test_a_draft_rolls_with_its_model(lib, tiny, oracle, open_context, draft):
    context = open_context(tiny(KV), **rolling())
    lib.begin(context, LONG, max_tokens=60)
    expected = lib.drain(context)
    held = lib.tokens(context)
    settings = {"draft": tiny(draft)} if draft else {}
    lib.begin(context, LONG, max_tokens=60, draft_tokens=3, **settings)
    assert delivered(lib.drain(context)) == delivered(expected)
    assert lib.tokens(context) == held
    follow(lib, oracle(KV), context, prompt(9), 40, draft_tokens=3, **settings)


@kinds
def test_logits_follow_what_is_held(lib, tiny, oracle, open_context, kind):
    """Their best token is the next one, wherever the window is."""
    context = open_context(tiny(kind), **rolling())
    lib.begin(context, prompt(SIZE - 3), max_tokens=40)
    for _ in range(30):
        lib.next(context)
        held, logits = lib.tokens(context), lib.logits(context)
        assert oracle(kind).after(held, 1) == [max(range(len(logits)), key=logits.__getitem__)]


def test_trims_of_a_rolling_context(lib, tiny, oracle, open_context):
    context = open_context(tiny(KV), **rolling())
    full = follow(lib, oracle(KV), context, prompt(10), 30)
    held = lib.tokens(context)
    lib.trim_front(context, 3)
    assert lib.tokens(context) == held[3:]
    lib.trim_end(context, 4)
    assert lib.tokens(context) == held[3:-4]
    assert greedy(lib, context, held[3:-4], 2) == oracle(KV).after(held[3:-4], 2)
    lib.begin(context, full, max_tokens=0)
    assert lib.tokens(context)[:KEEP] == full[:KEEP]
