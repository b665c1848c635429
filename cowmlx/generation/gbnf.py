r"""GBNF, the notation of llama.cpp, in a form that the library's converter reads as llama.cpp does.

The converter writes Lark. It changes names, so that two may become one, and copies characters that
mean something in Lark's strings and regexes and nothing in GBNF.
"""

from __future__ import annotations

import re

# A comment; a string; a class of characters; a number of repetitions; a name; any character; one
# that is not closed, up to the end.
_PART = re.compile(
    r"""(?P<comment>\#[^\r\n]*)
    |(?P<string>"(?:\\.|[^"\\])*")
    |(?P<class>\[\^?(?:\\.|[^\]\\])*\])
    |\{[^}]*\}
    |(?P<name>[\w-]+)(?P<defined>\s*::=)?
    |(?P<any>\.)
    |["\[{].*""",
    re.DOTALL | re.VERBOSE,
)
_CHARACTER = r"\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|[^\\]"
_CHARACTERS = re.compile(_CHARACTER, re.DOTALL)
# A hyphen is a range's only between two characters.
_RANGE = re.compile(f"({_CHARACTER})(?:-({_CHARACTER}))?", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_ANY = "[\\x00-\U0010ffff]"
_ROOT = "root"


def plain(grammar: str, *, whole: bool) -> str:
    r"""Rename the rules of a grammar, and spell its characters so that none has a meaning.

    ``.`` becomes a class of all characters. What is no GBNF stays as it is.

    Args:
        grammar: the grammar.
        whole: whether the grammar is one terminal, if no rule is recursive: the converter makes a
            terminal of each such rule but the root, and a terminal takes the longest text.
    """
    names = {_ROOT: "r0" if whole else _ROOT}
    defined = set()

    def replace(part: re.Match[str]) -> str:
        kind = part.lastgroup
        if kind == "comment":
            return ""
        if kind == "string":
            return f'"{_CHARACTERS.sub(_spelled, part[0][1:-1])}"'
        if kind == "class":
            begin = 2 if part[0][1] == "^" else 1
            return f"{part[0][:begin]}{_RANGE.sub(_spelled_range, part[0][begin:-1])}]"
        if kind == "any":
            return _ANY
        name = part["name"]
        if name is None:
            return part[0]
        if part["defined"]:
            defined.add(name)
        return names.setdefault(name, f"r{len(names)}") + (part["defined"] or "")

    text = _PART.sub(replace, grammar)
    return f"{_ROOT} ::= r0\n{text}" if whole and _ROOT in defined else text


def _spelled_range(match: re.Match[str]) -> str:
    first, last = (None if part is None else _spelling(part) for part in match.groups())
    return f"{first}" if last is None else f"{first}-{last}"


def _spelled(match: re.Match[str]) -> str:
    return _spelling(match[0])


def _spelling(character: str) -> str:
    """Spell a character, written itself or as an escape; none that GBNF has stays as it is."""
    if character[0] != "\\":
        code = ord(character)
    elif character[1] in "xuU" and len(character) > 2:
        code = int(character[2:], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            return character
    elif character[1] in '\\"[]nrt':
        code = ord(_ESCAPES.get(character[1], character[1]))
    else:
        return character
    one = chr(code)
    return f"\\x{code:02x}" if code < 0x80 and not one.isalnum() else one
