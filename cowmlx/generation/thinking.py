"""A model's thinking in front of output that has to match a grammar."""

from __future__ import annotations

import copy

import mlx.core as mx

from cowmlx.generation.constrains import Constrains
from cowmlx.generation.grammar import ALLOWED
from cowmlx.generation.markers import MarkerTokens
from cowmlx.text.detokenizer import TokenBytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from cowmlx.generation.grammar import Constraint
    from cowmlx.models.model import Model

MAX_GAP = 8  # bytes of whitespace between the end of thinking and the match of the grammar

_STARTING, _THINKING, _GAP, _ANSWERING = range(4)


class ThinkingFirst(Constrains):
    """Lets a model think before a constraint begins to hold.

    While it thinks, every token is allowed but those that end the generation. The end of thinking
    is found in the text, so the end marker may be one token or come in parts. A token with more
    than whitespace behind the marker is not allowed: the match begins with a token. Whitespace
    behind the marker is no part of the match, unless the grammar may begin with some.

    Args:
        model: whose tokens these are.
        constraint: on the answer.
        start: the tokens with which the model may start to think; none if the prompt has.
        end: the text that ends the thinking.
        takes_space: whether a match of the constraint may begin with whitespace.
    """

    def __init__(
        self,
        model: Model,
        constraint: Constraint,
        start: list[int],
        end: str,
        *,
        takes_space: bool,
    ) -> None:
        self._constraint = constraint
        self._start = start
        self._started = 0  # tokens of it that came
        self._end = end.encode()
        self._phase = _STARTING if start else _THINKING
        self._vocabulary = MarkerTokens.of(model, self._end)
        self._size = model.vocabulary_size
        self._final = sorted(token for token in model.end_tokens if 0 <= token < self._size)
        self._tail = b""  # the last bytes of the thinking, which may begin the end marker
        self._gap = 0
        self._takes_space = takes_space

    @property
    def thinks(self) -> bool:
        """Whether the thinking has not ended, or may still begin."""
        return self._phase in (_STARTING, _THINKING)

    def allowed(self) -> mx.array:
        """Return (V,) bool which tokens may come next."""
        if self._phase == _ANSWERING:
            return self._constraint.allowed()
        mask: Any = memoryview(self._mask())
        return mx.array(mask) != 0

    def allows(self, token: int) -> bool:
        """Whether a token may come next."""
        if self._phase == _ANSWERING:
            return self._constraint.allows(token)
        return self._mask()[token] == ALLOWED[0]

    def fork(self) -> Self:
        """Return a copy that follows other tokens from here on."""
        other = copy.copy(self)
        other._constraint = self._constraint.fork()
        return other

    def _mask(self) -> bytearray:
        """Return a byte for every token, before the answer."""
        if self._phase == _THINKING:
            mask = bytearray(ALLOWED * self._size)
            for token in self._final + self._vocabulary.running_over(self._tail, self._takes_space):
                mask[token] = 0
        elif self._phase == _GAP:
            mask = bytearray(self._constraint.mask)
            for token in self._vocabulary.spaces:
                mask[token] = ALLOWED[0]
        else:
            mask = bytearray(self._size if self._started else self._constraint.mask)
            mask[self._start[self._started]] = ALLOWED[0]
        return mask

    def accept(self, token: int) -> bool:
        """Take the next token; true if the output is complete and nothing may follow.

        Raises:
            InvalidArgument: the grammar became too complex here.
        """
        if self._phase == _THINKING:
            self._think(token)
            return False
        if self._phase == _STARTING and (self._started or not self._constraint.allows(token)):
            self._started += 1
            if self._started == len(self._start):
                self._phase = _THINKING
            return False
        if self._phase == _GAP and not self._constraint.allows(token):
            self._gap += len(self._vocabulary.bytes_of(token))
            if self._gap >= MAX_GAP:
                self._phase = _ANSWERING
            return False
        self._phase = _ANSWERING
        return self._constraint.accept(token)

    def _think(self, token: int) -> None:
        text = self._tail + self._vocabulary.bytes_of(token)
        if self._end in text:
            self._phase = _ANSWERING if self._takes_space else _GAP
        self._tail = text[-max(len(self._end) - 1, 1) :]


def takes_space(model: Model, constraint: Constraint) -> bool:
    """Whether a match of a constraint may begin with whitespace."""
    table = TokenBytes.of(model.tokenizer.backend)
    assert table is not None  # or there would be no constraint
    token = constraint.mask.find(ALLOWED)
    while token >= 0:
        if token not in model.end_tokens and table.get(token)[:1].isspace():
            return True
        token = constraint.mask.find(ALLOWED, token + 1)
    return False
