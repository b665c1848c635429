"""Results of probes of an object, each made once."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any


class Remembered:
    """Results that an object owns.

    They must not refer to the object, or it would live until a collection of cycles.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, Any] = {}

    def __contains__(self, what: Hashable) -> bool:
        return what in self._found

    def get(self, what: Hashable, default: Any = None) -> Any:
        """Return a result, or ``default`` without one."""
        return self._found.get(what, default)

    def keep(self, what: Hashable, found: Any) -> Any:
        """Keep a result; returns it."""
        self._found[what] = found
        return found

    def forget(self, what: Hashable) -> None:
        """Drop a result, if there is one."""
        self._found.pop(what, None)

    def once(self, what: Hashable, find: Callable[[], Any]) -> Any:
        """Return a result, found now if needed; an exception keeps nothing."""
        if what not in self._found:
            self._found[what] = find()
        return self._found[what]
