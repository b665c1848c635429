"""``make deb``: packages for Debian and its descendants.

``libcowmlx1`` is a bundle in LIBDIR/cowmlx, with its own Python, and a link to its library.
``libcowmlx-dev`` has the headers and what linkers, pkg-config and CMake look for.

DEBFULLNAME and DEBEMAIL name their publisher, as for other tools of Debian's. dpkg-deb gets
DEB_OPTIONS, such as -Znone. If lintian is installed, it must find no error.
"""

from __future__ import annotations

import email.utils
import gzip
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cowmlx.commands.installed_files import LIBRARY
from cowmlx.generated.constants import VERSION
from tools.packaging.install import Layout, install_files, link, make_readable, write
from tools.packaging.programs import ROOT, bundle, run

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LIBDIR = Path("/usr/lib") / f"{platform.machine()}-linux-gnu"
LAYOUT = Layout(Path("/usr"), LIBDIR, Path("/usr/include"))
RUNTIME, DEVELOPMENT = "libcowmlx1", "libcowmlx-dev"

# The packages of the libraries that a bundle takes from the system.
OF_LIBC = ["ld-linux", "libc.so", "libdl.so", "libm.so", "libpthread.so", "librt.so", "libutil.so"]
OTHERS = {"libgcc_s.so.1": "libgcc-s1", "libz.so.1": "zlib1g", "libexpat.so.1": "libexpat1"}
# The version of GCC whose libstdc++ has the symbols of a version.
GCC = {
    "3.4.29": "11",
    "3.4.30": "12",
    "3.4.31": "13",
    "3.4.32": "13.1",
    "3.4.33": "14",
    "3.4.34": "15",
}

ABOUT = """\
Package: {name}
Source: libcowmlx
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: {depends}
Section: {section}
Priority: optional
Description: language models on mlx behind a flat C ABI{what}
 libcowmlx puts language models of mlx and mlx-lm into any program that can
 open a shared library: it streams text to callers on any thread, and has
 its own Python, of which a program sees nothing.
 .
{more}
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: libcowmlx

Files: *
Copyright: 2026 the libcowmlx authors
License: MIT
{licence}
"""
OVERRIDES = f"""\
# It has its own Python, which only the library runs: its modules are bytecode, and no
# other Python would compile their sources.
{RUNTIME}: package-installs-python-bytecode
{RUNTIME}: package-installs-python-pycache-dir
# Modules of Python take its symbols from the library that loads them, and so does the BLAS that
# has but three functions.
{RUNTIME}: shared-library-lacks-prerequisites
"""


def dependencies(requires: dict[str, Any]) -> str:
    """Return the packages that a bundle's manifest requires; exit where one is not known."""
    versions = requires["versions"]
    found = [f"libc6 (>= {versions['GLIBC']})"]
    for name in requires["libraries"]:
        if name == "libstdc++.so.6":
            symbols = versions["GLIBCXX"]
            if symbols not in GCC:
                sys.exit(
                    f"tools/packaging/deb.py does not know the GCC of GLIBCXX_{symbols}: add it"
                )
            found.append(f"libstdc++6 (>= {GCC[symbols]})")
        elif not name.startswith(tuple(OF_LIBC)):
            if name not in OTHERS:
                sys.exit(f"tools/packaging/deb.py has to know the package of {name}")
            found.append(OTHERS[name])
    return ", ".join(found)


def maintainer() -> str:
    """Return the publisher of the packages."""
    name = os.environ.get("DEBFULLNAME") or "the libcowmlx authors"
    return f"{name} <{os.environ.get('DEBEMAIL') or 'unpublished@libcowmlx.invalid'}>"


def documented(tree: Path, name: str) -> None:
    """Write the licence and the changelog to Debian's places."""
    folder = tree / "usr/share/doc" / name
    folder.mkdir(parents=True)
    lines = (ROOT / "LICENSE").read_text().splitlines()
    licence = "\n".join(f" {line}" if line else " ." for line in lines)
    write(folder / "copyright", COPYRIGHT.format(licence=licence))
    moment = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    date = email.utils.formatdate(moment)
    entry = f"libcowmlx ({VERSION}) unstable; urgency=medium\n\n  * As CHANGELOG.md.gz tells.\n\n"
    changes = f"{entry} -- {maintainer()}  {date}\n"
    (folder / "changelog.gz").write_bytes(gzip.compress(changes.encode(), 9, mtime=moment))
    text = (ROOT / "CHANGELOG.md").read_bytes()
    (folder / "CHANGELOG.md.gz").write_bytes(gzip.compress(text, 9, mtime=moment))


def library(tree: Path) -> dict[str, str]:
    """Lay out the bundle; return the package's fields."""
    libdir = tree / LIBDIR.relative_to("/")
    libdir.mkdir(parents=True)
    folder = bundle(libdir / "cowmlx", headers=False)
    link(libdir / LIBRARY, f"cowmlx/lib/{LIBRARY}")
    write(tree / "DEBIAN/triggers", "activate-noawait ldconfig\n")
    write(tree / "usr/share/lintian/overrides" / RUNTIME, OVERRIDES)
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    return {
        "name": RUNTIME,
        "section": "libs",
        "depends": dependencies(manifest["requires"]),
        "what": "",
        "more": f" This package has the library and its parts, whose licences lie in\n {LIBDIR}/\n"
        " cowmlx/licences.",
    }


def development(tree: Path) -> dict[str, str]:
    """Lay out headers and files for builds; return the package's fields."""
    target = LAYOUT.staged(str(tree))
    for path in install_files(LAYOUT, target, target.libdir / "cowmlx/lib" / LIBRARY):
        if path.name == LIBRARY:
            path.unlink()
    return {
        "name": DEVELOPMENT,
        "section": "libdevel",
        "depends": f"{RUNTIME} (= {VERSION})",
        "what": " - headers",
        "more": " This package has the headers for C and C++, and files for\n"
        " pkg-config and CMake.",
    }


def packed(tree: Path, about: dict[str, str], folder: Path) -> Path:
    """Make a package of a tree."""
    documented(tree, about["name"])
    make_readable(tree)
    for path in tree.rglob("*.so*"):
        if not path.is_symlink():
            path.chmod(0o644)
    architecture = ARCHITECTURES[platform.machine()]
    size = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir())
    fields = {**about, "version": VERSION, "architecture": architecture, "size": str(size // 1024)}
    write(tree / "DEBIAN/control", ABOUT.format(**fields, maintainer=maintainer()))
    (tree / "DEBIAN").chmod(0o755)
    package = folder / f"{about['name']}_{VERSION}_{architecture}.deb"
    options = os.environ.get("DEB_OPTIONS", "-Zxz").split()
    run("dpkg-deb", "--root-owner-group", *options, "--build", tree, package)
    return package


def packages(folder: Path, scratch: Path) -> Iterator[str]:
    """Make both packages, and yield their names."""
    if not shutil.which("dpkg-deb"):
        sys.exit("packages for Debian are made with dpkg-deb, which is not installed")
    made = []
    for lay_out in (library, development):
        tree = scratch / lay_out.__name__
        made.append(packed(tree, lay_out(tree), folder))
        shutil.rmtree(tree)
    if shutil.which("lintian"):
        said = run("lintian", "--allow-root", "--fail-on", "error", "--no-tag-display-limit", *made)
        sys.stdout.write(said)
    yield from (path.name for path in made)
