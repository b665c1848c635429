"""The markers of a model's thinking and tool calls, as mlx-lm infers them from its files."""

from __future__ import annotations

from cowmlx import failures
from cowmlx.errors import Unsupported
from cowmlx.models import call_elements
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

    from cowmlx.text.tokenizer import Tokenizer

# Characters of a call, from where it may nest deeper than Python's parser can, which raises
# MemoryError then.
_MAY_OVERFLOW = 4096


class _Vocabulary:
    """The texts of a tokenizer's tokens, looked up one by one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self._tokenizer.token_id(text) is not None


def thinking(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return the markers around a model's thinking: start and end, as texts and tokens."""
    texts = thinking_texts(_Vocabulary(tokenizer))
    if texts is None:
        return None
    tokens = [tokenizer.encode(text, add_special=False, parse_special=True) for text in texts]
    return dict(zip(("start", "end", "start_tokens", "end_tokens"), (*texts, *tokens), strict=True))


def tool_parser(
    tokenizer: Tokenizer, templates: dict[str, str], settings: dict[str, Any]
) -> str | None:
    """Return the name of mlx-lm's parser for the tool calls of this model.

    Args:
        tokenizer: the model's.
        templates: the sources of its chat templates, by name; one of several tells nothing.
        settings: ``tokenizer_config.json`` with the architecture's defaults; may name it.
    """
    named = settings.get("tool_parser_type")
    if named is not None:
        return str(named)
    source = templates["default"] if list(templates) == ["default"] else None
    return parser_for(_Vocabulary(tokenizer), source)


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


class ChatFormat:
    """The texts that structure a model's answers, and how its tool calls are read.

    Attributes:
        think_start, think_end: around its thinking; "" if it marks none.
        tool_start, tool_end: around its tool calls; "" if there is no parser, the end also if a
            call lasts to the end of the answer.
        parser: the name of the parser of its tool calls, or None.
    """

    def __init__(self, tokenizer: Tokenizer, parser: str | None) -> None:
        marks = thinking(tokenizer)
        self.think_start: str = marks["start"] if marks is not None else ""
        self.think_end: str = marks["end"] if marks is not None else ""
        self._think_tokens: tuple[list[int], list[int]] | None = (
            (marks["start_tokens"], marks["end_tokens"]) if marks is not None else None
        )
        around = tool_markers(parser)
        self.tool_start = around["start"] if around is not None else ""
        self.tool_end = around["end"] if around is not None else ""
        self.parser = parser
        structural = structural_texts(_Vocabulary(tokenizer))
        markers = (self.think_start, self.think_end, self.tool_start, *structural)
        self._markers = [marker for marker in markers if marker]

    @property
    def texts(self) -> list[str]:
        """All markers, those that end tool calls included."""
        return [*self._markers, self.tool_end] if self.tool_end else self._markers

    @property
    def plain(self) -> bool:
        """Whether there are no markers."""
        return not self._markers

    def first(self, text: str) -> tuple[int, str] | None:
        """Return where the first marker is in a text, and which."""
        places = [(at, marker) for marker in self._markers if (at := text.find(marker)) >= 0]
        return min(places) if places else None

    def overlap(self, text: str) -> int:
        """Return the length of the longest end of a text that may begin a marker."""
        longest = max(map(len, self._markers), default=1) - 1
        for length in range(min(len(text), longest), 0, -1):
            if any(marker.startswith(text[-length:]) for marker in self._markers):
                return length
        return 0

    def open_tail(self, tokens: list[int], ends: frozenset[int]) -> tuple[bool, list[int]] | None:
        """Find the last marker of thinking in the turn that a prompt leaves open.

        Returns:
            whether it is the one that starts thinking, and the tokens behind it; None if there
            is none.
        """
        if self._think_tokens is None:
            return None
        for at in range(len(tokens) - 1, -1, -1):
            if tokens[at] in ends:  # of an earlier turn
                return None
            for marker in self._think_tokens:
                if tokens[at : at + len(marker)] == marker:
                    return marker is self._think_tokens[0], tokens[at + len(marker) :]
        return None

    @property
    def think_start_tokens(self) -> list[int]:
        """The tokens that start the model's thinking; none if it marks none."""
        return self._think_tokens[0] if self._think_tokens is not None else []

    @property
    def think_end_tokens(self) -> list[int]:
        """The tokens that end the model's thinking; none if it marks none."""
        return self._think_tokens[1] if self._think_tokens is not None else []

    def without_thinking(
        self, prompt: list[int], ends: frozenset[int], tokenizer: Tokenizer, *, asked: bool
    ) -> list[int]:
        """Return a prompt behind which the model answers at once.

        Args:
            prompt: it ends where the answer begins.
            ends: the tokens that end a turn.
            tokenizer: the model's.
            asked: whether the template knows that there shall be no thinking. If not, a prompt
                without any gets an empty one, as templates that know write it.
        """
        if self._think_tokens is None:
            return prompt
        start, end = self._think_tokens
        tail = self.open_tail(prompt, ends)
        if (tail is None and asked) or (tail is not None and not tail[0]):
            return prompt
        blank = tokenizer.encode_inner("\n\n", parse_special=False)
        if tail is None:
            return [*prompt, *start, *blank, *end, *blank]
        rest = tail[1]
        if not tokenizer.decode(rest, skip_special=False).strip():
            prompt = [*prompt[: len(prompt) - len(rest)], *blank]
        return [*prompt, *end, *blank]

    def parse(self, text: str, tools: list[Any] | None) -> list[tuple[str, str]] | None:
        """Read what stands between the markers of a tool call.

        Returns:
            names and arguments, these as JSON objects; None if the text is no call. Parsers are
            not made for that: they may raise any exception then.

        Raises:
            OutOfMemory: there is no memory to read it.
        """
        try:
            module = light_route.import_module(f"tool_parsers.{self.parser}")
            text = call_elements.escaped(self.parser, text)
            calls = _listed(module.parse_tool_call(text, tools))
            # Without tools parsers convert no text that they would convert to a number.
            call_elements.exact(
                self.parser, calls, lambda: _listed(module.parse_tool_call(text, None))
            )
            return [_call(call) for call in calls] or None
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if len(text) < _MAY_OVERFLOW:
                failures.reraise_shortage(error)
            return None


