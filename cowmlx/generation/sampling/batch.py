"""Samples the tokens of a batch's rows together, by the CPU kernel or mlx's operations."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.generation.sampling.filters import normalized
from cowmlx.generation.sampling.sampler import RowSampler
from cowmlx.generation.sampling.samples import RowLogits, Sample, SampledRows, stacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from cowmlx.generation.sampling.sampler import SampleInput, Sampler


class BatchSampler:
    """Samples rows of logits, in one operation where the CPU kernel can be used.

    Elsewhere the rows whose samplers are of one kind share mlx's operations, and the
    :class:`RowSampler` of the same rows is kept for the next call. A row gets the
    same token either way, unless rounding decides between two.
    """

    def __init__(self) -> None:
        self._samplers: dict[tuple[Sampler, ...], RowSampler] = {}

    def sample(
        self,
        inputs: Sequence[SampleInput],
        logits: mx.array,
        rows: Sequence[int] | None = None,
        *,
        raw: mx.array | None = None,
    ) -> list[Sample]:
        """Start computing a token for each input.

        Args:
            inputs: of the samples, all of one model.
            logits: (B, V).
            rows: whose logits are whose; None: in order.
            raw: the model's logits, where a host has changed them.
        Returns:
            the samples, in the order of their inputs; all are of the same rows.
        """
        rows = range(len(inputs)) if rows is None else rows
        together, surprises = self._tokens(inputs, logits, rows)
        reported = any(input_.logprobs for input_ in inputs)
        logits = logits if raw is None else raw
        logprobs = _logprobs(inputs, logits, rows, together) if reported else {}
        surprising = any(input_.sampler.params.mirostat for input_ in inputs)
        sampled = SampledRows(together, logprobs, surprises if surprising else None)
        return [Sample(sampled, place, RowLogits(logits, row)) for place, row in enumerate(rows)]

    def _tokens(
        self, inputs: Sequence[SampleInput], logits: mx.array, rows: Sequence[int]
    ) -> tuple[mx.array, mx.array]:
        """Return (N,) the tokens and (N,) their surprise, lazily."""
        with_kernel = kernel_usable(logits)
        if with_kernel:
            looking = {_computing(input_) for input_ in inputs if _looks_back(input_)}
            if len(looking) < 2:
                return sample_by_kernel(inputs, logits, rows)
        known, self._samplers = self._samplers, {}
        order: list[int] = []
        tokens, surprises = [], []
        for places in _groups(inputs, _computing if with_kernel else _kind):
            own, own_rows = [inputs[place] for place in places], [rows[place] for place in places]
            if with_kernel:
                sampled = sample_by_kernel(own, logits, own_rows)
            else:
                samplers = tuple(input_.sampler for input_ in own)
                sampler = known.get(samplers) or RowSampler(samplers)
                self._samplers[samplers] = sampler
                sampled = sampler(_taken(logits, own_rows), own)
            tokens.append(sampled[0])
            surprises.append(sampled[1])
            order += places
        return _in_order(tokens, order), _in_order(surprises, order)


def _kind(each: SampleInput) -> object:
    """Return a key that is equal for inputs that share mlx's operations."""
    return each.sampler.kind, _computing(each), each.allowed is None


def _computing(each: SampleInput) -> bool:
    """Whether the token before is still computing."""
    return isinstance(each.last, Sample)


def _groups(
    inputs: Sequence[SampleInput], kind: Callable[[SampleInput], object]
) -> list[list[int]]:
    """Return the places of the inputs of each kind."""
    groups: dict[object, list[int]] = {}
    for place, input_ in enumerate(inputs):
        groups.setdefault(kind(input_), []).append(place)
    return list(groups.values())


def _in_order(parts: list[mx.array], order: list[int]) -> mx.array:
    """Join parts whose rows have the places of ``order``, in the order of the places."""
    together = parts[0] if len(parts) == 1 else mx.concatenate(parts)
    if order == sorted(order):
        return together
    back = sorted(range(len(order)), key=order.__getitem__)
    return mx.take(together, mx.array(back), axis=0)


