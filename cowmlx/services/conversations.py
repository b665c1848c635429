"""Conversations as hosts give them: JSON texts, checked and rendered."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.models.images import ImageStore, NoImages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.handles import HandleTable
    from cowmlx.models.model import Model
    from cowmlx.text.chat_options import Conversation


def read_conversation(
    model: Model, messages: str, options: str | None, handles: HandleTable
) -> Conversation:
    """Read a conversation (JSON texts), and render it.

    Args:
        model: that answers it.
        messages: a JSON text.
        options: the same, or None.
        handles: of images.
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
        from cowmlx.services.pictures import taken  # late: few models take images

        parsed_messages, pictures = taken(model.images, parsed_messages, handles)
    elif isinstance(model.images, NoImages):
        from cowmlx.services.pictures import refuse  # late: few models have towers

        refuse(parsed_messages, model.images)
    return Conversation(model, parsed_messages, parsed_options, pictures, sees=sees)


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
