"""What a model reads to rank a document: a query, the document, and what stands around them."""

from __future__ import annotations

import re

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.text.marks import encode_marked, marked, pattern_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Protocol

    from cowmlx.text.tokenizer import Tokenizer

    class RankPrompt(Protocol):
        """Makes the tokens of a prompt in two parts, of which the first ends with the document.

        Attributes:
            front: how many tokens stand before a document.
            back: the tokens behind it.
        """

        front: int
        back: list[int]

        def head(self, document: str) -> Generator[None, None, list[int]]:
            """Return the tokens up to the end of a document, yielding between its parts."""


# Qwen3-Reranker's, and those of its size (arXiv 2506.05176): what the model was trained with.
_SPECIAL = ("<|im_start|>", "<|im_end|>")
_QWEN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_PLACES = re.compile(r"\{(instruction|query|document)\}")


class FilledPrompt:
    """A text with places. Special tokens are parsed in it, but not in what fills the places."""

    def __init__(
        self, tokenizer: Tokenizer, text: str, instruction: str | None, query: str
    ) -> None:
        self._tokenizer = tokenizer
        special = tokenizer.special_ids
        self._pattern = pattern_of(
            [own for at, own in tokenizer.added.items() if at in special or own.strip()]
        )
        filled = {"instruction": instruction or _INSTRUCTION, "query": query}
        places = _PLACES.findall(text)
        for name in ("query", "document"):
            if places.count(name) != 1:
                raise InvalidArgument(
                    f"prompt has {{{name}}} {places.count(name)} times; it must have "
                    f"{{{name}}} once",
                    argument="prompt",
                    value=places.count(name),
                    accepted=f"{{{name}}} once",
                )
        if instruction is not None and "instruction" not in places:
            raise InvalidArgument(
                "instruction is given, but prompt has no {instruction}",
                reason="conflict",
                argument="instruction",
                other="prompt",
            )
        before, _, behind = text.partition("{document}")
        self._before = self._filled(before, filled)
        self.front = len(_finished(encode_marked(tokenizer, self._before)))
        behind = self._filled(behind, filled)
        self.back = _finished(encode_marked(tokenizer, behind, inner=True)) if behind else []

    def _filled(self, text: str, values: dict[str, str]) -> str:
        return _PLACES.sub(lambda found: self._plain(values[found[1]]), text)

    def _plain(self, text: str) -> str:
        plain: str = text if self._pattern is None else marked(text, self._pattern)
        return plain

    def head(self, document: str) -> Generator[None, None, list[int]]:
        """Return the tokens up to the end of a document."""
        return (yield from encode_marked(self._tokenizer, self._before + self._plain(document)))


class PairPrompt:
    """A query and a document, with what the tokenizer puts around a pair of texts.

    Raises:
        Unsupported: that is not known of this tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, query: str) -> None:
        self._tokenizer = tokenizer
        frame = tokenizer.pair_frame
        if frame is None:
            raise Unsupported(
                "prompt is NULL, and what this model's tokenizer puts around a pair of texts is "
                "not known; give the prompt that it was trained with",
                argument="prompt",
            )
        before, between, self.back = frame
        query_tokens = _finished(
            tokenizer.encode_steps(query, add_special=False, parse_special=False)
        )
        self._before = [*before, *query_tokens, *between]
        self.front = len(self._before)

    def head(self, document: str) -> Generator[None, None, list[int]]:
        """Return the tokens up to the end of a document."""
        tokens = yield from self._tokenizer.encode_steps(
            document, add_special=False, parse_special=False
        )
        return [*self._before, *tokens]


def rank_prompt(
    tokenizer: Tokenizer, text: str | None, instruction: str | None, query: str, *, pair: bool
) -> RankPrompt:
    """Return what a model reads.

    Args:
        tokenizer: the model's.
        text: the prompt that its host gives.
        instruction: what a document has to do for the query.
        query: any text.
        pair: whether a pair of texts is read where no prompt is given.

    Raises:
        InvalidArgument: the prompt lacks a place.
        Unsupported: none is known for this tokenizer.
    """
    if text is not None:
        return FilledPrompt(tokenizer, text, instruction, query)
    if pair:
        if instruction is not None:
            raise InvalidArgument(
                "instruction is given, but without a prompt a classification head reads a query "
                "and a document alone",
                reason="conflict",
                argument="instruction",
                other="prompt",
            )
        return PairPrompt(tokenizer, query)
    if any(tokenizer.token_id(each) is None for each in _SPECIAL):
        raise Unsupported(
            "prompt is NULL, and the only one known, that of Qwen3-Reranker, needs the tokens "
            f"{' and '.join(_SPECIAL)}, which this model's tokenizer does not have; give the "
            "prompt that it was trained with",
            argument="prompt",
        )
    return FilledPrompt(tokenizer, _QWEN, instruction, query)


def _finished(steps: Generator[None, None, list[int]]) -> list[int]:
    from cowmlx.text.tokenizer import finished

    return finished(steps)
