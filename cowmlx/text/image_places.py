"""The places of images in a rendered prompt."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.errors import InvalidArgument


class Written(NamedTuple):
    """How an image stands in a rendered prompt.

    Attributes:
        marker: the text that a chat template writes for an image.
        text: replaces the marker; it has one ``token``.
        token: the token that the image's positions replace.
        guarded: texts that messages may not bring along as special tokens.
    """

    marker: str
    text: str
    token: int
    guarded: tuple[str, ...]


def filled(tokens: list[int], written: Written, images: list[list[int]]) -> list[int]:
    """Return a prompt's tokens with the ids of its images in their places.

    Raises:
        InvalidArgument: there are not as many places as images.
    """
    places = tokens.count(written.token)
    if places != len(images):
        raise InvalidArgument(
            f"the messages have {len(images)} images, but the chat template writes {places}",
            reason="template_refused",
        )
    rest = iter(images)
    made: list[int] = []
    for token in tokens:
        made += next(rest) if token == written.token else [token]
    return made
