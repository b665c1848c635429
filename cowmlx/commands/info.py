"""What ``cow_mlx_runtime_info`` says, asked as any host would."""

from __future__ import annotations

import sys

from cowmlx.commands import installation, pythons

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def runtime_info() -> str:
    """Start the runtime and return what ``cow_mlx_runtime_info`` says, as JSON."""
    import ctypes

    api = ctypes.CDLL(installation.library())
    api.cow_mlx_error_message.restype = ctypes.c_char_p
    length = ctypes.c_size_t()
    if api.cow_mlx_runtime_start(None) or api.cow_mlx_runtime_info(None, 0, ctypes.byref(length)):
        sys.exit(api.cow_mlx_error_message().decode())
    buffer = ctypes.create_string_buffer(length.value + 1024)
    if api.cow_mlx_runtime_info(buffer, ctypes.c_size_t(len(buffer)), ctypes.byref(length)):
        sys.exit(api.cow_mlx_error_message().decode())
    api.cow_mlx_runtime_stop()
    return buffer.value.decode()


def _run(arguments: argparse.Namespace) -> int:
    if lack := pythons.wrong():
        sys.exit(f"info: {lack}; {pythons.right()}")
    print(runtime_info())
    return 0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``info``."""
    commands.add_parser("info", help=runtime_info.__doc__).set_defaults(run=_run)
