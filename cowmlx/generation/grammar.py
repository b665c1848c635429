"""Grammars that the output has to match."""

from __future__ import annotations

import copy
import json
import re
from weakref import ref

import mlx.core as mx

from cowmlx.errors import CowMlxError, InvalidArgument, Unsupported
from cowmlx.generated import constants
from cowmlx.generation import gbnf
from cowmlx.generation import grammar_bounds as bounds
from cowmlx.generation.constrains import Constrains
from cowmlx.text.detokenizer import TokenBytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from cowmlx.models.model import Model

ALLOWED = b"\xc8"  # the byte of an allowed token in the library's masks
# A space, or a line break and an indentation. Without a bound, some models fill their output with
# white space and never end.
_WHITESPACE = r"\x20|\n[\x20\t]{0,20}"
_WHITESPACE_OPTIONS = {"whitespace_pattern", "whitespace_flexible"}
_MAX_MESSAGE = 700

# Half of the library's own limits: still enough for schemas of thousands of lines.
_LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 500_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 50_000,
    "max_items_in_row": 2000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}

# "at 3(7): ..." of Lark, "... at line 3" of GBNF.
_PLACE = re.compile(r"(?:^|^at |\bat line )(?P<line>\d+)(?:\((?P<column>\d+)\):)?(?=[ ,]|$)", re.M)


class Constraint(Constrains):
    """Follows the tokens of one generation through a grammar (arXiv 2307.09702).

    A token is allowed if its bytes continue some text that the grammar matches, by the library's
    trie of all tokens. Its bytes are those of the model's detokenizer, so the emitted text matches.

    Args:
        model: whose tokens these are.
        source: the grammar in the library's form, see :meth:`of` and :func:`lark_source`.
        places: whether a place in it is one in the host's text.
        otherwise: returns the grammar in a form that is simpler to follow. It replaces the first
            once that passes a bound.

    Raises:
        InvalidArgument: the grammar does not compile, is too large, or matches no text.
        Unsupported: the model's tokenizer cannot be used, or llguidance is not there.
    """

    def __init__(
        self,
        model: Model,
        source: str,
        *,
        places: bool = False,
        otherwise: Callable[[], str] | None = None,
    ) -> None:
        _require_library()
        self._places = places
        self._otherwise = otherwise
        self._taken: list[int] = []  # for the other form
        self._vocabulary = _vocabulary(model)
        self._matcher = self._new_matcher(source)
        self._check()
        self._size = model.vocabulary_size
        self._ends = _usable_ends(model)
        self._mask = self._next_mask()
        if not self._ends and self._only_the_end():
            raise InvalidArgument(
                "grammar: it matches the empty text alone, and this model has no end token",
                reason="invalid_grammar",
                argument="grammar",
            )

    @classmethod
    def of(cls, model: Model, grammar: str, kind: int) -> Constraint:
        """Follow a grammar that a host wrote, of a kind that is one of ``GRAMMAR_``."""
        _require_library()
        source = _source(grammar, kind)
        if kind != constants.GRAMMAR_GBNF:
            return cls(model, source, places=kind == constants.GRAMMAR_LARK)
        return cls(model, source, otherwise=lambda: _gbnf_source(grammar, whole=False))

    def allowed(self) -> mx.array:
        """Return (V,) bool which tokens may come next: end tokens where the output may end."""
        mask: Any = memoryview(self._mask)
        return mx.array(mask) != 0

    def allows(self, token: int) -> bool:
        """Whether a token may come next."""
        return self._mask[token : token + 1] == ALLOWED

    @property
    def mask(self) -> bytes:
        """A byte for every token of the model, ``ALLOWED`` or zero."""
        return self._mask

    def accept(self, token: int) -> bool:
        """Take the next token; true if the output is complete and nothing may follow.

        Raises:
            InvalidArgument: the grammar became too complex here.
        """
        if token in self._ends:
            return True
        self.advance([token])
        return self._only_the_end()

    @property
    def may_end(self) -> bool:
        """Whether what has come is a match."""
        return bool(self._matcher.is_accepting())

    def advance(self, tokens: list[int]) -> None:
        """Take tokens that the output has had already.

        Raises:
            InvalidArgument: the grammar does not begin with them.
        """
        if self._otherwise is not None:
            self._taken += tokens
        self._matcher.consume_tokens(tokens)
        self._check()
        self._mask = self._next_mask()

    def fork(self) -> Self:
        """Return a copy that follows other tokens from here on."""
        other = copy.copy(self)
        other._matcher = self._matcher.deep_copy()
        other._taken = [*self._taken]
        return other

    def _new_matcher(self, source: str) -> Any:
        from llguidance import LLMatcher, LLParserLimits  # late: few processes need it

        limits = LLParserLimits(**_LIMITS)
        return LLMatcher(self._vocabulary, source, log_level=0, limits=limits)

    def _next_mask(self) -> bytes:
        """Return a byte for every token of the model."""
        mask: bytes = self._matcher.compute_logit_bias()
        if self._matcher.is_error():
            self._check()
            mask = self._matcher.compute_logit_bias()
            self._check()
        return mask[: self._size]

    def _only_the_end(self) -> bool:
        """Whether end tokens alone are allowed, or nothing where the model has none."""
        token = self._mask.find(ALLOWED)
        while token in self._ends:
            token = self._mask.find(ALLOWED, token + 1)
        return token < 0

    def _check(self) -> None:
        """Raise if the matcher has failed, which never recovers, and there is no other form."""
        if not self._matcher.is_error():
            return
        error = _refused(self._matcher.get_error(), "{}", places=self._places)
        if self._otherwise is None:
            raise error
        self._matcher = self._new_matcher(self._otherwise())
        self._matcher.consume_tokens(self._taken)
        if self._matcher.is_error():
            raise error
        self._otherwise = None


