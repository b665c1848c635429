"""The calls and callbacks of a host in Python, with failures as exceptions."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char, c_size_t, sizeof

from cowmlx import json_text
from cowmlx.host.generated import declarations as abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class HostError(Exception):
    """A call failed.

    Attributes:
        status: one of the statuses of the header, below 0.
        name: of the status.
        message: of the library.
    """

    def __init__(self, status: int, name: str, message: str):
        super().__init__(f"{name}: {message}")
        self.status = status
        self.name = name
        self.message = message


class Callbacks:
    """Wraps Python functions as callbacks, keeps them alive, and keeps what they raise.

    A callback that returns None lets the call continue; one that raises cancels it, and
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
        """Raise the first exception of a callback."""
        if self._errors:
            raise self._errors[0]


class Library:
    """The library, with the runtime started.

    Args:
        path: of the shared library.
        params: members of ``cow_mlx_runtime_params`` and their values.
    """

    def __init__(self, path: str, **params: Any):
        self.api = ctypes.CDLL(path)
        for name, (result, arguments) in abi.FUNCTIONS.items():
            function = getattr(self.api, name)
            function.restype = result
            function.argtypes = [kind for _, kind in arguments]
        self.call("runtime_start", self.params("runtime", **params))

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.api.cow_mlx_runtime_stop()

    def call(self, name: str, *arguments: Any) -> int:
        """Make a call and return its status.

        Raises:
            HostError: it failed.
        """
        status: int = getattr(self.api, f"cow_mlx_{name}")(*arguments)
        if status < 0:
            raise HostError(
                status,
                self.api.cow_mlx_status_name(status).decode(),
                self.api.cow_mlx_error_message().decode(),
            )
        return status

    def opened(self, name: str, *arguments: Any) -> int:
        """Make a call whose last parameter receives a handle, and return that."""
        out = abi.cow_mlx_context()
        self.call(name, *arguments, byref(out))
        return out.value

    def described(self, name: str, *arguments: Any) -> Any:
        """Make a call that fills a buffer with JSON, and return the parsed value."""
        length = c_size_t()
        self.call(name, *arguments, None, 0, byref(length))
        while True:  # it may have grown between the two calls
            buffer = (c_char * length.value)()
            try:
                self.call(name, *arguments, buffer, len(buffer), byref(length))
            except HostError as error:
                if error.status == abi.EBUFFER:
                    continue
                raise
            return json_text.parse(buffer.raw[: length.value])

    def params(self, noun: str, callbacks: Callbacks | None = None, **values: Any) -> Any:
        """Return ``cow_mlx_NOUN_params`` with its defaults and the values given.

        Functions become callbacks without ``user_data``, which live as long as the struct.

        Args:
            noun: of the struct.
            callbacks: keeps the exceptions of functions; None: a new one.
            values: of the members.

        Raises:
            HostError: an integer does not fit its member, which ctypes would cut off.
        """
        params = abi.STRUCTS[f"cow_mlx_{noun}_params"]()
        getattr(self.api, f"cow_mlx_{noun}_params_init")(byref(params), sizeof(params))
        kinds = {name: kind for name, kind, *_ in params._fields_}
        params.callbacks = callbacks or Callbacks()
        for name, value in values.items():
            if isinstance(value, str | os.PathLike):
                value = os.fsencode(value)
            elif callable(value):
                value = params.callbacks.wrap(kinds[name], value)
            setattr(params, name, value)
            if isinstance(value, int) and getattr(params, name) != value:
                least, most = _range_of(kinds[name])
                raise HostError(
                    abi.EINVAL, "EINVAL", f"{name} is {value}, must be within {least} to {most}"
                )
        return params


def _range_of(kind: Any) -> tuple[int, int]:
    """Return the least and the largest integer of a ctypes type."""
    bits = 8 * sizeof(kind)
    signed = kind(-1).value < 0
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
