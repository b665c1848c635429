"""Which texts structure a model's answers: mlx-lm's rules, for a vocabulary and a template.

mlx-lm's own functions stand in a module that imports transformers. Tests compare the rules for
every text that these look for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

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


def thinking(vocabulary: Container[str]) -> tuple[str, str] | None:
    """Return the texts before and behind a model's thinking, if its vocabulary has some."""
    for start, end in _THINKING:
        if start in vocabulary and end in vocabulary:
            return start, end
    if "<|channel>" in vocabulary and "<channel|>" in vocabulary:
        return "<|channel>thought", "<channel|>"
    if _has_tags(vocabulary):
        return "<|open|>think<|sep|>", "<|close|>think<|sep|>"
    return None


def tool_parser(vocabulary: Container[str], template: str | None) -> str | None:
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


def structural(vocabulary: Container[str]) -> tuple[str, ...]:
    """Return texts that stand around an answer and are no part of it."""
    if _has_tags(vocabulary):
        return "<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"
    return ()


def _has_tags(vocabulary: Container[str]) -> bool:
    return all(tag in vocabulary for tag in _TAGS)
