"""Where a text can be cut so that the tokens of its parts are the tokens of the whole.

Between two characters there is a cut if no step of the tokenizer looks across it, whatever else
the text holds: no normalizer joins the two, and the pre-tokenizer always splits there or, where it
never does, no token of the vocabulary has the two next to each other. The tokenizer's components
decide that; nothing is assumed of unknown components.

The library encodes a text in one call that nothing interrupts and that takes about 200 bytes a
character, so a thread for whole texts would bound neither time nor memory.

A part is encoded behind the one character in front of it, so that nothing meant for the
beginning of a text happens to it. Cuts follow no whitespace, hence neither do added tokens that
take whitespace with them, nor a strip of the end, reach across.
"""

from __future__ import annotations

import unicodedata
from functools import cached_property
from itertools import pairwise

from cowmlx import json_text
from cowmlx.text.patterns.characters import Unreadable, Unsure, settled
from cowmlx.text.patterns.pattern import Pattern
from cowmlx.text.tokenizer_bounds import leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Pair = tuple[str, str]
    # Returns the pair as the next step sees it; None: always split.
    Step = Callable[[str, str], Pair | None]
    # Makes the steps of a component from its state.
    Component = Callable[[dict[str, Any]], list[Step]]

_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"\w+|[^\w\s]+"
_MAX_PAIRS = 1 << 16
_MAX_TRIES = 1 << 16


