"""Tokens to text, one token at a time, whole characters only."""

from __future__ import annotations

from codecs import getincrementaldecoder
from functools import cache

from cowmlx import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from codecs import IncrementalDecoder
    from typing import Any

# Tokens that may wait for the rest of a character; more are no character of any decoder.
_MAX_WAIT = 12
# How far a window may grow while its tokens give no text.
_MAX_WINDOW = 32
_REPLACEMENT = "\ufffd"

_SPM = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]


class TokenBytes:
    """The bytes of every token, for decoders that only concatenate bytes.

    These are ByteLevel, and SentencePiece's with byte fallback. Bytes are looked up once per
    token and kept.

    Attributes:
        strip: whether one leading space of the whole text is dropped.
    """

    def __init__(self, backend: Any, *, byte_level: bool, strip: bool) -> None:
        self._backend = backend
        self._byte_level = byte_level
        self._added = {
            index: token.content for index, token in backend.get_added_tokens_decoder().items()
        }
        self._known: dict[int, bytes] = {}
        self.strip = strip

    @classmethod
    def of(cls, backend: Any) -> TokenBytes | None:
        """Return the bytes of a tokenizer's tokens; None if its decoder is of another kind."""
        decoder = backend.decoder
        if decoder is None or not hasattr(decoder, "__getstate__"):
            return None
        try:
            state = json_text.parse(decoder.__getstate__())
        except (TypeError, ValueError):
            return None
        if not isinstance(state, dict):
            return None
        if state.get("type") == "ByteLevel":
            return cls(backend, byte_level=True, strip=False)
        steps = state.get("decoders")
        if state.get("type") != "Sequence" or not isinstance(steps, list) or steps[:3] != _SPM:
            return None
        rest = steps[3:]
        if rest and rest != [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]:
            return None
        return cls(backend, byte_level=False, strip=bool(rest))

    def get(self, token: int) -> bytes:
        """Return a token's bytes; none for an id that the tokenizer does not have."""
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._look_up(token)
        return known

    def _look_up(self, token: int) -> bytes:
        text: str | None = self._added.get(token)
        if text is not None and self._byte_level:
            return text.encode()
        if text is None:
            text = self._backend.id_to_token(token)
        if text is None:
            return b""
        if self._byte_level:
            table = byte_table()
            try:
                return bytes([table[character] for character in text])
            except KeyError:
                return text.encode()
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            try:
                return bytes([int(text[3:5], 16)])
            except ValueError:
                pass
        return text.replace("▁", " ").encode()


class Detokenizer:
    """Text of a growing sequence of tokens.

    The pieces that :meth:`add` and :meth:`finish` return concatenate to the text of the whole
    sequence. Only whole characters are returned; bytes that make none become U+FFFD. The work
    per token does not depend on how many came before.

    Args:
        backend: a tokenizer of the ``tokenizers`` library.
        table: the bytes of its tokens, or None to go through the library's decoder.
        skip: ids that give no text.
        exact: give a leading space that the library would drop.
    """

    def __init__(
        self, backend: Any, table: TokenBytes | None, skip: frozenset[int], *, exact: bool = False
    ) -> None:
        self._backend = backend
        self._table = table
        self._skip = skip
        self._strip = table is not None and table.strip and not exact
        self._decoder: IncrementalDecoder = getincrementaldecoder("utf-8")("replace")
        # Tokens of the window; those before _read have been returned as text.
        self._window: list[int] = []
        self._read = 0

    def add(self, token: int) -> str:
        """Return the text that this token completes; "" inside a character."""
        if token in self._skip:
            return ""
        if self._table is not None:
            return self._unspaced(self._decoder.decode(self._table.get(token)))
        if self._backend.id_to_token(token) is None:
            return ""
        self._window.append(token)
        return self._take(final=False)

    def finish(self) -> str:
        """Return what is left: an incomplete character becomes U+FFFD."""
        if self._table is not None:
            return self._unspaced(self._decoder.decode(b"", True))
        return self._take(final=True) if self._window else ""

    def _unspaced(self, text: str) -> str:
        """Drop the one leading space that SentencePiece puts before the first word."""
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text

    def _take(self, *, final: bool) -> str:
        """Decode the window with and without its new tokens; the difference is new text."""
        before = self._text(self._window[: self._read])
        after = self._text(self._window)
        new = after[len(before) :]
        waiting = len(self._window) - self._read
        if new.endswith(_REPLACEMENT) and waiting < _MAX_WAIT and not final:
            return ""
        # A token without text must not be the window's first: decoders treat the first apart.
        if new or len(self._window) > _MAX_WINDOW:
            self._window = self._window[self._read :]
            self._read = len(self._window)
        return new

    def _text(self, tokens: list[int]) -> str:
        if not tokens:
            return ""
        text: str = self._backend.decode(tokens, skip_special_tokens=False)
        return text


@cache
def byte_table() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for.

    Printable bytes stand for themselves as Latin-1; the others follow from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)).difference(printable))
    shifted = {chr(0x100 + place): byte for place, byte in enumerate(others)}
    return {**{chr(byte): byte for byte in printable}, **shifted}
