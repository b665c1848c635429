"""Draws by the kernel for processors: the same tokens, in one operation for rows of any kind."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.generation.sampling.samples import Draw, stacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.generation.sampling.inputs import DrawInput
    from cowmlx.generation.sampling.sampler import Sampler


def usable(logits: mx.array) -> bool:
    """Whether the kernel can draw from logits, on the current device."""
    return kernels.available() and kernels.module().can_draw(logits)


def draw(
    inputs: Sequence[DrawInput], logits: mx.array, rows: Sequence[int]
) -> tuple[mx.array, mx.array]:
    """Choose a token for each input, (N,) lazily, and tell its surprise (N,) where it is asked for.

    Args:
        inputs: the last token of all that look back is still computing, or of none.
        logits: (B, V).
        rows: whose logits are whose.
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
    if any(looks_back(each) and isinstance(each.last, Draw) for each in inputs):
        last = stacked([each.last if isinstance(each.last, Draw) else None for each in inputs])
    tokens, surprises = kernels.module().draw(logits, given, last)
    return tokens, surprises


def looks_back(each: DrawInput) -> bool:
    """Whether it matters which tokens are before."""
    return bool(each.sampler.penalties.steps)


def options(sampler: Sampler) -> Any:
    """Return what a sampler does, as the kernel takes it."""
    params, penalties = sampler.params, sampler.penalties
    return kernels.module().draw_options(
        seed=params.seed,
        samplers=[(row.name, numbers) for row, numbers in sampler.steps],
        bias=list(zip(penalties.biased, penalties.bias, strict=True)),
        forbids=penalties.forbids,
        penalties=[(name, window, number) for window, name, number in penalties.steps],
    )


def _recent(each: DrawInput) -> list[int]:
    """Return the tokens that penalties look back on, but for one that is still computing."""
    if not looks_back(each):
        return []
    return each.known(max(step[0] for step in each.sampler.penalties.steps))
