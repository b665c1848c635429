"""Writes a bundle: all of it, or nothing."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from cowmlx import json_text
from cowmlx.commands import origin
from cowmlx.commands.bundle import (
    BundleError,
    binaries,
    bytecode,
    distributions,
    manifest,
    python,
    staging,
    swift,
)
from cowmlx.commands.bundle.elf import Elf
from cowmlx.commands.bundle.parts import FULL, NEVER, PARTS, Part, optional
from cowmlx.commands.installed_files import LIBRARY
from cowmlx.commands.origin import MAC, PACKAGE
from cowmlx.folders import places
from cowmlx.generated import constants

PRUNINGS = ("standard", "none")

LINK = "libcowmlx.dylib" if MAC else "libcowmlx.so"
PROBE = PACKAGE / "lib" / "cowmlx-probe"
# Parts of the package that no host runs, and parts that are added separately.
_NO_ENGINE = frozenset(["__main__.py", "commands", "converting", "host", "ranks", "lib", "include"])


@dataclass(frozen=True)
class Options:
    """Contents of a bundle."""

    without: frozenset[str] = frozenset()  # names of parts to leave out
    full: bool = False  # with the packages of the fallback route of models
    # "standard", or "none" for whole packages and the whole standard library.
    prune: str = "standard"
    model: Path | None = None  # a model folder to put in, or None
    swift: bool = False  # a Swift package around it
    replace: bool = False  # whether a bundle that is there already is replaced

    def __post_init__(self) -> None:
        if unknown := self.without - optional().keys():
            raise BundleError(
                f"there is no part {', '.join(sorted(unknown))} to leave out; "
                f"it can be {', '.join(optional())}"
            )
        if self.prune not in PRUNINGS:
            raise BundleError(f"prune can be {' or '.join(PRUNINGS)}, not {self.prune}")
        if self.model is not None and not (self.model / "config.json").is_file():
            lack = "has no config.json" if self.model.is_dir() else "does not exist"
            raise BundleError(f"cannot put a model into a bundle: {self.model} {lack}")


def model_name(folder: Path) -> str:
    """Return the name of a model, which is not that of its snapshot in Hugging Face's cache."""
    return os.path.basename(places.find(str(folder.resolve()))[1])


