"""What is checked before a generation begins."""

from __future__ import annotations

import math

from cowmlx.errors import ContextFull, InvalidArgument, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.context_params import ContextParams
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.sampling.inputs import Constrains
    from cowmlx.models.model import Model


def check(
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


def constraint(
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
            f"{named} and draft_tokens exclude each other: guesses are not checked against a "
            "grammar",
            reason="conflict",
            argument=named,
            other="draft_tokens",
        )
    if given is not None:
        return given
    assert params.grammar is not None
    return Constraint.of(model, params.grammar, params.grammar_kind)
