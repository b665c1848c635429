"""Drafts of the next tokens, several of which the model checks in one step."""

from __future__ import annotations

from itertools import takewhile

import mlx.core as mx

from cowmlx.cache.sequence import Sequence
from cowmlx.cache.trimming import can_trim_all
from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.sampler import SampleInput, Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Protocol

    from cowmlx.generation.constrains import Constrains
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.sampling.sampler import SampleInputs
    from cowmlx.generation.sampling.samples import Sample, Step
    from cowmlx.models.model import Model

    class Drafter(Protocol):
        """Drafts the continuation of a sequence."""

        def prefill(self, prompt: list[int], chunk: int) -> bool:
            """Process one chunk of a prompt, before its model does; false if none is left."""

        def draft(self, tokens: list[int], count: int, number: int, ahead: Ahead) -> list[int]:
            """Return at most ``count`` tokens that may follow, all of which ``ahead`` has taken.

            ``number`` is the first one's.
            """


class Ahead:
    """What a constraint allows behind the tokens of a draft, which nobody has chosen yet.

    Args:
        constraint: on the output, or None.

    Attributes:
        allowed: (V,) bool behind each token taken, or None for all.
    """

    def __init__(self, constraint: Constrains | None) -> None:
        self._constraint = None if constraint is None else constraint.fork()
        self.allowed: list[mx.array | None] = []

    def take(self, token: int) -> bool:
        """Take a token; false if it is not allowed, or nothing may follow it."""
        bound = self._constraint
        if bound is not None:
            if bound.waits and self.allowed and not bound.allows(token):
                return False
            try:
                if bound.accept(token):
                    return False
            except InvalidArgument:  # the grammar became too complex
                return False
        self.allowed.append(None if bound is None else bound.allowed())
        return True


LONGEST, SHORTEST = 4, 2  # tokens that have to be alike for the next to be drafted from them


class PromptLookup:
    """Prompt lookup (A. Saxena 2023): the draft is what followed the same tokens earlier."""

    def __init__(self) -> None:
        self._seen: list[int] = []
        # The index behind the last occurrence of each run of tokens.
        self._after: dict[tuple[int, ...], int] = {}

    def prefill(self, prompt: list[int], chunk: int) -> bool:
        """Do nothing: looking up needs no network."""
        return False

    def draft(self, tokens: list[int], count: int, number: int, ahead: Ahead) -> list[int]:
        """Return the tokens that followed the longest run that occurred before."""
        place = None
        self._learn(tokens[:-1])
        for length in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            place = self._after.get(tuple(tokens[-length:]))
            if place is not None:
                break
        found = tokens[place : place + count] if place is not None else []
        return [*takewhile(ahead.take, found)]

    def _learn(self, tokens: list[int]) -> None:
        """Note every run but those at the end of the sequence."""
        known = len(self._seen)
        if tokens[:known] != self._seen:
            known = 0
            self._after.clear()
        for end in range(max(known, 1), len(tokens) + 1):
            for length in range(SHORTEST, LONGEST + 1):
                if length <= end:
                    self._after[tuple(tokens[end - length : end])] = end
        self._seen = tokens


class DraftModel:
    """A smaller model that samples with the same keys, so that its samples tend to be the same.

    Args:
        model: the draft model.
        sequence: of the tokens that it has processed.
        params: of the generation.
    """

    def __init__(self, model: Model, sequence: Sequence, params: GenerationParams) -> None:
        self._sequence = sequence
        self._sampler = Sampler(params, model)
        self._batch_sampler = BatchSampler()

    def prefill(self, prompt: list[int], chunk: int) -> bool:
        """Process one chunk of a prompt, all but its last token; false if none is left."""
        sequence = self._sequence
        sequence.keep_prefix(prompt)
        rest = prompt[len(sequence.tokens) : -1][:chunk]
        if not rest:
            return False
        sequence.forward(mx.array(rest, mx.int32))
        mx.eval(sequence.state)
        sequence.append(rest)
        return True

    def draft(self, tokens: list[int], count: int, number: int, ahead: Ahead) -> list[int]:
        """Return the tokens that this model would generate."""
        sequence = self._sequence
        sequence.keep_prefix(tokens)
        drafted: list[int] = []
        rest = tokens[len(sequence.tokens) :]
        if not sequence.mark(len(rest) + count):
            return drafted
        for i in range(count):
            ids = mx.array(rest, mx.int32)
            logits = sequence.forward(ids)[:, -1, :]
            history = [*tokens, *drafted][:-1]
            allowed = ahead.allowed[-1]
            wanted = SampleInput(self._sampler, history, rest[-1], number + i, allowed)
            (chosen,) = self._batch_sampler.sample([wanted], logits)
            sequence.append(rest)
            rest = [chosen.value()]
            if not ahead.take(rest[0]):
                break
            drafted += rest
        return drafted


