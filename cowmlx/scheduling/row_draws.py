"""What comes next in the contexts of a batch, drawn for all of its rows at once."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generation.sampling.batch import Drawer
from cowmlx.generation.sampling.samples import RowLogits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cowmlx.generation.context import Context
    from cowmlx.generation.sampling.inputs import DrawInput
    from cowmlx.generation.sampling.samples import Step

    # Whose token, what it is drawn from, and the row of its logits.
    Wanted = tuple[Context, DrawInput, int]


class RowDraws:
    """Draws for the contexts of a lane. What fails for one ends its generation and no other."""

    def __init__(self) -> None:
        self._before = Drawer()  # steps read their tokens
        self._after = Drawer()

    def follow(
        self, fed: Sequence[tuple[Context, Step | None]], rows: list[int], logits: mx.array
    ) -> None:
        """Start drawing what comes next, where no grammar has to see the token before.

        Args:
            fed: contexts, and the steps that were fed; None for one whose prompt was.
            rows: of their logits.
            logits: (B, V).
        """
        wanted: list[Wanted] = []
        later: list[Context] = []
        for (context, step), row in zip(fed, rows, strict=True):
            assert context.generation is not None
            each: DrawInput | None
            try:
                own = RowLogits(logits, row)
                if step is None:
                    each = context.generation.follow_prompt(own)
                else:
                    each = context.generation.follow(step, own)
            except BaseException as error:
                context.fail(error)
                continue
            if each is None:
                later.append(context)
            else:
                wanted.append((context, each, row))
        _draw(self._before, wanted, logits)
        if later:
            try:
                mx.async_eval(logits)
            except BaseException as error:
                for context in later:
                    context.fail(error)

    def match(self, taken: list[tuple[Context, Step]]) -> None:
        """Start drawing what grammars allow behind the steps' tokens."""
        wanted: list[Wanted] = []
        logits: list[mx.array] = []
        for context, step in taken:
            generation = context.generation
            if generation is None or generation.ended:
                continue
            try:
                each = generation.match(step)
            except BaseException as error:
                context.fail(error)
                continue
            if each is not None:
                wanted.append((context, each, len(logits)))
                logits.append(step.following.array())
        if wanted:
            _draw(self._after, wanted, mx.concatenate(logits))


def _draw(drawer: Drawer, wanted: list[Wanted], logits: mx.array) -> None:
    """Draw for contexts, together unless that fails."""
    if not wanted:
        return
    try:
        draws = drawer.draw([each for _, each, _ in wanted], logits, [row for _, _, row in wanted])
        mx.async_eval(draws[0].rows.arrays)
    except BaseException as error:
        if len(wanted) == 1:
            wanted[0][0].fail(error)
            return
        for one in wanted:  # find out whose it is
            _draw(Drawer(), [one], logits)
        return
    for (context, _, _), draw in zip(wanted, draws, strict=True):
        assert context.generation is not None
        context.generation.take_draw(draw)
