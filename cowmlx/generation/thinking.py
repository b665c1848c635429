"""A model's thinking in front of output that has to match a grammar."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generation.grammar import ALLOWED
from cowmlx.text.detokenizer import TokenBytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.generation.grammar import Constraint
    from cowmlx.models.model import Model

MAX_GAP = 8  # bytes of whitespace between the end of thinking and the match of the grammar

_STARTING, _THINKING, _GAP, _ANSWERING = range(4)


class ThinkingFirst:
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
        self._vocabulary = _MarkerTokens.of(model, self._end)
        self._size = model.vocabulary_size
        self._final = sorted(token for token in model.end_tokens if 0 <= token < self._size)
        self._tail = b""  # the last bytes of the thinking, which may begin the end marker
        self._gap = 0
        self._takes_space = takes_space

    def allowed(self) -> mx.array:
        """Return (V,) bool which tokens may come next."""
        if self._phase == _ANSWERING:
            return self._constraint.allowed()
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
        view: Any = memoryview(mask)
        return mx.array(view) != 0

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


class _MarkerTokens:
    """The tokens of a vocabulary that complete the marker at the end of a model's thinking.

    Attributes:
        spaces: the tokens of whitespace alone.
    """

    def __init__(self, model: Model, marker: bytes) -> None:
        table = TokenBytes.of(model.tokenizer.backend)
        assert table is not None  # or there would be no constraint
        self.bytes_of = table.get
        self._marker = marker
        self.spaces: list[int] = []
        # Tokens that complete the marker behind its first n bytes, and go on: with whitespace
        # alone, or with more.
        self._spaced: dict[int, list[int]] = {}
        self._more: dict[int, list[int]] = {}
        last = marker[-1:]
        for token in range(min(model.vocabulary_size, model.tokenizer.vocabulary_size)):
            text = table.get(token)
            if text.isspace():
                self.spaces.append(token)
            if last not in text[:-1]:
                continue
            for known in range(len(marker)):
                rest = marker[known:]
                # What a token has in front of the marker matters where it holds all of it.
                at = 0 if text.startswith(rest) else text.find(rest) if not known else -1
                if at >= 0 and (behind := text[at + len(rest) :]):
                    kind = self._spaced if behind.isspace() else self._more
                    kind.setdefault(known, []).append(token)

    @classmethod
    def of(cls, model: Model, marker: bytes) -> _MarkerTokens:
        """Return those of a model, found once."""
        # The vocabulary is the tokenizer's, and the same whatever adapter a model has.
        markers: _MarkerTokens = model.tokenizer.remembered.once(
            ("tokens of a marker", marker), lambda: cls(model, marker)
        )
        return markers

    def running_over(self, tail: bytes, spaces_too: bool) -> list[int]:
        """Return the tokens that, behind a tail, would end the marker and go on.

        Args:
            tail: the last bytes of the thinking.
            spaces_too: also with whitespace alone.
        """
        kinds = (self._more, self._spaced) if spaces_too else (self._more,)
        return [
            token
            for kind in kinds
            for known, tokens in kind.items()
            if tail.endswith(self._marker[:known])
            for token in tokens
        ]
