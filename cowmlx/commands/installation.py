"""Where the library and its headers are, for a host's build."""

from __future__ import annotations

import sys
from pathlib import Path

from cowmlx.commands import origin
from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

PACKAGE = Path(__file__).resolve().parent.parent
LIBRARY = "libcowmlx.1.dylib" if sys.platform == "darwin" else "libcowmlx.so.1"


def library() -> str:
    """Return the path of the shared library."""
    path = PACKAGE / "lib" / LIBRARY
    if not path.exists():
        sys.exit(f"{path} does not exist: {origin.again()}")
    return str(path)


def include() -> str:
    """Return the folder of the headers."""
    for folder in (PACKAGE / "include", PACKAGE.parent / "include"):
        if (folder / "cow_mlx.h").exists():
            return str(folder)
    sys.exit(f"no cow_mlx.h beside {PACKAGE}: {origin.again()}")


def cflags() -> str:
    """Return the options that a C compiler needs."""
    return f"-I{include()}"


def libs() -> str:
    """Return the options that a linker needs: the library, and its folder at run time."""
    path = library()
    return f"{path} -Wl,-rpath,{Path(path).parent}"


def version() -> str:
    """Return the version of the library."""
    return constants.VERSION


def pkgconfig_file(prefix: str, libdir: str, includedir: str, link: str) -> str:
    """Return the text of a pkg-config file, that of ``make install`` too.

    The path for run time is in it, since a program's loader looks in few folders by itself, and
    on macOS in none for a library named with @rpath.
    """
    return f"""\
prefix={prefix}
libdir={libdir}
includedir={includedir}

Name: cowmlx
Description: language models on mlx behind a flat C ABI
Version: {version()}
Cflags: -I${{includedir}}
Libs: {link} -Wl,-rpath,${{libdir}}
"""


def pkgconfig() -> str:
    """Return a file for pkg-config."""
    path = Path(library())
    # A wheel holds no links, so there is nothing that -lcowmlx would find.
    link = f"${{libdir}}/{path.name}"
    return pkgconfig_file(str(PACKAGE), str(path.parent), include(), link).rstrip("\n")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add a command for each of them."""

    def add_printer(value: Callable[[], str]) -> None:
        def run(arguments: argparse.Namespace) -> int:
            print(value())
            return 0

        text = (value.__doc__ or "").replace("Return", "Print", 1)
        parser = commands.add_parser(value.__name__, help=text, description=text)
        parser.set_defaults(run=run)

    for value in (library, include, cflags, libs, pkgconfig, version):
        add_printer(value)
