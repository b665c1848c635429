"""The output of a generation: pieces with their text, and its sizes and times."""

from __future__ import annotations

from time import perf_counter

import mlx.core as mx

from cowmlx.generated import constants
from cowmlx.text.prefixes import begins, shortest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.sampling.samples import RowLogits
    from cowmlx.models.model import Model


class StopMatcher:
    """Lets text through up to the first stop text.

    Text that may begin a stop text is held back until more text decides.
    """

    def __init__(self, stops: list[str]) -> None:
        self._stops = shortest(stops)
        self._longest = max(map(len, self._stops))
        self._firsts = {stop[0] for stop in self._stops}
        self._held = ""
        self.stopped = False

    def add(self, text: str) -> str:
        """Return the text that can be emitted now."""
        text = self._held + text
        self._held = ""
        border = len(text)
        for place, character in enumerate(text):
            if character not in self._firsts:
                continue
            is_stop, may_be = begins(text[place : place + self._longest], self._stops)
            if is_stop:
                self.stopped = True
                return text[:place]
            if may_be:
                border = min(border, place)
        self._held = text[border:]
        return text[:border]

    def finish(self) -> str:
        """Return the text that was held back, at the end."""
        held, self._held = self._held, ""
        return held


class TextOutput:
    """Turns tokens into text: whole characters, up to the first stop text.

    Args:
        model: of the tokens.
        stops: texts that end the output.
        exact: keep a leading space that the tokenizer drops: a grammar may have asked for it.
    """

    def __init__(self, model: Model, stops: list[str], *, exact: bool = False) -> None:
        self._detokenizer = model.tokenizer.detokenizer(skip_special=False, exact=exact)
        self._ends = model.end_tokens
        self._stops: StopMatcher | None = None
        self._stopped = False  # a stop text has come
        if stops:
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
        """Return the text that was held back, at the end."""
        text = self._detokenizer.finish()
        if self._stops is None:
            return text
        text = self._let_through(self._stops, text)
        return text if self._stopped else text + self._stops.finish()

    def _let_through(self, stops: StopMatcher, text: str) -> str:
        text = stops.add(text)
        self._stopped = stops.stopped
        return text


class Piece:
    """One token and its text.

    Attributes:
        silent: the token only ends the generation and is no output.
        before: tokens that the sequence held before it.
        count: tokens generated so far, this one included.
        seconds: from the end of the prompt to this token.
        logits: behind the last token that the host knows with this piece.
        logprob: of the token, or None.
        top: the most probable tokens with their log probabilities.
    """

    __slots__ = (
        "before",
        "count",
        "finish",
        "logits",
        "logprob",
        "seconds",
        "silent",
        "text",
        "token",
        "top",
    )

    def __init__(
        self,
        token: int,
        text: bytes,
        finish: int,
        silent: bool,
        before: int,
        count: int,
        seconds: float,
        logits: RowLogits | None = None,
        logprob: float | None = None,
        top: list[tuple[int, float]] | None = None,
    ) -> None:
        self.token = token
        self.text = text
        self.finish = finish
        self.silent = silent
        self.before = before
        self.count = count
        self.seconds = seconds
        self.logits = logits
        self.logprob = logprob
        self.top = top


class Stats:
    """Sizes and times of a generation; seconds since ``begin``."""

    def __init__(self, prompt_tokens: int, reused_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.reused_tokens = reused_tokens
        self.generated_tokens = 0
        self.prompt_seconds = 0.0
        self.generation_seconds = 0.0
        self.first_token_seconds = 0.0
        self.drafted_tokens = 0
        self.accepted_tokens = 0
        self.begun = perf_counter()

    @property
    def peak_memory(self) -> int:
        """Bytes of the process's mlx arrays at most, since its start."""
        return mx.get_peak_memory()

    def elapsed(self) -> float:
        """Return the seconds since begin."""
        return perf_counter() - self.begun
