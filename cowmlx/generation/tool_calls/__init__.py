"""Grammars of tool calls, in the notation that each of mlx-lm's parsers reads."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generation import grammar_bounds as bounds
from cowmlx.generation.tool_calls import forms
from cowmlx.generation.tool_calls.writer import MAX_NAME, CallWriter, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cowmlx.models.model import Model

# Writers of calls by the name of the parser; of one call alone if the last argument is true.
FORMS: dict[str, Callable[[CallWriter, list[Tool], bool], str]] = {
    "function_gemma": forms.function_gemma,
    "gemma4": forms.gemma4,
    "glm47": forms.glm47,
    "json_tools": forms.json_tools,
    "kimi_k2": forms.kimi_k2,
    "kimi_k3": forms.kimi_k3,
    "laguna": forms.glm47,
    "longcat": forms.longcat,
    "minicpm5": forms.minicpm5,
    "minimax_m2": forms.minimax_m2,
    "mistral": forms.mistral,
    "muse_spark": forms.muse_spark,
    "pythonic": forms.pythonic,
    "qwen3_coder": forms.qwen3_coder,
}
# Parsers of models whose own calls take another form, which no grammar here describes.
REQUIRED_ONLY = frozenset(("kimi_k3",))


def lark_of_calls(model: Model, tools: list[Tool], *, once: bool) -> str:
    """Return a Lark grammar of calls in a model's own notation.

    Args:
        model: whose notation and tokens.
        tools: any of them.
        once: whether there is one call alone; otherwise there may be more.

    Raises:
        Unsupported: the notation is unknown, or cannot be held to the tools' schemas.
        InvalidArgument: a schema exceeds a bound.
    """
    format = model.chat_format
    form = FORMS.get(format.parser or "")
    if form is None or not format.tool_start:
        known = f"the tool-call format {format.parser!r}" if format.parser else "none that is known"
        raise Unsupported(
            f"tool_choice: calls can be required of models whose format is one of "
            f"{', '.join(sorted(FORMS))}; this model has {known}",
            argument="tool_choice",
        )
    for tool in tools:
        if len(tool.name) > MAX_NAME:
            raise InvalidArgument(
                f"a name has {len(tool.name)} characters; at most {MAX_NAME} are supported",
                reason="limit_exceeded",
                argument="name",
                needed=len(tool.name),
                limit=MAX_NAME,
            )
        bounds.check_schema(tool.parameters)
    writer = CallWriter(model, format)
    writer.rule(form(writer, tools, once), "start")
    return writer.grammar()
