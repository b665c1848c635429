"""Conversations as hosts give them: JSON texts, checked and rendered."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generation.message_marks import prompt_steps
from cowmlx.models.images import ImageStore, NoImages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.models.model import Model
    from cowmlx.services.runtime import Runtime
    from cowmlx.text.chat_options import Conversation


def conversation_steps(
    model: Model, messages: str, options: str | None, runtime: Runtime
) -> Generator[None, None, tuple[list[int], Conversation]]:
    """Read a conversation (JSON texts), and render it: return its prompt, and the conversation.

    Args:
        model: that answers it.
        messages: a JSON text.
        options: the same, or None.
        runtime: with the open images, and the bounds of memory.
    """
    from cowmlx.text.chat_options import Conversation  # late: not every host chats

    if model.chat_template is None:
        raise Unsupported(
            "this model has no chat template; write the prompt yourself and use model_tokenize"
        )
    parsed_messages = _parse_json("messages_json", messages, list)
    parsed_options = _parse_json("options_json", options, dict) if options else {}
    pictures, sees = None, isinstance(model.images, ImageStore)
    if isinstance(model.images, ImageStore):
        from cowmlx.services.pictures import taken_steps  # late: few models take images

        steps = taken_steps(model.images, parsed_messages, runtime)
        parsed_messages, pictures = yield from steps
    elif isinstance(model.images, NoImages):
        from cowmlx.services.pictures import refuse  # late: few models have towers

        refuse(parsed_messages, model.images)
    conversation = Conversation(model, parsed_messages, parsed_options, pictures, sees=sees)
    return (yield from prompt_steps(model, conversation)), conversation


def chat_prompt_steps(
    model: Model, messages: str, options: str | None, runtime: Runtime
) -> Generator[None, None, list[int]]:
    """Return the prompt of a conversation; arguments as of :func:`conversation_steps`."""
    return (yield from conversation_steps(model, messages, options, runtime))[0]


def _parse_json(name: str, text: str, kind: type) -> Any:
    from cowmlx import json_text
    from cowmlx.text.chat_messages import json_type

    try:
        value = json_text.parse(text)
    except json_text.Malformed as error:
        raise InvalidArgument(
            f"{name} is no JSON: {error}", reason="invalid_json", argument=name, **error.place
        ) from None
    if not isinstance(value, kind):
        wanted = "an array" if kind is list else "an object"
        raise InvalidArgument(
            f"{name} must be {wanted}, but is {json_type(value)}",
            reason="wrong_type",
            argument=name,
            accepted=wanted,
        )
    return value
