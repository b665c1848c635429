"""Stop texts end a generation, across the borders of tokens, and never come out."""

from __future__ import annotations

import itertools
from random import Random
from time import monotonic

import pytest
from driver import KINDS, delivered, opened, prompt, text_of
from support.callbacks import StatusError
from support.signatures import DONE, EINVAL, FINISH_LENGTH, FINISH_STOP_TEXT

from cowmlx.generation.pieces import StopMatcher

START = prompt(8, seed=3)
COUNT = 30
NEVER = "⌘"  # in no text of these


@pytest.fixture(scope="session")
def plain(lib, tiny):
    """Pieces without a stop text."""
    with opened(lib, tiny("llama")) as context:
        lib.begin(context, START, max_tokens=COUNT)
        return lib.drain(context)


@pytest.fixture
def stopped_by(lib, tiny, open_context):
    """Generates with stop texts."""
    context = open_context(tiny("llama"))

    def stopped_by(*stops, max_tokens=COUNT):
        lib.begin(context, START, max_tokens=max_tokens, stop=stops)
        return lib.drain(context)

    return stopped_by


def windows(text, size):
    """Every part of a text, of a size, by the place where it is first found."""
    return [(text.find(text[i : i + size]), text[i : i + size]) for i in range(len(text) - size)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_wherever_it_lies_the_text_before_it_comes_and_it_does_not(plain, stopped_by, size):
    text = text_of(plain)
    for place, stop in windows(text, size)[:: 1 + size // 2]:
        pieces = stopped_by(stop)
        assert text_of(pieces) == text[:place], f"stop text {stop!r}"
        assert pieces[-1].finish == FINISH_STOP_TEXT
        assert delivered(pieces) == delivered(plain)[: len(delivered(pieces))]


def test_a_stop_text_crosses_tokens(plain, stopped_by):
    """Made of the end of one piece and the beginning of the next."""
    crossed = 0
    for first, second in itertools.pairwise(plain):
        if first.text.endswith("\ufffd") or not first.text or not second.text:
            continue
        stop = first.text[-1] + second.text[0]
        pieces = stopped_by(stop)
        text = text_of(plain)
        assert text_of(pieces) == text[: text.find(stop)]
        crossed += 1
    assert crossed > 3


def test_what_only_looked_like_a_stop_text_comes_out(plain, stopped_by):
    text = text_of(plain)
    nearly = [text[i : i + 4] + NEVER for i in range(0, len(text) - 4, 3)]
    pieces = stopped_by(*nearly)
    assert text_of(pieces) == text
    assert pieces[-1].finish == FINISH_LENGTH
    assert delivered(pieces)[: len(delivered(plain))] == delivered(plain)


def test_held_back_text_is_released_at_the_end(plain, stopped_by):
    """The end comes while the text may still become a stop text."""
    for count in range(1, 12):
        text = text_of(stopped_by(max_tokens=count))
        if text:
            pieces = stopped_by(text[-1] + NEVER, max_tokens=count)
            assert text_of(pieces) == text
            assert pieces[-1].finish == FINISH_LENGTH


def test_the_first_of_several_counts(plain, stopped_by):
    text = text_of(plain)
    stops = [text[12:14], text[5:8], text[20:21]]
    pieces = stopped_by(*stops)
    assert text_of(pieces) == text[: min(text.find(stop) for stop in stops)]


def test_a_stop_text_that_begins_another(plain, stopped_by):
    text = text_of(plain)
    assert text_of(stopped_by(text[6:10], text[6:8])) == text[: text.find(text[6:8])]


def test_a_stop_text_that_never_comes(plain, stopped_by):
    pieces = stopped_by("this is not in it")
    assert text_of(pieces) == text_of(plain)
    assert pieces[-1].finish == FINISH_LENGTH


def test_a_stop_text_in_the_last_allowed_token_is_a_stop_text(plain, stopped_by):
    text = text_of(stopped_by(max_tokens=10))
    last = text[-1]
    if last in text[:-1]:
        last = text[-2:]
    pieces = stopped_by(last, max_tokens=10)
    assert pieces[-1].finish == FINISH_STOP_TEXT
    assert text_of(pieces) == text[: text.find(last)]


def test_a_stop_text_in_the_prompt_does_not_count(lib, tiny, open_context, plain):
    context = open_context(tiny("llama"))
    stop = lib.detokenize(tiny("llama"), START)
    lib.begin(context, START, max_tokens=COUNT, stop=[stop])
    assert text_of(lib.drain(context)) == text_of(plain)


def test_a_stop_text_is_forgotten_with_its_generation(lib, tiny, open_context, plain):
    context = open_context(tiny("llama"))
    lib.generate(context, START, max_tokens=COUNT, stop=[text_of(plain)[4:6]])
    assert lib.generate(context, START, max_tokens=COUNT).text == text_of(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_generate_stops_too_and_the_context_goes_on(lib, tiny, open_context, oracle, kind):
    context = open_context(tiny(kind))
    text = lib.generate(context, START, max_tokens=COUNT).text
    stop = text[7:9]
    assert (
        lib.generate(context, START, max_tokens=COUNT, stop=[stop]).text == text[: text.find(stop)]
    )
    assert lib.next(context).finish == FINISH_STOP_TEXT
    assert lib.next(context).status == DONE
    longer = lib.tokens(context) + prompt(3)
    lib.begin(context, longer, max_tokens=16)
    assert delivered(lib.drain(context)) == oracle(kind).after(longer)


def test_a_stop_text_of_several_characters_beyond_ascii(lib, tiny, open_context):
    model = tiny("llama")
    context = open_context(model)
    for seed in range(8):
        settings = {"max_tokens": 40, "temperature": 2.0, "seed": seed}
        text = lib.generate(context, START, **settings).text
        for stop in {character for character in text if character > "\x7f"}:
            got = lib.generate(context, START, stop=[stop], **settings).text
            assert got == text[: text.find(stop)]


def test_many_stop_texts(lib, tiny, open_context, plain):
    context = open_context(tiny("llama"))
    stops = [f"never{number}" for number in range(4095)]
    wanted = text_of(plain)[6:8]
    result = lib.generate(context, START, max_tokens=COUNT, stop=[*stops, wanted])
    assert result.text == text_of(plain)[: text_of(plain).find(wanted)]


def first_stop(text, stops):
    """Where the first one lies, or the end of the text."""
    return min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))


def test_text_is_held_back_no_longer_than_it_may_be_a_stop_text():
    """Beside a look for each of them in all text."""
    random = Random(5)

    def drawn(most):
        return "".join(random.choice("abé🐄") for _ in range(random.randrange(1, most)))

    for _ in range(500):
        stops = [drawn(random.choice([2, 4, 7])) for _ in range(random.randrange(1, 6))]
        matcher, text, given = StopMatcher(stops), "", ""
        while len(text) < 30 and not matcher.stopped:
            more = drawn(5)
            text += more
            given += matcher.add(more)
            end = first_stop(text, stops)
            may_begin = [
                size for stop in stops for size in range(len(stop)) if text.endswith(stop[:size])
            ]
            assert matcher.stopped == (end < len(text))
            assert given == text[: end if matcher.stopped else len(text) - max(may_begin)]
        assert given + matcher.finish() == text[: first_stop(text, stops)]


def test_many_long_stop_texts_do_not_hold_up_a_token():
    stops = ["a" * 900 + f"{number:04}" for number in range(4096)]
    matcher = StopMatcher(stops)
    since = monotonic()
    for _ in range(300):
        matcher.add("aaaa")
    assert monotonic() - since < 10


@pytest.mark.parametrize("text", ["x" * 1025, NEVER * 342], ids=["ASCII", "three bytes each"])
def test_a_stop_text_that_is_too_long_is_refused(lib, context, text):
    lib.begin(context, START, max_tokens=1, stop=[text[:-1]])
    with pytest.raises(StatusError) as error:
        lib.begin(context, START, stop=["a", text])
    assert error.value.status == EINVAL
    assert f"stop[1] is {len(text.encode())}, must be at most 1024 bytes" in error.value.message
