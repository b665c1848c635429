"""Python functions as callbacks of calls, whose exceptions the caller gets."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Callbacks:
    """Wraps Python functions as callbacks, keeps them alive, and keeps what they raise.

    A callback that returns None goes on; one that raises cancels the call, and
    :meth:`reraise` raises the exception again once the call has returned.
    """

    def __init__(self) -> None:
        self._errors: list[BaseException] = []
        self._kept: list[Any] = []

    def wrap(self, kind: Any, function: Callable[..., bool | None] | None) -> Any:
        """Return a callback of the ctypes type ``kind``; NULL for None.

        The function gets its arguments but for ``user_data``.
        """
        if function is None:
            return kind()

        def guarded(*arguments: Any) -> bool:
            try:
                return function(*arguments[:-1]) is not False
            except BaseException as error:
                self._errors.append(error)
                return False

        self._kept.append(kind(guarded))
        return self._kept[-1]

    def reraise(self) -> None:
        """Raise what a callback has raised."""
        if self._errors:
            raise self._errors[0]
