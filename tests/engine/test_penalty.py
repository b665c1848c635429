"""The repetition penalty's arithmetic, which greedy tokens do not show whole."""

from __future__ import annotations

import mlx.core as mx
import pytest

from cowmlx.generation.params import DEFAULTS, GenerationParams
from cowmlx.generation.sampling import Sampler
from cowmlx.models import light_route


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
@pytest.mark.parametrize("window", [1, 3, 50])
def test_logits_of_both_signs_equal_mlx_lm_s(penalty, window):
    reference = light_route.import_module("sample_utils").make_repetition_penalty(penalty, window)
    logits = mx.random.normal((1, 40), key=mx.random.key(7)) * 4
    history, last = [3, 5, 3, 39, 0, 12, 5], mx.array([20])
    params = {"repetition_penalty": penalty, "repetition_window": window}
    sampler = Sampler(GenerationParams({**DEFAULTS, **params}))
    ours = sampler._penalize(logits, history, last)
    theirs = reference(mx.array([*history, 20]), mx.array(logits))
    assert mx.array_equal(ours, theirs)
    assert not mx.array_equal(ours, logits)
