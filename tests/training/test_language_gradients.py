"""Gradients of language models against central differences, over families of architectures."""

from __future__ import annotations

import pathlib
from typing import Any

import mlx.core as mx
import pytest
from support import tiny_models
from support.loaded import drain, load

from cowmlx.training.language import dequantized
from cowmlx.training.language.objective import LanguageObjective
from cowmlx.training.language.options import LanguageOptions
from cowmlx.training.language.token_inputs import TokenBatch

FOUR_BITS = {"group_size": 32, "bits": 4}
# A family, its quantization, and the trained layers.
CASES: list[tuple[str, dict[str, Any] | None, str]] = [
    ("llama", None, "lora"),
    ("llama", None, "full"),
    ("llama", FOUR_BITS, "lora"),
    ("llama", {"group_size": 32, "bits": 4, "mode": "mxfp4"}, "lora"),
    ("gpt2", None, "lora"),
    ("gemma3_text", None, "lora"),  # sliding windows
    ("gemma3_text", FOUR_BITS, "lora"),
    ("gpt_oss", None, "lora"),  # experts, windows and attention sinks
    ("qwen3_moe", None, "lora"),
    ("qwen3_moe", FOUR_BITS, "lora"),
    ("deepseek_v3", None, "lora"),
    ("mamba", None, "lora"),
    ("mamba2", None, "full"),
    ("mamba2", FOUR_BITS, "lora"),
    ("qwen3_next", None, "lora"),  # gated delta rule
    ("rwkv7", None, "lora"),
    ("falcon_h1", None, "lora"),
    ("xlstm", None, "lora"),
    ("xlstm", FOUR_BITS, "lora"),
    ("mad-xlstm", None, "lora"),
    ("mad-hybrid", None, "lora"),
    ("mad-slstm", None, "lora"),
    ("mad-parallel", None, "lora"),
]
# Half the way of a difference: long ways are bent, and short ones lost in float32's rounding.
WAYS = (3e-3, 1e-2, 1e-3, 3e-4, 1e-4)
TOLERANCE = 0.02
PARAMETERS = 20  # of a network that are tried, of all blocks and kinds


def batch(length: int = 10) -> TokenBatch:
    """Two rows, of which some tokens are targets."""
    # Not the end token, which comes first: its embedding is 0, where a norm's gradient explodes.
    tokens = mx.random.randint(20, 100, (2, length), key=mx.random.key(1))
    targets = mx.arange(length) >= mx.array([[2], [4]])
    return TokenBatch(tokens, targets)


def objective(
    place: pathlib.Path, family: str, quantize: dict[str, Any] | None, **options: Any
) -> LanguageObjective:
    model = load(tiny_models.make(place, family, quantize=quantize))
    made: LanguageObjective = drain(LanguageObjective.steps(model, LanguageOptions(options)))[0]
    if options["type"] != "full":  # where lora_b is 0, lora_a has no gradient
        values = {
            name: mx.random.normal(value.shape, scale=0.05, key=mx.random.key(index))
            for index, (name, value) in enumerate(made.parameters().items())
            if name.endswith("lora_b")
        }
        made.set_parameters(values)
    return made


@pytest.mark.parametrize(
    ("family", "quantize", "kind"),
    CASES,
    ids=[f"{family}-{'packed-' if packed else ''}{kind}" for family, packed, kind in CASES],
)
def test_gradients_are_central_differences(
    tmp_path: pathlib.Path, family: str, quantize: dict[str, Any] | None, kind: str
) -> None:
    options = {"type": kind} if kind == "full" else {"type": kind, "scale": 2.0}
    trained = objective(tmp_path, family, quantize, **options)
    data = batch()
    _, _, gradients = trained.gradients(data, None)
    far = {}
    parameters = list(enumerate(trained.parameters().items()))
    for index, (name, value) in parameters[:: -(-len(parameters) // PARAMETERS)]:
        gradient = gradients[name]
        # Along the gradient, and across: what it lacks shows there.
        way = mx.random.normal(value.shape, key=mx.random.key(1000 + index))
        length = mx.linalg.norm(gradient)
        way = way / mx.linalg.norm(way) + mx.where(length > 0, gradient / length, 0)
        expected = (gradient * way).sum().item()
        found = []
        for step in WAYS:
            found.append(difference(trained, name, value, way, step, data))
            if abs(found[-1] - expected) <= TOLERANCE * abs(expected) + 0.02:
                break
        else:
            far[name] = expected, found
        trained.set_parameters({name: value})
    assert not far
    assert any(gradient.any().item() for gradient in gradients.values())


def difference(
    trained: LanguageObjective,
    name: str,
    value: mx.array,
    way: mx.array,
    step: float,
    data: TokenBatch,
) -> float:
    losses = []
    for sign in (1, -1):
        trained.set_parameters({name: value + sign * step * way})
        losses.append(trained.evaluate(data)[0])
    return ((losses[0] - losses[1]) / (2 * step)).item()


def test_experts_that_are_left_packed_have_the_same_gradients(tmp_path, monkeypatch):
    made = objective(tmp_path, "qwen3_moe", FOUR_BITS, type="lora", rank=2)
    found = made.gradients(batch(), None)
    monkeypatch.setattr(dequantized, "MOST_BYTES", 0)
    left = made.gradients(batch(), None)
    assert mx.allclose(found[0], left[0], rtol=1e-5)
    for name, gradient in found[2].items():
        assert mx.allclose(gradient, left[2][name], rtol=1e-3, atol=1e-4), name
