"""The options of contexts and generations, checked."""

from __future__ import annotations

import math

from cowmlx.cache.layers import KVQuantization
from cowmlx.cache.shared import WORTHWHILE
from cowmlx.errors import ContextFull, InvalidArgument, OutOfRange, Unsupported
from cowmlx.generated import constants
from cowmlx.generation.prompt import RollingWindow
from cowmlx.generation.sampling.filters import SAMPLERS
from cowmlx.models.embedded import EmbeddedRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.generation.constrains import Constrains
    from cowmlx.models.model import Model

MAX_DRAFT_TOKENS = 64
DEFAULT_DRAFT_TOKENS = 4  # with a draft model
HEAD_TOKENS = 2  # with the model's own head
MAX_STOPS = 4096
MAX_STOP_BYTES = 1024
MAX_BREAKERS = 256
MAX_BREAKER_BYTES = 256
MAX_THINKING_END_BYTES = 4096
MAX_TRIGGERS = 16
MAX_TRIGGER_BYTES = 256

OVERFLOWS = {constants.OVERFLOW_STOP: "stop", constants.OVERFLOW_ROLL: "roll"}
_GRAMMARS = {
    constants.GRAMMAR_JSON_SCHEMA: "a JSON schema",
    constants.GRAMMAR_REGEX: "a regex",
    constants.GRAMMAR_LARK: "a Lark grammar",
    constants.GRAMMAR_GBNF: "a GBNF grammar",
}
_BREAKERS = ["\n", ":", '"', "*"]

# Of each option: whether a number is in its range, and the range in words. All must be finite.
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda own: own >= 0, "at least 0"),
    "top_p": (lambda own: 0 < own <= 1, "above 0 and at most 1"),
    "min_p": (lambda own: 0 <= own <= 1, "0 to 1"),
    "typical_p": (lambda own: 0 < own <= 1, "above 0 and at most 1"),
    "top_k": (lambda own: own >= 0, "at least 0"),
    "xtc_probability": (lambda own: 0 <= own <= 1, "0 to 1"),
    "repetition_penalty": (lambda own: own > 0, "above 0"),
    "presence_penalty": (lambda own: True, "a number"),
    "frequency_penalty": (lambda own: True, "a number"),
    "dry_multiplier": (lambda own: own >= 0, "at least 0"),
    "dry_base": (lambda own: own >= 1, "at least 1"),
    "dry_allowed_length": (lambda own: own >= 1, "at least 1"),
    "dry_penalty_last_n": (lambda own: own == -1 or own >= 1, "at least 1, or -1"),
    "top_n_sigma": (lambda own: own >= 0, "at least 0"),
    "dynatemp_range": (lambda own: own >= 0, "at least 0"),
    "dynatemp_exponent": (lambda own: own > 0, "above 0"),
    "mirostat": (lambda own: own in (0, 2), "0 or 2: version 1 is not there"),
    "mirostat_tau": (lambda own: own > 0, "above 0"),
    "mirostat_eta": (lambda own: 0 < own <= 1, "above 0 and at most 1"),
    "logprobs": (lambda own: own >= 0, "at least 0"),
    "thinking_tokens": (lambda own: own >= -1, "at least 0, or -1"),
    "draft_heads": (lambda own: own in (0, 1), "0 or 1"),
    "draft_tokens": (lambda own: 0 <= own <= MAX_DRAFT_TOKENS, f"0 to {MAX_DRAFT_TOKENS}"),
}
# Options that a greedy generation must leave off, where another value would be ignored.
_BEST_DROPPED = "{} with temperature 0: the best token may be the one that it drops"
_BEST_TAKEN = "{} with temperature 0: the best token is taken"
_NOT_GREEDY = {
    "typical_p": (1, _BEST_DROPPED),
    "xtc_probability": (0, _BEST_DROPPED),
    "dynatemp_range": (0, _BEST_TAKEN),
    "mirostat": (0, _BEST_TAKEN),
}
# Options that mirostat must leave off: all others that drop tokens, and drafts.
_NOT_WITH_MIROSTAT = {
    row.option: row.off for row in SAMPLERS if row.name not in ("temperature", "mirostat")
} | {"draft": 0, "draft_tokens": 0, "draft_heads": 0}


