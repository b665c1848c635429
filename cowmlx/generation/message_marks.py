"""The positions inside a prompt where its state is worth keeping.

A chat's next prompt often differs from this one before its end: templates leave out the thinking
of earlier answers. It is the same up to the generation prompt, or up to the last user's message.
The tokens that begin these are found by rendering small conversations, once for a model.
"""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.cache.points import needs_points
from cowmlx.cache.sequence import common_prefix
from cowmlx.cache.shared import WORTHWHILE
from cowmlx.errors import BadFormat, InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.cache.layers import KVQuantization
    from cowmlx.models.model import Model
    from cowmlx.text.chat_options import Conversation

_KNOWN = "message marks"
# Tokens of a generation prompt that are looked for: options change those behind.
_GENERATION = 2


class Marks(NamedTuple):
    """Tokens with which parts of a conversation begin; empty where none were found.

    Attributes:
        user: of a user's message behind an answer.
        generation: of the generation prompt.
    """

    user: list[int]
    generation: list[int]


def prompt_steps(model: Model, conversation: Conversation) -> Generator[None, None, list[int]]:
    """Render a conversation's prompt, as its method does, and learn the model's marks first.

    Raises:
        InvalidArgument, BadFormat: malformed messages, or the template refuses them or is bad.
    """
    prompt = yield from conversation.prompt_steps()
    if keeps_points(model):
        yield
        model.tokenizer.remembered.once(_KNOWN, lambda: _marks_of(model))
    return prompt


def keeps_points(model: Model, kv: KVQuantization | None = None) -> bool:
    """Whether the caches of a model cannot be cut everywhere, so that states have to be kept."""
    if model.split is not None:
        return False
    make = model.make_cache if kv is None else kv.maker(model)
    key = "points", None if kv is None else kv.key
    keeps: bool = model.remembered.once(key, lambda: needs_points(make()))
    return keeps


def positions(
    model: Model, kv: KVQuantization, prompt: list[int], known: int, interval: int
) -> list[int]:
    """Return the positions inside a prompt where its state is to be kept, in order.

    Args:
        model: that processes it.
        kv: how keys and values are stored.
        prompt: all of it.
        known: tokens of it that are processed already.
        interval: tokens between two positions; 0: only at the borders of messages.
    """
    if not keeps_points(model, kv):
        return []
    found = set(range(interval, len(prompt), interval)) if interval else set()
    marks: Marks | None = model.tokenizer.remembered.get(_KNOWN)
    for mark in marks or ():
        found.add(_last(mark, prompt))
    return sorted(at for at in found if max(known, WORTHWHILE - 1) < at < len(prompt) - 1)


def _last(mark: list[int], prompt: list[int]) -> int:
    """Return where a mark last begins in a prompt; 0: nowhere."""
    if not mark:
        return 0
    size = len(mark)
    starts = range(len(prompt) - size, 0, -1)
    first = mark[0]
    return next((at for at in starts if prompt[at] == first and prompt[at : at + size] == mark), 0)


def _marks_of(model: Model) -> Marks:
    """Find a model's marks; none where its template renders no such conversation."""
    try:
        return Marks(_user_mark(model), _generation_mark(model))
    except (InvalidArgument, BadFormat):
        return Marks([], [])


def _user_mark(model: Model) -> list[int]:
    """Return the tokens before the content of a user's first message, and of a later one."""
    answered = [_said("user", "a"), _said("assistant", "b")]
    first = _common(model, [_said("user", "a")], [_said("user", "d")])
    later = _common(model, [*answered, _said("user", "a")], [*answered, _said("user", "d")])
    size = 0
    while size < min(len(first), len(later)) and first[-1 - size] == later[-1 - size]:
        size += 1
    return later[len(later) - size :]


def _generation_mark(model: Model) -> list[int]:
    """Return the first tokens of the generation prompt."""
    messages = [_said("user", "a")]
    without, prompt = _tokens(model, messages, False), _tokens(model, messages, True)
    common = common_prefix(without, prompt)
    return prompt[common : common + _GENERATION]


def _common(model: Model, one: list[Any], other: list[Any]) -> list[int]:
    """Return the tokens with which the prompts of two conversations begin."""
    tokens = _tokens(model, one, False)
    return tokens[: common_prefix(tokens, _tokens(model, other, False))]


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _tokens(model: Model, messages: list[Any], generation: bool) -> list[int]:
    assert model.chat_template is not None
    options = {"add_generation_prompt": generation}
    return model.chat_template.prompt_tokens(model.tokenizer, messages, options)
