"""Bounds on a template's source, before the parser recurses into it."""

from __future__ import annotations

import re

from cowmlx.text.templates.budget import MAX_DIGITS, Budget, OverBudget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jinja2.lexer import Token

MAX_SOURCE = 1 << 20
MAX_NODES = 12_000
MAX_LEVELS = 200
_MAX_BRACKETS = 50
_LONG_NUMBER = re.compile(rf"[0-9_]{{{MAX_DIGITS + 1}}}")
_MAX_BLOCKS = 50
_MAX_PREFIXES = 50
# What the parser does for a token.
_TOKEN_STEPS = 8
_OPENING = frozenset(("lparen", "lbracket", "lbrace"))
_CLOSING = frozenset(("rparen", "rbracket", "rbrace"))
_BLOCKS = frozenset(
    ("autoescape", "block", "call", "filter", "for", "generation", "if", "macro", "with")
)


def check_source(source: str) -> None:
    """Make sure that a template is not too long.

    Raises:
        OverBudget: it is.
    """
    if len(source) > MAX_SOURCE:
        raise OverBudget(f"the chat template is longer than {MAX_SOURCE} characters")
    if _LONG_NUMBER.search(source):  # the lexer would take hundreds of bytes for each digit
        raise OverBudget(f"the chat template spells a number of more than {MAX_DIGITS} digits")


def checked(budget: Budget, stream: Iterable[Token]) -> Iterator[Token]:
    """Hand tokens on; refuse what would make the parser recurse too deeply.

    Raises:
        OverBudget: brackets, blocks, or operators with one operand nest too deeply.
    """
    brackets = blocks = prefixes = elses = 0
    tag = previous = ""
    assigns = False
    for token in stream:
        budget.step(_TOKEN_STEPS)
        budget.make(128 + len(token.value) * 4 if isinstance(token.value, str) else 128)
        kind, word = token.type, token.value
        if kind in _OPENING:
            brackets += 1
        elif kind in _CLOSING:
            brackets -= 1
        elif kind in ("block_begin", "variable_begin"):
            brackets = prefixes = elses = 0
            tag, assigns = "", False
        elif kind == "block_end":
            blocks += tag in _BLOCKS or (tag == "set" and not assigns)
            blocks -= tag.startswith("end")
        elif kind == "assign":
            assigns = True
        elif kind == "name" and previous == "block_begin":
            tag = word
        elif kind == "name" and word == "else":
            elses += 1
        is_prefix = kind in ("sub", "add") or (kind == "name" and word == "not")
        prefixes = prefixes + 1 if is_prefix else 0
        deep = max(brackets - _MAX_BRACKETS, blocks - _MAX_BLOCKS)
        if max(deep, prefixes - _MAX_PREFIXES, elses - _MAX_PREFIXES) > 0:
            raise OverBudget(
                f"the chat template nests expressions or blocks deeper than {_MAX_BRACKETS} levels"
                f" (line {token.lineno})"
            )
        previous = kind
        yield token