def _taken(array: mx.array, rows: list[int]) -> mx.array:
    """Return rows of an array, which is often all of it."""
    if rows == list(range(array.shape[0])):
        return array
    if len(rows) == 1:
        return array[rows[0] : rows[0] + 1]
    return mx.take(array, mx.array(rows), axis=0)


def _logprobs(
    inputs: Sequence[SampleInput], logits: mx.array, rows: Sequence[int], tokens: mx.array
) -> dict[int, tuple[LogProbs, int]]:
    """Return the log probabilities of the inputs that report them, by place."""
    logprobs = {}
    for places in _groups(inputs, lambda each: each.logprobs):
        count = inputs[places[0]].logprobs
        if count:
            taken = _taken(logits, [rows[place] for place in places])
            of_rows = LogProbs(taken, _taken(tokens, places), count)
            logprobs.update({place: (of_rows, index) for index, place in enumerate(places)})
    return logprobs


class LogProbs:
    """Of one position a row, lazily; under the model, whatever the sampler made of its logits.

    Args:
        logits: (B, V).
        tokens: (B,) the chosen tokens.
        count: how many of the most probable ones.
    """

    def __init__(self, logits: mx.array, tokens: mx.array, count: int) -> None:
        logprobs = normalized(logits.astype(mx.float32))
        chosen = mx.take_along_axis(logprobs, tokens[:, None].astype(mx.int32), axis=-1)
        count = min(count, logprobs.shape[-1])
        best = mx.argpartition(-logprobs, kth=count - 1, axis=-1)[:, :count]
        order = mx.argsort(-mx.take_along_axis(logprobs, best, axis=-1), axis=-1)
        best = mx.take_along_axis(best, order, axis=-1)
        self.arrays = chosen, best, mx.take_along_axis(logprobs, best, axis=-1)
        self._lists: tuple[list[list[float]], list[list[int]], list[list[float]]] | None = None

    def chosen(self, row: int) -> float:
        """Return the log probability of a row's token."""
        return self._read()[0][row][0]

    def top(self, row: int) -> list[tuple[int, float]]:
        """Return a row's most probable tokens with their log probabilities, best first."""
        _, tokens, values = self._read()
        return list(zip(tokens[row], values[row], strict=True))

    def _read(self) -> tuple[list[list[float]], list[list[int]], list[list[float]]]:
        """Wait for all rows."""
        if self._lists is None:
            chosen, tokens, values = (array.tolist() for array in self.arrays)
            self._lists = chosen, tokens, values  # type: ignore[assignment]
        return self._lists  # type: ignore[return-value]


def kernel_usable(logits: mx.array) -> bool:
    """Whether the kernel can sample from logits, on the current device."""
    return kernels.available() and kernels.module().can_sample(logits)


def sample_by_kernel(
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
            kernel_options(input_.sampler),
            input_.number,
            _recent(input_),
            input_.sampler.penalties.dry_terms(input_),
            input_.surprise,
            input_.allowed,
        )
        for input_, row in zip(inputs, rows, strict=True)
    ]
    last = None
    if any(_looks_back(input_) and isinstance(input_.last, Sample) for input_ in inputs):
        last = stacked(
            [input_.last if isinstance(input_.last, Sample) else None for input_ in inputs]
        )
    tokens, surprises = kernels.module().sample(logits, given, last)
    return tokens, surprises


def _looks_back(each: SampleInput) -> bool:
    """Whether the sample depends on the tokens before."""
    return bool(each.sampler.penalties.steps)


def kernel_options(sampler: Sampler) -> Any:
    """Return a sampler's options in the kernel's form, made once."""
    if sampler.kernel_options is None:
        penalties = sampler.penalties
        sampler.kernel_options = kernels.module().sample_options(
            seed=sampler.params.seed,
            samplers=[(row.name, numbers) for row, numbers in sampler.steps],
            bias=list(zip(penalties.biased, penalties.bias, strict=True)),
            forbids=penalties.forbids,
            penalties=[(name, window, number) for window, name, number in penalties.steps],
        )
    return sampler.kernel_options


def _recent(each: SampleInput) -> list[int]:
    """Return the tokens that penalties look back on, without one that is still computing."""
    if not _looks_back(each):
        return []
    return each.known(max(step[0] for step in each.sampler.penalties.steps))
