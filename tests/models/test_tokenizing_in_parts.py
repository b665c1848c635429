"""The tokens of a text's parts are the tokens of the whole, wherever it is cut."""

from __future__ import annotations

import json
import random
import re
from functools import cache

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from support import odd_tokenizers as odd
from support import tokenizers as kinds

from cowmlx.errors import InvalidArgument
from cowmlx.steps import finished
from cowmlx.text import cuts
from cowmlx.text import tokenizer as module
from cowmlx.text.patterns import graph
from cowmlx.text.patterns.characters import Unreadable, Unsure
from cowmlx.text.patterns.pattern import Pattern
from cowmlx.text.tokenizer import Tokenizer

NAMES = [*kinds.KINDS, *odd.ODD]
# No cut is sure with them, whatever the text.
WHOLE = {
    "spm_unigram": "sums of scores are rounded",
    "unigram, kept whole": "sums of scores are rounded",
    "ignoring merges": "a part could be a token that its letters do not merge to",
    "scripts": "what is between letters goes with them",
    "contiguous": "one match is joined to the next",
    "thousands": "one match goes over letters, spaces and signs",
}
BITS = [
    *("a", "fox", " ", "  ", "\n", "\n\n", "The", "the quick", ".", ", and", "e the", ","),
    *(
        "é",
        "e\u0301",
        "\u0301",
        "日本",
        "。",
        "123",
        "4567",
        "'s",
        "'LL",
        "Ü",
        "ü",
        "İ",
        "\u017f",
        "K",
    ),
    *("<tag>", "<s>", "</s>", "<|im_end|>", "[SEP]", "▁", "``", "🙂", "\u200d", "한", "\u1100"),
    *("\u1161", "\t", "\r\n", "_", "-", "\x00", "\u00a0", "\u3000", "ﷺ", "½", "\u0903", "߷"),
]


@cache
def tokenizer(name: str) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(odd.build(name)), {})


