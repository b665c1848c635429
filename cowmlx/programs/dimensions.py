"""Dimensions of arrays: numbers, or integer expressions over names such as ``2*batch+3``.

A symbolic dimension is a polynomial with integer coefficients. Its atoms are names, which stand for
any number from 0, and floor divisions that are not exact. Equal polynomials are equal for all
values; polynomials that differ by a number are different for all values; of the others
:func:`compare` says that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering

from cowmlx.errors import InvalidArgument

MAX_DIMENSION = 2**31 - 1
"""mlx's dimensions are int32."""
MAX_ELEMENTS = 2**40
"""Elements of one array: with 8 bytes each, 8 TiB."""
MAX_RANK = 8
MAX_TERMS = 64
"""Terms of one polynomial."""
MAX_TEXT = 256
"""Characters of a dimension's text."""
MAX_DEPTH = 16
"""Brackets within brackets in a dimension's text."""


class DimensionError(InvalidArgument):
    """A dimension that is none, or has no value."""


@total_ordering
@dataclass(frozen=True)
class Atom:
    """A name, or the floor division of a polynomial by a number from 2.

    Args:
        name: the name, or the division as text.
        dividend: what is divided; None for a name.
        divisor: by what.
    """

    name: str
    dividend: Symbolic | None = None
    divisor: int = 1

    def __lt__(self, other: Atom) -> bool:
        return self.name < other.name


Monomial = tuple[Atom, ...]
"""A product of atoms, in order; an atom's power is how often it is there."""


@dataclass(frozen=True)
class Symbolic:
    """A polynomial that is no number; made by :func:`named`, :func:`parse` and operators."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dim) -> Dim:
        return _polynomial([*self.terms, *_terms(other)])

    def __radd__(self, other: int) -> Dim:
        return self + other

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: int) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        return _polynomial(
            (tuple(sorted((*mine, *its))), factor * its_factor)
            for mine, factor in self.terms
            for its, its_factor in _terms(other)
        )

    def __rmul__(self, other: int) -> Dim:
        return self * other

    def __floordiv__(self, other: Dim) -> Dim:
        exact = divided(self, other)
        if exact is not None:
            return exact
        if not isinstance(other, int) or other <= 0:
            raise DimensionError(f"{self} // {other} cannot be computed before a run")
        whole = _polynomial((atoms, factor // other) for atoms, factor in self.terms)
        rest = _polynomial((atoms, factor % other) for atoms, factor in self.terms)
        if isinstance(rest, int):
            return whole + rest // other
        atom = Atom(f"({rest})//{other}", rest, other)
        return whole + Symbolic((((atom,), 1),))

    def __bool__(self) -> bool:
        raise TypeError(f"{self} has no truth before a run; ask compare()")

    def __str__(self) -> str:
        text = ""
        # Numbers come last, as in "batch+3".
        for atoms, factor in sorted(self.terms, key=lambda term: (not term[0], term[0])):
            size = abs(factor)
            alone = len(atoms) == 1 and size == 1
            names = "*".join(
                atom.name if alone or atom.dividend is None else f"({atom.name})" for atom in atoms
            )
            shown = names if names and size == 1 else f"{size}*{names}" if names else f"{size}"
            text += ("-" if factor < 0 else "+" if text else "") + shown
        return text

    __repr__ = __str__


Dim = int | Symbolic
Shape = tuple[Dim, ...]


def named(name: str) -> Symbolic:
    """Return the dimension of a name.

    Raises:
        DimensionError: the text is no name: a letter or ``_``, then letters, digits and ``_``.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
        raise DimensionError(
            f"{name[:80]!r} is no name of a dimension, "
            "must be a letter or _ and at most 63 letters, digits and _",
            value=name[:80],
        )
    return Symbolic((((Atom(name),), 1),))


def compare(left: Dim, right: Dim) -> bool | None:
    """Return whether two dimensions are equal for all values, or for none; None: not known."""
    difference = left - right
    if isinstance(difference, int):
        return difference == 0
    low, high = lower_bound(difference), upper_bound(difference)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    return None


def at_least(dimension: Dim, number: Dim) -> bool | None:
    """Return whether a dimension is that number or more for all values, or for none."""
    difference = dimension - number
    low, high = lower_bound(difference), upper_bound(difference)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    return None


