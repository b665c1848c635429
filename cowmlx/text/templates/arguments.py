"""The arguments of a tool call as templates get them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Arguments(dict[str, "Any"]):
    """An object that prints as JSON where a template prints it, not as Python does.

    Args:
        members: of the object.
        text: its JSON, as the host gave it if it gave text.
    """

    __slots__ = ("_text",)  # a private name: templates look up others as keys

    def __init__(self, members: dict[str, Any], text: str) -> None:
        super().__init__(members)
        self._text = text

    def __str__(self) -> str:
        return self._text
