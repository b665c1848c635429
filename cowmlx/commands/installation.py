"""The installation: where its parts are for a host's build, what it reports, how it is removed."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from cowmlx.commands import origin
from cowmlx.commands.installed_files import LIBRARY, MANIFEST, uninstall
from cowmlx.commands.origin import PACKAGE
from cowmlx.commands.terminal import CommandError, running, write
from cowmlx.generated import constants


def library() -> str:
    """Return the path of the shared library."""
    path = PACKAGE / "lib" / LIBRARY
    if not path.exists():
        sys.exit(f"{path} does not exist: {origin.again()}")
    return str(path)


def include() -> str:
    """Return the folder of the headers."""
    folder = origin.headers()
    if folder is None:
        sys.exit(f"no cow_mlx.h beside {PACKAGE}: {origin.again()}")
    return str(folder)


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

    It has the path for run time, since a program's loader searches few folders by itself, and
    on macOS none for a library named with @rpath.
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


def info(arguments: argparse.Namespace) -> None:
    """Start the library and print its versions, device, architectures and memory as JSON."""
    origin.require_python()
    from cowmlx.host.library import HostError, Library

    try:
        with Library(library()) as opened:
            described = opened.described("runtime_info")
    except HostError as error:
        raise CommandError(str(error)) from None
    write(json.dumps(described, ensure_ascii=False) + "\n")


def _other_way() -> str:
    """Return how to remove a package that ``make install`` did not put here."""
    if (origin.TREE / "pyproject.toml").is_file():
        return (
            f"{origin.TREE} is a source tree: make clean removes what was built in it. What make "
            "install has put elsewhere is uninstalled by its own Python, LIBDIR/cowmlx/bin/python"
        )
    with contextlib.suppress(metadata.PackageNotFoundError):
        if metadata.distribution("cowmlx").read_text("INSTALLER"):
            return f"pip installed this package: run {sys.executable} -m pip uninstall cowmlx"
    return f"make install did not put this package here: remove {PACKAGE} as it came"


def _uninstall(arguments: argparse.Namespace) -> int:
    engine = Path(sys.prefix)
    if not (engine / MANIFEST).exists():
        sys.exit(f"uninstall: {_other_way()}")
    uninstall(engine)
    return 0


def _printing(value: Callable[[], str]) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        print(value())
        return 0

    return run


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that print a fact, ``info`` and ``uninstall``."""
    for value in (library, include, cflags, libs, pkgconfig, version):
        text = (value.__doc__ or "").replace("Return", "Print", 1)
        parser = commands.add_parser(value.__name__, help=text, description=text)
        parser.set_defaults(run=_printing(value))
    parser = commands.add_parser("info", help=info.__doc__, description=info.__doc__)
    parser.set_defaults(run=running(info))
    text = "Remove what make install has put where this Python is."
    commands.add_parser("uninstall", help=text, description=text).set_defaults(run=_uninstall)
