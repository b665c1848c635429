"""A bound on the tokens that a model thinks before it answers."""

from __future__ import annotations

import copy

import mlx.core as mx

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generation.constrains import Constrains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.thinking import ThinkingFirst
    from cowmlx.generation.triggers import Triggered
    from cowmlx.models.model import Model

UNBOUNDED = -1  # of thinking_tokens


class ThinkingBudget(Constrains):
    """Closes a model's thinking once its tokens are used up.

    Thinking is found in the text, between the model's markers, wherever in the output it is. All
    tokens are allowed, or those of the inner constraint, until the budget is used up: then the
    tokens that close the thinking are the only ones, one after the other. Text like a marker
    inside a match of the inner constraint is a part of that.

    Args:
        model: whose tokens these are.
        tokens: of all thinking of the generation, markers excluded.
        closing: the tokens that close it.
        inside: whether the prompt has opened it.
        inner: what else binds the output, or None.

    Attributes:
        cuts: for each time that thinking was closed, the tokens of the output before.
    """

    def __init__(
        self,
        model: Model,
        tokens: int,
        closing: list[int],
        inner: ThinkingFirst | Triggered | None,
        *,
        inside: bool,
    ) -> None:
        format = model.chat_format
        self._start, self._end = format.think_start.encode(), format.think_end.encode()
        self._bytes_of = model.tokenizer.token_bytes
        self._size = model.vocabulary_size
        self._left = tokens
        self._late = len(format.think_end_tokens) - 1  # tokens of an end marker that is not whole
        self._closing = closing
        self._inner = inner
        self._inside = inside
        self._closed: int | None = None  # tokens that have come of those that close; None: open
        self._tail = b""  # the last bytes of the text, which may begin a marker
        self._came = 0
        self.cuts: list[int] = []
        self._cut_if_used_up()

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether the text has to match to the byte."""
        return self._inner is not None and self._inner.exact

    @property
    def waits(self) -> bool:
        """Whether the next token is bound."""
        return self._closed is not None or (self._inner is not None and self._inner.waits)

    def allowed(self) -> mx.array | None:
        """Return (V,) bool which tokens may come next; None: all."""
        if self._closed is not None:
            return mx.arange(self._size) == self._closing[self._closed]
        return None if self._inner is None else self._inner.allowed()

    def allows(self, token: int) -> bool:
        """Whether a token may come next."""
        if self._closed is not None:
            return token == self._closing[self._closed]
        return self._inner is None or self._inner.allows(token)

    def accept(self, token: int) -> bool:
        """Take the next token; true if the output is complete and nothing may follow.

        Raises:
            InvalidArgument: the inner grammar became too complex here.
        """
        inner = self._inner
        self._came += 1
        if self._closed is not None:
            self._closed += 1
            if self._closed == len(self._closing):
                self._closed, self._inside, self._tail = None, False, b""
        elif inner is None or inner.thinks:
            self._follow(token)
        complete = inner is not None and inner.accept(token)
        if self._closed is not None and inner is not None and not inner.thinks:
            # The closing text has a trigger: later tokens must match its grammar.
            self._closed, self._inside, self._tail = None, False, b""
        if self._closed is None and (inner is None or inner.thinks):
            self._cut_if_used_up()
        return complete

    def fork(self) -> Self:
        """Return a copy that follows other tokens from here on."""
        other = copy.copy(self)
        other._inner = None if self._inner is None else self._inner.fork()
        other.cuts = list(self.cuts)
        return other

    def _follow(self, token: int) -> None:
        """Find the markers in the text, and count the tokens between them."""
        text = self._tail + self._bytes_of(token)
        marker = self._end if self._inside else self._start
        at = text.find(marker)
        if at >= 0:
            self._inside = not self._inside
            text = text[at + len(marker) :]
        elif self._inside:
            self._left -= 1
        longest = max(len(self._start), len(self._end)) - 1
        self._tail = text[-longest:] if longest else b""

    def _cut_if_used_up(self) -> None:
        if not self._inside or self._left > 0:
            return
        if self._left > -self._late and self._may_end():
            return
        self._closed = 0
        self.cuts.append(self._came)

    def _may_end(self) -> bool:
        """Whether the last text is the beginning of the marker that ends thinking."""
        return any(self._tail.endswith(self._end[:size]) for size in range(1, len(self._end)))


def bounded(
    model: Model,
    params: GenerationParams,
    inner: Constrains | None,
    *,
    inside: bool,
) -> Constrains | None:
    """Return a constraint that keeps to the budget of ``params``, too, if there is one.

    Args:
        model: that generates.
        params: of the generation.
        inner: what else binds the output, or None.
        inside: whether the prompt has opened the model's thinking.

    Raises:
        InvalidArgument: ``thinking_end_text`` does not close the thinking and no more.
        Unsupported: the model has no markers of thinking.
    """
    from cowmlx.generation.thinking import ThinkingFirst
    from cowmlx.generation.triggers import Triggered

    if params.thinking_tokens == UNBOUNDED:
        if params.thinking_end_text is None:
            return inner
        raise InvalidArgument(
            "thinking_end_text is given, but thinking_tokens is -1, so that no thinking is closed; "
            "leave it at NULL",
            reason="conflict",
            argument="thinking_end_text",
            other="thinking_tokens",
        )
    closing = _closing(model, params, alone=inner is None or not inner.exact)
    if inner is not None and not isinstance(inner, ThinkingFirst | Triggered):
        return inner  # which allows no thinking
    return ThinkingBudget(model, params.thinking_tokens, closing, inner, inside=inside)


def _closing(model: Model, params: GenerationParams, *, alone: bool) -> list[int]:
    """Return the tokens that close the thinking; whitespace behind it only without a grammar."""
    end = model.chat_format.think_end
    if not end:
        raise Unsupported(
            f"thinking_tokens is {params.thinking_tokens}, but this model marks no thinking",
            argument="thinking_tokens",
            value=params.thinking_tokens,
        )
    given = params.thinking_end_text
    before, _, behind = (end if given is None else given).partition(end)
    if behind.strip():
        raise InvalidArgument(
            f"thinking_end_text has text behind {end!r}, where the answer begins; only whitespace "
            "may follow it",
            argument="thinking_end_text",
        )
    marker, encode = model.chat_format.think_end_tokens, model.tokenizer.encode_inner
    tokens = [*(encode(before, parse_special=False) if before else ()), *marker]
    if behind and alone:
        tokens += encode(behind, parse_special=False)
    if max(tokens) >= model.vocabulary_size:
        raise Unsupported(
            f"thinking_tokens: this model cannot generate {end!r}", argument="thinking_tokens"
        )
    return tokens
