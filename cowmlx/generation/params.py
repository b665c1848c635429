"""The options of contexts and generations, checked."""

from __future__ import annotations

import math

from cowmlx.cache.layers import KVQuantization
from cowmlx.errors import ContextFull, InvalidArgument, OutOfRange, Unsupported
from cowmlx.generated import constants
from cowmlx.generation.prompt import RollingWindow
from cowmlx.generation.sampling.filters import SAMPLERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.generation.sampling.sampler import Constrains
    from cowmlx.models.model import Model


MAX_DRAFT_TOKENS = 64
DEFAULT_DRAFT_TOKENS = 4  # with a draft model

_GRAMMARS = {
    constants.GRAMMAR_JSON_SCHEMA: "a JSON schema",
    constants.GRAMMAR_REGEX: "a regex",
    constants.GRAMMAR_LARK: "a Lark grammar",
    constants.GRAMMAR_GBNF: "a GBNF grammar",
}

MAX_STOPS = 4096
MAX_BREAKERS = 256
MAX_BREAKER_BYTES = 256

_BREAKERS = ["\n", ":", '"', "*"]
# What is off where mirostat is on: everything else that drops tokens, and drafts.
_NOT_WITH_MIROSTAT = {
    row.option: row.off for row in SAMPLERS if row.name not in ("temperature", "mirostat")
} | {"draft": 0, "draft_tokens": 0}


class GenerationParams:
    """What ``cow_mlx_generation_params`` says, all of it valid by itself.

    Attributes:
        bias: what is added to a token's logit, by token.
        draft: the handle of the draft model, or 0.
        draft_tokens: how many tokens are drafted at a time; 0: none.
        timeout: seconds, infinity for none.

    Raises:
        InvalidArgument: a value is out of range, or options exclude each other.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        self.max_tokens: int = fields["max_tokens"]
        self.temperature: float = fields["temperature"]
        self.top_p: float = fields["top_p"]
        self.min_p: float = fields["min_p"]
        self.typical_p: float = fields["typical_p"]
        self.top_k: int = fields["top_k"]
        self.xtc_probability: float = fields["xtc_probability"]
        self.xtc_threshold: float = fields["xtc_threshold"]
        self.repetition_penalty: float = fields["repetition_penalty"]
        self.repetition_window: int = fields["repetition_window"]
        self.presence_penalty: float = fields["presence_penalty"]
        self.presence_window: int = fields["presence_window"]
        self.frequency_penalty: float = fields["frequency_penalty"]
        self.frequency_window: int = fields["frequency_window"]
        self.seed: int = fields["seed"]
        self.bias: dict[int, float] = _bias(fields["bias_tokens"], fields["bias_values"])
        self.stop: list[str] = fields["stop"]
        self.grammar: str | None = fields["grammar"]
        self.grammar_kind: int = fields["grammar_kind"]
        self.logprobs: int = fields["logprobs"]
        self.draft: int = fields["draft"]
        self.draft_tokens: int = fields["draft_tokens"]
        self.timeout: float = fields["timeout"] or math.inf
        self.dry_multiplier: float = fields["dry_multiplier"]
        self.dry_base: float = fields["dry_base"]
        self.dry_allowed_length: int = fields["dry_allowed_length"]
        self.dry_penalty_last_n: int = fields["dry_penalty_last_n"]
        breakers: list[str] | None = fields["dry_sequence_breakers"]
        self.dry_sequence_breakers = _BREAKERS if breakers is None else breakers
        self.top_n_sigma: float = fields["top_n_sigma"]
        self.mirostat: int = fields["mirostat"]
        self.mirostat_tau: float = fields["mirostat_tau"]
        self.mirostat_eta: float = fields["mirostat_eta"]
        self.dynatemp_range: float = fields["dynatemp_range"]
        self.dynatemp_exponent: float = fields["dynatemp_exponent"]
        self._check_sampling()
        self._check_dry()
        self._check_temperature()
        self._check_output(fields["timeout"])

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled; False: the best one is taken."""
        return self.temperature > 0

    def _check_sampling(self) -> None:
        self._check("temperature", self.temperature >= 0, "at least 0")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        self._check("min_p", 0 <= self.min_p <= 1, "0 to 1")
        self._check("typical_p", 0 < self.typical_p <= 1, "above 0 and at most 1")
        self._check("top_k", self.top_k >= 0, "at least 0")
        self._check("xtc_probability", 0 <= self.xtc_probability <= 1, "0 to 1")
        if self.xtc_probability > 0:
            self._check("xtc_threshold", 0 < self.xtc_threshold <= 0.5, "above 0 and at most 0.5")
        else:
            self._check("xtc_threshold", self.xtc_threshold == 0, "0 without xtc_probability")
        if not self.samples:
            greedy = "{} with temperature 0: the best token may be the one that it drops"
            self._check("typical_p", self.typical_p == 1, greedy.format("1"))
            self._check("xtc_probability", self.xtc_probability == 0, greedy.format("0"))
        self._check("repetition_penalty", self.repetition_penalty > 0, "above 0")
        self._check("presence_penalty", True, "a number")
        self._check("frequency_penalty", True, "a number")
        for name, off in (("repetition", 1), ("presence", 0), ("frequency", 0)):
            if getattr(self, f"{name}_penalty") != off:
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

    def _check_dry(self) -> None:
        self._check("dry_multiplier", self.dry_multiplier >= 0, "at least 0")
        self._check("dry_base", self.dry_base >= 1, "at least 1")
        self._check("dry_allowed_length", self.dry_allowed_length >= 1, "at least 1")
        last_n = self.dry_penalty_last_n
        self._check("dry_penalty_last_n", last_n == -1 or last_n >= 1, "at least 1, or -1")
        count = len(self.dry_sequence_breakers)
        if count > MAX_BREAKERS:
            raise OutOfRange("dry_sequence_breaker_count", count, f"at most {MAX_BREAKERS}")
        _check_texts("dry_sequence_breakers", self.dry_sequence_breakers)
        for index, text in enumerate(self.dry_sequence_breakers):
            size = len(text.encode())
            if size > MAX_BREAKER_BYTES:
                accepted = f"at most {MAX_BREAKER_BYTES} bytes"
                raise OutOfRange(f"dry_sequence_breakers[{index}]", size, accepted)

    def _check_temperature(self) -> None:
        """What makes the temperature, or a bound of surprise, of a sample."""
        self._check("top_n_sigma", self.top_n_sigma >= 0, "at least 0")
        self._check("dynatemp_range", self.dynatemp_range >= 0, "at least 0")
        self._check("dynatemp_exponent", self.dynatemp_exponent > 0, "above 0")
        self._check("mirostat", self.mirostat in (0, 2), "0 or 2: version 1 is not there")
        self._check("mirostat_tau", self.mirostat_tau > 0, "above 0")
        self._check("mirostat_eta", 0 < self.mirostat_eta <= 1, "above 0 and at most 1")
        if not self.samples:
            greedy = "0 with temperature 0: the best token is taken"
            self._check("dynatemp_range", self.dynatemp_range == 0, greedy)
            self._check("mirostat", self.mirostat == 0, greedy)
        if not self.mirostat:
            return
        for name, off in _NOT_WITH_MIROSTAT.items():
            if getattr(self, name) != off:
                raise Unsupported(
                    f"mirostat and {name} exclude each other: mirostat alone says which tokens are "
                    "left, for its next sample depends on the last",
                    reason="conflict",
                    argument="mirostat",
                    other=name,
                )

    def _check_output(self, timeout: float) -> None:
        if len(self.stop) > MAX_STOPS:
            raise OutOfRange("stop_count", len(self.stop), f"at most {MAX_STOPS}")
        _check_texts("stop", self.stop)
        if self.grammar is None:
            self._check("grammar_kind", self.grammar_kind == 0, "0 where grammar is NULL")
        else:
            known = ", ".join(f"{kind} ({what})" for kind, what in _GRAMMARS.items())
            self._check("grammar_kind", self.grammar_kind in _GRAMMARS, f"one of {known}")
        self._check("logprobs", self.logprobs >= 0, "at least 0")
        self._check(
            "draft_tokens", 0 <= self.draft_tokens <= MAX_DRAFT_TOKENS, f"0 to {MAX_DRAFT_TOKENS}"
        )
        if self.draft and not self.draft_tokens:
            self.draft_tokens = DEFAULT_DRAFT_TOKENS
        if not 0 <= timeout < math.inf:
            raise OutOfRange("timeout", timeout, "at least 0 seconds, and finite")

    def _check(self, name: str, good: bool, accepted: str) -> None:
        value = getattr(self, name)
        if not good or not math.isfinite(value):
            if good:  # in range, so that alone would not say what is wrong
                accepted += ", and finite"
            raise OutOfRange(name, value, accepted)


