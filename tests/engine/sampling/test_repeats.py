"""Runs that a sequence repeats: beside a reference that compares everything, and what it costs."""

from __future__ import annotations

import sys
from random import Random
from time import monotonic

import pytest
from support import draws

from cowmlx.generation.sampling.repeats import Breakers, Repeats

NONE = Breakers([], lambda token: b"a")


def test_they_are_those_that_a_comparison_of_everything_finds():
    """Of sequences that grow, are taken back and lose their fronts."""
    random = Random(1)
    for _ in range(400):
        few, shortest = random.choice([1, 2, 3, 5]), random.choice([1, 2, 3, 4])
        window = random.choice([1, 2, 3, 7, 20, sys.maxsize])
        broken = {0} if few > 1 and random.random() < 0.5 else set()
        breakers = Breakers(["x"], lambda token, own=broken: b"axb" if token in own else b"a")
        repeats = Repeats(shortest, window, breakers, random.choice([0, 4]))
        sequence = [random.randrange(few) for _ in range(random.randrange(1, 30))]
        for _ in range(20):
            cut = max(0, len(sequence) - window)
            begin = max([place - cut + 1 for place, t in enumerate(sequence) if t in broken] + [0])
            expected = draws.repeats(sequence[cut:], shortest, broken, begin)
            assert repeats.after(sequence) == expected
            chance = random.random()
            if chance < 0.7:
                sequence = [*sequence, random.randrange(few)]
            elif chance < 0.9:
                kept = max(1, len(sequence) - random.randrange(6))
                sequence = sequence[:kept] + [random.randrange(few) for _ in range(3)]
            else:
                sequence = sequence[random.randrange(len(sequence)) :]


def text_of(token: int) -> bytes:
    return b"ab"[token : token + 1] if token < 2 else b"cde"


@pytest.mark.parametrize(
    ("texts", "sequence", "ends"),
    [
        (["a"], [1, 0], True),
        (["d"], [2], True),
        (["bc"], [1, 2], True),
        (["ab"], [0, 1], True),
        (["ab"], [0, 1, 2], False),
        (["abab", "cd"], [0, 1, 0, 1], True),
        (["abab"], [1, 1, 0, 1], False),
        (["ea"], [2, 0], True),
        (["ecdecdea"], [2, 2, 2, 0], True),
        ([], [0], False),
    ],
)
def test_breakers_end_in_a_token_wherever_they_begin(texts, sequence, ends):
    breakers = Breakers(texts, text_of)
    assert breakers.follow(breakers.tail(sequence[:-1]), sequence[-1])[0] is ends


def test_breakers_are_those_of_a_search_for_each():
    random = Random(3)

    def drawn(most):
        return "".join(random.choice("abä") for _ in range(random.randrange(1, most)))

    for _ in range(300):
        texts = [drawn(random.choice([2, 3, 9])) for _ in range(random.randrange(6))]
        vocabulary = [drawn(5).encode()[random.randrange(2) :] for _ in range(8)]
        breakers = Breakers(texts, vocabulary.__getitem__)
        tokens, tail = [], b""
        for _ in range(30):
            tokens.append(random.randrange(8))
            ended, tail = breakers.follow(tail, tokens[-1])
            assert tail == breakers.tail(tokens)
            own = vocabulary[tokens[-1]]
            text = b"".join(vocabulary[token] for token in tokens)
            border = len(text) - len(own)
            ends = [
                place + len(part)
                for part in map(str.encode, texts)
                for place in range(len(text))
                if text.startswith(part, place)
            ]
            assert ended == any(end > border for end in ends)
            assert breakers.within(tokens[-1]) == any(part.encode() in own for part in texts)


def test_many_long_breakers_do_not_hold_up_a_prompt():
    random = Random(4)
    texts = ["".join(random.choice("ab") for _ in range(180)) for _ in range(256)]
    vocabulary = [b"a", b"b", b"ab", b"bbaa"]
    repeats = Repeats(2, 1000, Breakers(texts, vocabulary.__getitem__))
    since = monotonic()
    repeats.after([random.randrange(4) for _ in range(40_000)])
    assert monotonic() - since < 5


def costs(repeats: Repeats, sequence: list[int], tokens: list[int]) -> list[int]:
    """What is looked at for each token that a sequence grows by."""
    repeats.after(sequence)
    found = []
    for token in tokens:
        sequence = [*sequence, token]
        before = repeats.steps
        repeats.after(sequence)
        found.append(repeats.steps - before)
    return found


def test_a_token_costs_what_is_like_the_last_tokens_and_not_the_sequence():
    random = Random(2)
    sequence = [random.randrange(1000) for _ in range(20_000)]
    grown = costs(Repeats(2, sys.maxsize, NONE), sequence, sequence[5:105])
    assert max(grown) < 20


@pytest.mark.parametrize("window", [50, sys.maxsize])
def test_the_worst_token_costs_the_window_once(window):
    grown = costs(Repeats(2, window, NONE), [7] * 3000, [7] * 20)
    assert max(grown) <= min(window, 3020) + 2


def test_a_prompt_costs_its_length_a_few_times():
    for sequence in ([7] * 5000, [7, 8] * 2500, [*range(2500), *range(2500)]):
        repeats = Repeats(1, sys.maxsize, NONE)
        repeats.after(sequence)
        assert repeats.steps <= 4 * len(sequence)
