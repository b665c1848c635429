"""What a generation gives its host: pieces, and the sizes and times of all of them."""

from __future__ import annotations

from time import perf_counter

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.sampling.samples import RowLogits


class Piece:
    """One token and its text.

    Attributes:
        silent: the token only ends the generation and is no output of its own.
        before: how many tokens the sequence held before it.
        count: how many tokens were generated with it.
        seconds: when it was there, since the prompt was processed.
        logits: behind the last token held once this piece is the host's.
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
