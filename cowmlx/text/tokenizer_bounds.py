"""Bounds on a ``tokenizer.json``, checked before the library encodes any text.

The library aborts the process when memory ends, and nothing interrupts its work. So the growth of
a text by all components is bounded, and no pattern may take exponential time. Components at which
the library panics are refused: panics print, and some abort.
"""

from __future__ import annotations

import base64
import binascii

from cowmlx import json_text
from cowmlx.errors import BadFormat
from cowmlx.folders import config as config_files
from cowmlx.text.patterns.characters import Unreadable
from cowmlx.text.patterns.pattern import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MAX_GROWTH = 1 << 13  # bytes that normalizer and pre-tokenizer together make of one
MAX_DECODER_GROWTH = 64  # likewise, of the text of tokens
MAX_COMPONENTS = 64  # one after the other, of a kind
MAX_DEPTH = 16
MAX_ENTRY = 4096  # characters of a token
MAX_AFFIX = 256  # of what is put at characters while they are looked up
MAX_WORD = 256  # that WordPiece looks up in quadratic time
MAX_ADDED = 1 << 14  # added tokens
MAX_AROUND = 1024  # tokens that a post-processor puts around a text
MAX_COPIES = 8  # of a text that a post-processor makes


def check(file: str) -> int:
    """Check a ``tokenizer.json``.

    Returns:
        The bytes that its normalizer and pre-tokenizer may make of one.

    Raises:
        BadFormat: a bound is passed, or the file is malformed; the message names the component.
        NotFound, InputOutput: it is missing or unreadable.
    """
    return check_text(config_files.read_text(file), file)[0]


def check_text(
    text: str | bytes, file: str, vocabulary: dict[str, int] | None = None
) -> tuple[int, dict[str, Any]]:
    """Check the text of a ``tokenizer.json``.

    Args:
        text: the text.
        file: for messages.
        vocabulary: of the model, where the text has none.

    Returns:
        What :func:`check` does, and the value of the text.

    Raises:
        BadFormat: see :func:`check`.
    """
    try:
        state = json_text.parse(text, _single)
    except json_text.Malformed as exc:
        raise BadFormat(f"{file} is not JSON: {exc}", file=file, **exc.place) from exc
    except ValueError as exc:
        raise BadFormat(
            f"{file} is not a usable tokenizer ({exc})", reason="invalid_tokenizer", file=file
        ) from exc
    try:
        if vocabulary is not None:
            state["model"]["vocab"] = vocabulary
        return _check(state), state
    except _Exceeded as exc:
        raise BadFormat(f"{file}: {exc}", reason="limit_exceeded", file=file) from None
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as exc:
        raise BadFormat(
            f"{file} is not a usable tokenizer ({type(exc).__name__}: {exc})",
            reason="invalid_tokenizer",
            file=file,
        ) from None


def check_added(texts: Iterable[str], where: str) -> None:
    """Check the texts of added tokens.

    Raises:
        BadFormat: one is too long, or there are too many.
    """
    sizes = [len(text) for text in texts]
    longest = max(sizes, default=0)
    for size, most, stated in (
        (longest, MAX_ENTRY, f"an added token has {longest} characters"),
        (len(sizes), MAX_ADDED, f"there are {len(sizes)} added tokens"),
    ):
        if size > most:
            raise BadFormat(
                f"{where}: {stated}, more than {most}",
                reason="limit_exceeded",
                file=where,
                needed=size,
                limit=most,
            )


class _Exceeded(Exception):
    """A bound is passed; the text names it and its place."""


def _require(size: int, most: int, stated: str) -> None:
    if size > most:
        raise _Exceeded(f"{stated}, more than {most}")


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a component that names a key twice: the library might take the other one."""
    made = dict(pairs)
    if len(made) < len(pairs) and len(pairs) <= MAX_COMPONENTS:
        raise ValueError(f"an object names a key twice, of {', '.join(made)}")
    return made


def _check(state: dict[str, Any]) -> int:
    growth = _grown("normalizer", state.get("normalizer"), _normalizer, MAX_GROWTH, 1)
    growth = _grown("pre_tokenizer", state.get("pre_tokenizer"), _pre_tokenizer, MAX_GROWTH, growth)
    _grown("decoder", state.get("decoder"), _decoder, MAX_DECODER_GROWTH, 1)
    _around("post_processor", state.get("post_processor"))
    _model(state.get("model") or {})
    added = state.get("added_tokens") or []
    check_added((token["content"] for token in added), "added_tokens")
    return growth


# --------------------------------------------------------------------- Growth


def _grown(name: str, component: Any, measure: Any, most: int, growth: int) -> int:
    """Multiply by what every component of a tree may make of a byte."""
    parts = list(leaves(name, component, name))
    _require(len(parts), MAX_COMPONENTS, f"{name} has {len(parts)} components")
    for where, part in parts:
        growth *= measure(where, part)
        if growth > most:
            raise _Exceeded(
                f"{where} ({part.get('type')}) may make more than {most} bytes of one: {growth}"
            )
    return growth


def leaves(
    name: str, component: Any, kind: str | None = None, depth: int = 0
) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the components that a component is a sequence of, in order, each with its place.

    Args:
        name: the component's place.
        component: its value.
        kind: what it must be, such as "decoder"; None for what the library itself has written.
        depth: how many sequences it is in.
    """
    if component is None:
        return
    if depth > MAX_DEPTH:
        raise _Exceeded(f"{name} is nested more than {MAX_DEPTH} deep")
    if kind is not None:
        _typed(name, component, kind)
    if component.get("type") != "Sequence":
        yield name, component
        return
    for key in _SEQUENCES:
        for number, part in enumerate(component.get(key, ())):
            yield from leaves(f"{name}[{number}]", part, kind, depth + 1)