def assemble(
    target: Path, options: Options, report: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Write a bundle and return its manifest. A failure leaves nothing behind.

    Raises:
        BundleError: the place or the installation does not allow it, or the bundle does not start.
    """
    target = Path(os.path.abspath(target))
    _check_place(target, options)
    try:
        with staging.beside(target) as place:
            folder = place / target.name
            folder.mkdir()
            written = Bundle(folder, options, report).write()
            staging.put_in_place(folder, target, place / staging.OLD)
    except OSError as error:
        raise BundleError(f"cannot make {target}: {error}") from error
    return written


def _check_place(target: Path, options: Options) -> None:
    if not target.parent.is_dir():
        state = "is no folder" if target.parent.exists() else "does not exist; make it first"
        raise BundleError(f"cannot write {target}: {target.parent} {state}")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BundleError(f"{target} exists and is no folder")
    if target.resolve().is_relative_to(PACKAGE):
        raise BundleError(f"{target} is inside of the package itself; name a folder elsewhere")
    if not target.exists() or not any(target.iterdir()):
        return
    if not options.replace:
        raise BundleError(f"{target} is not empty; name another folder, or --force a new bundle")
    manifest.read(target)  # nothing else is ever replaced


class Bundle:
    """One bundle while it is written."""

    def __init__(self, folder: Path, options: Options, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._report = report
        self._options = options
        self._python = python.find()
        self._modules = folder / "python/lib" / python.NAME
        self._packages = self._modules / "site-packages"
        self._pruned = options.prune == "standard"
        self._part_of: dict[str, str] = {}
        self._part = ""
        self.parts: dict[str, dict[str, Any]] = {}

    def write(self) -> dict[str, Any]:
        """Write everything and return the manifest."""
        with self._in_part("library", "the C ABI, its header, the engine"):
            self._add_library()
            self._add_engine()
        with self._in_part("python", "the interpreter and its standard library"):
            self._add_python()
        for part in PARTS:
            if part.name not in self._options.without and not (part.name == "openblas" and MAC):
                self._add_part(FULL if part.name == FULL.name and self._options.full else part)
        if self._options.model is not None:
            name = model_name(self._options.model)
            with self._in_part("model", f"the model {name}"):
                self._add_model(self._options.model, self._folder / "models" / name)
        if self._options.swift:
            with self._in_part("swift", "a Swift package with the library as a resource"):
                self._add_swift()
        self._report("stripping and linking libraries")
        requires, stripped = self._finish_binaries()
        self._report("starting the bundle once")
        self._check_start()
        self._report("reading every file for the manifest")
        return self._write_manifest(requires, stripped)

    # ---------------------------------------------------------------- Files

    @contextlib.contextmanager
    def _in_part(self, name: str, purpose: str) -> Iterator[None]:
        self._report(f"copying {name}: {purpose}")
        self.parts[name] = {"purpose": purpose, "components": []}
        self._part = name
        yield

    def _add(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if binaries.is_binary(target) else 0o644)
        self._own(target)

    def _own(self, target: Path) -> None:
        self._part_of[target.relative_to(self._folder).as_posix()] = self._part

    def _add_module(
        self, source: Path, target: Path, *, keep_source: bool, annotated: bool = True
    ) -> None:
        """Add a module as bytecode; some packages have other files with such a name."""
        compiled = bytecode.beside(target) if keep_source else target.with_suffix(".pyc")
        name = target.relative_to(self._modules).as_posix()
        try:
            bytecode.write(source, compiled, name, documented=keep_source, annotated=annotated)
        except bytecode.NotAModule:
            keep_source = True
        else:
            self._own(compiled)
        if keep_source:
            self._add(source, target)

    def _add_outlined(self, source: Path, target: Path) -> None:
        """Add a module as bytecode, with an outline of its source."""
        compiled = bytecode.beside(target)
        name = target.relative_to(self._modules).as_posix()
        bytecode.write(source, compiled, name, documented=False, annotated=False)
        self._own(compiled)
        target.write_bytes(bytecode.outline(source))
        self._own(target)

    def _note(self, name: str, version: str, licence: str, texts: list[Path]) -> None:
        """Note a component of the current part, and add its licence texts."""
        names = [f"licences/{name}/{text.name}" for text in texts]
        for text, target in zip(texts, names, strict=True):
            self._add(text, self._folder / target)
            if text.suffix == ".json":  # a list of libraries that are compiled in
                _shorten(self._folder / target)
        component = {"name": name, "version": version, "licence": licence, "licence_files": names}
        self.parts[self._part]["components"].append(component)

    # ---------------------------------------------------------------- Parts

    def _add_library(self) -> None:
        source = PACKAGE / "lib" / LIBRARY
        if not source.exists():
            raise BundleError(f"{source} does not exist: {origin.again()}")
        library = self._folder / "lib" / LIBRARY
        self._add(source, library)
        # Where the building machine had its Python: nothing of that machine is looked for.
        prefix = sys.prefix.encode() + b"\0"
        library.write_bytes(library.read_bytes().replace(prefix, b"\0" * len(prefix)))
        (self._folder / "lib" / LINK).symlink_to(LIBRARY)
        self._own(self._folder / "lib" / LINK)
        include = origin.headers()
        if include is None:
            raise BundleError(f"no cow_mlx.h beside {PACKAGE}: {origin.again()}")
        for header in sorted(include.rglob("*.h*")):
            self._add(header, self._folder / "include" / header.relative_to(include))

    def _add_engine(self) -> None:
        for source in _modules(PACKAGE, _NO_ENGINE):
            target = self._packages / "cowmlx" / source.relative_to(PACKAGE)
            self._add_module(source, target, keep_source=not self._pruned, annotated=False)
        bridge = PACKAGE / f"_bridge{sysconfig.get_config_var('EXT_SUFFIX')}"
        if not bridge.exists():
            raise BundleError(f"{bridge} does not exist: {origin.again()}")
        self._add(bridge, self._packages / "cowmlx" / bridge.name)
        kernels = PACKAGE / "accelerate" / f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}"
        if kernels.exists():  # where the library was built without them, mlx's own do
            self._add(kernels, self._packages / "cowmlx/accelerate" / kernels.name)
            texts = [distributions.TEXTS / "nanobind.txt"]
            self._note("nanobind", _compiled_in(kernels), "BSD-3-Clause AND MIT", texts)
        texts = [PACKAGE.parent / "LICENSE", PACKAGE / "LICENSE"]  # a source tree, make install
        with contextlib.suppress(metadata.PackageNotFoundError):
            texts += distributions.licence_texts(metadata.distribution("cowmlx"))
        licences = [text for text in texts if text.is_file()]
        self._note("cowmlx", constants.VERSION, "MIT", licences[:1])

    def _add_python(self) -> None:
        source = self._python
        self._add(source.library, self._folder / "python/lib" / source.library_name)
        whole = self._options.full or not self._pruned
        kept = python.kept()
        for module in _tree(source.modules, python.NEVER):
            if module.suffix != ".py":
                continue
            path = module.relative_to(source.modules)
            if whole or python.is_kept(".".join(path.with_suffix("").parts), kept):
                self._add_module(module, self._modules / path, keep_source=not self._pruned)
        for extension in sorted(source.extensions.glob("*")):
            name = extension.name.partition(".")[0]
            if not binaries.is_binary(extension) or _matches(name, tuple(python.NEVER)):
                continue
            if whole or name in python.EXTENSIONS:
                self._add(extension, self._modules / "lib-dynload" / extension.name)
        self._note("Python", platform.python_version(), "PSF-2.0", list(source.licences))

    def _add_part(self, part: Part) -> None:
        installed = [distributions.installed(part, names) for names in part.distributions]
        if part is FULL:
            known = {names for other in PARTS for names in other.distributions}
            installed = distributions.closure(installed, known - {"mlx-lm"})
        with self._in_part(part.name, part.purpose):
            for distribution in installed:
                self._add_distribution(part, distribution)
            if part.name == "openblas":
                self._add_openblas()

    def _add_distribution(self, part: Part, distribution: Distribution) -> None:
        name = distribution.metadata["Name"]
        if distribution.files is None:
            raise BundleError(
                f"{name} was not installed by pip and has no list of its files; install it into a "
                "virtual environment"
            )
        for file in distribution.files:
            path = str(file)
            source = Path(str(distribution.locate_file(file)))
            if path.startswith(("..", "/")) or not source.is_file():
                continue  # a command line, or compiled since
            if path.endswith(".dist-info/METADATA"):
                self._add_metadata(distribution, self._packages / path)
            elif self._is_wanted(part, path):
                self._add_package_file(part, source, path)
        licence = distributions.licence(distribution)
        texts = distributions.licence_texts(distribution)
        self._note(name, distribution.version, licence, texts)

    def _add_metadata(self, distribution: Distribution, target: Path) -> None:
        """Write the fields that packages ask for; licences are elsewhere, descriptions nowhere."""
        fields = distribution.metadata
        lines = [f"{key}: {fields[key]}" for key in ("Metadata-Version", "Name", "Version")]
        lines += [f"Requires-Dist: {needed}" for needed in fields.get_all("Requires-Dist") or []]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(lines) + "\n")
        self._own(target)

    def _is_wanted(self, part: Part, path: str) -> bool:
        if _matches(path, NEVER):
            return False
        if not self._pruned:
            return True
        return _matches(path, part.keep or ("*",)) and not _matches(path, part.drop)

    def _add_package_file(self, part: Part, source: Path, path: str) -> None:
        target = self._packages / path
        if source.suffix != ".py":
            self._add(source, target)
        elif not self._pruned or part is FULL:  # transformers reads sources and docstrings
            self._add_module(source, target, keep_source=True)
        elif _matches(path, part.texts):
            self._add(source, target)
        elif _matches(path, part.outlines):
            self._add_outlined(source, target)
        else:
            self._add_module(source, target, keep_source=False, annotated=False)

    def _add_openblas(self) -> None:
        """Add the library that lends OpenBLAS to libmlx, and replacements of the reference BLAS."""
        shim = PACKAGE / "lib" / "libcowmlx_blas.so"
        self._add(shim, self._packages / "cowmlx/lib" / shim.name)
        if not self._pruned:
            return
        if self._replace("liblapack*", "libcowmlx_lapack.so"):
            for runtime in ("libgfortran*", "libquadmath*"):
                for path in self._packages.glob(f"mlx_cpu.libs/{runtime}"):
                    path.unlink()
                    del self._part_of[path.relative_to(self._folder).as_posix()]
            self._replace("libblas*", "libcowmlx_plain.so")

    def _replace(self, pattern: str, name: str) -> bool:
        """Put a library of ours in the place of mlx's, if it has all symbols that libmlx needs."""
        ours = PACKAGE / "lib" / name
        theirs = next(self._packages.glob(f"mlx_cpu.libs/{pattern}"), None)
        if theirs is None:
            return False  # another build of mlx
        mlx, given = Elf.read(self._packages / "mlx/lib/libmlx.so"), Elf.read(ours)
        original = Elf.read(theirs)
        if mlx is None or given is None or original is None:
            return False
        wanted = mlx.symbols(defined=False) & original.symbols(defined=True)
        if not wanted <= given.symbols(defined=True):
            return False
        self._add(ours, theirs)
        return True

    def _add_model(self, model: Path, folder: Path) -> None:
        for source in sorted(model.iterdir()):
            if source.is_file() and not source.name.startswith("."):
                self._add(source, folder / source.name)

    def _add_swift(self) -> None:
        for source, place in swift.sources():
            self._add(source, self._folder / place)
        texts = {
            "Package.swift": swift.package(self._folder),
            "Sources/CowMLXBundle/Bundle.swift": swift.MARK,
        }
        for name, text in texts.items():
            target = self._folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            self._own(target)

    # --------------------------------------------------------------- Finish

    def _finish_binaries(self) -> tuple[dict[str, object], bool]:
        compiled = [path for path in self._folder.rglob("*") if binaries.is_binary(path)]
        paths = [path for path in compiled if not path.is_symlink()]
        stripped = self._pruned and binaries.strip(paths)
        binaries.detach(paths, self._folder / "python/lib")
        self._part = "python"
        for path in paths:
            if path not in compiled:
                self._own(path)
        return binaries.requirements(paths), stripped

    def _check_start(self) -> None:
        """Start it as a host would, in an empty environment."""
        command = [str(PROBE), str(self._folder / "lib" / LIBRARY)]
        if self._options.model is not None:
            command.append(str(next((self._folder / "models").iterdir())))
        try:
            done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=300)
        except OSError as error:
            raise BundleError(f"cannot run {PROBE}: {error}; run make") from None
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines()
            said = lines[-1] if lines else f"exit status {done.returncode}"
            raise BundleError(f"the bundle was made but does not start: {said}")

    def _write_manifest(self, requires: dict[str, object], stripped: bool) -> dict[str, Any]:
        written: dict[str, Any] = {
            "cowmlx": constants.VERSION,
            "abi": constants.ABI_VERSION,
            "platform": sysconfig.get_platform(),
            "python": platform.python_version(),
            "requires": requires,
            "options": {
                "without": sorted(self._options.without),
                "full": self._options.full,
                "prune": self._options.prune,
                "stripped": stripped,
            },
            "bytes": 0,
            "parts": self.parts,
            "files": manifest.describe(self._folder, self._part_of),
        }
        manifest.count(written)
        manifest.write(self._folder, written)
        return written


def _shorten(path: Path) -> None:
    """Write JSON without spaces, with the same contents."""
    contents = json_text.parse(path.read_bytes())
    path.write_text(json.dumps(contents, ensure_ascii=False, separators=(",", ":")), "utf-8")


def _compiled_in(kernels: Path) -> str:
    """Return the version of nanobind that the kernels were made with."""
    match = re.search(rb"nanobind-(\d+\.\d+\.\d+)\0", kernels.read_bytes())
    return match[1].decode() if match else "unknown"


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def _tree(folder: Path, never: frozenset[str]) -> Iterator[Path]:
    """Yield every file under a folder, except names that match ``never``."""
    for path in sorted(folder.iterdir()):
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in never):
            continue
        if path.is_dir():
            yield from _tree(path, never)
        else:
            yield path


def _modules(package: Path, never: frozenset[str]) -> Iterator[Path]:
    """Yield every module of a package and of the packages in it."""
    for path in sorted(package.iterdir()):
        if path.name in never:
            continue
        if path.is_dir() and (path / "__init__.py").is_file():
            yield from _modules(path, never)
        elif path.suffix == ".py" and path.is_file():
            yield path
