"""Drafts by the head of a model that predicts the token behind the next one."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.sampler import SampleInput, Sampler
from cowmlx.models.embedding import hidden_states_of
from cowmlx.models.mtp import head_of
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.cache.sequence import Sequence
    from cowmlx.generation.drafting import Ahead
    from cowmlx.generation.params import GenerationParams
    from cowmlx.models.model import Model


class MtpHead:
    """Drafts from the hidden states that the model itself has had for the tokens before.

    The head's cache holds the tokens of this generation, and those of its prompt whose hidden
    states are known. Further tokens of a draft come of the head's own hidden states, and are
    dropped from the cache.

    Args:
        model: that generates.
        sequence: its, which keeps hidden states from now on.
        params: of the generation.

    Raises:
        Unsupported: the model has no such head.
    """

    alone = True  # a batch keeps no hidden states

    def __init__(self, model: Model, sequence: Sequence, params: GenerationParams) -> None:
        self._head = head_of(model)
        self._states = hidden_states_of(model)
        self._embed: Any = model.network.model.embed_tokens
        self._sequence = sequence
        sequence.listen(self._states)
        cache = light_route.cache_module(model.package)
        self._make_cache = cache.KVCache
        self._cache: Any = self._make_cache()
        self._fed = 0  # tokens whose hidden states the cache has seen, counted from the first
        self._sampler = Sampler(params, model)
        self._batch_sampler = BatchSampler()

    def prefill(self, prompt: list[int], chunk: int) -> bool:
        """Return false: the model's own pass gives the hidden states."""
        if self._fed:  # the window rolls: tokens that stay have other places
            self._fed, self._cache = 0, self._make_cache()
        return False

    def draft(self, tokens: list[int], count: int, number: int, ahead: Ahead) -> list[int]:
        """Return the tokens that the head predicts."""
        held = len(tokens) - 1
        begin, hidden = self._sequence.heard(self._fed, held)
        if hidden is None:
            return []
        if begin != self._fed or self._cache.offset > self._fed:
            self._cache = self._make_cache()
        made = self._run(hidden, tokens[begin + 1 :])
        self._fed = held
        drafted: list[int] = []
        for place in range(count):
            logits = self._states.logits(made[:, -1])
            history = [*tokens, *drafted]
            allowed = ahead.allowed[-1]
            wanted = SampleInput(self._sampler, history[:-1], history[-1], number + place, allowed)
            (chosen,) = self._batch_sampler.sample([wanted], logits)
            token = chosen.value()
            if not ahead.take(token):
                break
            drafted.append(token)
            if len(drafted) < count:
                made = self._run(made[:, -1:], [token])
        self._cache.trim(max(0, len(drafted) - 1))
        return drafted

    def _run(self, hidden: mx.array, tokens: list[int]) -> mx.array:
        """Return hidden states (1, S, D) behind hidden states (1, S, D) and their next tokens."""
        return self._head(hidden, self._embed(mx.array([tokens], mx.int32)), self._cache)
