"""Text to tokens and back, on a tokenizer of the ``tokenizers`` library."""

from __future__ import annotations

from itertools import pairwise

from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.models.detokenizer import Detokenizer, TokenBytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Tokenizer:
    """A model's tokenizer.

    Attributes:
        backend: the library's tokenizer, or an adapter with its methods on the full route.
        special_tokens: text of the named special tokens by attribute: ``bos_token`` and so on.
        vocabulary_size: one more than the highest id that the tokenizer has.
        limit: one more than the highest id accepted; at least :attr:`vocabulary_size`, raised
            to the model's rows of logits, which are often padded.
        added: text of every added token by id.
        special_ids: ids of the added tokens that are special.
    """

    def __init__(self, backend: Any, special_tokens: dict[str, str]) -> None:
        self.backend = backend
        self.special_tokens = special_tokens
        added = backend.get_added_tokens_decoder()
        self.added: dict[int, str] = {index: token.content for index, token in added.items()}
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        size: int = backend.get_vocab_size(with_added_tokens=True)
        self.vocabulary_size = max([size - 1, *added]) + 1
        self.limit = self.vocabulary_size
        # Special tokens that plain text must not give; unknown text does give the unknown token.
        unknown = {special_tokens.get("unk_token"), getattr(model(backend), "unk_token", None)}
        self._forged = frozenset(
            index for index in self.special_ids if self.added[index] not in unknown
        )
        self._bytes = TokenBytes.of(backend)

    @property
    def bos_token_id(self) -> int | None:
        """The id of the token that begins a text."""
        return self._named("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text, as the tokenizer names it."""
        return self._named("eos_token")

    def token_id(self, text: str) -> int | None:
        """Return the id of the token with exactly this text."""
        found: int | None = self.backend.token_to_id(text)
        return found

    def id_to_text(self, token: int) -> str:
        """Return one token's text; U+FFFD where it holds part of a character.

        Raises:
            InvalidArgument: the id is out of range.
        """
        return self.decode([token], skip_special=False)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Turn text into tokens.

        Args:
            text: any text.
            add_special: add what the tokenizer puts around a text, such as a BOS token.
            parse_special: recognise the text of special tokens; without it such text is
                ordinary text, as text from outside must be.

        Raises:
            InvalidArgument: the text holds a lone surrogate.
        """
        if parse_special:
            return self._encode(text, add_special, special=True)
        inner = self._encode(text, False, special=False)
        framed = self._encode(text, True, special=False) if add_special else inner
        if self._forged.isdisjoint(inner):
            return framed
        # The model has special tokens among its own pieces and spells them from plain text.
        plain = self._broken_up(text)
        for start in range(len(framed) - len(inner) + 1):
            if framed[start : start + len(inner)] == inner:
                return framed[:start] + plain + framed[start + len(inner) :]
        return plain

    def encode_plain(self, text: str) -> list[int]:
        """Turn text from the middle of a prompt into tokens, none of them an added one.

        Unlike :meth:`encode` this ignores every added token, special or not, and puts no
        prefix space in front.
        """
        after_newline = self._model_only("\n" + text)
        newline = self._model_only("\n")
        tokens = (
            after_newline[len(newline) :]
            if newline and after_newline[: len(newline)] == newline
            else self._model_only(text)
        )
        if len(text) > 1 and not self.added.keys().isdisjoint(tokens):
            # The model itself has the token: single characters cannot spell it.
            return [token for character in text for token in self.encode_plain(character)]
        return tokens

    def encode_inner(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Turn text from the middle of a prompt into tokens: no prefix space in front."""
        newline = self._encode("\n", False, special=parse_special)
        after_newline = self._encode("\n" + text, False, special=parse_special)
        if newline and after_newline[: len(newline)] == newline:
            return after_newline[len(newline) :]
        return self._encode(text, False, special=parse_special)

    def decode(self, ids: Iterable[int], *, skip_special: bool) -> str:
        """Turn tokens into text: what a :class:`Detokenizer` gives for them in all.

        Raises:
            InvalidArgument: an id is out of range.
        """
        detokenizer = self.detokenizer(skip_special)
        pieces = [detokenizer.add(self._check(token)) for token in ids]
        pieces.append(detokenizer.finish())
        return "".join(pieces)

    def detokenizer(self, skip_special: bool, *, exact: bool = False) -> Detokenizer:
        """Return a detokenizer at the start of a text; an exact one keeps a leading space."""
        skip = self.special_ids if skip_special else frozenset()
        return Detokenizer(self.backend, self._bytes, skip, exact=exact)

    def _named(self, attribute: str) -> int | None:
        text = self.special_tokens.get(attribute)
        return None if text is None else self.token_id(text)

    def _check(self, token: int) -> int:
        if not 0 <= token < self.limit:
            raise InvalidArgument(f"token {token} is not within 0 to {self.limit - 1}")
        return token

    def _broken_up(self, text: str) -> list[int]:
        """Encode text so that no special token in it survives: cut after its first character."""
        cuts = {0, len(text)}
        for index in self._forged:
            spelled = self.added[index]
            found = text.find(spelled)
            while found >= 0:
                cuts.add(found + 1)
                found = text.find(spelled, found + 1)
        edges = sorted(cuts)
        tokens = self._encode(text[: edges[1]], False, special=False) if text else []
        for begin, end in pairwise(edges[1:]):
            tokens += self.encode_inner(text[begin:end], parse_special=False)
        if self._forged.isdisjoint(tokens):
            return tokens
        return [token for character in text for token in self.encode_plain(character)]

    def _encode(self, text: str, add_special: bool, *, special: bool) -> list[int]:
        self.backend.encode_special_tokens = not special
        try:
            ids: list[int] = self.backend.encode(text, add_special_tokens=add_special).ids
        except (TypeError, UnicodeEncodeError) as exc:
            # The library takes no lone surrogates, which JSON can spell.
            raise InvalidArgument(f"the text is not valid Unicode ({exc})") from exc
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as exc:  # the library panics on some rules of tokenizer.json
            reason = f"{type(exc).__name__}: {exc}"
            raise BadFormat(f"the model's tokenizer fails on this text ({reason})") from exc
        if ids and max(ids) >= self.limit:  # tokenizer.json can name any
            raise BadFormat(
                f"the model's tokenizer gives token {max(ids)}, which is not within 0 to "
                f"{self.limit - 1}"
            )
        return ids

    def _model_only(self, text: str) -> list[int]:
        """Run the tokenizer's pipeline without its added tokens."""
        pieces = model(self.backend)
        if pieces is None or not text:
            return self._encode(text, False, special=False)
        if self.backend.normalizer is not None:
            text = self.backend.normalizer.normalize_str(text)
        parts = [text]
        if self.backend.pre_tokenizer is not None:
            parts = [part for part, _ in self.backend.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for part in parts for token in pieces.tokenize(part)]


def model(backend: Any) -> Any:
    """Return the model inside a tokenizer of the library; adapters have none."""
    return getattr(backend, "model", None)
