"""What a grammar may not exceed, so that none stops the process for long.

A grammar is compiled in one piece, between two steps. The library bounds the work of most
stages itself; not its recursion, and not a few stages that grow much faster than the grammar.
These bounds are what such grammars need, with a distance; others are far below them.
"""

from __future__ import annotations

import re
from itertools import filterfalse
from urllib.parse import unquote

from cowmlx import json_text
from cowmlx.errors import InvalidArgument
from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, TypeGuard

_MAX_BYTES = {
    constants.GRAMMAR_JSON_SCHEMA: 256 << 10,
    constants.GRAMMAR_REGEX: 64 << 10,
    constants.GRAMMAR_LARK: 64 << 10,
    constants.GRAMMAR_GBNF: 64 << 10,
}
_MAX_DEPTH = 1000  # of a schema, references followed: the library recurses
_MAX_PROPERTIES = 3000  # and required ones: quadratic
_MAX_LITERALS = 3000  # lists and objects in const and enum, and what they hold: quadratic
_MAX_ENUM = 20_000  # values of enum
_MAX_ALTERNATIVES = 2000  # schemas of anyOf, oneOf and allOf, but for pairs: quadratic
_MAX_PATTERN_PROPERTIES = 64  # each is compared with each other one
_MAX_INTERSECTED = 12  # patterns of a schema that may come to hold for one text: exponential
_MAX_MULTIPLE = 100_000  # states of the automaton of multipleOf
_MAX_RULES = 500  # recursion
_MAX_BRACKETS = 2000  # likewise
_MAX_INTERSECTIONS = 16  # & and ~ of Lark: exponential
_MAX_CLASSES = 64  # of characters, where case is ignored: about 10 ms for one of all characters
_EXACT = 1 << 53  # integers up to here: the library reads them as float64
_LARGEST = 1 << 63  # the first integer beyond those of the library
_LEAST = -_LARGEST + 512  # at ranges of an integer from here down the library recurses without end

# What a schema may say that bounds nothing.
ANNOTATIONS = frozenset(
    ("$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated")
)

_RULE = re.compile(r"[\w)\]}>]\s*:")
_EMBEDDED = re.compile(r"%json\s*")
# Of Lark: strings, comments and special tokens; regexes with their flags. The library refuses what
# has no end.
_LARK = re.compile(
    r'"(?:\\.|[^"\\])*"?|(?:#|//)[^\n]*|<[^<>\s]+>|/((?:\\.|[^/\\])+)(?:/([imslux]*))?', re.DOTALL
)
# Of a regex: a flag that ignores case, which may be apart from its bracket; a class of characters.
_FLAG_OR_CLASS = re.compile(
    r"([(\s]\?[a-zA-Z]{0,8}i[a-zA-Z-]{0,8}[:)])|(\[|\\[wWsSdDpP])|\\.", re.DOTALL
)


def check_length(grammar: str, kind: int) -> None:
    """Raise InvalidArgument if a grammar is too long for its kind."""
    length, most = len(grammar.encode()), _MAX_BYTES[kind]
    check_number(length, most, "bytes")


def check_number(number: int, most: int, noun: str) -> None:
    """Raise InvalidArgument if a grammar has too many of its parts."""
    if number > most:
        raise InvalidArgument(
            f"grammar: it has {number} {noun}; at most {most} are supported",
            reason="limit_exceeded",
            argument="grammar",
            needed=number,
            limit=most,
        )


def check_classes(regexes: Iterable[tuple[str, str]]) -> None:
    """Raise InvalidArgument if regexes that ignore case have too many classes of characters.

    Args:
        regexes: of a grammar, each with the flags behind it.
    """
    number = 0
    for regex, flags in regexes:
        parts = [part.groups() for part in _FLAG_OR_CLASS.finditer(regex)]
        if "i" in flags or any(flag is not None for flag, _ in parts):
            number += sum(one is not None for _, one in parts)
    check_number(number, _MAX_CLASSES, "classes of characters, where case is ignored")


