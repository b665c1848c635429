"""Builds the shared library and the Cython bridge, side by side in the package.

``pip install .`` puts them into the installed package; ``python setup.py
build_ext --inplace`` into the source tree, as ``make`` does.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
HEADERS = ["cow_mlx.h", "cow_mlx.hpp", "cow_mlx_compat.h"]
MAC = sys.platform == "darwin"
LINUX = sys.platform.startswith("linux")
BLAS = "libcowmlx_blas.so"
LAPACK = "libcowmlx_lapack.so"
OPENBLAS = "libscipy_openblas.so"
PROBE = "cowmlx-probe"
LIBRARY = "libcowmlx.1.dylib" if MAC else "libcowmlx.so.1"
LINK = "libcowmlx.dylib" if MAC else "libcowmlx.so"


def library_version() -> str:
    """Return COW_MLX_VERSION of the header."""
    text = (ROOT / "include" / "cow_mlx.h").read_text()
    return re.search(r'#define COW_MLX_VERSION "([^"]+)"', text).group(1)


def check_python() -> None:
    """Stop with one sentence if this Python cannot be embedded."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        sys.exit(
            f"libcowmlx needs the headers of Python {version}: install them "
            f"(Debian: apt-get install python{version}-dev) and build again."
        )
    base = Path(sys.base_prefix)
    folders = [base / "lib", base / "lib64", base]
    if multiarch := sysconfig.get_config_var("MULTIARCH"):
        folders.append(base / "lib" / multiarch)
    names = [f"libpython{version}.dylib", "Python"] if MAC else [f"libpython{version}.so.1.0"]
    if not any((folder / name).exists() for folder in folders for name in names):
        sys.exit(
            f"libcowmlx needs a shared libpython{version}, and {base} has none: install one "
            f"(Debian: apt-get install libpython{version}; pyenv: PYTHON_CONFIGURE_OPTS="
            f"--enable-shared pyenv install {version}) and build again."
        )


class BuildAll(build_ext):
    """Builds the extension module, then the library that boots it."""

    def run(self) -> None:
        """Build both into the package."""
        check_python()
        super().run()
        package = ROOT / "cowmlx" if self.inplace else Path(self.build_lib) / "cowmlx"
        self.build_library(package / "lib")
        if not self.inplace:
            include = package / "include"
            include.mkdir(parents=True, exist_ok=True)
            for header in HEADERS:
                shutil.copy(ROOT / "include" / header, include)

    def environment(self) -> str:
        """Return where a library in this tree finds its Python; "" for one that is installed.

        Within the tree the path is relative, so that the tree can be moved.
        """
        prefix = Path(sys.prefix).parent.resolve() / Path(sys.prefix).name
        if not self.inplace:
            return ""
        return str(prefix.relative_to(ROOT) if prefix.is_relative_to(ROOT) else prefix)

    def build_library(self, folder: Path) -> None:
        """Compile csrc/ into the shared library, which links no libpython."""
        folder.mkdir(parents=True, exist_ok=True)
        macros = {
            "COWMLX_BUILD_PREFIX": f'"{self.environment()}"',
            "COWMLX_PYTHON_MINOR": str(sys.version_info.minor),
        }
        if multiarch := sysconfig.get_config_var("MULTIARCH"):
            macros["COWMLX_MULTIARCH"] = f'"{multiarch}"'
        if MAC:
            link = ["-dynamiclib", f"-Wl,-install_name,@rpath/{LIBRARY}"]
        else:
            link = ["-shared", f"-Wl,-soname,{LIBRARY}", "-Wl,-z,defs", "-Wl,-z,nodelete", "-ldl"]
        command = [
            *shlex.split(os.environ.get("CC") or "cc"),
            *["-std=c11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread"],
            *["-Wall", "-Wextra", "-Werror"],
            *shlex.split(os.environ.get("CFLAGS", "")),
            *[f"-D{name}={value}" for name, value in macros.items()],
            *[f"-I{path}" for path in ("include", "csrc", sysconfig.get_path("include"))],
            *[str(path) for path in sorted(Path("csrc").glob("*.c"))],
            *link,
            *["-o", str(folder / LIBRARY)],
        ]
        print(shlex.join(command), flush=True)
        subprocess.run(command, check=True, cwd=ROOT)
        if LINUX:
            self.build_blas(folder)
        self.build_probe(folder)
        if self.inplace:  # a wheel holds no links
            (folder / LINK).unlink(missing_ok=True)
            (folder / LINK).symlink_to(LIBRARY)

    def build_blas(self, folder: Path) -> None:
        """Compile what lends libmlx an optimised BLAS, and its LAPACK in a bundle."""
        self.compile_shared("csrc/blas/cblas.c", folder / BLAS, "-Wl,-z,defs", "-ldl")
        # OpenBLAS need not be here to link against: a library of its name is enough.
        scratch = Path(self.build_temp).absolute()
        scratch.mkdir(parents=True, exist_ok=True)
        stand_in, empty = scratch / OPENBLAS, scratch / "empty.c"
        empty.write_text("")
        self.compile_shared(str(empty), stand_in, f"-Wl,-soname,{OPENBLAS}")
        beside = "-Wl,-rpath,$ORIGIN/../scipy_openblas32/lib"
        link = ["-Wl,--no-as-needed", str(stand_in), beside]
        self.compile_shared("csrc/blas/lapack.c", folder / LAPACK, *link)

    def compile_shared(self, source: str, output: Path, *link: str) -> None:
        """Compile a shared library of one file."""
        command = [
            *shlex.split(os.environ.get("CC") or "cc"),
            *["-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"],
            *[source, "-shared", *link, "-o", str(output)],
        ]
        print(shlex.join(command), flush=True)
        subprocess.run(command, check=True, cwd=ROOT)

    def build_probe(self, folder: Path) -> None:
        """Compile the host that ``python -m cowmlx doctor`` runs."""
        command = [
            *shlex.split(os.environ.get("CC") or "cc"),
            *["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Iinclude"],
            *["csrc/probe/probe.c", "-o", str(folder / PROBE), *([] if MAC else ["-ldl"])],
        ]
        print(shlex.join(command), flush=True)
        subprocess.run(command, check=True, cwd=ROOT)

    def get_outputs(self) -> list[str]:
        """Return what was built, for the installer's record."""
        package = Path(self.build_lib) / "cowmlx"
        files = [
            *(package / "lib" / name for name in (LIBRARY, PROBE)),
            *(package / "lib" / name for name in (BLAS, LAPACK) if LINUX),
            *(package / "include" / name for name in HEADERS),
        ]
        return super().get_outputs() + [str(path) for path in files]


setup(
    version=library_version(),
    cmdclass={"build_ext": BuildAll},
    ext_modules=cythonize(
        [Extension("cowmlx._bridge", ["cowmlx/_bridge.pyx"], include_dirs=["include", "csrc"])],
        build_dir="build",
    ),
)
