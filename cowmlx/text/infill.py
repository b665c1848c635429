"""Prompts for models that fill in the middle: the text between a prefix and a suffix."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.errors import Unsupported
from cowmlx.text.marks import encode_marked, marked, pattern_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from cowmlx.text.tokenizer import Tokenizer


class Markers(NamedTuple):
    """The texts of the tokens that structure such a prompt.

    Attributes:
        prefix: stands before the prefix.
        suffix: before the suffix.
        middle: before the answer; None if nothing does, and the prefix comes last.
    """

    prefix: str
    suffix: str
    middle: str | None


_KNOWN = (
    Markers("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    Markers("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite, Refact
    Markers("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    Markers(
        "<\uff5cfim▁begin\uff5c>", "<\uff5cfim▁hole\uff5c>", "<\uff5cfim▁end\uff5c>"
    ),  # DeepSeek
    Markers("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    Markers("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # CodeGeeX, GLM
    Markers("[PREFIX]", "[SUFFIX]", None),  # Codestral
)


def markers_of(tokenizer: Tokenizer) -> Markers | None:
    """Return the markers that a tokenizer has as tokens; None without."""
    for known in _KNOWN:
        if all(text is None or tokenizer.token_id(text) is not None for text in known):
            return known
    return None


def prompt_steps(
    tokenizer: Tokenizer, prefix: str, suffix: str
) -> Generator[None, None, list[int]]:
    """Return the prompt behind which the middle is generated, yielding between parts of long texts.

    Text of special tokens inside prefix and suffix stays plain text.

    Raises:
        Unsupported: the tokenizer has no tokens for this.
        InvalidArgument: a text has a piece that is too long to be tokenized.
    """
    markers = markers_of(tokenizer)
    if markers is None:
        raise Unsupported(
            "this model has no tokens for infill, such as <|fim_prefix|>; models of code have them",
            argument="model",
        )
    # Some tokenizers have these tokens, and others of a repository, without calling them special.
    special = [
        text
        for index, text in tokenizer.added.items()
        if index in tokenizer.special_ids or (text.startswith("<|") and text.endswith("|>"))
    ]
    pattern = pattern_of([text for text in {*special, *markers} if text])
    assert pattern is not None
    before = [_id(tokenizer, markers.prefix)]
    before += yield from encode_marked(tokenizer, marked(prefix, pattern), inner=True)
    behind = [_id(tokenizer, markers.suffix)]
    behind += yield from encode_marked(tokenizer, marked(suffix, pattern), inner=True)
    begin = tokenizer.encode("", add_special=True, parse_special=False)
    start = begin[:1] if begin[:1] == [tokenizer.bos_token_id] else []
    if markers.middle is None:
        return [*start, *behind, *before]
    return [*start, *before, *behind, _id(tokenizer, markers.middle)]


def _id(tokenizer: Tokenizer, text: str) -> int:
    token = tokenizer.token_id(text)
    assert token is not None
    return token