# ---------------------------------------------------------------- Rules


def check_size(grammar: str) -> None:
    """Raise InvalidArgument if a Lark or GBNF grammar has too many rules or brackets."""
    check_number(len(_RULE.findall(grammar)), _MAX_RULES, "rules")
    check_number(sum(map(grammar.count, "([")), _MAX_BRACKETS, "opening brackets")


def check_rules(grammar: str) -> None:
    """Raise InvalidArgument if a Lark grammar has too many parts, or too deep ones."""
    check_size(grammar)
    # What strings, regexes and comments hold is no operator.
    bare = _LARK.sub(lambda match: "." * len(match[0]), grammar)
    check_number(sum(map(bare.count, "&~")), _MAX_INTERSECTIONS, "operators & and ~")
    schemas = []
    for place in _EMBEDDED.finditer(bare):
        try:
            schema, _ = json_text.parse_front(grammar, place.end())
        except json_text.Malformed as exc:
            line = grammar.count("\n", 0, place.start()) + 1
            raise InvalidArgument(
                f"grammar: no JSON schema follows %json in line {line} ({exc})",
                reason="invalid_json",
                argument="grammar",
                line=line,
            ) from exc
        schemas.append(schema)
    check_schema(schemas[0] if len(schemas) == 1 else schemas)


def check_regexes(grammar: str) -> None:
    """Raise InvalidArgument if regexes of a Lark grammar that ignore case have too many classes."""
    check_classes((found[1], found[2] or "") for found in _LARK.finditer(grammar) if found[1])


# ---------------------------------------------------------------- Schemas


_SCHEMAS = "an object, true or false"


def parse_schema(grammar: str) -> dict[str, Any] | bool:
    """Read a JSON schema.

    Raises:
        InvalidArgument: it is not JSON, or no schema.
    """
    try:
        schema = json_text.parse(grammar)
    except json_text.Malformed as exc:
        raise InvalidArgument(
            f"grammar: not JSON ({exc})", reason="invalid_json", argument="grammar", **exc.place
        ) from exc
    if not isinstance(schema, dict | bool):
        raise InvalidArgument(
            f"grammar: a JSON schema is {_SCHEMAS}",
            reason="wrong_type",
            argument="grammar",
            accepted=_SCHEMAS,
        )
    return schema


def check_schema(schema: Any) -> None:
    """Raise InvalidArgument if a JSON schema goes beyond one of the bounds."""
    check_classes((regex, "") for node, _ in _objects(schema) for regex in _regexes(node))
    properties = pattern_properties = patterns = merges = alternatives = 0
    multiples, references = set(), {"#"}
    for node, _ in _objects(schema):
        properties += max(_length(node.get("properties")), _length(node.get("required")))
        pattern_properties += _length(node.get("patternProperties"))
        lengths = [_length(node.get(word)) for word in ("anyOf", "oneOf", "allOf")]
        alternatives += sum(length for length in lengths if length > 2)
        patterns += "pattern" in node or "format" in node
        merges += _length(node.get("allOf"))
        rules = node.keys() - ANNOTATIONS
        merges += len(rules) > 1 and not rules.isdisjoint(("$ref", "anyOf", "oneOf"))
        _check_range(node)
        multiple, reference = node.get("multipleOf"), node.get("$ref")
        if _is_number(multiple):
            multiples.add(_significand(multiple))
        if isinstance(reference, str):
            references.add(reference)
    check_number(properties, _MAX_PROPERTIES, "properties")
    check_number(alternatives, _MAX_ALTERNATIVES, "schemas of anyOf, oneOf and allOf")
    values, literals = _literals(schema)
    check_number(values, _MAX_ENUM, "values of enum")
    check_number(literals, _MAX_LITERALS, "lists, objects and their parts in const and enum")
    check_number(pattern_properties, _MAX_PATTERN_PROPERTIES, "patternProperties")
    check_number(
        min(patterns, merges), _MAX_INTERSECTED, "patterns and formats that allOf or $ref may join"
    )
    product = 1
    for multiple in multiples:
        product *= multiple
    if product > _MAX_MULTIPLE:
        raise InvalidArgument(
            f"grammar: the product of the numbers of its multipleOf, without their zeros at the "
            f"end, is above {_MAX_MULTIPLE}, the most that is supported",
            reason="limit_exceeded",
            argument="grammar",
            limit=_MAX_MULTIPLE,
        )
    depth = sum(_depth(_target(schema, reference)) for reference in references)
    check_number(depth, _MAX_DEPTH, "levels, if every $ref is followed once")