class GenerationParams:
    """The fields of ``cow_mlx_generation_params``, all of them valid by themselves.

    Attributes:
        bias: added to the logits, by token.
        draft: the handle of the draft model, or 0.
        draft_tokens: how many tokens are drafted at a time; 0: none.
        timeout: seconds, infinity for none.

    Raises:
        InvalidArgument: a value is out of range, or options exclude each other.
    """

    max_tokens: int
    temperature: float
    min_p: float
    seed: int
    repetition_penalty: float
    repetition_window: int
    presence_penalty: float
    presence_window: int
    frequency_penalty: float
    frequency_window: int
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: list[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    dynatemp_range: float
    dynatemp_exponent: float
    stop: list[str]
    grammar: str | None
    grammar_kind: int
    grammar_triggers: list[str]
    logprobs: int
    draft: int
    draft_tokens: int
    draft_heads: int
    thinking_tokens: int
    thinking_end_text: str | None

    def __init__(self, fields: dict[str, Any]) -> None:
        vars(self).update(fields)
        self.bias = _bias(fields["bias_tokens"], fields["bias_values"])
        if fields["dry_sequence_breakers"] is None:
            self.dry_sequence_breakers = _BREAKERS
        for name, (is_good, accepted) in _RANGES.items():
            self._check(name, is_good(getattr(self, name)), accepted)
        self._check_sampling()
        self._check_breakers()
        self._check_output()
        if self.draft and self.draft_heads:
            raise InvalidArgument(
                "draft and draft_heads are given, but a draft comes from one of them",
                reason="conflict",
                argument="draft_heads",
                other="draft",
            )
        if not self.draft_tokens:
            self.draft_tokens = (
                DEFAULT_DRAFT_TOKENS if self.draft else HEAD_TOKENS * self.draft_heads
            )
        timeout = fields["timeout"]
        if not 0 <= timeout < math.inf:
            raise OutOfRange("timeout", timeout, "at least 0 seconds, and finite")
        self.timeout: float = timeout or math.inf

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled; False: the best one is taken."""
        return self.temperature > 0

    def _check_sampling(self) -> None:
        """Check the options that depend on others."""
        if self.xtc_probability > 0:
            self._check("xtc_threshold", 0 < self.xtc_threshold <= 0.5, "above 0 and at most 0.5")
        else:
            self._check("xtc_threshold", self.xtc_threshold == 0, "0 without xtc_probability")
        if not self.samples:
            for name, (off, accepted) in _NOT_GREEDY.items():
                self._check(name, getattr(self, name) == off, accepted.format(off))
        for name, unset in (("repetition", 1), ("presence", 0), ("frequency", 0)):
            if getattr(self, f"{name}_penalty") != unset:
                window = f"{name}_window"
                self._check(window, getattr(self, window) > 0, "at least 1")
        for token, value in self.bias.items():
            if math.isnan(value) or value == math.inf:
                accepted = "a number or -infinity"
                raise InvalidArgument(
                    f"bias_values has {value:g} for token {token}, must be {accepted}",
                    argument="bias_values",
                    value=value,
                    accepted=accepted,
                )
        if not self.mirostat:
            return
        for name, value in _NOT_WITH_MIROSTAT.items():
            if getattr(self, name) != value:
                raise Unsupported(
                    f"mirostat and {name} exclude each other: mirostat alone says which tokens are "
                    "left, for its next sample depends on the last",
                    reason="conflict",
                    argument="mirostat",
                    other=name,
                )

    def _check_breakers(self) -> None:
        name = "dry_sequence_breaker"
        _check_texts(name, self.dry_sequence_breakers, MAX_BREAKERS, MAX_BREAKER_BYTES)

    def _check_output(self) -> None:
        _check_texts("stop", self.stop, MAX_STOPS, MAX_STOP_BYTES)
        self._check_triggers()
        check_thinking_end(self.thinking_end_text)
        if self.grammar is None:
            self._check("grammar_kind", self.grammar_kind == 0, "0 where grammar is NULL")
        else:
            known = ", ".join(f"{kind} ({noun})" for kind, noun in _GRAMMARS.items())
            self._check("grammar_kind", self.grammar_kind in _GRAMMARS, f"one of {known}")

    def _check_triggers(self) -> None:
        _check_texts("grammar_trigger", self.grammar_triggers, MAX_TRIGGERS, MAX_TRIGGER_BYTES)
        if self.grammar_triggers and self.grammar is None:
            raise InvalidArgument(
                "grammar_triggers is given, but grammar is NULL, so that nothing would begin",
                reason="conflict",
                argument="grammar_triggers",
                other="grammar",
            )

    def _check(self, name: str, good: bool, accepted: str) -> None:
        value = getattr(self, name)
        if not good or not math.isfinite(value):
            if good:  # in range, so the range alone would not say what is wrong
                accepted += ", and finite"
            raise OutOfRange(name, value, accepted)


def _check_texts(noun: str, texts: list[str], most: int, most_bytes: int) -> None:
    if len(texts) > most:
        raise OutOfRange(f"{noun}_count", len(texts), f"at most {most}")
    name = noun if noun == "stop" else f"{noun}s"
    for index, text in enumerate(texts):
        if not text:
            raise InvalidArgument(
                f"{name}[{index}] is empty; it must be a text",
                reason="missing",
                argument=f"{name}[{index}]",
            )
    for index, size in enumerate(len(text.encode()) for text in texts):
        if size > most_bytes:
            raise OutOfRange(f"{name}[{index}]", size, f"at most {most_bytes} bytes")


def check_thinking_end(text: str | None) -> None:
    """Raise InvalidArgument if the text that closes thinking is empty, or too long."""
    if text == "":
        raise InvalidArgument(
            "thinking_end_text is empty; it must be a text, or NULL for the model's marker",
            reason="missing",
            argument="thinking_end_text",
        )
    size = len((text or "").encode())
    if size > MAX_THINKING_END_BYTES:
        accepted = f"at most {MAX_THINKING_END_BYTES} bytes"
        raise OutOfRange("thinking_end_text", size, accepted)


def _bias(tokens: list[int], values: list[float]) -> dict[int, float]:
    """Return the bias by token; the model knows later which tokens exist."""
    bias = dict(zip(tokens, values, strict=True))
    if len(bias) < len(tokens):
        raise InvalidArgument("bias_tokens names a token twice", argument="bias_tokens")
    return bias


class ContextParams:
    """The fields of ``cow_mlx_context_params``, all of them valid.

    Raises:
        InvalidArgument: a value is out of range.
        Unsupported: an option that the model cannot honour.
    """

    def __init__(self, fields: dict[str, Any], model: Model) -> None:
        self.max_tokens: int = fields["max_tokens"] or model.context_length
        if self.max_tokens > model.context_length:
            raise InvalidArgument(
                f"max_tokens is {self.max_tokens}, but the model's context length is "
                f"{model.context_length}; 0 stands for all of it",
                argument="max_tokens",
                value=self.max_tokens,
                accepted=f"{model.context_length}",
            )
        self.solo: bool = fields["solo"]
        self.priority: int = fields["priority"]
        self.share_prefix: bool = fields["share_prefix"]
        self.overflow: int = fields["overflow"]
        self.keep_tokens: int = fields["keep_tokens"]
        if self.overflow not in OVERFLOWS:
            known = " or ".join(f"{value} ({name})" for value, name in OVERFLOWS.items())
            raise OutOfRange("overflow", self.overflow, known)
        self.rolling: RollingWindow | None = None
        if self.overflow == constants.OVERFLOW_ROLL:
            if self.keep_tokens >= self.max_tokens:
                raise OutOfRange("keep_tokens", self.keep_tokens, f"less than {self.max_tokens}")
            self.rolling = RollingWindow(self.max_tokens, self.keep_tokens)
        elif self.keep_tokens:
            raise InvalidArgument(
                f"keep_tokens is {self.keep_tokens}, but nothing is dropped where overflow is "
                f"{constants.OVERFLOW_STOP}; leave it at 0",
                reason="conflict",
                argument="keep_tokens",
                other="overflow",
            )
        self.checkpoint_interval: int = fields["checkpoint_interval"]
        if 0 < self.checkpoint_interval < WORTHWHILE:
            accepted = f"0, or {WORTHWHILE} tokens or more"
            raise OutOfRange("checkpoint_interval", self.checkpoint_interval, accepted)
        self.kv = KVQuantization(model, fields["kv_bits"], fields["kv_group_size"])


UNBOUNDED = 1024
"""Tokens that are expected of a generation whose max_tokens the context cannot hold."""


def expected_tokens(prompt: int, params: GenerationParams, context: ContextParams) -> int:
    """Return how many tokens a context may hold at the end of a generation, for estimates.

    Args:
        prompt: tokens.
        params: of the generation.
        context: the parameters of the context.
    """
    more = params.max_tokens
    if prompt + more > context.max_tokens and context.rolling is None:
        more = min(more, UNBOUNDED)
    return min(prompt + more, context.max_tokens)


def check_begin(
    prompt: list[int], params: GenerationParams, context: ContextParams, model: Model
) -> None:
    """Refuse a prompt, or an option, that a context cannot begin with.

    Args:
        prompt: all tokens.
        params: of the generation.
        context: the parameters of the context.
        model: with the adapter that the context uses.

    Raises:
        InvalidArgument: no tokens, or one outside the vocabulary, or an option.
        ContextFull: the prompt does not fit.
    """
    size = model.vocabulary_size
    check_tokens(prompt, model)
    for token in params.bias:
        if not 0 <= token < size:
            raise _unknown_token("bias_tokens", "has", token, size)
    forbidden = sum(value == -math.inf for value in params.bias.values())
    if forbidden == size:
        raise InvalidArgument(
            f"bias_values forbids all {size} tokens of the vocabulary; one at least must stay",
            argument="bias_values",
        )
    if params.logprobs > size:
        raise InvalidArgument(
            f"logprobs is {params.logprobs}, but the vocabulary has {size} tokens",
            argument="logprobs",
            value=params.logprobs,
        )
    if context.rolling is None and len(prompt) > context.max_tokens:
        raise ContextFull(
            f"the prompt has {len(prompt)} tokens, but this context holds {context.max_tokens}",
            needed=len(prompt),
            available=context.max_tokens,
        )


def check_tokens(tokens: list[int], model: Model) -> None:
    """Check a prompt.

    Raises:
        InvalidArgument: it has no tokens, or one outside the vocabulary.
    """
    if not tokens:
        raise InvalidArgument(
            "count is 0; a prompt has at least one token", reason="missing", argument="count"
        )
    size = model.vocabulary_size
    for position, token in enumerate(tokens):
        if not 0 <= token < size and not isinstance(token, EmbeddedRow):
            raise _unknown_token(f"tokens[{position}]", "is", token, size)


def _unknown_token(name: str, verb: str, token: int, size: int) -> InvalidArgument:
    return InvalidArgument(
        f"{name} {verb} {token}, but the vocabulary has 0 to {size - 1}",
        argument=name,
        value=token,
        accepted=f"0 to {size - 1}",
    )


def constraint_of(
    params: GenerationParams, model: Model, given: Constrains | None, prompt: list[int]
) -> Constrains | None:
    """Return the constraint on the output: ``given``, or that of ``params``, or None.

    Args:
        params: of the generation.
        model: that generates.
        given: a chat's.
        prompt: it may have opened the model's thinking.

    Raises:
        InvalidArgument: the grammar is malformed.
        Unsupported: it excludes another option, or the model's tokens do not stand for bytes.
    """
    bounded = params.thinking_tokens >= 0 or params.thinking_end_text is not None
    if given is not None or (params.grammar is None and not bounded):
        return given
    lazy: Constrains | None = None
    if params.grammar_triggers:
        from cowmlx.generation import triggers  # late: few generations need it

        lazy = triggers.Triggered(model, triggers.of_params(model, params))
    elif params.grammar is not None:
        from cowmlx.generation.grammar import Constraint  # late: likewise

        if bounded:
            raise Unsupported(
                "grammar and thinking_tokens exclude each other here, for the grammar begins with "
                "the first token; in a chat it begins behind the thinking",
                reason="conflict",
                argument="grammar",
                other="thinking_tokens",
            )
        return Constraint.of(model, params.grammar, params.grammar_kind)
    if not bounded:
        return lazy
    from cowmlx.generation import budget  # late: likewise

    tail = model.chat_format.open_tail(prompt, model.end_tokens)
    return budget.bounded(model, params, lazy, inside=tail is not None and tail[0])
