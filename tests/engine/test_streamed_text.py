"""Text as it streams is the text of its tokens, whatever the tokens are."""

from __future__ import annotations

import pytest
from driver import delivered, prompt, text_of
from support import tiny_models

# Byte-level BPE, SentencePiece BPE and SentencePiece Unigram, both with byte fallback.
KINDS = ["bpe", "spm", "spm_unigram"]
SEQUENCES = 1000  # of each kind
START = prompt(4)


@pytest.fixture(scope="module", params=KINDS)
def model(request, lib, once) -> int:
    """A model of one layer whose tokens are as good as random."""

    def fill(path):
        config = {"num_hidden_layers": 1}
        tiny_models.make(path, "llama", tokenizer=request.param, config=config)

    return lib.load(once(f"streamed-{request.param}", fill))


def spoken(lib, model, pieces):
    """The tokens that have a text: an end token that brings held-back text along has none."""
    return [token for token in delivered(pieces) if not lib.is_end(model, token)]


def test_text_adds_up_to_that_of_its_tokens(lib, model, open_context):
    context = open_context(model)
    broken = 0
    for seed in range(SEQUENCES):
        lib.begin(context, START, max_tokens=10, temperature=50.0, seed=seed)
        pieces = lib.drain(context)
        text = text_of(pieces)
        assert text == lib.detokenize(model, spoken(lib, model, pieces))
        broken += "\ufffd" in text
    assert broken, "no sequence held bytes that make no character"


def test_so_does_text_with_stop_texts_that_never_come(lib, model, open_context):
    """Text that was withheld because it may begin one is released."""
    context = open_context(model)
    stops = ["a stop text that never comes", "\ufffd\ufffd never", " never"]
    for seed in range(SEQUENCES // 10):
        lib.begin(context, START, max_tokens=10, temperature=50.0, seed=seed, stop=stops)
        pieces = lib.drain(context)
        assert text_of(pieces) == lib.detokenize(model, spoken(lib, model, pieces))
