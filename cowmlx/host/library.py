"""The calls that a host in Python makes, with failures as exceptions."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char, c_size_t, sizeof

from cowmlx import json_text
from cowmlx.host.callbacks import Callbacks
from cowmlx.host.generated import declarations as abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class HostError(Exception):
    """A call failed.

    Attributes:
        status: one of the statuses of the header, below 0.
        message: what the library says of it.
    """

    def __init__(self, status: int, name: str, message: str):
        super().__init__(f"{name}: {message}")
        self.status = status
        self.message = message


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
        """Make a call that fills a buffer with JSON, and return what that says."""
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
            callbacks: keeps what they raise; None: its own.
            values: of the members.
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
        return params
