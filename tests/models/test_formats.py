"""Every architecture of mlx-lm, with every format of weights, gives plain mlx-lm's logits.

Prompts, decoding and batches go through the C ABI, with kernels where there are any. Plain mlx-lm
then takes the same tokens, and computes the logits that each was chosen from.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from loading import Plain
from support import tiny_architectures, tiny_models
from support.library import Library
from support.rounding import assert_as_exact
from support.signatures import OK
from support.threads import at_once

from cowmlx.networks import light_route
from cowmlx.quantized_formats import FORMATS as QUANTIZED

# One that fills the windows of 8 tokens, one that fills them while it is continued, one that does
# not.
PROMPTS = [[50, 60, 71, 82, 93, 14, 25, 36, 47, 58, 69, 70], [11, 20, 33, 47, 15], [17, 18, 19]]
COUNT = 4  # enough for the second to fill them

_GROUPS = (64, 32, 128)
PACKINGS: list[dict[str, Any]] = [
    *(
        {"bits": known.bits[0], "group_size": known.groups[0], "mode": mode}
        for mode, known in QUANTIZED.items()
        if not known.affine
    ),
    *({"bits": bits, "group_size": size} for size in _GROUPS for bits in (2, 3, 4, 5, 6, 8)),
]
# A model has some twenty layers that can be packed: about one for each packing.
_THIRD = len(PACKINGS) // 3
FORMATS: dict[str, dict[str, Any]] = {
    "packed": {"dtype": "bfloat16", "quantize": PACKINGS},
    "packed, other layers": {
        "dtype": "float16",
        "quantize": [*PACKINGS[_THIRD:], *PACKINGS[:_THIRD]],
    },
    "packed, float32": {
        "dtype": "float32",
        "quantize": [*PACKINGS[2 * _THIRD :], *PACKINGS[: 2 * _THIRD]],
    },
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
}

# What the families of the other tests need so that 128 columns fit all groups.
_WIDE = {"hidden_size": 128, "head_dim": 32, "intermediate_size": 256}
WIDER = {
    **dict.fromkeys(tiny_models.FAMILIES, _WIDE),
    "gpt2": {"n_embd": 128},
    "lfm2": {"hidden_size": 128, "block_dim": 128, "block_ff_dim": 128},
}
METAL_ALONE = {"bitnet", "muse_spark"}  # their kernels are Metal's
NOT_HERE = {
    "olmo",  # needs another package
    "prism_hadamard_qwen35",  # another format: see test_architectures.py
}
ARCHITECTURES = [*tiny_models.FAMILIES, *tiny_architectures.CONFIGS]
# Rounds activations to four bits itself, so that the last bit of a sum may decide.
ROUNDING = {"deepseek_v41"}
SLOW = {"deepseek_v41", "phi3small"}
LONG = [
    (name, kind)
    for name in sorted(set(ARCHITECTURES) - METAL_ALONE)
    for kind in FORMATS
    if kind != "packed" or name in SLOW
]
# How many times plain mlx-lm's error ours may be in 16 bits, where roundings are coarse.
HALF_FACTOR = 3.0


@dataclass
class Answer:
    """What the library gave for a prompt.

    Attributes:
        first: the logits behind the prompt.
        tokens: of the generation.
        rows: the log probabilities (token, vocabulary) that each was chosen from.
    """

    first: Any
    tokens: list[int]
    rows: Any


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plain]:
    asked = Plain("plain_mlx_lm.py", tmp_path_factory.mktemp("plain"))
    yield asked
    asked.close()


def answers(lib: Library, path: pathlib.Path) -> list[Answer]:
    """Generate for all prompts at the same time, and each alone: the tokens must be the same."""
    model = lib.load(path)
    size = lib.info(model)["vocabulary_size"]
    contexts = [lib.context(model) for _ in PROMPTS]
    found = []
    for context, prompt in zip(contexts, PROMPTS, strict=True):
        lib.begin(context, prompt, max_tokens=0)
        found.append(Answer(np.array(lib.logits(context)), [], []))
        lib.reset(context)

    def generate(index: int) -> None:
        context, answer = contexts[index], found[index]
        lib.begin(context, PROMPTS[index], max_tokens=COUNT, logprobs=size)
        while (piece := lib.next(context)).status == OK:
            tokens, values = zip(*lib.logprobs(context), strict=True)
            row = np.empty(size)
            row[list(tokens)] = values
            answer.tokens.append(piece.token)
            answer.rows.append(row)

    at_once(len(PROMPTS), generate)
    lib.reset(contexts[0])
    lib.begin(contexts[0], PROMPTS[0], max_tokens=COUNT)
    alone = [piece.token for piece in lib.drain(contexts[0]) if piece.status == OK]
    assert alone == found[0].tokens
    for context in contexts:
        lib.free(context)
    lib.free_model(model)
    return found


def check(lib: Library, plain: Plain, folder: pathlib.Path, name: str, kind: str) -> None:
    how = FORMATS[kind]
    path = tiny_models.make(folder / "model", name, config=WIDER.get(name), **how)
    found = answers(lib, path)
    request = {
        "path": str(path),
        "sequences": [
            [prompt, answer.tokens] for prompt, answer in zip(PROMPTS, found, strict=True)
        ],
        "wide": "quantize" in how,  # quantized weights are computed with in float32
    }
    (answer,) = plain.ask([request])
    assert "refusal" not in answer, answer
    arrays = {key: np.array(array) for key, array in mx.load(answer["logits"]).items()}
    own, expected, errors, gaps = [], [], [], []
    for index, mine in enumerate(found):
        logits = arrays[f"plain-{index}"].astype(np.float64)
        assert (np.isnan(mine.first) == np.isnan(logits[0])).all()
        exact = logits - arrays[f"error-{index}"]
        own += [shifted(mine.first), *(shifted(row) for row in mine.rows)]
        expected += [shifted(logits[0]), *(shifted(row) for row in logits)]
        errors += [
            shifted(one) - shifted(other)
            for one, other in zip([logits[0], *logits], [exact[0], *exact], strict=True)
        ]
        gaps += [row.max() - row[token] for row, token in zip(logits, mine.tokens, strict=True)]
    if ("quantize" in how or how["dtype"] == "float32") and name not in ROUNDING:
        assert_as_exact(own, expected, errors, strict=1e-4)
        assert max(gaps) == 0
    else:
        assert_as_exact_in_half(own, expected, errors)


def shifted(row: Any) -> Any:
    """Log probabilities of logits; 0 where a network forbids a token or overflows."""
    finite = np.isfinite(row)
    if not finite.any():
        return np.zeros_like(row)
    kept = np.where(finite, row, -np.inf)
    best = kept.max()
    return np.where(finite, kept - best - np.log(np.exp(kept - best).sum()), 0.0)


def assert_as_exact_in_half(own: list[Any], plain: list[Any], errors: list[Any]) -> None:
    """Fail unless most rows are as exact as plain mlx-lm's.

    Not all of them: where two experts are chosen by almost the same margin, a rounding decides.
    """
    ours = [size(one - other + error) for one, other, error in zip(own, plain, errors, strict=True)]
    theirs = [size(error) for error in errors]
    assert np.median(ours) <= HALF_FACTOR * np.median(theirs)


def size(numbers: Any) -> float:
    return float(np.sqrt(np.mean(np.square(numbers))))


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - METAL_ALONE - SLOW))
def test_packed_weights_give_the_logits_of_mlx_lm(lib, plain, tmp_path, name):
    check(lib, plain, tmp_path, name, "packed")


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind"), LONG)
def test_all_formats_give_the_logits_of_mlx_lm(lib, plain, tmp_path, name, kind):
    check(lib, plain, tmp_path, name, kind)


def test_no_architecture_is_missing():
    remapped = light_route.remappings()[0]
    known = set(light_route.supported_architectures()) - set(remapped)
    assert known - NOT_HERE == set(ARCHITECTURES) - set(remapped)