def lower_bound(dimension: Dim) -> int | None:
    """Return a number that no value is below, if one is known: names are 0 or more."""
    if isinstance(dimension, int):
        return dimension
    low = 0
    for atoms, factor in dimension.terms:
        if not atoms:
            low += factor
        elif factor < 0 or not all(_is_natural(atom) for atom in atoms):
            return None
    return low


def upper_bound(dimension: Dim) -> int | None:
    """Return a number that no value is above, if one is known."""
    if isinstance(dimension, int):
        return dimension
    low = lower_bound(-dimension)
    return None if low is None else -low


def divided(dimension: Dim, divisor: Dim) -> Dim | None:
    """Return the quotient if the division is exact for all values and provably so."""
    if divisor == 0:
        return None
    if isinstance(dimension, int) and isinstance(divisor, int):
        return dimension // divisor if dimension % divisor == 0 else None
    if isinstance(dimension, int):
        return 0 if dimension == 0 else None
    terms = _terms(divisor)
    if len(terms) == 1:
        ((its, its_factor),) = terms
        quotients = [_monomial_quotient(atoms, its) for atoms, _ in dimension.terms]
        if any(factor % its_factor for _, factor in dimension.terms) or None in quotients:
            return None
        return _polynomial(
            (quotient, factor // its_factor)
            for quotient, (_, factor) in zip(quotients, dimension.terms, strict=True)
            if quotient is not None
        )
    # A polynomial times a number, as when (batch+1)*10 is divided by batch+1.
    leading, its_leading = dimension.terms[-1], terms[-1]
    quotient = _monomial_quotient(leading[0], its_leading[0])
    if quotient is None or leading[1] % its_leading[1]:
        return None
    found = _polynomial([(quotient, leading[1] // its_leading[1])])
    return found if compare(found * divisor, dimension) else None


def evaluate(dimension: Dim, values: Mapping[str, int]) -> int:
    """Return the number that a dimension is for the values of its names.

    Raises:
        DimensionError: a name without a value, or a result below 0 or above int32.
    """
    number = _evaluated(dimension, values)
    if not 0 <= number <= MAX_DIMENSION:
        known = {name: values[name] for name in sorted(names_of([dimension]))}
        where = ", ".join(f"{name} = {value}" for name, value in known.items())
        raise DimensionError(
            f"the dimension {dimension} is {number}{f' for {where}' if where else ''}, "
            f"must be 0 to {MAX_DIMENSION}",
            value=number,
            accepted=f"0 to {MAX_DIMENSION}",
        )
    return number


def evaluate_shape(shape: Shape, values: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape in numbers, within the bounds of :func:`check_shape`."""
    numbers = tuple(evaluate(dimension, values) for dimension in shape)
    check_shape(numbers)
    return numbers


def check_shape(shape: Shape) -> None:
    """Check what can be known of a shape: rank, each dimension, the count of elements.

    Raises:
        DimensionError: above :data:`MAX_RANK`, :data:`MAX_DIMENSION` or :data:`MAX_ELEMENTS`, or a
            dimension below 0.
    """
    if len(shape) > MAX_RANK:
        raise DimensionError(
            f"the shape {text_of(shape)} has {len(shape)} dimensions, must have at most {MAX_RANK}",
            reason="limit_exceeded",
            needed=len(shape),
            limit=MAX_RANK,
        )
    for dimension in shape:
        if isinstance(dimension, int) and not 0 <= dimension <= MAX_DIMENSION:
            raise DimensionError(
                f"the shape {text_of(shape)} has a dimension of {dimension}, "
                f"must be 0 to {MAX_DIMENSION}",
                value=dimension,
                accepted=f"0 to {MAX_DIMENSION}",
            )
    elements = count(dimension for dimension in shape if isinstance(dimension, int))
    if isinstance(elements, int) and elements > MAX_ELEMENTS:
        raise DimensionError(
            f"the shape {text_of(shape)} has {elements} elements, must have at most {MAX_ELEMENTS}",
            reason="limit_exceeded",
            needed=elements,
            limit=MAX_ELEMENTS,
        )


def count(shape: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    number: Dim = 1
    for dimension in shape:
        number = number * dimension
    return number


def names_of(shape: Iterable[Dim]) -> set[str]:
    """Return the names that a shape has."""
    names: set[str] = set()
    for dimension in shape:
        if isinstance(dimension, Symbolic):
            for atom in {atom for atoms, _ in dimension.terms for atom in atoms}:
                inner = atom.dividend
                names |= {atom.name} if inner is None else names_of([inner])
    return names


def text_of(shape: Shape) -> str:
    """Return a shape as text: ``(batch, 2*batch, 3)``."""
    return f"({', '.join(str(dimension) for dimension in shape)})"


def parse(text: str) -> Dim:
    """Return the dimension that a text such as ``batch``, ``2*batch+3`` or ``n//2`` says.

    Raises:
        DimensionError: the text is none.
    """
    tokens = re.findall(r"[A-Za-z_]\w*|\d+|//|\S", text[:MAX_TEXT], re.ASCII)
    reader = _Reader(tokens)
    try:
        if len(text) > MAX_TEXT or not tokens:
            raise _NoDimensionError
        dimension = reader.sum(0)
        if reader.rest():
            raise _NoDimensionError
    except _NoDimensionError:
        raise DimensionError(
            f"{text[:80]!r} is no dimension, must be a number from 0, a name, or a term of names "
            "and numbers with +, -, *, // and brackets",
            value=text[:80],
        ) from None
    return dimension


class _NoDimensionError(Exception):
    """The text ends too early or too late."""


class _Reader:
    """Reads sums of products of numbers, names and brackets."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens[::-1]

    def rest(self) -> bool:
        """Return whether something is left."""
        return bool(self._tokens)

    def _next(self, *wanted: str) -> str | None:
        if self._tokens and self._tokens[-1] in wanted:
            return self._tokens.pop()
        return None

    def sum(self, depth: int) -> Dim:
        """Read a sum of products."""
        negative = self._next("-")
        total = self._product(depth)
        total = -total if negative else total
        while sign := self._next("+", "-"):
            other = self._product(depth)
            total = total + other if sign == "+" else total - other
        return total

    def _product(self, depth: int) -> Dim:
        product = self._factor(depth)
        while sign := self._next("*", "//"):
            other = self._factor(depth)
            if sign == "*":
                product = product * other
            elif other == 0:
                raise _NoDimensionError
            else:
                product = (
                    product // other if isinstance(product, Symbolic) else _quotient(product, other)
                )
        return product

    def _factor(self, depth: int) -> Dim:
        if depth > MAX_DEPTH or not self._tokens:
            raise _NoDimensionError
        if self._next("("):
            inner = self.sum(depth + 1)
            if not self._next(")"):
                raise _NoDimensionError
            return inner
        token = self._tokens.pop()
        if token.isascii() and token.isdigit() and len(token) <= 10:
            return int(token)
        if token[0].isalpha() or token[0] == "_":
            return named(token)
        raise _NoDimensionError


def _quotient(number: int, divisor: Dim) -> Dim:
    if isinstance(divisor, int) and divisor > 0:
        return number // divisor
    raise _NoDimensionError


def _terms(dimension: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dimension, Symbolic):
        return dimension.terms
    return (((), dimension),)


def _polynomial(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    factors: dict[Monomial, int] = {}
    for atoms, factor in terms:
        factors[atoms] = factors.get(atoms, 0) + factor
    kept = tuple(sorted((atoms, factor) for atoms, factor in factors.items() if factor))
    if len(kept) > MAX_TERMS or any(len(atoms) > MAX_TERMS for atoms, _ in kept):
        raise DimensionError(
            f"a dimension has more than {MAX_TERMS} terms or factors",
            reason="limit_exceeded",
            limit=MAX_TERMS,
        )
    if any(abs(factor) > 2**62 for _, factor in kept):
        raise DimensionError(
            "a dimension has a factor above 2**62", reason="limit_exceeded", limit=2**62
        )
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Symbolic(kept)


def _monomial_quotient(atoms: Monomial, divisor: Monomial) -> Monomial | None:
    rest = list(atoms)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _is_natural(atom: Atom) -> bool:
    """Return whether an atom is provably 0 or more."""
    low = 0 if atom.dividend is None else lower_bound(atom.dividend)
    return low is not None and low >= 0


def _evaluated(dimension: Dim, values: Mapping[str, int]) -> int:
    if isinstance(dimension, int):
        return dimension
    number = 0
    for atoms, factor in dimension.terms:
        product = factor
        for atom in atoms:
            product *= _atom_value(atom, values)
        number += product
    return number


def _atom_value(atom: Atom, values: Mapping[str, int]) -> int:
    if atom.dividend is not None:
        return _evaluated(atom.dividend, values) // atom.divisor
    if atom.name not in values:
        raise DimensionError(
            f"the dimension {atom.name!r} has no value", reason="missing", argument=atom.name
        )
    return values[atom.name]
