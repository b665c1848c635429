"""Text to tokens and back, on a tokenizer of the ``tokenizers`` library."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import pairwise

from cowmlx.errors import BadFormat, InvalidArgument, OutOfMemory, Unsupported
from cowmlx.remembered import Remembered
from cowmlx.steps import finished
from cowmlx.text.detokenizer import Detokenizer, TokenBytes
from cowmlx.text.frames import frame_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from typing import Any

    from cowmlx.text.cuts import Cuts
    from cowmlx.text.frames import Frame
    from cowmlx.text.retries import Retries

# One turn's work, so that others wait some ten milliseconds.
PART = 1 << 14  # characters
PART_TOKENS = 1 << 14
# The most characters that are encoded at once where no cut is sure to change nothing.
MAX_PIECE = 1 << 20
MAX_TEXT = 1 << 30  # characters that tokens are turned into
_FEW = 1 << 10
# Bytes that no pattern searches for long.
_SHORT = 1 << 10
_NO_CHARACTER = "\U0010ffff"  # in every version of Unicode
_USUAL_GROWTH = 16  # ▁ for every space and one in front, or the longest of NFKC, are less


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
        shared: kept alive while this is used: what others with equal files share.
        growth: bytes that it may make of one before it is split into tokens; parts of texts are
            smaller where that is more than of known models.
    """

    def __init__(self, backend: Any, special_tokens: dict[str, str]) -> None:
        self.backend = backend
        self.special_tokens = special_tokens
        self.growth = 1
        self.shared: object = None
        self.remembered = Remembered()
        added = backend.get_added_tokens_decoder()
        self.added: dict[int, str] = {index: token.content for index, token in added.items()}
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        size: int = backend.get_vocab_size(with_added_tokens=True)
        self.vocabulary_size = max([size - 1, *added]) + 1
        self.limit = self.vocabulary_size
        # Special tokens that plain text must not give; unknown text does give the unknown token.
        unknown = {special_tokens.get("unk_token"), *_unknown_of(backend)}
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
        token: int | None = self.backend.token_to_id(text)
        return token

    def id_to_text(self, token: int) -> str:
        """Return one token's text; U+FFFD where it holds part of a character.

        Raises:
            InvalidArgument: the id is out of range.
        """
        return self.decode([token], skip_special=False)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Turn text into tokens, all of it at once: see :meth:`encode_steps`."""
        return finished(
            self.encode_steps(text, add_special=add_special, parse_special=parse_special)
        )

    def encode_steps(
        self, text: str, *, add_special: bool, parse_special: bool
    ) -> Generator[None, None, list[int]]:
        """Turn text into tokens, yielding between the parts of a long one.

        Args:
            text: any text.
            add_special: add what the tokenizer puts around a text, such as a BOS token.
            parse_special: recognize the text of special tokens; without it such text is
                ordinary text, as text from outside must be.

        Raises:
            InvalidArgument: the text holds a lone surrogate, or a piece without a cut that is
                too long.
        """
        inner: list[int] = []
        forged = False
        for tokens, last in self._parts(text, special=parse_special):
            forged = forged or not (parse_special or self._forged.isdisjoint(tokens))
            inner += tokens
            if not last:
                yield
        if forged:
            # The model has special tokens among its own pieces and spells them from plain text.
            yield
            inner = yield from self._broken_up(text)
        if not add_special:
            return inner
        return self._framed(text, inner, special=parse_special)

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
        return finished(self.encode_inner_steps(text, parse_special=parse_special))

    def encode_inner_steps(
        self, text: str, *, parse_special: bool = True
    ) -> Generator[None, None, list[int]]:
        """Do what :meth:`encode_inner` does, yielding between the parts of a long text."""
        newline = self._encode("\n", False, special=parse_special)
        after_newline = yield from self._whole("\n" + text, special=parse_special)
        if newline and after_newline[: len(newline)] == newline:
            return after_newline[len(newline) :]
        return (yield from self._whole(text, special=parse_special))

    def decode(self, ids: Iterable[int], *, skip_special: bool) -> str:
        """Turn tokens into text, all of them at once: see :meth:`decode_steps`."""
        return finished(self.decode_steps(list(ids), skip_special=skip_special))

    def decode_steps(self, ids: Sequence[int], *, skip_special: bool) -> Generator[None, None, str]:
        """Turn tokens into text, yielding between the parts of many.

        The text is what a :class:`Detokenizer` gives for them in all.

        Raises:
            InvalidArgument: an id is out of range.
            OutOfMemory: the text is longer than any that is made.
        """
        detokenizer = self.detokenizer(skip_special)
        texts: list[str] = []
        size = 0
        for begin in range(0, len(ids), PART_TOKENS):
            if begin:
                yield
            part = ids[begin : begin + PART_TOKENS]
            texts.append(self._text(detokenizer, part))
            size += len(texts[-1])
            if size > MAX_TEXT:
                raise OutOfMemory(
                    f"the first {begin + len(part)} tokens are text of {size} characters, more "
                    f"than {MAX_TEXT}; detokenize fewer at a time",
                    reason="limit_exceeded",
                    needed=size,
                    limit=MAX_TEXT,
                )
        texts.append(detokenizer.finish())
        return "".join(texts)

    def detokenizer(self, skip_special: bool, *, exact: bool = False) -> Detokenizer:
        """Return a detokenizer at the start of a text; an exact one keeps a leading space."""
        skip = self.special_ids if skip_special else frozenset()
        return Detokenizer(self.backend, self._bytes, skip, exact=exact)

    @property
    def byte_table(self) -> TokenBytes | None:
        """The bytes of all tokens; None where texts depend on the tokens beside."""
        return self._bytes

    def token_bytes(self, token: int) -> bytes:
        """Return a token's own text; where texts depend on those beside it, as it is alone."""
        if self._bytes is not None:
            return self._bytes.get(token)
        text: str = self.backend.decode([token], skip_special_tokens=False)
        return text.encode()

    def _named(self, attribute: str) -> int | None:
        text = self.special_tokens.get(attribute)
        return None if text is None else self.token_id(text)

    def _text(self, detokenizer: Detokenizer, tokens: Sequence[int]) -> str:
        if tokens and not 0 <= min(tokens) <= max(tokens) < self.limit:
            for token in tokens:
                self._check(token)
        return "".join([detokenizer.add(token) for token in tokens])

    def _check(self, token: int) -> None:
        if not 0 <= token < self.limit:
            raise InvalidArgument(
                f"token {token} is not within 0 to {self.limit - 1}",
                argument="token",
                value=token,
                accepted=f"0 to {self.limit - 1}",
            )

    def _broken_up(self, text: str) -> Generator[None, None, list[int]]:
        """Encode text so that no special token in it survives: cut after its first character."""
        cuts = {0, len(text)}
        for index in self._forged:
            spelled = self.added[index]
            at = text.find(spelled)
            while at >= 0:
                cuts.add(at + 1)
                at = text.find(spelled, at + 1)
            if len(text) > PART:
                yield
        edges = sorted(cuts)
        tokens: list[int] = []
        if text:
            tokens += yield from self._whole(text[: edges[1]], special=False)
        for begin, end in pairwise(edges[1:]):
            yield
            tokens += yield from self.encode_inner_steps(text[begin:end], parse_special=False)
        if self._forged.isdisjoint(tokens):
            return tokens
        tokens = []
        for at, character in enumerate(text):
            if at % _FEW == 0:
                yield
            tokens += self.encode_plain(character)
        return tokens

    def _whole(self, text: str, *, special: bool) -> Generator[None, None, list[int]]:
        """Return all tokens of a text, yielding between its parts."""
        whole: list[int] = []
        for tokens, last in self._parts(text, special=special):
            whole += tokens
            if not last:
                yield
        return whole

    def _parts(self, text: str, *, special: bool) -> Iterator[tuple[list[int], bool]]:
        """Yield the tokens of a text part by part, and whether the part is the last.

        Raises:
            InvalidArgument: a piece that cannot be cut is too long.
        """
        part = self._part
        if len(text) <= part and self._is_one_turn(text):
            yield self._encode(text, False, special=special), True
            return
        begin = 0
        while begin < len(text):
            end = self._end_of_part(text, begin, part)
            if not begin:
                tokens = self._encode(text[:end], False, special=special)
            else:
                # One character in front, so that nothing happens that belongs to a beginning.
                before = self._encode(text[begin - 1], False, special=special)
                tokens = self._encode(text[begin - 1 : end], False, special=special)[len(before) :]
            yield tokens, end == len(text)
            begin = end

    @property
    def _part(self) -> int:
        """The characters that are encoded in one turn."""
        return max(1, PART // max(1, self.growth // _USUAL_GROWTH))

    @property
    def _longest_piece(self) -> int:
        """The most characters that are encoded at once where no cut is sure."""
        return max(1, MAX_PIECE // max(1, self.growth // _USUAL_GROWTH))

    def _end_of_part(self, text: str, begin: int, part: int) -> int:
        limit = begin + self._longest_piece
        if self._retries:
            with _as_status("this text"):
                limit = self._retries.end(text, begin, limit)
            part = min(part, limit - begin)
        if self._cuts is None:
            end = len(text) if len(text) <= limit else None
        else:
            end = self._cuts.find(text, begin, begin + part, limit)
        if end is None:
            raise InvalidArgument(
                f"from character {begin} on the text has more than {limit - begin} characters "
                "among which this model's tokenizer allows no cut, as spaces between words are; "
                "tokenize it in parts",
                reason="limit_exceeded",
                argument="text",
                limit=limit - begin,
            )
        return end

    def _is_one_turn(self, text: str) -> bool:
        if len(text) * self.growth <= _SHORT or not self._retries:
            return True
        with _as_status("this text"):
            return self._retries.end(text, 0, len(text)) == len(text)

    @cached_property
    def _retries(self) -> Retries | None:
        """Patterns that take long on some texts; None if nothing is known of the tokenizer."""
        from cowmlx.text.retries import Retries  # late, as cuts

        known = model(self.backend) is not None
        return Retries(self.backend, self.growth) if known else None

    @cached_property
    def _cuts(self) -> Cuts | None:
        """Where long texts may be cut; None if nothing is known of the tokenizer."""
        from cowmlx.text.cuts import Cuts  # late: short texts need none

        return Cuts(self.backend) if model(self.backend) is not None else None

    @cached_property
    def _frame(self) -> Frame | None:
        """What is put around a text; None if the tokenizer does more than that."""
        return self._around(1)

    @property
    def back(self) -> list[int]:
        """The tokens that are put behind a text; none if they are not known."""
        return self._frame.tokens[1] if self._frame is not None else []

    @cached_property
    def pair_frame(self) -> Frame | None:
        """What is put around a pair of texts; None if it is not known."""
        return self._around(2)

    def words(self, text: str, ids: list[int]) -> list[tuple[int, int, int]]:
        """Return the place of every word's first token, and its begin and end in characters.

        Args:
            text: any text.
            ids: its tokens, with those that are put around it.

        Raises:
            Unsupported: the tokens were not made of the whole text at once.
        """
        encoding = self._encoding(text, True, special=False)
        if encoding.ids != ids:
            raise Unsupported("the words of this text: its tokens do not tell where they come from")
        found: list[tuple[int, int, int]] = []
        last = None
        for place, (word, (begin, end)) in enumerate(
            zip(encoding.word_ids, encoding.offsets, strict=True)
        ):
            if word is None:
                continue
            if word == last:
                found[-1] = (*found[-1][:2], end)
            else:
                found.append((place, begin, end))
            last = word
        return found

    def _around(self, count: int) -> Frame | None:
        if model(self.backend) is None:
            return None
        for probe in ("a", "0", "."):
            with _as_status("a pair" if count > 1 else "this text"):
                encoding = self.backend.encode(*[probe] * count, add_special_tokens=True)
            size = len(self._encode(probe, False, special=False))
            frame = frame_of(encoding, self._known(encoding.ids), count, size)
            if frame is not None:
                return frame
        return None

    def _framed(self, text: str, inner: list[int], *, special: bool) -> list[int]:
        """Put around the tokens of a text what the tokenizer puts there."""
        if self._frame is not None:
            front, back = self._frame.tokens
            return [*front, *inner, *back]
        if len(text) > self._longest_piece:
            raise InvalidArgument(
                f"the text has {len(text)} characters, more than {self._longest_piece}, in one "
                "piece: what this model's tokenizer adds to a text is known of whole texts only",
                reason="limit_exceeded",
                argument="text",
                needed=len(text),
                limit=self._longest_piece,
            )
        plain = self._encode(text, False, special=special)
        framed = self._encode(text, True, special=special)
        for start in range(len(framed) - len(plain) + 1):
            if framed[start : start + len(plain)] == plain:
                return framed[:start] + inner + framed[start + len(plain) :]
        return framed if special or inner == plain else inner

    def _encode(self, text: str, add_special: bool, *, special: bool) -> list[int]:
        return self._known(self._encoding(text, add_special, special=special).ids)

    def _known(self, ids: list[int]) -> list[int]:
        """Return ids, unless there is one that a tokenizer.json has made up."""
        if ids and max(ids) >= self.limit:
            raise BadFormat(
                f"the model's tokenizer gives token {max(ids)}, which is not within 0 to "
                f"{self.limit - 1}",
                reason="invalid_tokenizer",
            )
        return ids

    def _encoding(self, text: str, add_special: bool, *, special: bool) -> Any:
        self.backend.encode_special_tokens = not special
        with _as_status("this text"):
            return self.backend.encode(text, add_special_tokens=add_special)

    def _model_only(self, text: str) -> list[int]:
        """Run the tokenizer's pipeline without its added tokens."""
        pieces = model(self.backend)
        if pieces is None or not text:
            return self._encode(text, False, special=False)
        with _as_status("this text"):
            if self.backend.normalizer is not None:
                text = self.backend.normalizer.normalize_str(text)
            parts = [text]
            if self.backend.pre_tokenizer is not None:
                parts = [part for part, _ in self.backend.pre_tokenizer.pre_tokenize_str(text)]
            return [token.id for part in parts for token in pieces.tokenize(part)]


@contextmanager
def _as_status(what: str) -> Iterator[None]:
    """Turn the library's exceptions, and its panics on rules of tokenizer.json, into a status.

    Raises:
        InvalidArgument: a text holds a lone surrogate.
        BadFormat: the library fails for another reason.
    """
    try:
        yield
    except (TypeError, UnicodeEncodeError) as exc:
        # The library takes no lone surrogates, which JSON can spell.
        raise InvalidArgument(
            f"the text is not valid Unicode ({exc})", reason="invalid_utf8", argument="text"
        ) from exc
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        reason = f"{type(exc).__name__}: {exc}"
        raise BadFormat(
            f"the model's tokenizer fails on {what} ({reason})", reason="invalid_tokenizer"
        ) from exc


def _unknown_of(backend: Any) -> set[str | None]:
    """Return the text of the token for unknown characters, which a Unigram model names nowhere."""
    pieces = model(backend)
    unknown = {getattr(pieces, "unk_token", None)}
    if pieces is not None:
        with suppress(BadFormat), _as_status("an unknown character"):
            tokens = pieces.tokenize(_NO_CHARACTER)
            unknown |= {backend.id_to_token(token.id) for token in tokens if len(tokens) == 1}
    return unknown - {_NO_CHARACTER}


def model(backend: Any) -> Any:
    """Return the model inside a tokenizer of the library; adapters have none."""
    return getattr(backend, "model", None)
