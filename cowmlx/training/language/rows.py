"""Rows of tokens made of examples, their tokens to train on, and rows packed together."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Generator, Iterable
from itertools import chain
from typing import Any, NamedTuple

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.models.model import Model
from cowmlx.training.language.examples import Example, Malformed

# Faults of one example; other exceptions concern all of them.
_OF_EXAMPLE = (InvalidArgument, Unsupported)


class Row(NamedTuple):
    """Tokens that follow each other, and ranges of targets."""

    tokens: array[int]  # int32
    targets: list[tuple[int, int]]  # (first, end) of the tokens to train on, ascending

    @property
    def target_count(self) -> int:
        """The number of targets."""
        return sum(end - first for first, end in self.targets)


class RowMaker:
    """Makes rows with a model's tokenizer and chat template."""

    def __init__(self, model: Model, *, mask_prompt: bool) -> None:
        self._model = model
        self._mask_prompt = mask_prompt

    def steps(self, example: Example) -> Generator[None, None, Row]:
        """Make a row, yielding between the parts of a long text.

        Raises:
            Malformed: the example cannot become one.
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
        # Nothing precedes the first token, so it cannot be predicted.
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
                "the model has no chat template for messages, prompts and completions; write "
                'them as "text"'
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
    """A fault of all examples."""


def _common(whole: list[int], prompt: list[int]) -> int:
    """Return the number of equal first tokens: a template may end the prompt otherwise."""
    pairs = enumerate(zip(whole, prompt, strict=False))
    different = (at for at, (one, other) in pairs if one != other)
    return next(different, min(len(whole), len(prompt)))


# Rows that are looked at in a turn.
AT_ONCE = 2048


def by_length(rows: list[Row], order: Iterable[int]) -> Generator[None, None, list[list[int]]]:
    """Return the indices of rows in this order, grouped by their tokens, ascending."""
    groups: dict[int, list[int]] = {}
    for number, index in enumerate(order, 1):
        groups.setdefault(len(rows[index].tokens), []).append(index)
        if not number % AT_ONCE:
            yield
    return [groups[length] for length in sorted(groups)]


def pack(rows: list[Row], window: int) -> Generator[None, None, list[Row]]:
    """Join short rows to rows of at most ``window`` tokens, so that batches need less padding.

    A row sees the rows before it in its window, as where whole corpora are cut into windows; its
    first token is no target, as without packing. The longest row is placed first, and each where it
    leaves the least room. Yields between parts of the work.
    """
    groups = yield from by_length(rows, range(len(rows)))
    made: list[Row] = []
    room: dict[int, list[int]] = {}  # made rows, by the room that is left
    sizes: list[int] = []  # the keys, ascending
    for number, index in enumerate(chain.from_iterable(reversed(groups)), 1):
        if not number % AT_ONCE:
            yield
        row = rows[index]
        length = len(row.tokens)
        at = bisect_left(sizes, length)
        if at == len(sizes):
            target, left = len(made), window
            made.append(Row(array("i"), []))
        else:
            left = sizes[at]
            target = room[left].pop()
            if not room[left]:
                del room[left], sizes[at]
        _append(made[target], row)
        left -= length
        if left:
            if left not in room:
                room[left] = []
                insort(sizes, left)
            room[left].append(target)
    return made


def _append(target: Row, row: Row) -> None:
    begin = len(target.tokens)
    target.tokens.extend(row.tokens)
    target.targets.extend((begin + first, begin + end) for first, end in row.targets)