def _refused(message: str, form: str, *, places: bool = True) -> InvalidArgument:
    """Return the error for a message of the library.

    Args:
        message: the library's.
        form: takes its short form.
        places: whether places that it names are in the host's text.
    """
    place = _PLACE.search(message) if places else None
    return InvalidArgument(
        f"grammar: {form.format(_reason(message))}",
        reason="invalid_grammar",
        argument="grammar",
        line=int(place["line"]) if place else None,
        column=int(place["column"]) if place and place["column"] else None,
    )


def _reason(message: str) -> str:
    """Return a line or two of the library's message."""
    for mark in ("\n<", "<non-verbose/>"):  # dumps of its state
        message = message.split(mark)[0]
    message = message.strip()
    if "NoExtensionBias" in message:
        return "no text that the model's tokens spell can match it"
    if len(message) > _MAX_MESSAGE:
        half = _MAX_MESSAGE // 2
        message = f"{message[:half]} [...] {message[-half:]}"
    return message


# ---------------------------------------------------------------- Grammars


def _require_library() -> None:
    """Raise Unsupported if llguidance is not there."""
    try:
        import llguidance  # noqa: F401
    except ImportError as exc:
        raise Unsupported(
            f"grammar: it needs the package llguidance, which cannot be imported here ({exc}); "
            "install it, or make the bundle without --without grammar",
            reason="package_unusable",
            package="llguidance",
        ) from exc


def lark_source(grammar: str) -> str:
    """Return a Lark grammar in the form that the library compiles."""
    return json.dumps({"grammars": [{"lark_grammar": grammar}]})