def in_parts(name: str, text: str, part: int, special: bool) -> tuple[list[int], int]:
    """The tokens with a size of parts, and how many parts there were."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART", part)
        steps = tokenizer(name).encode_steps(text, add_special=True, parse_special=special)
        count = 1
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value, count
            count += 1


def check(name: str, text: str, parts: tuple[int, ...] = (1, 7, 40)) -> None:
    for special in (False, True):
        backend = tokenizer(name).backend
        backend.encode_special_tokens = not special
        whole = backend.encode(text, add_special_tokens=True).ids
        if not special:  # special tokens that the model itself spells are broken up
            whole = in_parts(name, text, 1 << 30, special)[0]
        for part in parts:
            assert in_parts(name, text, part, special)[0] == whole, (text, part)


@pytest.mark.parametrize("name", NAMES)
def test_parts_have_the_tokens_of_the_whole(name):
    check(name, " ".join(kinds.TEXTS[:8]))
    draw = random.Random(name)
    for _ in range(30):
        check(name, "".join(draw.choice(BITS) for _ in range(draw.randrange(1, 100))))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(NAMES), st.text() | st.lists(st.sampled_from(BITS)).map("".join))
def test_parts_of_any_text_have_the_tokens_of_the_whole(name, text):
    check(name, text, (1, 5))


@pytest.mark.parametrize("name", NAMES)
def test_prose_is_cut_wherever_a_cut_is_sure(name):
    text = " ".join(kinds.TEXTS[:8]) * 4
    parts = in_parts(name, text, 60, special=True)[1]
    if name in WHOLE:
        assert parts == 1, WHOLE[name]
    else:
        assert parts > len(text) // 180


@pytest.mark.parametrize("name", ["bpe", "spm_unigram", "unigram", "wordpiece"])
def test_a_piece_without_a_cut_has_a_longest_length(name, monkeypatch):
    monkeypatch.setattr(module, "PART", 100)
    monkeypatch.setattr(module, "MAX_PIECE", 1000)
    word = "x" * 1000
    assert tokenizer(name).encode(word, add_special=False, parse_special=False)
    with pytest.raises(InvalidArgument, match=r"more than 1000 characters.*no cut"):
        tokenizer(name).encode("Then. " * 50 + word * 2, add_special=False, parse_special=False)


@pytest.mark.parametrize("name", ["unigram", "wordpiece", "spm", "bpe"])
def test_unknown_text_gives_the_unknown_token_where_no_file_names_it(name):
    text = "The fox 日本 jumps, \u058d and on"
    tokens = tokenizer(name).encode(text, add_special=False, parse_special=False)
    assert tokens == tokenizer(name).backend.encode(text, add_special_tokens=False).ids


def test_a_text_of_one_part_takes_one_step():
    steps = tokenizer("bpe").encode_steps("a fox", add_special=True, parse_special=False)
    with pytest.raises(StopIteration):
        next(steps)


def test_parts_bound_what_the_library_takes(monkeypatch):
    """Its encodings take more than a hundred bytes a token; only one of a part is there."""
    longest = 0
    encode = Tokenizer._encode

    def watched(self, text, *args, **kwargs):
        nonlocal longest
        longest = max(longest, len(text))
        return encode(self, text, *args, **kwargs)

    monkeypatch.setattr(Tokenizer, "_encode", watched)
    text = kinds.TEXTS[0] * 5000
    tokenizer("bpe").encode(text, add_special=True, parse_special=False)
    assert longest <= module.PART + 1 < len(text)


# --------------------------------------------------------------- Back to text


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", kinds.KINDS)
def test_tokens_in_parts_have_the_text_of_the_whole(name, skip, monkeypatch):
    """Parts end between the bytes of characters, too."""
    own = tokenizer(name)
    draw = random.Random(name)
    ids = own.encode("日本 🙂 Größe é <s> " * 5, add_special=True, parse_special=True)
    for _ in range(20):
        tokens = ids + [draw.randrange(own.vocabulary_size) for _ in range(40)]
        whole = own.decode(tokens, skip_special=skip)
        for part in (1, 2, 3, 7):
            monkeypatch.setattr(module, "PART_TOKENS", part)
            assert finished(own.decode_steps(tokens, skip_special=skip)) == whole
        monkeypatch.undo()


# ------------------------------------------------------------------- Patterns


@pytest.mark.parametrize(
    ("pattern", "pair", "crosses"),
    [
        (r"\w+", "ab", True),
        (r"\w+", "a ", False),
        (r"\w+ ?", "a ", True),
        (r"\s+(?!\S)|\S+", " a", True),
        (r"[^\r\n\p{L}\p{N}]?\p{L}+", ".a", True),
        (r"[^\r\n\p{L}\p{N}]?\p{L}+", "a.", False),
        (r"a\b|.", "a ", True),
        (r"a$|.", "a ", True),
        (r"(?:ab){2}", "ba", True),
        (r"(?:ab){1}", "ba", False),
        (r"(?i:AB)", "aB", True),
        (r"[a-c&&[^b]]+", "ac", True),
        (r"[a-c&&[^b]]+", "ab", False),
    ],
)
def test_what_a_match_may_cross(pattern, pair, crosses):
    assert Pattern(pattern).crosses(*pair) is crosses


def test_a_pattern_that_looks_far_back_is_sure_nowhere():
    assert not Pattern(r"(?<=a)b|\w|\s").crosses("a", " ")
    with pytest.raises(Unsure):
        Pattern(r"(?<=a\s)b|\w|\s").crosses("a", " ")


@pytest.mark.parametrize(
    ("pattern", "explosive"),
    [
        (r"(a+)+$", True),
        (r"(a|a)*b", True),
        (r"(?:\w+\s?)+x", True),
        (r"(a*)*b", True),
        (r"(?:a|b|ab)*c", True),
        (r"((a+)+)+b", True),
        (odd.GPT_4, False),
        (odd.GPT_4O, False),
        (odd.POSSESSIVE, False),
        (r"(?=(\d{3})+(?!\d))", False),
        (r"(?:[A-Z][a-z]*)+x", False),
        (r"(?:\s+[A-Z])*!", False),
    ],
)
def test_patterns_that_go_exponentially_many_ways_are_told(pattern, explosive):
    assert Pattern(pattern).explosive is explosive


@pytest.mark.parametrize(
    ("pattern", "slow", "retries"),
    [
        (odd.GPT_4, False, False),
        (odd.GPT_4O, False, False),
        (odd.POSSESSIVE, False, False),
        (r"\w+", False, False),
        (r"\s+$", False, True),
        (r"\d{1,3}(?=(?:\d{3})*(?!\d))", False, True),
        (r"[A-Z]+[a-z]+x", False, True),
        (r"a*a*c", True, True),
        (r".*x.*=", True, True),
    ],
)
def test_patterns_that_go_back_over_much_are_told(pattern, slow, retries):
    assert (Pattern(pattern).slow, Pattern(pattern).retries) == (slow, retries)


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "(", "[", "a{2,1}", r"\p{", "*", "(?<n>a)", r"\g<1>"]
)
def test_what_cannot_be_read_is_told(pattern):
    with pytest.raises(Unreadable):
        Pattern(pattern)


LETTERS = "".join(map(chr, range(0x4E00, 0x4E00 + 1200)))
STEPS = {
    "counts in counts": "((((((){30}){30}){30}){30}){30})",
    "many ways": f"(?:{'|'.join(LETTERS)})*x",
    "much left out": "a?" * 4000,
    "loops of all": "(" * 60 + "a?" * 3000 + ")*" * 60,
    "large classes": f"(?:[{LETTERS}]x?)*y" * 5,
    "many repetitions": "a+" * 3000 + "b",
}


@pytest.mark.parametrize("name", STEPS)
def test_a_pattern_that_takes_long_to_check_is_not_read(name):
    with pytest.raises(Unreadable, match="steps"):
        assert Pattern(STEPS[name]).slow


@pytest.mark.parametrize(
    "pattern",
    [
        *(odd.GPT_4, odd.GPT_4O, odd.POSSESSIVE, cuts._BYTE_LEVEL),
        rf"\s?[A-Za-z{'ƺ-ƼǄ-ʓʕ-ʯͰ-ͳ' * 15}]+",  # as long as DeepSeek's
    ],
)
def test_patterns_of_well_known_tokenizers_are_far_below_the_bound(monkeypatch, pattern):
    monkeypatch.setattr(graph, "_MAX_STEPS", graph._MAX_STEPS // 20)
    assert not Pattern(pattern).slow


@pytest.mark.parametrize(("source", "literal"), [("a" * 1500, False), ("b" * 4000, True)])
def test_whether_a_long_pattern_matches_is_unsure(source, literal):
    with pytest.raises(Unsure):
        Pattern(source, literal=literal).takes(source[0])


def test_a_long_text_has_no_sure_cut_where_the_pattern_is_long(monkeypatch):
    monkeypatch.setattr(module, "PART", 100)
    monkeypatch.setattr(module, "MAX_PIECE", 1000)
    own = split_by("a" * 1500)
    with pytest.raises(InvalidArgument, match="no cut"):
        own.encode("ab" * 1000, add_special=False, parse_special=False)


def split_by(pattern: str, **changes: object) -> Tokenizer:
    state = {**json.loads(odd.build("bpe")), "pre_tokenizer": odd.split({"Regex": pattern})}
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps({**state, **changes})), {})


@pytest.mark.parametrize(
    ("pattern", "letters"),
    [(r"\s+$", " "), (r"[a-f]+x", "face"), (r"(?:ab)+c", "ab"), (r"a+-a+-a+x", "aaaaa-")],
)
@pytest.mark.parametrize("normalizer", [None, {"type": "NFC"}, odd.replace("qq", "q")])
def test_a_turn_searches_no_long_run_again_and_again(monkeypatch, pattern, letters, normalizer):
    """A search of the run from each of 16,384 places took a second."""
    runs = []
    encode = Tokenizer._encode

    def watched(self, text, *args, **kwargs):
        runs.append(max(map(len, re.findall(f"[{letters}]+", text)), default=0))
        return encode(self, text, *args, **kwargs)

    monkeypatch.setattr(Tokenizer, "_encode", watched)
    slow = split_by(pattern, normalizer=normalizer)
    text = ("Then. " + (letters * 1000)[:1000]) * 12
    tokens = slow.encode(text, add_special=False, parse_special=False)
    assert tokens == slow.backend.encode(text, add_special_tokens=False).ids
    with pytest.raises(InvalidArgument, match="no cut"):
        slow.encode(letters * 16_384, add_special=False, parse_special=False)
    assert 1000 <= max(runs) < 3000