class DraftState:
    """Keeps a draft model's sequence from one generation of a context to the next."""

    def __init__(self) -> None:
        self._sequence: Sequence | None = None
        self._version = 0  # of the weights that have processed it

    def drafter(
        self, params: GenerationParams, model: Model, draft: Model | None, sequence: Sequence
    ) -> Drafter | None:
        """Return the drafter of a generation; None if it has none.

        Args:
            sequence: the context's.
            params: of the generation.
            model: that generates.
            draft: the draft model; None: drafts are looked up in the sequence.

        Raises:
            Unsupported: the cache of one on several machines cannot drop rejected drafts.
            InvalidArgument: their vocabularies differ.
        """
        sequence.listen(None)
        if not params.draft_tokens:
            return None
        for loaded in (model, draft) if draft is not None else (model,):
            if loaded.split is not None and not can_trim_all(loaded.make_cache()):
                raise Unsupported(
                    f"draft_tokens is {params.draft_tokens}, but the cache of a "
                    f"{loaded.architecture} model on several machines cannot drop rejected drafts",
                    argument="draft_tokens",
                    value=params.draft_tokens,
                )
        if params.draft_heads:
            from cowmlx.generation.mtp_drafts import MtpHead  # late: few generations need it

            model.require_one_machine("draft_heads")
            return MtpHead(model, sequence, params)
        if draft is None:
            return PromptLookup()
        draft.require_one_machine("draft")
        if draft.vocabulary_size != model.vocabulary_size:
            raise InvalidArgument(
                f"the draft model's vocabulary has {draft.vocabulary_size} tokens, this one's "
                f"{model.vocabulary_size}; they must be the same",
                argument="draft",
            )
        if self._sequence is None or self._version != draft.weights_version:
            self._sequence = Sequence(draft.network, draft.make_cache)
            self._version = draft.weights_version
        return DraftModel(draft, self._sequence, params)

    def settle(self) -> None:
        """Finish pending computations."""
        if self._sequence is not None:
            self._sequence.settle()

    @property
    def nbytes(self) -> int:
        """Bytes that the draft model's cache holds."""
        return self._sequence.nbytes if self._sequence is not None else 0

    def is_of(self, model: Model) -> bool:
        """Whether a model has processed tokens here."""
        return self._sequence is not None and self._version == model.weights_version

    def reset(self) -> None:
        """Forget the processed tokens."""
        if self._sequence is not None:
            self._sequence.reset()  # the last generation refers to it
        self._sequence = None


class Drafts:
    """Drafts the tokens that follow a generation's, and checks them.

    A drafted token is right if the sampler samples the same one there, so a draft never changes
    what is generated (arXiv 2211.17192 without its correction: the samples are coupled by
    their keys instead).

    Args:
        drafter: makes the drafts.
        sequence: the context's.
        inputs: of the generation's samples.
        ends: the model's tokens that end a generation.

    Attributes:
        alone: whether they cannot be checked in a batch.
    """

    def __init__(
        self, drafter: Drafter, sequence: Sequence, inputs: SampleInputs, ends: Container[int]
    ) -> None:
        self._drafter = drafter
        self._sequence = sequence
        self._inputs = inputs
        self._ends = ends
        self.alone = getattr(drafter, "alone", False)
        self._ahead = Ahead(None)
        self._batch_sampler = BatchSampler()

    def behind(self, pending: Sample, room: int) -> list[int]:
        """Return a token and a draft of at most ``room`` tokens behind it; none without a draft."""
        tokens = self._sequence.tokens
        if room < 1:
            return []
        token = pending.value()
        if token in self._ends:
            return []
        self._ahead = Ahead(self._inputs.constraint)
        if not self._ahead.take(token):
            return []
        number = self._inputs.count
        drafted = self._drafter.draft([*tokens, token], room, number, self._ahead)
        if not drafted or not self._sequence.mark(1 + len(drafted)):
            return []
        return [token, *drafted]

    def check(self, ids: list[int], held: Step, logits: mx.array) -> list[Sample]:
        """Sample behind each of the tokens, up to the first wrong one; the others are dropped.

        Args:
            ids: a token and its draft, which the sequence holds.
            held: the step of the first.
            logits: (S, V) behind each of them.
        Returns:
            the samples: all but the last are drafted tokens that were right.
        """
        history, drafted, base = self._sequence.tokens, ids[1:], held.before
        inputs = [
            self._inputs.behind(history[: base + i], token, ahead=i, allowed=allowed)
            for i, (token, allowed) in enumerate(zip(ids, self._ahead.allowed, strict=True))
        ]
        samples = self._batch_sampler.sample(inputs, logits)
        mx.eval(samples[0].rows.arrays)
        right = 0
        while right < len(drafted) and samples[right].value() == drafted[right]:
            right += 1
        self._sequence.trim_to(base + 1 + right)
        self._inputs.count += right + 1
        for token, sample in zip(ids, [held.pending, *samples[:right]], strict=False):
            self._inputs.note(token, sample)
        return samples[: right + 1]
