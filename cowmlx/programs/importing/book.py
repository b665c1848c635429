"""The names, parameters and functions of a program that is imported."""

from __future__ import annotations

from typing import Any

from cowmlx.errors import Unsupported
from cowmlx.programs.bounds import MAX_NAME, Pace
from cowmlx.programs.dimensions import count
from cowmlx.programs.importing.values import Weight
from cowmlx.programs.operations.row import Spec

MAX_KNOWN = 1 << 25
"""Elements of all arrays that are computed at load."""
MAX_FOLDED = MAX_KNOWN // 2
"""With so many, operations of known inputs are left to the run."""
MAX_COPIED = 1 << 28
"""Elements of all parameters, above four for each byte of the files."""


class Book:
    """What all graphs of one import share.

    Attributes:
        functions: as JSON has them.
        parameters: dtypes, shapes and arrays by name.
        count: the nodes so far, pruned ones included.
        converted: the nodes of the file so far.
        known: the elements of arrays so far that do not depend on inputs.
        taken: the names that have been given.
        pace: ends the turns of the import.
    """

    def __init__(self) -> None:
        self.functions: list[dict[str, Any]] = []
        self.parameters: dict[str, tuple[Spec, Weight]] = {}
        self.count = 0
        self.converted = 0
        self.known = 0
        self._elements = 0
        self._files: set[str] = set()
        self._bytes = 0
        self.pace = Pace()
        self.taken: set[str] = set()
        self._reserved: set[str] = set()

    def hold(self, elements: int) -> None:
        """Count elements of an array that the import keeps.

        Raises:
            Unsupported: there are more than :data:`MAX_KNOWN`.
        """
        self.known += elements
        if self.known > MAX_KNOWN:
            raise Unsupported(
                f"arrays that are computed at load have more than {MAX_KNOWN} elements in all",
                limit=MAX_KNOWN,
            )

    def may_fold(self, elements: int) -> bool:
        """Whether results of so many elements may be computed at load; counts them if so."""
        if self.known + elements > MAX_FOLDED:
            return False
        self.known += elements
        return True

    def read(self, path: str, size: int) -> None:
        """Note a file of the import, and its bytes: they bound the parameters."""
        if path not in self._files:
            self._files.add(path)
            self._bytes += size

    def add_parameter(self, name: str, spec: Spec, weight: Weight) -> None:
        """Add a parameter to the program.

        Raises:
            Unsupported: a small file would have large ones, by many copies of its arrays.
        """
        elements = count(spec.shape)
        assert isinstance(elements, int)
        self._elements += elements
        if self._files and self._elements > MAX_COPIED + 4 * self._bytes:
            raise Unsupported(
                f"parameters have more than {MAX_COPIED + 4 * self._bytes} elements in all, which "
                f"is too many for files of {self._bytes} bytes",
                limit=MAX_COPIED + 4 * self._bytes,
            )
        self.parameters[name] = (spec, weight)

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
