"""The options of one generation, checked."""

from __future__ import annotations

import math

from cowmlx.errors import InvalidArgument, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Options of the C struct that nothing here can honour yet, with the value that
# means "off".
NOT_SUPPORTED = {
    "typical_p": (1.0, "typical-p sampling"),
    "xtc_probability": (0.0, "XTC sampling"),
    "xtc_threshold": (0.0, "XTC sampling"),
    "presence_penalty": (0.0, "the presence penalty"),
    "frequency_penalty": (0.0, "the frequency penalty"),
    "bias_count": (0, "logit bias"),
    "grammar": (None, "constrained output"),
    "grammar_kind": (0, "constrained output"),
    "logprobs": (0, "log probabilities"),
    "draft": (0, "speculative decoding"),
    "draft_tokens": (0, "speculative decoding"),
}


# The default of every field, as cow_mlx_generation_params_init() sets it.
DEFAULTS: dict[str, Any] = {
    "max_tokens": 256,
    "temperature": 0.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "top_k": 0,
    "repetition_penalty": 1.0,
    "repetition_window": 20,
    "seed": 0,
    "stop": [],
    **{name: off for name, (off, _) in NOT_SUPPORTED.items()},
}


class GenerationParams:
    """What ``cow_mlx_generation_params`` says, all of it valid.

    Raises:
        InvalidArgument: a value is out of range.
        Unsupported: an option that cannot be honoured.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        for name, (off, what) in NOT_SUPPORTED.items():
            if fields[name] != off:
                raise Unsupported(
                    f"{name} is {fields[name]!r}: {what} is not supported yet; leave it at {off}"
                )
        self.max_tokens: int = fields["max_tokens"]
        self.temperature: float = fields["temperature"]
        self.top_p: float = fields["top_p"]
        self.min_p: float = fields["min_p"]
        self.top_k: int = fields["top_k"]
        self.repetition_penalty: float = fields["repetition_penalty"]
        self.repetition_window: int = fields["repetition_window"]
        self.seed: int = fields["seed"]
        self.stop: list[str] = fields["stop"]
        self._check("temperature", self.temperature >= 0, "at least 0")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        self._check("min_p", 0 <= self.min_p <= 1, "0 to 1")
        self._check("top_k", self.top_k >= 0, "at least 0")
        self._check("repetition_penalty", self.repetition_penalty > 0, "above 0")
        if self.repetition_penalty != 1:
            self._check("repetition_window", self.repetition_window > 0, "at least 1")
        for index, text in enumerate(self.stop):
            if not text:
                raise InvalidArgument(f"stop[{index}] is empty; it must be a text")

    def _check(self, name: str, good: bool, accepted: str) -> None:
        value = getattr(self, name)
        if not good or not math.isfinite(value):
            shown = value if isinstance(value, int) else f"{value:g}"
            raise InvalidArgument(f"{name} is {shown}, must be {accepted}")
