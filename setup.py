"""Builds the shared library, the Cython bridge and the kernels, side by side in the package.

``pip install .`` puts them into the installed package; ``python setup.py
build_ext --inplace`` into the source tree, as ``make`` does.
"""

import os
import re
import shlex
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from tools.bindings import generate  # noqa: E402
from tools.packaging import kernels  # noqa: E402
from tools.packaging.headers import copy_headers, headers, link_headers  # noqa: E402
from tools.packaging.programs import VERBOSE, announce, compile_with  # noqa: E402
from tools.packaging.targets import MACOS_MINIMUM, Python, Target  # noqa: E402

TARGET = Target(macos="" if "MACOSX_DEPLOYMENT_TARGET" in os.environ else MACOS_MINIMUM)
SOURCES = Path()  # commands run in ROOT
BLAS = "libcowmlx_blas.so"
LAPACK = "libcowmlx_lapack.so"
PLAIN = "libcowmlx_plain.so"
OPENBLAS = "libscipy_openblas.so"
PROBE = "cowmlx-probe"


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
    names = [f"libpython{version}.so.1.0"]
    if TARGET.is_mac:
        names = [f"libpython{version}.dylib", "Python"]
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
        package = ROOT / "cowmlx" if self.inplace else Path(self.build_lib) / "cowmlx"
        # Kernels take most of a build, so that their compilers begin first and run beside the rest.
        with ThreadPoolExecutor(1) as beside:
            built_kernels = beside.submit(self.build_kernels, package)
            super().run()
            self.build_library(package / "lib")
            built_kernels.result()
        if self.inplace:
            link_headers(package / "include")
        else:
            copy_headers(package / "include")

    def build_extension(self, extension: Extension) -> None:
        """Compile the bridge unless it is newer than its sources."""
        built = Path(self.get_ext_fullpath(extension.name))
        sources = map(Path, [*extension.sources, *extension.depends])
        newest = max(source.stat().st_mtime for source in sources)
        if self.force or not built.exists() or built.stat().st_mtime < newest:
            announce("compile", f"{built.name}: 1 C file")
        super().build_extension(extension)

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
        library = folder / TARGET.library
        python = Python.running(prefix=self.environment())
        flags = shlex.split(os.environ.get("CFLAGS", ""))
        command = TARGET.library_command(SOURCES, library, python)
        announce("compile", f"{TARGET.library}: {sum(w.endswith('.c') for w in command)} C files")
        self.compile(*command, *flags)
        if TARGET.is_linux:
            self.build_blas(folder)
        self.compile(*TARGET.probe_command(SOURCES, folder / PROBE))
        if self.inplace:  # a wheel holds no links
            (folder / TARGET.link).unlink(missing_ok=True)
            (folder / TARGET.link).symlink_to(TARGET.library)

    def build_kernels(self, package: Path) -> None:
        """Compile csrc/kernels/ against mlx; without a compiler for it there are none."""
        module, absent = package / "accelerate" / kernels.NAME, package / "lib" / kernels.ABSENT
        absent.unlink(missing_ok=True)
        module.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(self.build_temp) / "kernels"
        try:
            build = kernels.Build(TARGET, os.environ.get("CXX", ""), scratch)
        except kernels.NoKernelsError as error:
            module.unlink(missing_ok=True)
            absent.write_text(f"{error}\n")
            announce("skip", f"kernels: {error}")
        else:
            build.write(module, ROOT if self.inplace else None)

    def build_blas(self, folder: Path) -> None:
        """Compile what lends libmlx an optimised BLAS, and what a bundle has beside it."""
        blas = SOURCES / "csrc/blas"
        link = ["-Wl,-z,defs", "-ldl"]
        self.compile(*TARGET.shared_command(blas / "cblas.c", folder / BLAS, *link))
        self.compile(*TARGET.shared_command(blas / "plain.c", folder / PLAIN, "-Wl,-z,defs"))
        # OpenBLAS need not be here to link against: a library of its name is enough.
        scratch = Path(self.build_temp).absolute()
        scratch.mkdir(parents=True, exist_ok=True)
        stand_in, empty = scratch / OPENBLAS, scratch / "empty.c"
        empty.write_text("")
        self.compile(*TARGET.shared_command(empty, stand_in, f"-Wl,-soname,{OPENBLAS}"))
        beside = "-Wl,-rpath,$ORIGIN/../scipy_openblas32/lib"
        link = ["-Wl,--no-as-needed", str(stand_in), beside]
        self.compile(*TARGET.shared_command(blas / "lapack.c", folder / LAPACK, *link))

    def compile(self, *arguments: str) -> None:
        """Run the C compiler."""
        compile_with([*shlex.split(os.environ.get("CC") or "cc"), *arguments], cwd=ROOT)

    def get_outputs(self) -> list[str]:
        """Return what was built, for the installer's record."""
        package = Path(self.build_lib) / "cowmlx"
        files = [
            *(package / "lib" / name for name in (TARGET.library, PROBE)),
            *(package / "lib" / name for name in (BLAS, LAPACK, PLAIN) if TARGET.is_linux),
            *(package / "include" / name for name in headers()),
            *(package / part for part in (f"accelerate/{kernels.NAME}", f"lib/{kernels.ABSENT}")),
        ]
        return super().get_outputs() + [str(path) for path in files if path.exists()]


generate.write_for_build()
setup(
    version=library_version(),
    cmdclass={"build_ext": BuildAll},
    ext_modules=cythonize(
        [
            Extension(
                "cowmlx._bridge",
                ["cowmlx/bridge/bridge.pyx"],
                include_dirs=["include", "csrc"],
                depends=["csrc/arguments.h", "csrc/bridge.h", "csrc/generated/call_arguments.h"],
            )
        ],
        build_dir="build",
        quiet=not VERBOSE,
    ),
)
