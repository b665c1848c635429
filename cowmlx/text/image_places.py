"""The places of images in a rendered prompt."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.errors import InvalidArgument


class Written(NamedTuple):
    """How an image stands in a rendered prompt.

    Attributes:
        marker: the text that a chat template writes for an image.
        text: replaces the marker of an image of one part; it has one ``token``.
        token: the token that the image's positions replace.
        guarded: texts that messages may not bring along as special tokens.
    """

    marker: str
    text: str
    token: int
    guarded: tuple[str, ...]


class Pictures(NamedTuple):
    """The images in a conversation.

    Attributes:
        written: how a prompt of the model has them.
        texts: what replaces the marker of each; a token for each of its parts is in it.
        ids: the hosts' ids of the positions of each part, in order.
        kept: what lives as long as the prompt is made.
    """

    written: Written
    texts: list[str]
    ids: list[list[int]]
    kept: object

    def in_text(self, pieces: list[str]) -> list[str]:
        """Return the pieces of a rendered prompt with the texts of images in place of markers."""
        rest = iter(self.texts)
        parts = [piece.split(self.written.marker) for piece in pieces]
        return [
            part[0] + "".join(next(rest, self.written.text) + behind for behind in part[1:])
            for part in parts
        ]

    def in_prompt(self, tokens: list[int]) -> list[int]:
        """Return a prompt's tokens with the ids of images in their places.

        Raises:
            InvalidArgument: the chat template does not write each image once.
        """
        places = tokens.count(self.written.token)
        if places != len(self.ids):
            parts = f" of {len(self.ids)} parts" if len(self.ids) > len(self.texts) else ""
            raise InvalidArgument(
                f"the messages have {len(self.texts)} images{parts}, but the chat template writes "
                f"{places}",
                reason="template_refused",
            )
        rest = iter(self.ids)
        made: list[int] = []
        for token in tokens:
            made += next(rest) if token == self.written.token else [token]
        return made