def _check_range(node: dict[str, Any]) -> None:
    """Raise InvalidArgument if an end of a range is too low, or rounding moves that of a short one.

    Of a short range of integers only: floats stay as they are.
    """
    lowest, highest = (
        [node[name] for name in names if _is_number(node.get(name))]
        for names in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
    )
    for end in (*lowest, *highest):
        if end <= _LEAST:
            raise InvalidArgument(
                f"grammar: the end {str(end)[:40]} of a range in it is too low; numbers above "
                f"{_LEAST} are supported",
                reason="limit_exceeded",
                argument="grammar",
                limit=_LEAST,
            )
    # No difference: that of a float and an integer of hundreds of digits is an OverflowError.
    if lowest and highest and max(highest) < min(lowest) + _EXACT:
        for end in filterfalse(_is_exact, (*lowest, *highest)):
            raise _inexact(end)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_exact(number: float) -> bool:
    """Whether the library writes a number as it is; a float is no integer to keep."""
    if isinstance(number, float) or abs(number) <= _EXACT:
        return True
    return abs(number) < _LARGEST and min(int(float(number)), _LARGEST - 1) == number


def _inexact(number: float) -> InvalidArgument:
    return InvalidArgument(
        f"grammar: the number {str(number)[:40]} in it cannot be matched exactly; integers up to "
        f"{_EXACT} can",
        reason="limit_exceeded",
        argument="grammar",
        limit=_EXACT,
    )


def _regexes(node: dict[str, Any]) -> list[str]:
    """Return the regexes of an object of a schema."""
    named, own = node.get("patternProperties"), node.get("pattern")
    return [*(named if isinstance(named, dict) else []), *([own] if isinstance(own, str) else [])]


def _objects(value: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """Every object in a JSON value, and how many there are around it, itself included."""
    waiting = [(value, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, dict):
            depth += 1
            yield node, depth
            waiting += [(child, depth) for child in node.values()]
        elif isinstance(node, list):
            waiting += [(child, depth) for child in node]


def _literals(schema: Any) -> tuple[int, int]:
    """Return how many values enum has, and the lists and objects in const and enum with parts.

    Raises:
        InvalidArgument: a number cannot be matched.
    """
    values = parts = 0
    waiting = [(schema, False)]
    while waiting:
        node, is_literal = waiting.pop()
        if not isinstance(node, dict | list):
            if is_literal and isinstance(node, int) and not _is_exact(node):
                raise _inexact(node)
            continue
        parts += is_literal and 1 + len(node)
        if isinstance(node, list) or is_literal:
            children = node.values() if isinstance(node, dict) else node
            waiting += [(child, is_literal) for child in children]
            continue
        for name, child in node.items():
            if name == "enum" and isinstance(child, list):
                values += len(child)
                waiting += [(value, True) for value in child]
            else:
                waiting.append((child, name == "const"))
    return values, parts


def _depth(value: Any) -> int:
    return max((depth for _, depth in _objects(value)), default=0)


def _target(schema: Any, reference: str) -> Any:
    """Return the target of a $ref (RFC 6901); the whole schema if it is no plain pointer."""
    _, _, pointer = reference.partition("#")
    node = schema
    for part in unquote(pointer).split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            return schema
    return node


def _length(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _significand(number: float) -> int:
    """Return the digits of a number without zeros around them."""
    digits = repr(abs(number)).split("e")[0].replace(".", "").strip("0")
    return int(digits) if digits.isdecimal() else 1
