"""No token and no byte is lost between a generation and its host's buffer."""

from __future__ import annotations

from ctypes import byref, c_char, c_size_t

import pytest
from driver import KINDS, delivered, prompt, text_of
from support import signatures
from support.outputs import Buffer, poisoned, poisoned_struct
from support.signatures import DONE, EBUFFER, FINISH_LENGTH, FINISH_NONE, OK

START = prompt(8)
COUNT = 20


@pytest.fixture
def expected(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=COUNT)
    return lib.drain(context)


def test_every_capacity_below_the_text_consumes_nothing(lib, tiny, open_context, expected):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=COUNT)
    shortages = 0
    for piece in expected[:-1]:
        size = len(piece.text.encode())
        for capacity in range(size):
            short = lib.next(context, capacity=capacity)
            assert (short.status, short.needed) == (EBUFFER, size)
            shortages += 1
        exact = lib.next(context, capacity=size)
        assert (exact.text, exact.token, exact.finish) == (piece.text, piece.token, piece.finish)
    assert lib.next(context, capacity=0).status == DONE
    assert shortages > COUNT / 2


@pytest.mark.parametrize("kind", KINDS)
def test_asking_twice_for_every_piece_gives_the_same_pieces(lib, tiny, open_context, kind):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=COUNT)
    plain = lib.drain(context)
    lib.begin(context, START, max_tokens=COUNT)
    asked = []
    while not asked or asked[-1].status != DONE:
        short = lib.next(context, capacity=0)
        asked.append(lib.next(context, short.needed) if short.status == EBUFFER else short)
    assert delivered(asked) == delivered(plain)
    assert text_of(asked) == text_of(plain)


@pytest.mark.parametrize("capacity", [0, 1])
def test_a_null_piece_is_allowed(lib, tiny, open_context, expected, capacity):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=COUNT)
    text = b""
    while True:
        out = Buffer(c_char, capacity)
        status = lib.c.cow_mlx_context_next(context, *out.arguments(), None)
        if status == EBUFFER:
            out = Buffer(c_char, out.length.value)
            status = lib.c.cow_mlx_context_next(context, *out.arguments(), None)
        if status == DONE:
            break
        assert status == OK
        text += out.value() if out.length.value else b""
    assert text.decode() == text_of(expected)


def test_a_piece_cut_to_its_token(lib, tiny, open_context, expected):
    """A host of a header whose piece ended after the token."""
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=COUNT)
    piece = poisoned_struct(signatures.cow_mlx_piece)
    piece.struct_size = signatures.cow_mlx_piece.logprob.offset
    out = Buffer(c_char, 64)
    assert lib.c.cow_mlx_context_next(context, *out.arguments(), byref(piece)) == OK
    assert piece.token == expected[0].token
    assert piece.finish == poisoned(signatures.cow_mlx_piece).finish


def test_done_again_and_again(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=3)
    last = lib.drain(context)[-2:]
    for _ in range(5):
        piece = lib.next(context, capacity=0)
        assert (piece.status, piece.finish) == (DONE, FINISH_LENGTH)
        assert piece.token == last[0].token
        assert lib.next(context).status == DONE


def test_only_the_last_piece_says_why(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=5)
    pieces = lib.drain(context)
    assert [piece.finish for piece in pieces] == [FINISH_NONE] * 4 + [FINISH_LENGTH] * 2


def test_log_probabilities_are_said_not_to_be_there(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=2)
    assert all(piece.logprob != piece.logprob for piece in lib.drain(context))


@pytest.fixture(scope="session")
def decode(folder):
    """The tokenizer's own text of tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder("llama") / "tokenizer.json"))
    return lambda tokens: tokenizer.decode(tokens, skip_special_tokens=False)


@pytest.mark.parametrize("seed", range(12))
def test_pieces_are_whole_characters_and_add_up_to_the_text_of_their_tokens(
    lib, tiny, decode, open_context, seed
):
    """Random byte-level tokens split characters, and many bytes are none at all."""
    model = tiny("llama")
    context = open_context(model)
    lib.begin(context, START, max_tokens=60, temperature=3.0, seed=seed)
    pieces = lib.drain(context)  # decodes every piece for itself, strictly
    assert text_of(pieces) == decode(delivered(pieces))
    assert text_of(pieces) == lib.detokenize(model, delivered(pieces))
    assert len(delivered(pieces)) == 60


def test_a_generation_that_ends_inside_a_character_shows_it(lib, tiny, decode, open_context):
    """As U+FFFD, with the last token."""
    context = open_context(tiny("llama"))
    endings = 0
    for seed in range(4):
        settings = {"temperature": 3.0, "seed": seed}
        lib.begin(context, START, max_tokens=60, **settings)
        pieces = lib.drain(context)
        for place, piece in enumerate(pieces[:-2]):
            if not piece.text:
                lib.begin(context, START, max_tokens=place + 1, **settings)
                cut = lib.drain(context)
                assert text_of(cut) == decode(delivered(pieces)[: place + 1])
                assert cut[-2].text.endswith("\ufffd")
                endings += 1
    assert endings


def test_the_random_tokens_do_split_characters(lib, tiny, open_context):
    """Or the test above would show nothing."""
    model = tiny("llama")
    context = open_context(model)
    silent = []
    for seed in range(12):
        lib.begin(context, START, max_tokens=60, temperature=3.0, seed=seed)
        pieces = lib.drain(context)
        silent += [piece for piece in pieces[:-1] if not piece.text]
        assert "\ufffd" in text_of(pieces)
    assert silent


@pytest.mark.parametrize("text", ["ö", "🦊", "a🦊b", "汉字", "e\u0301"])
def test_tokens_of_a_part_of_a_character(lib, tiny, text):
    """Cut inside a character, its whole text is there but for the rest of that one."""
    model = tiny("llama")
    tokens = lib.tokenize(model, text)
    assert lib.detokenize(model, tokens) == text
    for cut in range(1, len(tokens)):
        part = lib.detokenize(model, tokens[:cut])
        assert part.rstrip("\ufffd") == text[: len(part.rstrip("\ufffd"))]


def test_generate_hands_over_whole_characters_too(lib, tiny, open_context):
    model = tiny("llama")
    context = open_context(model)
    for seed in range(6):
        result = lib.generate(context, START, max_tokens=40, temperature=3.0, seed=seed)
        lib.begin(context, START, max_tokens=40, temperature=3.0, seed=seed)
        assert result.text == text_of(lib.drain(context))
        assert all(result.pieces), "the callback is not called without text"


def test_length_is_required(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=2)
    text = poisoned(c_char * 16)
    assert lib.c.cow_mlx_context_next(context, text, 16, None, None) == signatures.EINVAL
    size = poisoned(c_size_t)
    assert lib.c.cow_mlx_context_next(context, None, 16, byref(size), None) == signatures.EINVAL
    assert len(delivered(lib.drain(context))) == 2, "nothing was consumed"
