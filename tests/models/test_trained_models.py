"""Weights that were trained elsewhere give the greedy tokens of plain mlx-lm.

Alone and in a batch, in the type that they were published in, and in 4 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from loading import Plain
from support import trained
from support.library import Library
from support.signatures import ADD_SPECIAL, OK
from support.threads import at_once

pytestmark = pytest.mark.long

TEXTS = ["Once upon a time there was a fox", "The capital of France is", "2 + 2 ="]
COUNT = 6  # plain mlx-lm takes seconds for one in 16 bits
MODELS: dict[str, Callable[[], Path]] = {
    "stories15M": trained.stories,
    "SmolLM2-135M": trained.smollm2,
    "Gemma-3-270M": trained.gemma,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plain]:
    asked = Plain("plain_mlx_lm.py", tmp_path_factory.mktemp("plain"))
    yield asked
    asked.close()


def generate(lib: Library, context: int, prompt: list[int]) -> list[int]:
    lib.begin(context, prompt, max_tokens=COUNT)
    return [piece.token for piece in lib.drain(context) if piece.status == OK]


@pytest.mark.parametrize("form", trained.FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_are_those_of_mlx_lm(lib, plain, name, form):
    path = MODELS[name]() / form
    model = lib.load(path)
    prompts = [lib.tokenize(model, text, ADD_SPECIAL) for text in TEXTS]
    contexts = [lib.context(model) for _ in prompts]
    alone = [generate(lib, *each) for each in zip(contexts, prompts, strict=True)]
    batched: list[list[int]] = [[] for _ in prompts]
    for context in contexts:
        lib.reset(context)

    def together(index: int) -> None:
        batched[index] = generate(lib, contexts[index], prompts[index])

    at_once(len(prompts), together)
    assert lib.info(contexts[0])["alone"] is None
    for context in contexts:
        lib.free(context)
    lib.free_model(model)
    assert batched == alone
    sequences = [list(pair) for pair in zip(prompts, alone, strict=True)]
    # Quantized weights are computed with in float32, and mlx-lm takes minutes in 16 bits.
    request = {"path": str(path), "sequences": sequences, "wide": form == "4-bits", "exact": False}
    (answer,) = plain.ask([request])
    assert "refusal" not in answer, answer
    logits = mx.load(answer["logits"])
    for index, tokens in enumerate(alone):
        rows = np.array(logits[f"plain-{index}"])
        assert len(tokens) == len(rows) > 0
        for row, token in zip(rows, tokens, strict=True):
            # Of logits that are exactly equal in plain mlx-lm either may be taken.
            assert row[token] == row.max(), (tokens, token, int(row.argmax()))
