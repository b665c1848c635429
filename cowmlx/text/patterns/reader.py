"""Reads characters of a regular expression, and classes of them."""

from __future__ import annotations

from cowmlx.text.patterns.characters import (
    SHORTHANDS,
    Unreadable,
    all_of,
    any_of,
    between,
    equal,
    named,
    none_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Has = Callable[[str], bool]

MAX_DEPTH = 64


class Reader:
    """Reads on from a place in a pattern.

    Args:
        source: of the pattern.
    """

    def __init__(self, source: str) -> None:
        self._text = source
        self._at = 0
        self._depth = 0
        self._fold = False

    # ------------------------------------------------------------- Classes

    def _escape(self) -> Has:
        character = self._next()
        lower = character.lower()
        if lower in SHORTHANDS:
            shorthand = SHORTHANDS[lower]
            return none_of(shorthand) if character.isupper() else shorthand
        if lower == "p":
            return self._property(negated=character == "P")
        return equal(self._code(character), fold=self._fold)

    def _code(self, character: str) -> str:
        simple = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
        if character in simple:
            return simple[character]
        digits = ""
        if character == "x" and self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1
        elif character in "xu":
            width = 2 if character == "x" else 4
            digits = self._text[self._at : self._at + width]
            self._at += len(digits)
        elif character.isalnum():
            raise Unreadable(f"\\{character} is not supported")
        else:
            return character
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise Unreadable(f"\\{character}{digits} is no character") from None

    def _property(self, *, negated: bool) -> Has:
        if not self._take("{"):
            raise Unreadable("\\p without braces")
        end = self._text.find("}", self._at)
        if end < 0:
            raise Unreadable("\\p{ is not closed")
        name = self._text[self._at : end]
        self._at = end + 1
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        has = named(name)
        return none_of(has) if negated else has

    def _class(self) -> Has:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable(f"its classes are nested more than {MAX_DEPTH} deep")
        negated = self._take("^")
        both: list[Has] = []
        members: list[Has] = []
        if self._text[self._at : self._at + 1] == "]":
            self._at += 1
            members.append(equal("]", fold=False))
        while not self._take("]"):
            if self._take("&&"):
                both.append(any_of(members))
                members = []
            elif self._take("[:"):
                members.append(self._posix())
            elif self._take("["):
                members.append(self._class())
            else:
                members.append(self._member())
        self._depth -= 1
        has = all_of([*both, any_of(members)])
        return none_of(has) if negated else has

    def _posix(self) -> Has:
        negated = self._take("^")
        end = self._text.find(":]", self._at)
        name = self._text[self._at : end] if end >= 0 else ""
        self._at = end + 2
        if end < 0:
            raise Unreadable("[: is not closed")
        has = named(name)
        return none_of(has) if negated else has

    def _member(self) -> Has:
        begin = self._at
        character = self._next()
        low = character
        if character == "\\":
            kind = self._text[self._at : self._at + 1]
            if kind.lower() in (*SHORTHANDS, "p"):
                return self._escape()
            if kind == "b":
                self._at += 1
                low = "\b"
            elif kind == "R":
                raise Unreadable("\\R in a class")
            else:
                low = self._code(self._next())
        if self._text[self._at : self._at + 1] != "-" or self._text[self._at + 1] in "][":
            return equal(low, fold=self._fold)
        self._at += 1
        high = self._next()
        if high == "\\":
            if self._text[self._at : self._at + 1].lower() in (*SHORTHANDS, "p"):
                raise Unreadable(f"a range at {begin} ends with a class")
            high = self._code(self._next())
        return between(low, high, fold=self._fold)

    # ----------------------------------------------------------------- Text

    def _take(self, sign: str) -> bool:
        if self._text.startswith(sign, self._at):
            self._at += len(sign)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise Unreadable("it ends too early")
        self._at += 1
        return self._text[self._at - 1]
