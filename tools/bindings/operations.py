"""How typed builders give each operation of the table: what both languages share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cowmlx.programs.operations import FAMILIES, ROWS
from cowmlx.programs.operations.row import REQUIRED, Attribute, Input, Operation

# Families whose operations take numbers beside values.
NUMBERS = (
    "arithmetic",
    "exponentials and logarithms",
    "trigonometry",
    "comparison and logic",
)

# The types of choices that cannot be called as their attribute, by the first operation of each.
MODES = {
    "pad": "PadMode",
    "convolve": "ConvolveMode",
    "quantize": "QuantizeMode",
    "fft": "FftNorm",
}


@dataclass(frozen=True)
class Choice:
    """A type of texts that attributes take.

    Args:
        name: the type's.
        texts: what it stands for.
        about: one sentence.
    """

    name: str
    texts: tuple[str, ...]
    about: str


def families() -> Iterator[tuple[str, Sequence[Operation]]]:
    """Yield each family of operations with its rows."""
    yield from FAMILIES.items()


def choices() -> list[Choice]:
    """Return the types of choices, each once."""
    known: dict[tuple[str, ...], Choice] = {}
    names = {}
    for row in ROWS:
        for attribute in row.attributes:
            if attribute.kind != "choice" or attribute.choices in known:
                continue
            name = MODES.get(row.name, attribute.name.capitalize())
            choice = Choice(name, attribute.choices, attribute.about)
            if names.setdefault(name, choice) is not choice:
                raise ValueError(f"two types of choices are called {name}: give {row.name} a name")
            known[attribute.choices] = choice
    return list(known.values())


def choice_of(attribute: Attribute) -> Choice:
    """Return the type of an attribute's choices."""
    return next(choice for choice in choices() if choice.texts == attribute.choices)


def needed_inputs(row: Operation) -> list[Input]:
    """Return the inputs that have to be given."""
    return [input_ for input_ in row.inputs if not input_.optional]


def optional_inputs(row: Operation) -> list[Input]:
    """Return those that may be left out, which are the last."""
    return [input_ for input_ in row.inputs if input_.optional]


def needed_attributes(row: Operation) -> list[Attribute]:
    """Return the attributes that have to be given.

    One with a default before one that has none is needed, too, so that arguments come in the
    table's order.
    """
    last = max(
        (at for at, attribute in enumerate(row.attributes) if attribute.default is REQUIRED),
        default=-1,
    )
    return list(row.attributes[: last + 1])


def optional_attributes(row: Operation) -> list[Attribute]:
    """Return the attributes that may be left out."""
    return list(row.attributes[len(needed_attributes(row)) :])


def takes_numbers(row: Operation, family: str) -> bool:
    """Say whether numbers may stand for some of its inputs."""
    return family in NUMBERS and len(row.inputs) > 1


def parameter(row: Operation, attribute: Attribute) -> str:
    """Return the name of an attribute as a parameter, where an input may be called the same."""
    taken = any(input_.name == attribute.name for input_ in row.inputs)
    return f"{attribute.name}_option" if taken else attribute.name


def about(row: Operation) -> str:
    """Return what a builder says of an operation: its summary and its formula."""
    formula = re.sub(r"\s+", " ", row.formula).strip()
    return f"{row.summary.rstrip('.')}: {formula}" if formula else row.summary
