"""What a tokenizer and its template tell about thinking and tools, as mlx-lm infers it.

The rules are mlx-lm's own functions, read out of its source: they need nothing of the packages
that their module imports.
"""

from __future__ import annotations

from cowmlx.errors import Unsupported
from cowmlx.models import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.models.tokenizer import Tokenizer

_FUNCTIONS = ("_infer_thinking", "_infer_tool_parser", "_is_xtml_vocab")


class _Vocabulary:
    """Looks tokens up by text without building the whole vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __contains__(self, text: str) -> bool:
        return self._tokenizer.token_id(text) is not None

    def __getitem__(self, text: str) -> int:
        found = self._tokenizer.token_id(text)
        if found is None:
            raise KeyError(text)
        return found


class _View:
    """A tokenizer as mlx-lm's rules ask for it."""

    def __init__(self, tokenizer: Tokenizer, chat_template: str | None) -> None:
        self._tokenizer = tokenizer
        self.chat_template = chat_template

    def get_vocab(self) -> _Vocabulary:
        return _Vocabulary(self._tokenizer)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._tokenizer.encode(text, add_special=add_special_tokens, parse_special=True)


def thinking(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return the markers around a model's thinking: start and end, as texts and tokens."""
    rule = light_route.functions("tokenizer_utils.py", _FUNCTIONS).get("_infer_thinking")
    if rule is None:
        return None
    start, end, start_tokens, end_tokens = rule(_View(tokenizer, None))
    if start is None:
        return None
    return {
        "start": start,
        "end": end,
        "start_tokens": list(start_tokens),
        "end_tokens": list(end_tokens),
    }


def tool_parser(
    tokenizer: Tokenizer, chat_template: str | None, settings: dict[str, Any]
) -> str | None:
    """Return the name of mlx-lm's parser for the tool calls of this model.

    Args:
        tokenizer: the model's.
        chat_template: the source of its only template; None if it has several or none.
        settings: ``tokenizer_config.json`` with the architecture's defaults; may name it.
    """
    named = settings.get("tool_parser_type")
    if named is not None:
        return str(named)
    rule = light_route.functions("tokenizer_utils.py", _FUNCTIONS).get("_infer_tool_parser")
    found = rule(_View(tokenizer, chat_template)) if rule is not None else None
    return None if found is None else str(found)


def tool_markers(parser: str | None) -> dict[str, str] | None:
    """Return the texts around a tool call, if the parser's module can be imported here."""
    if parser is None or not parser.isidentifier():
        return None
    try:
        module = light_route.import_module(f"tool_parsers.{parser}")
    except Unsupported:
        return None
    start, end = (getattr(module, f"tool_call_{side}", None) for side in ("start", "end"))
    if start is None:
        return None
    return {"start": str(start), "end": str(end or "")}