class Cuts:
    """The places where one tokenizer's texts can be cut.

    Args:
        backend: a tokenizer of the library.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._normal = _steps(backend.normalizer, _NORMALIZERS)
        self._split = _steps(backend.pre_tokenizer, _PRE_TOKENIZERS)
        self._pairs: dict[str, list[str] | None] = {}
        # Added tokens that are looked for in the text as it is, or once it is normalized.
        self._verbatim, self._normalized = _Touching(), _Touching()
        for token in backend.get_added_tokens_decoder().values():
            if token.normalized and backend.normalizer is not None:
                self._normalized.add(backend.normalizer.normalize_str(token.content))
            else:
                self._verbatim.add(token.content)

    def find(self, text: str, begin: int, end: int, limit: int) -> int | None:
        """Return where the part of a text that begins at ``begin`` ends.

        That is the last cut up to ``end`` or, if there is none, the first one behind it. None
        if there is none up to ``limit``.
        """
        if len(text) <= end:
            return len(text)
        tries = _MAX_TRIES
        for places in (range(end, begin, -1), range(end + 1, min(limit + 1, len(text)))):
            for at in places:
                tokens = self._candidate(text[at - 1 : at + 1])
                if tokens is None:
                    continue
                tries -= len(tokens)
                if tries < 0:
                    break  # where every place has its added token
                if not any(t in text[max(0, at - len(t)) : at + len(t)] for t in tokens):
                    return at
        return len(text) if len(text) <= limit else None

    def _candidate(self, pair: str) -> list[str] | None:
        """Return the added tokens that may be in the way of a cut; None if it is none."""
        if pair not in self._pairs:
            if len(self._pairs) > _MAX_PAIRS:
                self._pairs.clear()
            sure = self._sure(pair[0], pair[1])
            self._pairs[pair] = self._verbatim.of(pair[0], pair[1]) if sure else None
        return self._pairs[pair]

    def _sure(self, left: str, right: str) -> bool:
        """Whether there is a cut wherever these two stand next to each other."""
        if not (_plain(left) and _plain(right)) or left.isspace():
            return False
        try:
            for step in self._normal:
                pair = step(left, right)
                if pair is None:
                    return False
                left, right = pair
            if self._normalized and (left.isspace() or self._normalized.of(left, right)):
                return False
            for step in self._split:
                pair = step(left, right)
                if pair is None:
                    return True
                left, right = pair
            return self._tokens_end_between(left, right)
        except Unsure:
            return False

    def _tokens_end_between(self, left: str, right: str) -> bool:
        """Whether the model itself never makes one token of two characters."""
        model = self._backend.model
        return (
            type(model).__name__ == "BPE"
            and not model.ignore_merges
            and not model.continuing_subword_prefix
            and not model.end_of_word_suffix
            and not model.dropout
            and left + right not in self._vocabulary
            # Unknown characters in a row may be one token.
            and f"\0{left}\0" in self._vocabulary
        )

    @cached_property
    def _vocabulary(self) -> str:
        known = self._backend.get_vocab(with_added_tokens=False)
        return "\0" + "\0".join(known) + "\0"


def state_of(component: Any) -> dict[str, Any] | None:
    """Return what a component of the library is made of; None for none."""
    if component is None:
        return None
    try:
        state = json_text.parse(component.__getstate__())
    except (TypeError, ValueError, AttributeError):
        return {"type": "unknown"}  # a component in Python
    return state if isinstance(state, dict) else {"type": "unknown"}


def _plain(character: str) -> bool:
    """Whether a character never joins its neighbours, and is the same in all normal forms."""
    if "!" <= character <= "~" or character in " \n":
        return True
    if character.isascii() or not settled(character):
        return False
    return (
        unicodedata.category(character)[0] in "LNPSZ"
        and not unicodedata.combining(character)
        and not unicodedata.decomposition(character)
        and not any(low <= character <= high for low, high in _JOINING)
        and len(character.casefold()) == 1
    )


# Hangul, whose letters join into syllables.
_JOINING = (("\u1100", "\u11ff"), ("\ua960", "\ua97f"), ("\uac00", "\ud7ff"), ("\uffa0", "\uffdc"))


def _is_ideograph(character: str) -> bool:
    return "\u4e00" <= character <= "\u9fa5"


class _Touching:
    """Texts by the places between two characters that they may reach over, or up to."""

    def __init__(self) -> None:
        self._first: dict[str, list[str]] = {}
        self._last: dict[str, list[str]] = {}
        self._within: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._first)

    def add(self, text: str) -> None:
        """Add a text."""
        if not text:
            return
        self._first.setdefault(text[0], []).append(text)
        self._last.setdefault(text[-1], []).append(text)
        for pair in set(map("".join, pairwise(text))):
            self._within.setdefault(pair, []).append(text)

    def of(self, left: str, right: str) -> list[str]:
        """Return the texts that hold both characters in a row, begin or end between them."""
        return [
            *self._within.get(left + right, ()),
            *self._first.get(right, ()),
            *self._last.get(left, ()),
        ]


def _unsure(*_: str) -> Pair:
    raise Unsure


def _steps(component: Any, known: dict[str, Component]) -> list[Step]:
    """Return the steps of a component; one that is not known is unsure of every pair."""
    steps: list[Step] = []
    for _, part in leaves("", state_of(component)):
        kind = part["type"]
        steps += known[kind](part) if kind in known else [_unsure]
    return steps


# ----------------------------------------------------------------- Normalizers


def _lowered(left: str, right: str) -> Pair:
    return left.lower()[-1], right.lower()[0]


def _bytes(left: str, right: str) -> Pair:
    from cowmlx.text.detokenizer import byte_table

    letters = {byte: letter for letter, byte in byte_table().items()}
    return letters[left.encode()[-1]], letters[right.encode()[0]]


def _ascii(left: str, right: str) -> Pair:
    if not (left.isascii() and right.isascii()):
        raise Unsure
    return left, right


def _replaced(state: dict[str, Any]) -> Step:
    content: str = state["content"]
    text = state["pattern"].get("String")
    pattern = pattern_of(state["pattern"])
    if pattern is None:
        return _unsure

    def step(left: str, right: str) -> Pair:
        if text is not None and len(text) == 1:
            if text in (left, right) and not content:
                raise Unsure
            return (
                content[-1] if left == text else left,
                content[0] if right == text else right,
            )
        if not pattern.least or pattern.crosses(left, right):
            raise Unsure
        if pattern.touches(left) or pattern.touches(right):
            raise Unsure
        return left, right

    return step


def _bert(state: dict[str, Any]) -> Step:
    def one(character: str) -> str:
        if character.isascii():
            return character.lower() if state["lowercase"] else character
        if state["handle_chinese_chars"] and _is_ideograph(character):
            return " "  # it gets one on either side
        raise Unsure

    return lambda left, right: (one(left), one(right))


def _precompiled(state: dict[str, Any]) -> Step:
    from base64 import b64decode

    from tokenizers import normalizers

    table = normalizers.Precompiled(b64decode(state["precompiled_charsmap"]))

    def step(left: str, right: str) -> Pair:
        _ascii(left, right)
        before, after = table.normalize_str(left), table.normalize_str(right)
        if not before or not after:
            raise Unsure
        return before[-1], after[0]

    return step


def pattern_of(state: dict[str, str]) -> Pattern | None:
    """Return the pattern of a component; None if its syntax is not followed."""
    try:
        if "String" in state:
            return Pattern(state["String"], literal=True)
        return Pattern(state["Regex"])
    except Unreadable:
        return None


def _none(_: dict[str, Any]) -> list[Step]:
    return []


_NORMALIZERS: dict[str, Component] = {
    # These leave plain characters as they are; the last two look at a text's ends alone.
    **dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Prepend", "Strip"), _none),
    "Lowercase": lambda _: [_lowered],
    "ByteLevel": lambda _: [_bytes],
    "Replace": lambda state: [_replaced(state)],
    "BertNormalizer": lambda state: [_bert(state)],
    "Precompiled": lambda state: [_precompiled(state)],
    "Nmt": lambda _: [_ascii],
}

# -------------------------------------------------------------- Pre-tokenizers


def _is_punctuation(character: str) -> bool:
    if character.isascii():
        return "!" <= character <= "~" and not character.isalnum()
    return unicodedata.category(character).startswith("P")


def _isolated(matches: Callable[[str], bool]) -> Step:
    """Split before and after every character of a kind."""

    def step(left: str, right: str) -> Pair | None:
        return None if matches(left) or matches(right) else (left, right)

    return step


def _digits(*, individual: bool) -> Step:
    def step(left: str, right: str) -> Pair | None:
        numeric = [unicodedata.category(c).startswith("N") for c in (left, right)]
        splits = any(numeric) if individual else numeric[0] != numeric[1]
        return None if splits else (left, right)

    return step


def _matched(pattern: Pattern | None, behavior: str) -> Step:
    """Split around the matches of a pattern."""
    if pattern is None:
        return _unsure

    def step(left: str, right: str) -> Pair | None:
        if not pattern.least or pattern.crosses(left, right) or behavior == "Contiguous":
            raise Unsure
        never = [not pattern.touches(c) for c in (left, right)]
        if all(never):
            return left, right
        if behavior in ("Isolated", "Removed"):
            sure = all(n or pattern.takes(c) for n, c in zip(never, (left, right), strict=True))
        else:
            sure = pattern.takes(left) and pattern.takes(right)
        if not sure:
            raise Unsure
        return None

    return step


def _metaspace(state: dict[str, Any]) -> Step:
    mark = state["replacement"]

    def step(left: str, right: str) -> Pair | None:
        if left in (" ", mark):
            raise Unsure
        if right in (" ", mark):
            return None if state["split"] else (left, mark)
        return left, right

    return step


def _by_bytes(state: dict[str, Any]) -> list[Step]:
    split = [_matched(Pattern(_BYTE_LEVEL), "Isolated")] if state["use_regex"] else []
    return [*split, _bytes]


_PRE_TOKENIZERS: dict[str, Component] = {
    "ByteLevel": _by_bytes,
    "Split": lambda state: [_matched(pattern_of(state["pattern"]), state["behavior"])],
    "Metaspace": lambda state: [_metaspace(state)],
    "Whitespace": lambda _: [_matched(Pattern(_WORDS), "Removed")],
    "WhitespaceSplit": lambda _: [_isolated(str.isspace)],
    "BertPreTokenizer": lambda _: [_isolated(lambda c: c.isspace() or _is_punctuation(c))],
    "Punctuation": lambda state: [
        _isolated(_is_punctuation) if state["behavior"] in ("Isolated", "Removed") else _unsure
    ],
    "Digits": lambda state: [_digits(individual=state["individual_digits"])],
    "CharDelimiterSplit": lambda state: [_isolated(lambda c: c == state["delimiter"])],
}
