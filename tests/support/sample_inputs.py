"""Invented rows to draw from: any options, histories and masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np

from cowmlx.generated.defaults import GENERATION
from cowmlx.generation.params import GenerationParams
from cowmlx.generation.sampling.filters import SAMPLERS
from cowmlx.generation.sampling.sampler import SampleInput, Sampler
from cowmlx.generation.sampling.samples import Sample

_FILTERS = [row.option for row in SAMPLERS if row.name not in ("temperature", "mirostat")]


def parameters(**options: Any) -> GenerationParams:
    """The options of a generation, with the defaults."""
    bias = options.pop("bias", {})
    lists = {"bias_tokens": list(bias), "bias_values": list(bias.values())}
    return GenerationParams({**GENERATION, **lists, **options})


class Model:
    """What a sampler wants of one: XTC spares its end and its line break."""

    class tokenizer:  # noqa: N801
        @staticmethod
        def encode_inner(text: str, *, parse_special: bool) -> list[int]:
            return [10]

        @staticmethod
        def token_bytes(token: int) -> bytes:
            return b":" if token % 7 == 0 else b"a"

    end_tokens = frozenset([2])

    def __init__(self, size: int) -> None:
        self.vocabulary_size = size


def options(random: Random, size: int) -> dict[str, Any]:
    """Any of the options that decide about a token."""
    chosen: dict[str, Any] = {
        "temperature": random.choice([0.0, 0.3, 0.8, 1.0, 3.0]),
        "seed": random.getrandbits(64),
    }
    maybe: dict[str, Callable[[], Any]] = {
        "top_p": lambda: random.choice([0.5, 0.9, 0.99]),
        "min_p": lambda: random.choice([0.01, 0.2]),
        "top_k": lambda: random.choice([1, 3, 40, 700]),
        "top_n_sigma": lambda: random.choice([0.3, 1.0]),
        "dry_multiplier": lambda: random.choice([0.8, 20.0]),
        "dry_allowed_length": lambda: random.choice([1, 2]),
        "dry_penalty_last_n": lambda: random.choice([3, 20]),
        "repetition_penalty": lambda: random.choice([0.7, 1.3]),
        "repetition_window": lambda: random.choice([1, 3, 20, 2**64 - 1]),
        "presence_penalty": lambda: random.choice([-0.5, 0.8]),
        "frequency_penalty": lambda: random.choice([-0.5, 0.8]),
        "frequency_window": lambda: random.choice([1, 5, 20]),
        "bias": lambda: {
            random.randrange(1, size): random.choice([4.0, -math.inf]) for _ in range(size // 50)
        },
        "logprobs": lambda: random.choice([1, min(4, size), size]),
    }
    if chosen["temperature"]:
        maybe["typical_p"] = lambda: random.choice([0.3, 0.9])
        maybe["xtc_probability"] = lambda: random.choice([0.5, 1.0])
        maybe["dynatemp_range"] = lambda: random.choice([0.2, 5.0])
        maybe["dynatemp_exponent"] = lambda: random.choice([0.5, 2.0])
        maybe["mirostat"] = lambda: 2
    chosen |= {name: value() for name, value in maybe.items() if random.random() < 0.3}
    if "xtc_probability" in chosen:
        chosen["xtc_threshold"] = random.choice([0.01, 0.1])
    if "mirostat" in chosen:  # alone says which tokens are left
        for name in [*_FILTERS, "xtc_threshold"]:
            chosen.pop(name, None)
    return chosen


def sample_input(random: Random, size: int, last: Sample | int | None = None) -> SampleInput:
    """What a token of ``size`` is drawn from, behind a last one.

    One that is given may be computing as well: without DRY, which has to know it.
    """
    chosen = options(random, size)
    if last is not None:
        chosen.pop("dry_multiplier", None)
    params = parameters(**chosen)
    # Of few tokens, so that there is something to repeat.
    few = random.sample(range(size), min(size, random.choice([2, 40])))
    history = [random.choice(few) for _ in range(random.randrange(40))]
    allowed = None
    if random.random() < 0.3:
        mask = np.random.default_rng(random.getrandbits(32)).random(size) < 0.2
        mask[random.randrange(size)] = True
        allowed = mx.array(mask)
    if last is None:
        last = random.choice([random.randrange(size), *few])
    number, bits = random.randrange(100), random.uniform(-1, 12)
    sampler = Sampler(params, Model(size))
    return SampleInput(sampler, history, last, number, allowed, params.logprobs, bits)
