"""``make install``: everything that hosts need, in one prefix.

=====================================  ====================================================
``LIBDIR/cowmlx/``                     the engine: a virtual environment with this package in
                                       it, the library too, and what it needs
``LIBDIR/libcowmlx.so.1``              a link to the library in there; from where it really
                                       lies the library finds its environment
``LIBDIR/libcowmlx.so``                a link for linkers
``LIBDIR/pkgconfig/cowmlx.pc``         for pkg-config
``LIBDIR/cmake/cowmlx/``               for CMake
``INCLUDEDIR/cow_mlx*``                the headers
=====================================  ====================================================

Run by the Python of the build's environment, whose packages are copied: nothing is downloaded, and
the source tree can go afterwards. All paths inside are relative, so that the prefix can be moved.
The Python that the environment was made from stays where it is. ``make uninstall`` is run by any
Python, perhaps in a tree where nothing is built.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cowmlx.commands.installed_files import (  # noqa: E402
    ENGINE,
    LIBRARY,
    MANIFEST,
    listed,
    remove,
    uninstall,
)
from tools.packaging.headers import copy_headers, headers  # noqa: E402

LINK = LIBRARY.replace(".1", "")


@dataclass(frozen=True)
class Layout:
    """The folders of an installation, without DESTDIR."""

    prefix: Path
    libdir: Path
    includedir: Path

    @property
    def engine(self) -> Path:
        """The virtual environment."""
        return self.libdir / ENGINE

    @property
    def pkgconfigdir(self) -> Path:
        """Where pkg-config looks."""
        return self.libdir / "pkgconfig"

    @property
    def cmakedir(self) -> Path:
        """Where find_package looks."""
        return self.libdir / "cmake" / "cowmlx"

    def staged(self, destdir: str) -> Layout:
        """Return the same places below another root, for packagers."""
        if not destdir:
            return self
        below = Path(destdir).absolute()
        places = (self.prefix, self.libdir, self.includedir)
        return Layout(*(below / place.relative_to("/") for place in places))


class Environment(venv.EnvBuilder):
    """A virtual environment that does not name the folder where it was made."""

    def setup_scripts(self, context: object) -> None:
        """Leave the activation scripts out."""

    def create_configuration(self, context: object) -> None:
        """Leave out the command, which names the folder where it was run."""
        super().create_configuration(context)
        path = Path(context.cfg_path)
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith("command")))


def project() -> dict[str, object]:
    """Return what pyproject.toml says of the package."""
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def needed_distributions() -> Iterator[importlib.metadata.Distribution]:
    """Yield the packages that this one requires, and their requirements."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    waiting = list(project()["dependencies"])
    seen = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not wanted or name in seen:
            continue
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        yield distribution
        waiting += distribution.requires or []


