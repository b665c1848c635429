"""The text of a generation: tokens in, what may be emitted out."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.stop import StopMatcher
    from cowmlx.models.model import Model


class TextOutput:
    """Whole characters only, and nothing from the first stop text on.

    Args:
        model: whose tokens come.
        stops: texts that end the output.
        exact: keep a leading space that the tokenizer drops: a grammar may have asked for it.

    Attributes:
        stopped: whether a stop text has come.
    """

    def __init__(self, model: Model, stops: list[str], *, exact: bool = False) -> None:
        self._detokenizer = model.tokenizer.detokenizer(skip_special=False, exact=exact)
        self._stops: StopMatcher | None = None
        self.stopped = False
        if stops:
            from cowmlx.generation.stop import StopMatcher  # late: most hosts have none

            self._stops = StopMatcher(stops)

    def add(self, token: int) -> str:
        """Return the text that a token lets out."""
        text = self._detokenizer.add(token)
        return text if self._stops is None else self._let_through(self._stops, text)

    def finish(self) -> str:
        """Return what was held back: no more tokens come."""
        text = self._detokenizer.finish()
        if self._stops is None:
            return text
        text = self._let_through(self._stops, text)
        return text if self.stopped else text + self._stops.finish()

    def _let_through(self, stops: StopMatcher, text: str) -> str:
        text = stops.add(text)
        self.stopped = stops.stopped
        return text
