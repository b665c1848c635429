"""``python -m cowmlx``: what a host's build needs to know."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cowmlx import _constants as constants

PACKAGE = Path(__file__).resolve().parent
LIBRARY = "libcowmlx.1.dylib" if sys.platform == "darwin" else "libcowmlx.so.1"


def library() -> str:
    """Return the path of the shared library."""
    path = PACKAGE / "lib" / LIBRARY
    if not path.exists():
        sys.exit(f"{path} does not exist: build it with make, or install the package with pip")
    return str(path)


def include() -> str:
    """Return the folder of the headers."""
    for folder in (PACKAGE / "include", PACKAGE.parent / "include"):
        if (folder / "cow_mlx.h").exists():
            return str(folder)
    sys.exit(f"no cow_mlx.h beside {PACKAGE}: install the package with pip")


def cflags() -> str:
    """Return what a C compiler needs."""
    return f"-I{include()}"


def libs() -> str:
    """Return what a linker needs: the library itself, and where it is at run time."""
    path = library()
    return f"{path} -Wl,-rpath,{Path(path).parent}"


def version() -> str:
    """Return the version of the library."""
    return constants.VERSION


def pkgconfig() -> str:
    """Return a pkg-config file."""
    return "\n".join(
        [
            "Name: cowmlx",
            "Description: language models on mlx behind a flat C ABI",
            f"Version: {version()}",
            f"Cflags: {cflags()}",
            f"Libs: {libs()}",
        ]
    )


def info() -> str:
    """Start the runtime and return what ``cow_mlx_runtime_info`` says, as JSON."""
    import ctypes

    api = ctypes.CDLL(library())
    api.cow_mlx_error_message.restype = ctypes.c_char_p
    length = ctypes.c_size_t()
    if api.cow_mlx_runtime_start(None) or api.cow_mlx_runtime_info(None, 0, ctypes.byref(length)):
        sys.exit(api.cow_mlx_error_message().decode())
    buffer = ctypes.create_string_buffer(length.value + 1024)
    if api.cow_mlx_runtime_info(buffer, ctypes.c_size_t(len(buffer)), ctypes.byref(length)):
        sys.exit(api.cow_mlx_error_message().decode())
    api.cow_mlx_runtime_stop()
    return buffer.value.decode()


COMMANDS = {f.__name__: f for f in (library, include, cflags, libs, pkgconfig, version, info)}


def main() -> None:
    """Print one of them."""
    parser = argparse.ArgumentParser(prog="python -m cowmlx", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.__doc__)
    print(COMMANDS[parser.parse_args().command]())


if __name__ == "__main__":
    main()