def _check_texts(name: str, texts: list[str]) -> None:
    for index, text in enumerate(texts):
        if not text:
            raise InvalidArgument(
                f"{name}[{index}] is empty; it must be a text",
                reason="missing",
                argument=f"{name}[{index}]",
            )


def _bias(tokens: list[int], values: list[float]) -> dict[int, float]:
    """Return the bias by token; which tokens exist, the model knows."""
    bias = dict(zip(tokens, values, strict=True))
    if len(bias) < len(tokens):
        raise InvalidArgument("bias_tokens names a token twice", argument="bias_tokens")
    return bias


OVERFLOWS = {constants.OVERFLOW_STOP: "stop", constants.OVERFLOW_ROLL: "roll"}


class ContextParams:
    """What ``cow_mlx_context_params`` says, all of it valid.

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
        self.kv = KVQuantization(model, fields["kv_bits"], fields["kv_group_size"])


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
    if not prompt:
        raise InvalidArgument(
            "count is 0; a prompt has at least one token", reason="missing", argument="count"
        )
    for position, token in enumerate(prompt):
        if not 0 <= token < size:
            raise InvalidArgument(
                f"tokens[{position}] is {token}, but the vocabulary has 0 to {size - 1}",
                argument=f"tokens[{position}]",
                value=token,
                accepted=f"0 to {size - 1}",
            )
    for token in params.bias:
        if not 0 <= token < size:
            raise InvalidArgument(
                f"bias_tokens has {token}, but the vocabulary has 0 to {size - 1}",
                argument="bias_tokens",
                value=token,
                accepted=f"0 to {size - 1}",
            )
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


def constraint_of(
    params: GenerationParams, model: Model, given: Constrains | None
) -> Constrains | None:
    """Return what the output must match: ``given``, or the grammar of ``params``, or None.

    Raises:
        InvalidArgument: the grammar is malformed.
        Unsupported: it excludes another option, or the model's tokens do not stand for bytes.
    """
    if params.grammar is None and given is None:
        return None
    from cowmlx.generation.grammar import Constraint  # late: few generations need it

    if params.draft_tokens:
        named = "grammar" if params.grammar is not None else "tool_choice"
        raise Unsupported(
            f"{named} and draft_tokens exclude each other: drafts are not checked against a "
            "grammar",
            reason="conflict",
            argument=named,
            other="draft_tokens",
        )
    if given is not None:
        return given
    assert params.grammar is not None
    return Constraint.of(model, params.grammar, params.grammar_kind)