def copy_distribution(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    """Copy an installed package, bytecode included; programs beside it are left out."""
    if distribution.files is None:
        sys.exit(f"{distribution.name} was not installed by pip: its files are not known")
    for file in distribution.files:
        source = Path(str(distribution.locate_file(file)))
        if ".." in file.parts or not source.exists():
            continue
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def copy_package(folder: Path) -> None:
    """Copy the package as pip would install it: built files, no sources of theirs."""
    package = folder / "cowmlx"
    left_out = shutil.ignore_patterns("bridge", "*.c", "include", LINK)
    shutil.copytree(ROOT / "cowmlx", package, ignore=left_out)
    copy_headers(package / "include")
    shutil.copy2(ROOT / "LICENSE", package)


def write_metadata(folder: Path) -> None:
    """Write the package's requirements as pip would; the doctor compares them.

    There is no RECORD, so that only this script changes or removes these files.
    """
    from cowmlx.generated.constants import VERSION

    about = project()
    lines = ["Metadata-Version: 2.4", f"Name: {about['name']}", f"Version: {VERSION}"]
    lines += [f"Summary: {about['description']}", f"License-Expression: {about['license']}"]
    lines += [f"Requires-Python: {about['requires-python']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in about["dependencies"]]
    record = folder / f"cowmlx-{VERSION}.dist-info"
    write(record / "METADATA", "".join(f"{line}\n" for line in lines))
    write(record / "INSTALLER", "make\n")


def make_readable(folder: Path) -> None:
    """Let everyone read files that may have been built under a strict umask."""
    for parent, _, names in os.walk(folder):
        os.chmod(parent, 0o755)
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def build_engine(folder: Path) -> Path:
    """Make the environment; return its site-packages."""
    Environment(symlinks=True, with_pip=False, clear=True).create(folder)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for distribution in needed_distributions():
        copy_distribution(distribution, packages)
    copy_package(packages)
    write_metadata(packages)
    (folder / MANIFEST).write_text("")  # from now on it can be installed over, and uninstalled
    make_readable(folder)
    return packages


def replace_engine(engine: Path) -> Path:
    """Put a new environment in the place of the old one, if any; return its site-packages."""
    if engine.exists() and not (engine / MANIFEST).exists():
        sys.exit(f"{engine} exists and is not an installation of libcowmlx: nothing was changed")
    engine.parent.mkdir(parents=True, exist_ok=True)
    fresh = engine.with_name(f".{engine.name}.{os.getpid()}")
    try:
        packages = build_engine(fresh).relative_to(fresh)
        if engine.exists():
            shutil.rmtree(engine)
        fresh.rename(engine)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return engine / packages


def write(path: Path, text: str) -> Path:
    """Write a file that everyone may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
    return path


def link(path: Path, target: str) -> Path:
    """Make a symbolic link, in the place of an earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    return path


def filled(template: str, values: dict[str, str]) -> str:
    """Return a template of this folder with @NAME@ replaced."""
    text = (Path(__file__).parent / template).read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def install_files(layout: Layout, target: Layout, library: Path) -> Iterator[Path]:
    """Install the files outside of the environment, and yield their paths."""
    from cowmlx.commands.installation import pkgconfig_file
    from cowmlx.generated.constants import VERSION

    for name, path in headers().items():
        yield write(target.includedir / name, path.read_text())
    yield link(target.libdir / LIBRARY, os.path.relpath(library, target.libdir))
    yield link(target.libdir / LINK, LIBRARY)

    def place(folder: Path, origin: Path, here: str) -> str:
        """The folder as seen from a file, so that the prefix can be moved."""
        if folder.is_relative_to(layout.prefix) and origin.is_relative_to(layout.prefix):
            return f"{here}/{os.path.relpath(folder, origin)}"
        return str(folder)

    seen = {"origin": layout.pkgconfigdir, "here": "${pcfiledir}"}
    text = pkgconfig_file(
        prefix=place(layout.prefix, **seen),
        libdir=place(layout.libdir, **seen),
        includedir=place(layout.includedir, **seen),
        link="-L${libdir} -lcowmlx",
    )
    yield write(target.pkgconfigdir / "cowmlx.pc", text)

    seen = {"origin": layout.cmakedir, "here": "${CMAKE_CURRENT_LIST_DIR}"}
    values = {
        "LIBDIR": place(layout.libdir, **seen),
        "INCLUDEDIR": place(layout.includedir, **seen),
        "LIBRARY": LIBRARY,
        "SONAME": f"@rpath/{LIBRARY}" if sys.platform == "darwin" else LIBRARY,
        "VERSION": VERSION,
        "MAJOR": VERSION.split(".")[0],
    }
    for name in ("cowmlx-config.cmake", "cowmlx-config-version.cmake"):
        yield write(target.cmakedir / name, filled(f"{name}.in", values))


def install(layout: Layout, destdir: str) -> None:
    """Install, or install again."""
    target = layout.staged(destdir)
    before = listed(target.engine)
    parts = {(target.includedir / name).parent for name in headers()} - {target.includedir}
    inner = sorted(parts, reverse=True)  # a folder goes after those in it
    folders = (target.pkgconfigdir, target.cmakedir.parent, *inner, target.includedir)
    made = [path for path in folders if path in before or not path.exists()]
    packages = replace_engine(target.engine)
    installed = [*install_files(layout, target, packages / "cowmlx" / "lib" / LIBRARY), *made]
    for path in before:
        if path not in installed:
            remove(path)
    lines = [f"{os.path.relpath(path, target.engine)}\n" for path in installed]
    write(target.engine / MANIFEST, "".join(lines))
    print(f"installed {target.libdir / LIBRARY}")


def take_away(layout: Layout, destdir: str) -> None:
    """Uninstall the files that the manifest lists."""
    target = layout.staged(destdir)
    if not (target.engine / MANIFEST).exists():
        sys.exit(f"nothing is installed in {target.libdir}: there is no {target.engine / MANIFEST}")
    uninstall(target.engine)


def main() -> None:
    """Read the Makefile's variables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("install", "uninstall"))
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--libdir", required=True)
    parser.add_argument("--includedir", required=True)
    parser.add_argument("--destdir", default="")
    given = parser.parse_args()
    prefix = given.prefix or "/"  # an empty PREFIX is the root, as with other packages
    libdir = given.libdir or os.path.join(prefix, "lib")
    includedir = given.includedir or os.path.join(prefix, "include")
    places = (prefix, libdir, includedir)
    layout = Layout(*(Path(os.path.abspath(place)) for place in places))
    {"install": install, "uninstall": take_away}[given.action](layout, given.destdir)


if __name__ == "__main__":
    main()
