"""Guesses of tokens, checked by the model in one step."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generation.sampling.batch import Drawer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from cowmlx.cache.sequence import Sequence
    from cowmlx.generation.drafting import Drafter
    from cowmlx.generation.sampling.inputs import DrawInputs
    from cowmlx.generation.sampling.samples import Draw


class Guesses:
    """Guesses what follows a generation's tokens, and finds out how much of that is right.

    A guess is right if the sampler draws the same token there, so a draft never changes
    what is generated (arXiv 2211.17192 without its correction: the draws are coupled by
    their keys instead).

    Args:
        drafter: what guesses.
        sequence: the context's.
        inputs: what tokens are drawn from.
        ends: the model's tokens that end a generation.
    """

    def __init__(
        self, drafter: Drafter, sequence: Sequence, inputs: DrawInputs, ends: Container[int]
    ) -> None:
        self._drafter = drafter
        self._sequence = sequence
        self._inputs = inputs
        self._ends = ends
        self._drawer = Drawer()

    def behind(self, pending: Draw, room: int) -> list[int]:
        """Return a token with at most ``room`` guesses of what follows; none if there are none."""
        tokens = self._sequence.tokens
        if room < 1 or not self._sequence.can_take_back(room + 1):
            return []
        token = pending.value()
        if token in self._ends:
            return []
        guesses = self._drafter.guess([*tokens, token], room, self._inputs.drawn)
        return [token, *guesses] if guesses else []

    def check(self, ids: list[int], base: int, logits: mx.array) -> list[Draw]:
        """Draw behind each of the tokens, up to the first wrong guess; the others are dropped.

        Args:
            ids: a token and guesses, which the sequence holds.
            base: tokens held before them.
            logits: (S, V) behind each of them.
        Returns:
            the draws: all but the last are guesses that were right.
        """
        history, guesses = self._sequence.tokens, ids[1:]
        inputs = [
            self._inputs.behind(history[: base + i], ids[i], ahead=i) for i in range(len(ids))
        ]
        draws = self._drawer.draw(inputs, logits)
        mx.eval(draws[0].rows.arrays)
        right = 0
        while right < len(guesses) and draws[right].value() == guesses[right]:
            right += 1
        self._sequence.trim_to(base + 1 + right)
        self._inputs.drawn += right + 1
        return draws[: right + 1]