def _listed(parsed: Any) -> list[Any]:
    return parsed if isinstance(parsed, list) else [parsed]


def _call(call: dict[str, Any]) -> tuple[str, str]:
    """Return the name and the arguments of a parsed call.

    Raises:
        ValueError, TypeError, KeyError: it is none.
    """
    import json

    from cowmlx import json_text

    name, arguments = call["name"], call.get("arguments")
    if arguments is None:
        arguments = call.get("parameters")  # as Llama 3 writes them
    if isinstance(arguments, str):
        arguments = json_text.parse(arguments)
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError("no name")
    if not isinstance(arguments, dict | None):
        raise ValueError("no arguments")
    text = json.dumps(arguments or {}, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell
        text = json.dumps(arguments, allow_nan=False)
    return name, text


# Around thinking, where each is one token; the first pair that the vocabulary has.
_THINKING = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
)
# Parsers of tool calls, and the texts by which a template shows that it writes for one: all of one
# group. The first that fits decides.
_PARSERS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("minimax_m2", (("<minimax:tool_call>",),)),
    ("gemma4", (("<|tool_call>", "<tool_call|>"),)),
    ("function_gemma", (("<start_function_call>",),)),
    ("longcat", (("<longcat_tool_call>",),)),
    ("glm47", (("<arg_key>",),)),
    ("pythonic", (("<|tool_list_start|>",), ("<|tool_call_start|>",))),
    ("qwen3_coder", (("<tool_call>\\n<function=",), ("<tool_call>\n<function=",))),
    ("kimi_k2", (("<|tool_calls_section_begin|>",),)),
    ("minicpm5", (('<function name="', '<param name="'),)),
    ("mistral", (("[TOOL_CALLS]",),)),
    ("muse_spark", (("<atem:function_calls>",),)),
    ("json_tools", (("<tool_call>", "tool_call.name"),)),
)
# The tokens of messages made of tags: <|open|>NAME<|sep|>, text, <|close|>NAME<|sep|>.
_TAGS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")


def thinking_texts(vocabulary: Container[str]) -> tuple[str, str] | None:
    """Return the texts before and behind a model's thinking, if its vocabulary has some."""
    for start, end in _THINKING:
        if start in vocabulary and end in vocabulary:
            return start, end
    if "<|channel>" in vocabulary and "<channel|>" in vocabulary:
        return "<|channel>thought", "<channel|>"
    if _has_tags(vocabulary):
        return "<|open|>think<|sep|>", "<|close|>think<|sep|>"
    return None


def parser_for(vocabulary: Container[str], template: str | None) -> str | None:
    """Return the name of mlx-lm's parser of a model's tool calls, or None.

    Args:
        vocabulary: the texts of its tokens.
        template: the source of its only chat template; None if it has several or none.
    """
    if template is not None:
        for parser, groups in _PARSERS:
            if any(all(text in template for text in group) for group in groups):
                return parser
    if _has_tags(vocabulary):
        return "kimi_k3"
    if "<|tool_call_start|>" in vocabulary and "<|tool_call_end|>" in vocabulary:
        return "pythonic"
    return None


def structural_texts(vocabulary: Container[str]) -> tuple[str, ...]:
    """Return texts that stand around an answer and are no part of it."""
    if _has_tags(vocabulary):
        return "<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"
    return ()


def _has_tags(vocabulary: Container[str]) -> bool:
    return all(tag in vocabulary for tag in _TAGS)
