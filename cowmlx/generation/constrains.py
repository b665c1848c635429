"""The interface of what binds the tokens of a generation."""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    import mlx.core as mx


class Constrains(ABC):
    """Follows the tokens of one generation, and says which ones may come next.

    A sample is taken before the token in front of it is known, unless :attr:`waits`. If that
    token turns ``waits`` on, the sample is taken again, with the tokens that are allowed then.

    Attributes:
        exact: whether the text has to match to the byte: a leading space is kept, which the
            tokenizer would drop.
    """

    exact = True

    @property
    def waits(self) -> bool:
        """Whether the next token depends on this, so that the one before must be known."""
        return True

    @abstractmethod
    def allowed(self) -> mx.array | None:
        """Return (V,) bool which tokens may come next; None: all."""

    @abstractmethod
    def allows(self, token: int) -> bool:
        """Whether a token may come next."""

    @abstractmethod
    def accept(self, token: int) -> bool:
        """Take the next token; true if the output is complete and nothing may follow.

        Raises:
            InvalidArgument: the grammar became too complex here.
        """

    @abstractmethod
    def fork(self) -> Self:
        """Return a copy that follows other tokens from here on."""
