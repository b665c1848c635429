"""The names, parameters and functions of a program that is imported."""

from __future__ import annotations

from typing import Any

from cowmlx.programs.bounds import MAX_NAME, Pace
from cowmlx.programs.importing.values import Weight
from cowmlx.programs.operations.row import Spec


class Book:
    """What all graphs of one import share.

    Attributes:
        functions: as JSON has them.
        parameters: dtypes, shapes and arrays by name.
        count: the nodes so far, pruned ones included.
        converted: the nodes of the file so far.
        taken: the names that have been given.
        pace: ends the turns of the import.
    """

    def __init__(self) -> None:
        self.functions: list[dict[str, Any]] = []
        self.parameters: dict[str, tuple[Spec, Weight]] = {}
        self.count = 0
        self.converted = 0
        self.pace = Pace()
        self.taken: set[str] = set()
        self._reserved: set[str] = set()

    def reserve(self, name: str) -> None:
        """Keep a name for a result of the program."""
        self.taken.add(name)
        self._reserved.add(name)

    def claim(self, name: str) -> bool:
        """Whether a name is kept, and was not claimed before."""
        if name in self._reserved:
            self._reserved.remove(name)
            return True
        return False

    def name(self, wanted: str) -> str:
        """Return a name that nothing has, like the one that is wanted."""
        base = "".join(char if char.isprintable() else "_" for char in wanted)[: MAX_NAME - 12]
        own = base = base or "value"
        at = 1
        while own in self.taken:
            at += 1
            own = f"{base}.{at}"
            if at > 64:  # many of one name: continue where the count is
                own = f"{base}.{at}.{len(self.taken)}"
        self.taken.add(own)
        return own
