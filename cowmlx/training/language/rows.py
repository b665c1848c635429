"""Rows of tokens made of examples, and which of their tokens are to be learnt."""

from __future__ import annotations

from array import array

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.training.language.examples import Malformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.models.model import Model
    from cowmlx.training.language.examples import Example

# Faults of one example; what else is raised concerns all of them.
_OF_EXAMPLE = (InvalidArgument, Unsupported)


class Row:
    """Tokens that follow each other.

    Attributes:
        tokens: int32.
        targets: (first, end) of the tokens to be learnt, in ascending order.
    """

    __slots__ = ("targets", "tokens")

    def __init__(self, tokens: array[int], targets: list[tuple[int, int]]) -> None:
        self.tokens = tokens
        self.targets = targets

    @property
    def count(self) -> int:
        """How many tokens are to be learnt."""
        return sum(end - first for first, end in self.targets)


class RowMaker:
    """Makes rows with a model's tokenizer and chat template.

    Args:
        model: the model.
        mask_prompt: learn a chat's last message only, and a completion without its prompt.
    """

    def __init__(self, model: Model, *, mask_prompt: bool) -> None:
        self._model = model
        self._mask_prompt = mask_prompt

    def steps(self, example: Example) -> Generator[None, None, Row]:
        """Make a row, yielding between the parts of a long text.

        Raises:
            Malformed: the example cannot be one.
            Unsupported: the model has no chat template.
        """
        try:
            if example.messages is None:
                tokens, first = (yield from self._of_text(example.text)), 0
            else:
                tokens, first = yield from self._of_chat(example)
        except _OF_EXAMPLE as exc:
            if isinstance(exc, _NoTemplate):
                raise
            raise Malformed(str(exc)) from exc
        self._check(tokens)
        # Nothing comes before the first token that it could be told from.
        return Row(array("i", tokens), [(max(first, 1), len(tokens))])

    def _of_text(self, text: str) -> Generator[None, None, list[int]]:
        if self._mask_prompt:
            raise Malformed("it is a text, which has no prompt to mask (mask_prompt)")
        tokenizer = self._model.tokenizer
        tokens = yield from tokenizer.encode_steps(text, add_special=True, parse_special=True)
        end = tokenizer.eos_token_id
        if end is not None and tokens[-1:] != [end]:
            tokens = [*tokens, end]
        return tokens

    def _of_chat(self, example: Example) -> Generator[None, None, tuple[list[int], int]]:
        template, messages = self._model.chat_template, example.messages
        assert messages is not None
        if template is None:
            raise _NoTemplate(
                "the model has no chat template, so that messages, prompts and completions cannot "
                'be learnt; write them as "text"'
            )
        options: dict[str, Any] = {"add_generation_prompt": False}
        if example.tools is not None:
            options["tools"] = example.tools
        tokenizer = self._model.tokenizer
        whole = yield from template.prompt_steps(tokenizer, messages, options)
        if not self._mask_prompt:
            return whole, 0
        if len(messages) < 2:
            raise Malformed("it has one message, and no prompt before it to mask (mask_prompt)")
        last = messages[-1]
        options["add_generation_prompt"] = (
            isinstance(last, dict) and last.get("role") == "assistant"
        )
        prompt = yield from template.prompt_steps(tokenizer, messages[:-1], options)
        return whole, _common(whole, prompt)

    def _check(self, tokens: list[int]) -> None:
        size = self._model.vocabulary_size
        if tokens and max(tokens) >= size:
            raise Malformed(
                f"it has the token {max(tokens)}, but the vocabulary has 0 to {size - 1}"
            )


class _NoTemplate(Unsupported):
    """It is no fault of an example."""


def _common(whole: list[int], prompt: list[int]) -> int:
    """Return how many first tokens are the same: a template may end the prompt otherwise."""
    for index, (one, other) in enumerate(zip(whole, prompt, strict=False)):
        if one != other:
            return index
    return min(len(whole), len(prompt))
