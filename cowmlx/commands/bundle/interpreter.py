"""The Python that runs this: where its library, its standard library and its licence lie."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from cowmlx.commands.bundle import BundleError

MAC = sys.platform == "darwin"
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Interpreter:
    """A Python installation, whoever made it.

    Attributes:
        library: its shared libpython.
        library_name: what that is called in a bundle, where ``csrc/boot/locate.c`` looks for it.
        modules: the folder of the standard library.
        extensions: the folder of its extension modules.
        licences: files with its licence, perhaps none.
    """

    library: Path
    library_name: str
    modules: Path
    extensions: Path
    licences: tuple[Path, ...]


def find() -> Interpreter:
    """Return the Python that runs this; in a virtual environment, the one under it.

    Raises:
        BundleError: it has no shared libpython.
    """
    base = Path(sys.base_prefix)
    modules = Path(sysconfig.get_path("stdlib"))
    extensions = Path(sysconfig.get_config_var("DESTSHARED") or modules / "lib-dynload")
    candidates = [
        modules / "LICENSE.txt",
        base / "LICENSE.txt",
        base / "share/doc" / NAME / "copyright",  # Debian
        base / "share/doc" / f"lib{NAME}" / "copyright",
        base / "share/licenses" / NAME / "LICENSE",
    ]
    return Interpreter(
        library=_library(base),
        library_name=f"lib{NAME}.dylib" if MAC else f"lib{NAME}.so.1.0",
        modules=modules,
        extensions=extensions,
        licences=tuple(path for path in candidates if path.is_file())[:1],
    )


def _library(base: Path) -> Path:
    folders = [base / "lib", base / "lib64", base]
    if multiarch := sysconfig.get_config_var("MULTIARCH"):
        folders.append(base / "lib" / multiarch)
    if configured := sysconfig.get_config_var("LIBDIR"):
        folders.append(Path(configured))
    names = [f"lib{NAME}.dylib", "Python"] if MAC else [f"lib{NAME}.so.1.0", f"lib{NAME}.so"]
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return (folder / name).resolve()
    places = ", ".join(str(folder) for folder in dict.fromkeys(folders))
    raise BundleError(f"{base} has no shared lib{NAME} (looked in {places})")
