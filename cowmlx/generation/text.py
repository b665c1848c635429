"""The text of a generation: tokens in, what may be emitted out."""

from __future__ import annotations

from cowmlx.generated import constants

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
    """

    def __init__(self, model: Model, stops: list[str], *, exact: bool = False) -> None:
        self._detokenizer = model.tokenizer.detokenizer(skip_special=False, exact=exact)
        self._ends = model.end_tokens
        self._stops: StopMatcher | None = None
        self._stopped = False  # a stop text has come
        if stops:
            from cowmlx.generation.stop import StopMatcher  # late: most hosts have none

            self._stops = StopMatcher(stops)

    def add(self, token: int, finish: int) -> tuple[str, int]:
        """Return the text that a token lets out, and why the generation ends with it, or NONE.

        Args:
            token: the next.
            finish: why it ends whatever the token is, or FINISH_NONE.
        """
        if token in self._ends:
            text, finish = self._finish(), constants.FINISH_STOP
        else:
            text = self._detokenizer.add(token)
            if self._stops is not None:
                text = self._let_through(self._stops, text)
            if finish and not self._stopped:
                text += self._finish()
        return text, constants.FINISH_STOP_TEXT if self._stopped else finish

    def _finish(self) -> str:
        """Return what was held back: no more tokens come."""
        text = self._detokenizer.finish()
        if self._stops is None:
            return text
        text = self._let_through(self._stops, text)
        return text if self._stopped else text + self._stops.finish()

    def _let_through(self, stops: StopMatcher, text: str) -> str:
        text = stops.add(text)
        self._stopped = stops.stopped
        return text
