"""Options as JSON of types that only language models need: one word of some, lists of names."""

from __future__ import annotations

from typing import Any, NamedTuple

from cowmlx.training.options import out_of_range, wrong_type

_MAX_NAMES = 1 << 16


class Choice(NamedTuple):
    """One of some words."""

    words: tuple[str, ...]
    default: str

    def read(self, value: object, place: str) -> str:
        """Return the word that a value is.

        Raises:
            InvalidArgument: it is none of them.
        """
        accepted = "one of " + ", ".join(f'"{word}"' for word in self.words)
        if not isinstance(value, str):
            raise wrong_type(place, value, accepted)
        if value not in self.words:
            raise out_of_range(place, value, accepted)
        return value


class Names(NamedTuple):
    """A list of names, or null."""

    default: None = None

    def read(self, value: object, place: str) -> tuple[str, ...] | None:
        """Return the names.

        Raises:
            InvalidArgument: it is no list of names, or an empty one.
        """
        if value is None:
            return None
        accepted = f"null, or a list of 1 to {_MAX_NAMES} names"
        if not isinstance(value, list) or not 0 < len(value) <= _MAX_NAMES:
            raise wrong_type(place, value, accepted)
        for index, name in enumerate(value):
            if not isinstance(name, str) or not name:
                raise wrong_type(f"{place}[{index}]", name, "a name")
        return tuple(value)


def read(value: object, place: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an object as :func:`cowmlx.training.options.read` does."""
    from cowmlx.training import options

    return options.read(value, place, known)