def _typed(where: str, component: dict[str, Any], kind: str) -> None:
    """Require a type of a kind, and no member by which the library would take another one.

    Where it has no type that the library knows, it is what its members make of it.
    """
    own = component.get("type")
    if own not in _TYPES[kind]:
        raise ValueError(f"{where} has the type {own!r}; types of a {kind}: {_TYPES[kind]}")
    for key in component:
        owners = _OWNERS.get(key, _TYPES[kind])
        if own not in owners:
            raise ValueError(f"{where} ({own}) has {key!r}, which only {owners} may have")


_TYPES = {
    "normalizer": (
        *("BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt"),
        *("Precompiled", "Prepend", "Replace", "Sequence", "Strip", "StripAccents"),
    ),
    "pre_tokenizer": (
        *("BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "FixedLength"),
        *("Metaspace", "Punctuation", "Sequence", "Split", "UnicodeScripts", "Whitespace"),
        "WhitespaceSplit",
    ),
    "decoder": (
        *("BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace"),
        *("Sequence", "Strip", "WordPiece"),
    ),
    "post_processor": (
        *("BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"),
    ),
    "model": ("BPE", "Unigram", "WordLevel", "WordPiece"),
}
_SEQUENCES = ("normalizers", "pretokenizers", "decoders", "processors")
# The types that have a member.
_OWNERS = {
    **dict.fromkeys(_SEQUENCES, ("Sequence",)),
    "pattern": ("Replace", "Split"),
    "content": ("Replace", "Strip"),
    "prepend": ("Prepend",),
    **dict.fromkeys(("single", "special_tokens"), ("TemplateProcessing",)),
}

# What one byte may become; of the normal forms see Unicode's annex 15.
_NORMALIZERS = {"NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Lowercase": 2, "ByteLevel": 2}
# Spaces around ideographs, decomposition and lower case.
_BERT = 2 * 3 * 2


def _normalizer(where: str, part: dict[str, Any]) -> int:
    kind = part.get("type")
    if kind == "Prepend":
        # There are as many texts between added tokens as there are characters, at most.
        return 1 + _size(part["prepend"])
    if kind == "Replace":
        return _replaced(where, part)
    if kind == "Precompiled":
        return _precompiled(part)
    return _BERT if kind == "BertNormalizer" else _NORMALIZERS.get(str(kind), 1)


def _pre_tokenizer(where: str, part: dict[str, Any]) -> int:
    kind = part.get("type")
    if kind == "Split":
        _pattern(where, part["pattern"])
    if kind == "FixedLength" and part.get("length") == 0:
        raise _Exceeded(f"{where} (FixedLength) has length 0; it must be 1 at least")
    if kind == "ByteLevel":
        return 4 if part.get("add_prefix_space", True) else 2
    if kind == "Metaspace":
        mark = _size(part.get("replacement", "▁"))
        return mark if part.get("prepend_scheme") == "never" else 2 * mark
    return 1


def _decoder(where: str, part: dict[str, Any]) -> int:
    kind = part.get("type")
    if kind == "Replace":
        return _replaced(where, part)
    if kind == "WordPiece":
        _affix(where, "prefix", part.get("prefix"))
    if kind == "Strip" and part["stop"]:
        # The library counts below the beginning of a token that is shorter, or all stripped.
        raise _Exceeded(f"{where} (Strip) strips {part['stop']} characters of ends; only 0 works")
    return 1


def _replaced(where: str, part: dict[str, Any]) -> int:
    least = _pattern(where, part["pattern"])
    size = _size(part["content"])
    return max(1, -(-size // least)) if least else 1 + size


def _pattern(where: str, pattern: dict[str, str]) -> int:
    """Check a pattern; return the fewest bytes that it matches."""
    if "String" in pattern:
        return _size(pattern["String"])
    source = pattern["Regex"]
    shown = source if len(source) <= 80 else f"{source[:80]}..."
    try:
        parsed = Pattern(source)
        slow = parsed.slow
    except Unreadable as exc:
        raise _Exceeded(f"the pattern {shown} of {where} is not supported: {exc}") from None
    if parsed.explosive:
        raise _Exceeded(
            f"the pattern {shown} of {where} may take exponential time: a repetition in it can "
            "go several ways through the same text"
        )
    if slow:
        raise _Exceeded(
            f"the pattern {shown} of {where} may take cubic time: repetitions in it share the "
            "same text"
        )
    return parsed.least


def _precompiled(part: dict[str, Any]) -> int:
    """Return the longest of the texts that SentencePiece's table gives for characters."""
    try:
        table = base64.b64decode(part["precompiled_charsmap"], validate=True)
    except binascii.Error as exc:
        raise ValueError(f"precompiled_charsmap: {exc}") from None
    size = int.from_bytes(table[:4], "little") + 4
    if len(table) < size:
        raise ValueError("precompiled_charsmap is cut short")
    _trie(table[4:size], table[size:])
    return max(1, *map(len, table[size:].split(b"\0")))


def _trie(array: bytes, texts: bytes) -> None:
    """Make sure that no way through SentencePiece's double array leaves it, or its texts.

    A unit holds a byte of a character, how far away the unit's block of 256 is, and whether a
    character ends here: the block's first unit then holds where its text begins.
    """
    units = memoryview(array[: len(array) // 4 * 4]).cast("I")
    texts.decode()
    for index, unit in enumerate(units or (0,)):
        if index and unit >> 31:  # where a text begins
            continue
        block = index ^ ((unit >> 10) << ((unit & 1 << 9) >> 6))
        if block | 255 >= len(units):
            raise ValueError(f"unit {index} of precompiled_charsmap leads out of it")
        begin = units[block] & ((1 << 31) - 1)
        if unit & 1 << 8 and (begin > len(texts) or texts[begin : begin + 1] in _INNER_BYTES):
            raise ValueError(f"unit {index} of precompiled_charsmap leads to no text")


# Of a character, those behind its first.
_INNER_BYTES = frozenset(bytes([value]) for value in range(0x80, 0xC0))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


# ------------------------------------------------------------ Around a text


def _around(name: str, component: Any) -> None:
    """Bound what post-processors put around a text."""
    copies, tokens = 1, 0
    parts = list(leaves(name, component, name))
    _require(len(parts), MAX_COMPONENTS, f"{name} has {len(parts)} components")
    for where, part in parts:
        if part.get("type") != "TemplateProcessing":
            tokens += 2  # BERT's and RoBERTa's
            continue
        special = part.get("special_tokens") or {}
        for key, token in special.items():
            for text in (key, token["id"], *token["tokens"]):
                _require(
                    len(text), MAX_ENTRY, f"a special token of {where} has {len(text)} characters"
                )
        pieces = [piece for piece in part["single"] if isinstance(piece, dict)]
        count = len(part["single"])
        _require(count, MAX_AROUND, f"{where} puts {count} pieces together")
        if any(piece.get("Sequence", {}).get("id", "A") != "A" for piece in pieces):
            raise _Exceeded(f"{where}.single puts a second text into the place of a single one")
        own = sum("Sequence" in piece for piece in pieces)
        copies *= max(1, own)
        tokens = tokens * max(1, own) + sum(
            len(special[piece["SpecialToken"]["id"]]["ids"])
            for piece in pieces
            if "SpecialToken" in piece
        )
        _require(copies, MAX_COPIES, f"{where} makes {copies} copies of a text")
    _require(tokens, MAX_AROUND, f"{name} puts {tokens} tokens around a text")


# ------------------------------------------------------------------- The model


def _model(model: dict[str, Any]) -> None:
    if model.get("type") is not None:  # old files have none; all types' members are bounded
        _typed("model", model, "model")
    vocabulary = model.get("vocab") or {}
    entries = vocabulary if isinstance(vocabulary, dict) else (entry[0] for entry in vocabulary)
    longest = max(map(len, entries), default=0)
    _require(longest, MAX_ENTRY, f"model.vocab has a token of {longest} characters")
    for key in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        _affix("model", key, model.get(key))
    if model.get("continuing_subword_prefix") and "merges" in model:
        _merges(model["continuing_subword_prefix"], model["merges"], vocabulary)
    word = model.get("max_input_chars_per_word")
    if isinstance(word, int):
        _require(word, MAX_WORD, f"model.max_input_chars_per_word is {word}")


def _merges(prefix: str, merges: list[Any], vocabulary: Any) -> None:
    """Make sure that every merge gives a token once the prefix is cut off its second part.

    The library cuts bytes off without a look at what they are.
    """
    size = _size(prefix)
    for number, merge in enumerate(merges):
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        cut = second.encode("utf-8", "surrogatepass")
        merged = first + cut[size:].decode("utf-8", "replace")
        if len(cut) < size or merged not in vocabulary:
            raise _Exceeded(
                f"model.merges[{number}] ({first[:40]!r}, {second[:40]!r}) gives no token of the "
                f"vocabulary without model.continuing_subword_prefix ({prefix!r})"
            )


def _affix(where: str, key: str, text: str | None) -> None:
    size = len(text or "")
    _require(size, MAX_AFFIX, f"{where}.{key} has {size} characters")
