"""Sampling by the CPU kernel: the same tokens, in one operation for rows of any kind."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.generation.sampling.samples import Sample, stacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.generation.sampling.inputs import SampleInput
    from cowmlx.generation.sampling.sampler import Sampler


def usable(logits: mx.array) -> bool:
    """Whether the kernel can sample from logits, on the current device."""
    return kernels.available() and kernels.module().can_draw(logits)


def sample(
    inputs: Sequence[SampleInput], logits: mx.array, rows: Sequence[int]
) -> tuple[mx.array, mx.array]:
    """Sample a token for each input: (N,) tokens, lazily, and (N,) their surprise in bits.

    Args:
        inputs: the last token of all that look back is still computing, or of none.
        logits: (B, V).
        rows: of the logits of each input.
    """
    given = [
        (
            row,
            each.sampler.kernel_options(options),
            each.number,
            _recent(each),
            each.sampler.penalties.dry_terms(each),
            each.surprise,
            each.allowed,
        )
        for each, row in zip(inputs, rows, strict=True)
    ]
    last = None
    if any(looks_back(each) and isinstance(each.last, Sample) for each in inputs):
        last = stacked([each.last if isinstance(each.last, Sample) else None for each in inputs])
    tokens, surprises = kernels.module().draw(logits, given, last)
    return tokens, surprises


def looks_back(each: SampleInput) -> bool:
    """Whether the sample depends on the tokens before."""
    return bool(each.sampler.penalties.steps)


def options(sampler: Sampler) -> Any:
    """Return a sampler's options in the kernel's form."""
    params, penalties = sampler.params, sampler.penalties
    return kernels.module().draw_options(
        seed=params.seed,
        samplers=[(row.name, numbers) for row, numbers in sampler.steps],
        bias=list(zip(penalties.biased, penalties.bias, strict=True)),
        forbids=penalties.forbids,
        penalties=[(name, window, number) for window, name, number in penalties.steps],
    )


def _recent(each: SampleInput) -> list[int]:
    """Return the tokens that penalties look back on, without one that is still computing."""
    if not looks_back(each):
        return []
    return each.known(max(step[0] for step in each.sampler.penalties.steps))
