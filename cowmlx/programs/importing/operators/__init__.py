"""Converters of ONNX operators, by family."""

from __future__ import annotations

import importlib

FAMILIES = (
    "elementwise",
    "shaping",
    "taking",
    "reductions",
    "products",
    "pooling",
    "normalizations",
    "recurrent",
    "resizing",
    "quantized",
    "control",
    "signals",
    "contributed",
)
_SEQUENCES = "it works on sequences, which programs do not have"
_STRINGS = "it works on strings, which programs do not have"
_SHAPES = "the shape of its result depends on values"
REFUSED = {
    **dict.fromkeys(
        (
            "SequenceAt",
            "SequenceConstruct",
            "SequenceEmpty",
            "SequenceErase",
            "SequenceInsert",
            "SequenceLength",
            "SequenceMap",
            "SplitToSequence",
            "ConcatFromSequence",
            "Optional",
            "OptionalGetElement",
            "OptionalHasElement",
        ),
        _SEQUENCES,
    ),
    **dict.fromkeys(
        (
            "StringConcat",
            "StringNormalizer",
            "StringSplit",
            "RegexFullMatch",
            "TfIdfVectorizer",
            "ImageDecoder",
        ),
        _STRINGS,
    ),
    **dict.fromkeys(("NonMaxSuppression", "Unique"), _SHAPES),
    **dict.fromkeys(
        (
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
            "Multinomial",
            "Bernoulli",
        ),
        "programs take their random keys as inputs, and it has none",
    ),
}
"""Operators that no program can have, and why."""


def register() -> None:
    """Fill the table of converters, once."""
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")
