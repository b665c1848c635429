"""The tokens of a vocabulary that complete a marker and go on."""

from __future__ import annotations

from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.models.model import Model

MAX_KEPT = 64


class MarkerTokens:
    """The tokens of a vocabulary that complete a marker in the text.

    Attributes:
        spaces: the tokens of whitespace alone.
    """

    def __init__(self, model: Model, marker: bytes) -> None:
        table = model.tokenizer.byte_table
        assert table is not None  # or there would be no constraint
        self.bytes_of = table.get
        self._marker = marker
        self.spaces: list[int] = []
        # Tokens that complete the marker behind its first n bytes, and go on: with whitespace
        # alone, or with more.
        self._spaced: dict[int, list[int]] = {}
        self._more: dict[int, list[int]] = {}
        last = marker[-1:]
        for token in range(min(model.vocabulary_size, model.tokenizer.vocabulary_size)):
            text = table.get(token)
            if text.isspace():
                self.spaces.append(token)
            if last not in text[:-1]:
                continue
            for known in range(len(marker)):
                rest = marker[known:]
                # What a token has in front of the marker matters where it holds all of it.
                at = 0 if text.startswith(rest) else text.find(rest) if not known else -1
                if at >= 0 and (behind := text[at + len(rest) :]):
                    kind = self._spaced if behind.isspace() else self._more
                    kind.setdefault(known, []).append(token)

    @classmethod
    def of(cls, model: Model, marker: bytes) -> MarkerTokens:
        """Return those of a model, kept with its last MAX_KEPT markers."""
        # The vocabulary is the tokenizer's, and the same whatever adapter a model has.
        kept: OrderedDict[bytes, MarkerTokens]
        kept = model.tokenizer.remembered.once("tokens of markers", OrderedDict)
        markers = kept.pop(marker, None) or cls(model, marker)
        kept[marker] = markers
        if len(kept) > MAX_KEPT:
            kept.popitem(last=False)
        return markers

    def running_over(self, tail: bytes, spaces_too: bool) -> list[int]:
        """Return the tokens that, behind a tail, would end the marker and go on.

        Args:
            tail: the last bytes of the text.
            spaces_too: also with whitespace alone.
        """
        kinds = (self._more, self._spaced) if spaces_too else (self._more,)
        return [
            token
            for kind in kinds
            for known, tokens in kind.items()
            if tail.endswith(self._marker[:known])
            for token in tokens
        ]