def bounded_whitespace(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema whose white space is bounded, unless it sets white space itself."""
    own = schema.get("x-guidance", {})
    if not isinstance(own, dict) or not _WHITESPACE_OPTIONS.isdisjoint(own):
        return schema
    return {**schema, "x-guidance": {**own, "whitespace_pattern": _WHITESPACE}}


def _source(grammar: str, kind: int) -> str:
    """Return a grammar in the form that the library compiles.

    Raises:
        InvalidArgument: it is empty, too large, or not of its kind.
    """
    if not (grammar if kind == constants.GRAMMAR_REGEX else grammar.strip()):
        raise InvalidArgument(
            "grammar is empty; it must be a text, or NULL for none",
            reason="missing",
            argument="grammar",
        )
    bounds.check_length(grammar, kind)
    if kind == constants.GRAMMAR_JSON_SCHEMA:
        return _schema_source(grammar)
    if kind == constants.GRAMMAR_REGEX:
        bounds.check_classes([(grammar, "")])
        from llguidance import LLMatcher

        source: str = LLMatcher.grammar_from_regex(grammar)
        return source
    if kind == constants.GRAMMAR_GBNF:
        return _gbnf_source(grammar, whole=True)
    bounds.check_rules(grammar)
    bounds.check_regexes(grammar)
    return lark_source(grammar)


def _schema_source(grammar: str) -> str:
    from llguidance import LLMatcher

    schema = bounds.parse_schema(grammar)
    bounds.check_schema(schema)
    if isinstance(schema, bool):
        return json.dumps({"grammars": [{"json_schema": schema}]})
    own = schema.get("x-guidance")
    spaced = isinstance(own, dict) and not _WHITESPACE_OPTIONS.isdisjoint(own)
    defaults: Any = {} if spaced else {"whitespace_pattern": _WHITESPACE}
    try:
        source: str = LLMatcher.grammar_from_json_schema(grammar, defaults=defaults)
    except ValueError as exc:
        raise _refused(str(exc), "not a JSON schema ({})") from exc
    return source


def _gbnf_source(grammar: str, *, whole: bool) -> str:
    """Return a GBNF grammar in the form that the library compiles, see :func:`gbnf.plain`."""
    bounds.check_size(grammar)
    try:
        lark = _lark_of_gbnf(gbnf.plain(grammar, whole=whole))
    except InvalidArgument:
        _lark_of_gbnf(grammar)  # its message has the host's own text, if it fails too
        raise
    bounds.check_size(lark)
    return lark_source(lark)


def _lark_of_gbnf(grammar: str) -> str:
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        lark: str = gbnf_to_lark(grammar)
    except RecursionError as exc:
        raise InvalidArgument(
            "grammar: its parentheses are nested too deeply",
            reason="limit_exceeded",
            argument="grammar",
        ) from exc
    except Exception as exc:  # the library raises plain ones
        raise _refused(str(exc), "not GBNF ({})") from exc
    return lark


# ---------------------------------------------------------------- Vocabularies


class _Tokens:
    """The form of a tokenizer that the library reads.

    The library keeps it as long as its trie, so it must not refer to the trie's owner.

    Attributes:
        tokens: bytes of every token of the model, none for one that gives no text.
        special_token_ids: tokens that no text matches, those ending a generation included.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, model: Model, table: TokenBytes) -> None:
        tokenizer, size = model.tokenizer, model.vocabulary_size
        special = special_tokens(model)
        self.special_token_ids = sorted(token for token in special if 0 <= token < size)
        self.eos_token_id = next(iter(_usable_ends(model)), None)
        self._plain = range(min(size, tokenizer.vocabulary_size))
        self._special = special
        self._table = table
        self._tokenizer = ref(tokenizer)
        self._by_bytes: dict[bytes, int] = {}
        self.tokens = [table.get(token) for token in self._plain]
        self.tokens += [b""] * (size - len(self.tokens))
        for token in self.special_token_ids:
            self.tokens[token] = tokenizer.added.get(token, f"<[{token}]>").encode()

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of a text from the middle of an output.

        Where a grammar leaves no choice, it is the model's own spelling that is allowed.
        """
        tokenizer = self._tokenizer()
        try:
            ids = tokenizer.encode_inner(text, parse_special=False) if tokenizer else []
        except CowMlxError:
            ids = []
        if self._special.isdisjoint(ids) and b"".join(map(self._table.get, ids)) == text.encode():
            return ids
        return self._longest_first(text.encode())  # a normalizer has changed the text

    def _longest_first(self, text: bytes) -> list[int]:
        if not self._by_bytes:
            plain = (token for token in self._plain if token not in self._special)
            self._by_bytes = {self._table.get(token): token for token in plain}
            self._longest = max(map(len, self._by_bytes))
        ids = []
        while text:
            lengths = range(min(self._longest, len(text)), 0, -1)
            length = next((n for n in lengths if text[:n] in self._by_bytes), 0)
            if not length:
                break  # no token has this byte, so no text with it can be generated
            ids.append(self._by_bytes[text[:length]])
            text = text[length:]
        return ids


def special_tokens(model: Model) -> frozenset[int]:
    """Return the tokens that no text of a grammar matches, only their ids in Lark: ``<[7]>``."""
    # Markers such as <tool_call> are not always flagged as special.
    markers = {
        token
        for token, text in model.tokenizer.added.items()
        if text.startswith("<") and text.endswith(">")
    }
    return frozenset(markers | model.tokenizer.special_ids | model.end_tokens)


def _usable_ends(model: Model) -> list[int]:
    return sorted(token for token in model.end_tokens if 0 <= token < model.vocabulary_size)


def _vocabulary(model: Model) -> Any:
    """Return the library's trie for a model, made once; its tokenizer keeps it.

    Raises:
        Unsupported: the tokenizer's tokens do not stand for bytes.
    """
    return model.tokenizer.remembered.once("grammar", lambda: _make_vocabulary(model))


def _make_vocabulary(model: Model) -> Any:
    from llguidance import LLTokenizer

    table = TokenBytes.of(model.tokenizer.backend)
    if table is None:
        raise Unsupported(
            "grammar: a token of this model's tokenizer does not always give the same text, so "
            "there is no telling which tokens match; a byte-level tokenizer is needed, or one of "
            "SentencePiece's kind with byte fallback",
            argument="grammar",
        )
    try:
        tokens: Any = _Tokens(model, table)
        made = LLTokenizer(tokens, eos_token=_usable_ends(model) or None)
        tokens.tokens = None  # the library has its own by now
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:  # the library panics on unexpected tokenizers
        raise Unsupported(
            f"grammar: this model's tokenizer cannot be used ({exc})", argument="grammar"
        ) from exc
    return made
