"""Text of tokens: pieces make up the whole, whole characters only, as the library decodes."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import pytest
from support import tokenizers as kinds

from cowmlx.errors import InvalidArgument

TEXTS = [
    "Hello world, it's a test.",
    "  leading and  double spaces ",
    "Größe naïve 日本語のテキスト 한국어 Привет 🙂🚀👩\u200d👩\u200d👧 café",
    "def f(x):\n\treturn {x: [1, 2]}\r\n\n",
    "\x00 nul, \x07 bell, \x7f delete, \u200b",
    "a\ufffdb",
]


def make(kind: str, decoder: str | None = None) -> Any:
    """A tokenizer of ours, with another decoder of the library if one is named."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders

    from cowmlx.text.tokenizer import Tokenizer

    backend = Library.from_str(kinds.build(kind)[0]) if kind != "ends" else word_ends()
    if decoder == "none":
        backend.decoder = None
    elif decoder == "metaspace never":
        backend.decoder = decoders.Metaspace(prepend_scheme="never")
    elif decoder == "odd sequence":
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    elif decoder == "wordpiece raw":
        backend.decoder = decoders.WordPiece(cleanup=False)
    elif decoder == "spm without strip":
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    return Tokenizer(backend, {})


def word_ends() -> Any:
    """A tokenizer that marks the ends of words, as the first GPT and CLIP have it."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    letters = sorted({c for text in [*TEXTS, "the is"] for c in text if not c.isspace()})
    symbols = ["<unk>", *letters, *(c + "</w>" for c in letters), "th", "the</w>", "is</w>"]
    merges = [("t", "h"), ("th", "e</w>"), ("i", "s</w>")]
    backend = Library(
        models.BPE(
            vocab={text: index for index, text in enumerate(symbols)},
            merges=merges,
            unk_token="<unk>",
            end_of_word_suffix="</w>",
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return backend


ALL = [
    *((kind, None) for kind in kinds.KINDS),
    ("wordpiece", "wordpiece raw"),
    ("wordpiece", "none"),
    ("ends", None),
    ("unigram", "metaspace never"),
    ("unigram", "odd sequence"),
    ("spm", "spm without strip"),
]
STREAMED = pytest.mark.parametrize(("kind", "decoder"), ALL)


def pieces(tokenizer: Any, ids: list[int], skip: bool) -> list[str]:
    detokenizer = tokenizer.detokenizer(skip)
    return [*(detokenizer.add(token) for token in ids), detokenizer.finish()]


@STREAMED
def test_text_round_trips_as_the_library_decodes(kind: str, decoder: str | None) -> None:
    tokenizer = make(kind, decoder)
    rng = random.Random(1)
    alphabet = "".join(TEXTS)
    texts = TEXTS + ["".join(rng.choices(alphabet, k=rng.randint(1, 60))) for _ in range(60)]
    for text in texts:
        ids = tokenizer.encode(text, add_special=True, parse_special=True)
        for skip in (False, True):
            expected = tokenizer.backend.decode(ids, skip_special_tokens=skip)
            assert tokenizer.decode(ids, skip_special=skip) == expected


@STREAMED
def test_random_tokens_decode_as_their_pieces(kind: str, decoder: str | None) -> None:
    tokenizer = make(kind, decoder)
    rng = random.Random(2)
    for _ in range(1000):
        ids = [rng.randrange(tokenizer.vocabulary_size) for _ in range(rng.randint(0, 40))]
        for skip in (False, True):
            parts = pieces(tokenizer, ids, skip)
            text = tokenizer.decode(ids, skip_special=skip)
            assert "".join(parts) == text
            expected = tokenizer.backend.decode(ids, skip_special_tokens=skip)
            if "\ufffd" not in text and "\ufffd" not in expected:
                assert text == expected


@pytest.mark.parametrize("kind", ["bpe", "spm", "spm_unigram"])
def test_random_bytes_decode_as_utf8_with_replacements(kind: str) -> None:
    """Byte tokens in any order: valid runs as the library, the rest as Python replaces it."""
    tokenizer = make(kind)
    if kind == "bpe":
        from cowmlx.text.detokenizer import byte_table

        of_byte = {byte: tokenizer.token_id(text) for text, byte in byte_table().items()}
    else:
        of_byte = {byte: tokenizer.token_id(f"<0x{byte:02X}>") for byte in range(256)}
    assert None not in of_byte.values()
    rng = random.Random(3)
    for _ in range(300):
        if rng.random() < 0.5:
            data = rng.randbytes(rng.randint(1, 12))
        else:
            data = "".join(rng.choices("aé日🙂\x00 ", k=6)).encode()
        ids = [of_byte[byte] for byte in data]
        expected = data.decode("utf-8", "replace")
        if kind != "bpe":
            expected = expected.removeprefix(" ")
        assert tokenizer.decode(ids, skip_special=False) == expected
        if "\ufffd" not in expected:
            assert tokenizer.backend.decode(ids, skip_special_tokens=False) == expected
        for part in pieces(tokenizer, ids, False)[:-1]:
            part.encode()


@pytest.mark.parametrize("kind", ["bpe", "spm", "spm_unigram"])
def test_a_character_comes_whole_with_its_last_token(kind: str) -> None:
    tokenizer = make(kind)
    ids = tokenizer.encode("🙂", add_special=False, parse_special=False)
    parts = pieces(tokenizer, ids, False)
    assert len(ids) >= 2
    assert parts[-2] == "🙂"
    assert parts[-1] == ""
    cut = pieces(tokenizer, ids[:-1], False)
    assert cut[-1] == "\ufffd"
    assert "".join(cut[:-1]) == ""


def test_added_tokens_give_their_literal_text() -> None:
    from tokenizers import AddedToken

    tokenizer = make("bpe")
    tokenizer.backend.add_tokens([AddedToken("é", special=False), AddedToken("日 x", special=True)])
    from cowmlx.text.tokenizer import Tokenizer

    tokenizer = Tokenizer(tokenizer.backend, {})
    ids = [tokenizer.token_id("é"), tokenizer.token_id("日 x")]
    # The library would read the first as the byte E9.
    assert tokenizer.decode(ids, skip_special=False) == "é日 x"
    assert tokenizer.decode(ids, skip_special=True) == "é"


def test_ids_are_checked_against_the_models_range() -> None:
    tokenizer = make("bpe")
    tokenizer.limit = tokenizer.vocabulary_size + 10
    padding = tokenizer.vocabulary_size + 3
    assert tokenizer.decode([padding], skip_special=False) == ""
    for token in (-1, tokenizer.limit):
        with pytest.raises(InvalidArgument) as failure:
            tokenizer.decode([1, token], skip_special=False)
        assert str(token) in str(failure.value)
        assert f"0 to {tokenizer.limit - 1}" in str(failure.value)
    for kind in ("wordpiece", "unigram"):
        other = make(kind)
        other.limit = other.vocabulary_size + 1
        assert other.decode([other.limit - 1], skip_special=False) == ""


@STREAMED
def test_the_cost_of_a_token_does_not_grow(kind: str, decoder: str | None) -> None:
    """No token makes the library decode more than a short window."""
    tokenizer = make(kind, decoder)
    longest = 0

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer_backend, name)

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            nonlocal longest
            longest = max(longest, len(ids))
            text: str = tokenizer_backend.decode(ids, skip_special_tokens=skip_special_tokens)
            return text

    tokenizer_backend = tokenizer.backend
    detokenizer = tokenizer.detokenizer(False)
    detokenizer._backend = Watched()
    rng = random.Random(4)
    for token in rng.choices(range(tokenizer.vocabulary_size), k=2000):
        detokenizer.add(token)
    for _ in range(200):
        detokenizer.add(5)
    assert longest <= 64


def test_lone_surrogates_are_refused(tmp_path: pathlib.Path) -> None:
    for kind in kinds.KINDS:
        with pytest.raises(InvalidArgument):
            make(kind).encode("a\ud800b", add_special=False, parse_special=False)


def test_kinds_are_the_same_every_time() -> None:
    import subprocess
    import sys

    program = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1]);"
        "from support import tokenizers as t;"
        "print({k: hashlib.sha256(t.build(k)[0].encode()).hexdigest() for k in t.KINDS})"
    )
    place = str(pathlib.Path(__file__).parents[1])
    runs = {
        subprocess.run(
            [sys.executable, "-c", program, place], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(runs) == 1
