"""Draws by the kernel for processors: the same tokens, in one operation for rows of any kind."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.generation.drawn import Draw, stacked
from cowmlx.generation.randomness import draw_coin, draw_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.generation.drawn import DrawInput
    from cowmlx.generation.sampling import Sampler


def usable(logits: mx.array) -> bool:
    """Whether the kernel can draw from logits, on the current device."""
    return kernels.available() and kernels.module().can_draw(logits)


def draw(
    inputs: Sequence[DrawInput], logits: mx.array, rows: Sequence[int]
) -> tuple[mx.array, mx.array]:
    """Choose a token for each input, (N,) lazily, and tell its surprise (N,) where it is asked for.

    Args:
        inputs: of all or of none the last token is still computing.
        logits: (B, V).
        rows: whose logits are whose.
    """
    given = [
        (
            row,
            each.sampler.kernel_options(options),
            draw_word(each.sampler.params.seed, each.number),
            _excludes(each),
            _recent(each),
            each.sampler.penalties.dry_terms(each),
            each.surprise,
            each.allowed,
        )
        for each, row in zip(inputs, rows, strict=True)
    ]
    computing = [each.last for each in inputs if isinstance(each.last, Draw)]
    last = stacked(computing) if computing else None
    tokens, surprises = kernels.module().draw(logits, given, last)
    return tokens, surprises


def options(sampler: Sampler) -> Any:
    """Return what a sampler does, as the kernel takes it."""
    params, penalties = sampler.params, sampler.penalties
    return kernels.module().draw_options(
        samples=params.samples,
        scale=sampler.scale,
        top_n_sigma=params.top_n_sigma,
        top_p=params.top_p,
        log_min_p=math.log(params.min_p) if params.min_p > 0 else None,
        typical_p=params.typical_p,
        xtc_threshold=params.xtc_threshold,
        top_k=params.top_k,
        dynamic=sampler.dynamic or (0.0, 0.0, 1.0),
        mirostat=params.mirostat > 0,
        spared=sampler.spared.tolist(),
        bias=list(zip(penalties.biased, penalties.bias, strict=True)),
        forbids=penalties.forbids,
        penalties=[(name, window, number) for window, name, number in penalties.steps],
    )


def _excludes(each: DrawInput) -> bool:
    """Whether XTC happens in a draw."""
    params = each.sampler.params
    return 0 < params.xtc_probability > draw_coin(params.seed, each.number)


def _recent(each: DrawInput) -> list[int]:
    """Return the tokens that penalties look back on, but for one that is still computing."""
    window = max((step[0] for step in each.sampler.penalties.steps), default=0)
    return each.known(window) if window else []
