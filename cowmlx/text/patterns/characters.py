"""Classes of characters, as far as every version of Unicode in use agrees on them."""

from __future__ import annotations

import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Has = Callable[[str], bool]

_CATEGORIES = frozenset(
    major + minor
    for major, minors in {
        "l": "ultmo",
        "m": "nce",
        "n": "dlo",
        "p": "cdseifo",
        "s": "mcko",
        "z": "slp",
        "c": "cfo",
    }.items()
    for minor in ("", *minors)
)
_LONG_NAMES = {"letter": "L", "number": "N", "punct": "P", "punctuation": "P", "digit": "Nd"}
# Letters, digits, signs, spaces and letters of other alphabets, to distinguish classes.
SAMPLES = [
    *map(chr, range(0x7F)),
    *"éßÉǅʰªאあア漢字한\u0301\u0903٣Ⅷ½„\u201c€¬©\u00a0\u2028\u3000🙂",
]


class Unreadable(Exception):
    """A pattern whose syntax no tokenizer needs; the text says which."""


class Unsure(Exception):
    """It is unknown here whether a character is in a class."""


def never(_: str) -> bool:
    """Has no character."""
    return False


def always(_: str) -> bool:
    """Has every character."""
    return True


def settled(character: str) -> bool:
    """Whether every version of Unicode in use says the same of a character."""
    return character.isascii() or unicodedata.category(character) == unicodedata.ucd_3_2_0.category(
        character
    )


def _category(character: str) -> str:
    if not settled(character):
        raise Unsure
    return unicodedata.category(character)


def equal(wanted: str, *, fold: bool) -> Has:
    """Have one character; ``fold``: in either case."""
    if not fold:
        return lambda c: c == wanted
    folded = {wanted, wanted.lower(), wanted.upper(), wanted.casefold()}
    return lambda c: bool(folded & {c, c.lower(), c.upper(), c.casefold()})


def between(low: str, high: str, *, fold: bool) -> Has:
    """Have the characters of a range; ``fold``: in either case."""
    if not fold:
        return lambda c: low <= c <= high
    return lambda c: any(
        low <= v <= high for v in (c, c.lower(), c.upper(), c.casefold()) if len(v) == 1
    )


def none_of(has: Has) -> Has:
    """Have what a class has not."""
    return lambda c: not has(c)


def any_of(classes: list[Has]) -> Has:
    """Have what any class has."""
    return lambda c: any(has(c) for has in classes)


def all_of(classes: list[Has]) -> Has:
    """Have what all classes have."""
    return lambda c: all(has(c) for has in classes)


def in_category(*names: str) -> Has:
    """Have the characters whose category begins with one of these."""
    return lambda c: _category(c).startswith(names)


def is_space(c: str) -> bool:
    """Whether a character is whitespace to a pattern."""
    return c in "\t\n\v\f\r \x85" or (not c.isascii() and _category(c).startswith("Z"))


SHORTHANDS: dict[str, Has] = {
    "s": is_space,
    "d": in_category("Nd"),
    "w": in_category("L", "M", "Nd", "Pc"),
    "h": lambda c: c in "0123456789abcdefABCDEF",
}


def named(name: str) -> Has:
    """Return the class of a property or a POSIX bracket."""
    plain = name.replace("_", "").replace(" ", "").replace("-", "").lower()
    if plain in _CATEGORIES:
        return in_category(plain.capitalize())
    if plain in ("space", "whitespace"):
        return is_space
    if plain == "word":
        return SHORTHANDS["w"]
    if plain in _LONG_NAMES:
        return _sure_for_ascii(in_category(_LONG_NAMES[plain]), alnum_only=plain == "punct")
    if plain in _ASCII_NAMES:
        return _sure_for_ascii(_ASCII_NAMES[plain])
    if not plain.isalnum():
        raise Unreadable(f"\\p{{{name}}} is not supported")
    return _outside_ascii if plain in _SCRIPTS else _unknown


_ASCII_NAMES: dict[str, Has] = {
    "alpha": str.isalpha,
    "alphabetic": str.isalpha,
    "alnum": str.isalnum,
    "upper": str.isupper,
    "uppercase": str.isupper,
    "lower": str.islower,
    "lowercase": str.islower,
    "uppercaseletter": str.isupper,
    "lowercaseletter": str.islower,
    "blank": lambda c: c in " \t",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "graph": lambda c: "!" <= c <= "~",
    "print": lambda c: " " <= c <= "~",
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_SCRIPTS = frozenset(
    (
        "han", "hiragana", "katakana", "hangul", "bopomofo", "cyrillic", "greek", "hebrew",
        "arabic", "thai", "devanagari", "bengali", "tamil", "telugu", "armenian", "georgian",
        "khmer", "lao", "myanmar", "tibetan", "mongolian", "ethiopic",
    )
)  # fmt: skip


def _sure_for_ascii(has: Has, *, alnum_only: bool = False) -> Has:
    def sure(c: str) -> bool:
        if not c.isascii() or (alnum_only and not (c.isalnum() or c.isspace())):
            raise Unsure
        return has(c)

    return sure


def _outside_ascii(c: str) -> bool:
    if not c.isascii():
        raise Unsure
    return False


def _unknown(_: str) -> bool:
    raise Unsure
