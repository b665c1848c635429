"""The checks of an installation, in order; later ones use earlier results."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from cowmlx.commands import origin
from cowmlx.commands.bundle import BundleError, binaries, manifest, python
from cowmlx.commands.doctor import NOTE, OK, PROBLEM, Finding, advice
from cowmlx.commands.origin import MAC, PACKAGE
from cowmlx.errors import NotFound
from cowmlx.generated import constants
from cowmlx.machines import child

PROGRAM = PACKAGE / "lib" / "cowmlx-probe"


@dataclass(frozen=True)
class Step:
    """One step of the probe: the name of its status, and its result or failure."""

    status: str
    text: str


class Probe:
    """One run of ``cowmlx-probe``, a host in C, in a separate process."""

    def __init__(self, library: Path, model: str | None, seconds: float) -> None:
        command = [str(PROGRAM), str(library), *([model] if model else [])]
        self.steps: dict[str, Step] = {}  # by name: ``open``, ``start``, ``load``, ``generate``
        self.failure = ""  # why it ended without a report
        self.errors = output = ""  # of its standard error and output streams
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds)
        except OSError as error:
            self.failure = f"cannot run {PROGRAM}: {error.strerror or error}"
            return
        except subprocess.TimeoutExpired as error:
            self.failure = f"did not end within {seconds:g} s"
            output = (error.stdout or b"").decode(errors="replace")
        else:
            output = done.stdout.decode(errors="replace")
            self.errors = done.stderr.decode(errors="replace").strip()
            if done.returncode < 0:
                name = signal.Signals(-done.returncode).name
                self.failure = f"the process was ended by {name}"
            elif done.returncode > 1:
                self.failure = f"the process ended with {done.returncode}"
        for line in output.splitlines():
            name, _, rest = line.partition("\t")
            status, _, text = rest.partition("\t")
            self.steps[name] = Step(status, text)

    def step(self, name: str) -> Step:
        """Return a step; its status is ENDED where the probe ended before its report."""
        text = f"{self.failure or 'it reported nothing'} {self.errors[-500:]}".strip()
        return self.steps.get(name) or Step("ENDED", text)

    @property
    def info(self) -> dict[str, Any]:
        """The result of ``runtime_info``; {} where the start failed."""
        step = self.step("start")
        if step.status != "OK":
            return {}
        details: dict[str, Any] = json.loads(step.text)
        return details


SETTING = "COWMLX_KERNELS"  # cowmlx.accelerate.kernels names it too, and needs mlx
_CUDA_BUILDS = ("mlx-cuda-12", "mlx-cuda-13")
DESCRIPTORS = 256  # what macOS gives; a weights file, a pipe or a socket takes one each


class Doctor:
    """Examines one installation."""

    def __init__(
        self, library: Path, model: str | None, seconds: float, report: Callable[[str], None]
    ) -> None:
        self._library = library
        self._model = model
        self._seconds = seconds
        self._report = report
        # The folder of the library's bundle, or None.
        self.bundle = next(
            (folder for folder in library.resolve().parents if (folder / manifest.NAME).is_file()),
            None,
        )
        self.probe: Probe | None = None  # a start, once it has been tried

    def findings(self) -> Iterator[Finding]:
        """Make every check; each yields one finding or more."""
        yield from self._machine()
        yield from self._files()
        if self._library.is_file():
            tried = f", loading {self._model}" if self._model else ""
            self._report(f"starting the engine as a host does{tried}; at most {self._seconds:g} s")
            self.probe = Probe(self._library, self._model, self._seconds)
        yield from self._packages()  # before the start, which fails without them and says less
        if self.probe is not None:
            yield from self._opening(self.probe)
            yield from self._start(self.probe)
        if self.probe is not None and self.probe.info:
            yield from self._device(self.probe)
            yield from self._model_run(self.probe)
        yield from self._surroundings()

    # ---------------------------------------------------------------- Files

    def _machine(self) -> Iterator[Finding]:
        this = f"Python {platform.python_version()} at {sys.executable}"
        yield Finding("machine", OK, f"{sysconfig.get_platform()}; this is {this}")
        if MAC and platform.machine() != "arm64":
            text = f"this Python runs as {platform.machine()}"
            advised = "mlx needs Apple Silicon: install a Python for arm64"
            yield Finding("machine", PROBLEM, text, advised)

    def _files(self) -> Iterator[Finding]:
        if not self._library.is_file():
            text = f"{self._library} does not exist"
            yield Finding("library", PROBLEM, text, origin.again())
        if self.bundle is not None:
            yield from self._bundle_files(self.bundle)
            return
        bridge = PACKAGE / f"_bridge{sysconfig.get_config_var('EXT_SUFFIX')}"
        others = [path.name for path in PACKAGE.glob("_bridge.*.so")]
        if bridge.is_file():
            yield Finding("bridge", OK, str(bridge))
        elif others:
            text = f"there is {', '.join(others)}, but this Python needs {bridge.name}"
            advised = "run the doctor with the Python that the package was built for"
            yield Finding("bridge", PROBLEM, text, f"{advised}, or build it again")
        else:
            yield Finding("bridge", PROBLEM, f"{bridge} does not exist", origin.again())
        yield from self._age()
        yield from self._header()

    def _bundle_files(self, bundle: Path) -> Iterator[Finding]:
        self._report(f"reading every file of {bundle}")
        try:
            problems = manifest.verify(bundle)
        except BundleError as error:
            problems = [str(error)]
        if not problems:
            yield Finding("bundle", OK, f"{bundle} is what was written")
            return
        text = "copy the bundle again from where it was made"
        yield Finding("bundle", PROBLEM, _some(problems, 5), text)

    def _age(self) -> Iterator[Finding]:
        """In a source tree, compare the age of the library with its sources.

        Every build makes the library, but the bridge only if its own sources have changed.
        """
        tree = PACKAGE.parent
        if not (tree / "csrc").is_dir() or not self._library.is_file():
            return
        sources = [*(PACKAGE / "bridge").glob("*.p*"), *(tree / "include").rglob("*.h")]
        sources += (tree / "csrc").rglob("*.[ch]*")
        newest = max(sources, key=lambda path: path.stat().st_mtime)
        if newest.stat().st_mtime > self._library.stat().st_mtime:
            text = f"{self._library.name} is older than {newest.name}"
            yield Finding("build", NOTE, text, "run make")

    def _header(self) -> Iterator[Finding]:
        folder = origin.headers()
        if folder is None:
            yield Finding("header", PROBLEM, f"no cow_mlx.h beside {PACKAGE}", origin.again())
            return
        header = folder / "cow_mlx.h"
        match = re.search(r'#define COW_MLX_VERSION "([^"]+)"', header.read_text(errors="replace"))
        version = match[1] if match else "no version"
        if version == constants.VERSION:
            yield Finding("header", OK, f"{header}, version {version}")
        else:
            text = f"{header} is of {version}, the package is {constants.VERSION}"
            yield Finding("header", PROBLEM, text, origin.again())

    # ---------------------------------------------------------------- Start

    def _opening(self, probe: Probe) -> Iterator[Finding]:
        step = probe.steps.get("open")
        if step is None:
            text = probe.failure or probe.errors
            slow = "did not end within" in text
            yield Finding("library", PROBLEM, text, self._advice(text) if slow else origin.again())
        elif step.status != "OK":
            yield Finding("library", PROBLEM, step.text, self._advice(step.text))
        elif step.text != f"{constants.VERSION} {constants.ABI_VERSION}" and self.bundle is None:
            version, _, abi = step.text.partition(" ")
            text = f"{self._library} is {version} with ABI {abi}, the package is "
            text += f"{constants.VERSION} with ABI {constants.ABI_VERSION}"
            yield Finding("library", PROBLEM, text, origin.again())
        else:
            yield Finding("library", OK, f"{self._library}, version and ABI {step.text}")

    def _start(self, probe: Probe) -> Iterator[Finding]:
        if probe.step("open").status != "OK":
            return
        step = probe.step("start")
        if step.status == "ENDED":
            yield Finding("start", PROBLEM, step.text, self._advice(step.text))
        elif step.status != "OK":
            text = f"{step.status}: {step.text}"
            yield Finding("start", PROBLEM, text, self._advice(step.text))
            yield from self._python()
        else:
            info = probe.info
            text = f"Python {info['python']} in {info['python_home']}, {info['libpython']}"
            yield Finding("start", OK, text)
            yield Finding("mlx", OK, f"{info['mlx']} at {info['mlx_path']}")
            yield Finding("mlx-lm", OK, f"{info['mlx_lm']} at {info['mlx_lm_path']}")
            if self.bundle is None and info["python_home"]:
                yield self._ranks(info["python_home"])

    def _ranks(self, home: str) -> Finding:
        """Whether a model on several machines could have its first rank here."""
        try:
            program = child.python(home)
        except NotFound as error:
            return Finding("machines", NOTE, str(error), "name a Python that has an executable")
        return Finding("machines", OK, f"a rank of a model on several machines runs with {program}")

    def _python(self) -> Iterator[Finding]:
        """Whether the Python that runs this could be booted, and could import mlx."""
        if self.bundle is not None:
            return
        try:
            yield Finding("python", OK, f"its shared library is {python.find().library}")
        except BundleError as error:
            advised = "install one (Debian: libpython3-dev; pyenv: build with --enable-shared)"
            yield Finding("python", PROBLEM, str(error), advised)
        command = [sys.executable, "-c", "import mlx.core as mx; print(mx.__version__)"]
        self._report(f"importing mlx.core; at most {self._seconds:g} s")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self._seconds)
        except subprocess.TimeoutExpired:
            text = f"import mlx.core did not end within {self._seconds:g} s"
            yield Finding("mlx", PROBLEM, text, self._advice(text))
            return
        if not done.returncode:
            yield Finding("mlx", OK, f"this Python imports mlx {done.stdout.strip()}")
            return
        if done.returncode < 0:
            text = f"import mlx.core was ended by {signal.Signals(-done.returncode).name}"
        else:
            lines = done.stderr.strip().splitlines()
            text = lines[-1] if lines else f"import mlx.core ended with {done.returncode}"
        yield Finding("mlx", PROBLEM, text, self._advice(text))

    def _advice(self, message: str) -> str:
        return advice.for_message(message, bundled=self.bundle is not None)

    # ------------------------------------------------------------- Packages

    def _packages(self) -> Iterator[Finding]:
        """Compare installed versions and files with those of the package's build."""
        if self.bundle is not None:
            return
        pins = origin.pins()
        if not pins:
            text = "cowmlx was copied here, so the versions that it needs are unknown"
            yield Finding("packages", NOTE, text)
            return
        info = self.probe.info if self.probe is not None else {}
        folders = [str(Path(info["mlx_lm_path"]).parent)] if info else sys.path
        home = info.get("python_home")
        other = "" if not home or Path(home).samefile(sys.prefix) else f"{home}/bin/python3"
        installed = {
            origin.normal(distribution.metadata["Name"]): distribution
            for distribution in reversed(list(metadata.distributions(path=folders)))
        }
        pins = _with_cuda(pins, installed)
        present = {name: installed[name] for name in pins if name in installed}
        missing = {name: version for name, version in pins.items() if name not in installed}
        wrong = {
            name: pins[name]
            for name, distribution in present.items()
            if distribution.version != pins[name]
        }
        broken = {
            name: lost
            for name, distribution in present.items()
            if (lost := _lost(distribution, sizes=not info))
        }
        if missing:
            text = f"missing: {', '.join(f'{name}=={missing[name]}' for name in missing)}"
            yield Finding("packages", PROBLEM, text, f"run {origin.install(missing, other)}")
        if broken:
            text = f"damaged: {', '.join(_some(lost, 1) for lost in broken.values())}"
            versions = {name: present[name].version for name in broken}
            command = origin.install(versions, other, "--no-deps", "--force-reinstall")
            yield Finding("packages", PROBLEM, text, f"run {command}")
        if wrong:
            odd = (f"{name} {present[name].version} instead of {wrong[name]}" for name in wrong)
            text = f"other versions than it was tested with: {', '.join(odd)}"
            yield Finding("packages", NOTE, text, f"run {origin.install(wrong, other)}")
        if not missing and not wrong and not broken:
            yield Finding("packages", OK, ", ".join(f"{n} {v}" for n, v in pins.items()))

    # --------------------------------------------------------------- Device

    def _device(self, probe: Probe) -> Iterator[Finding]:
        info = probe.info
        if MAC and info["device"] != "gpu":
            advised = "check that mlx-metal is installed as mlx is"
            yield Finding("device", PROBLEM, "mlx sees no GPU", advised)
        elif info["device"] != "gpu" and shutil.which("nvidia-smi"):
            text = "mlx computes on the CPU, and there is an NVIDIA GPU"
            yield Finding("device", NOTE, text, "install mlx's CUDA build in the place of mlx-cpu")
        else:
            yield Finding("device", OK, info["device"])
        if info["blas"] != "reference" or info["device"] == "gpu":
            yield Finding("BLAS", OK, info["blas"])
        elif os.environ.get("COWMLX_BLAS") == "reference":
            text = "reference, as COWMLX_BLAS asks for"
            yield Finding("BLAS", NOTE, text, "unset COWMLX_BLAS: prompts take many times longer")
        else:
            lack = "scipy-openblas32 is not installed"
            advised = "the check 'packages' says how to install it"
            if self.bundle is not None:
                lack = "it is not in the bundle"
                advised = "make the bundle without --without openblas"
            if "wrong" in (info.get("blas_problem") or ""):
                advised = "name another processor of OpenBLAS in OPENBLAS_CORETYPE, or report it"
            reason = info.get("blas_problem") or lack
            text = f"reference: {reason}; prompts take many times longer than with OpenBLAS"
            yield Finding("BLAS", NOTE, text, advised)
        yield from self._kernels(info)

    def _kernels(self, info: dict[str, Any]) -> Iterator[Finding]:
        kernels = info["kernels"]
        problem = kernels["problem"]
        if not problem:
            text = f"for {kernels['instruction_set']}, {kernels['threads']} threads"
            yield Finding("kernels", OK, text)
        elif info["device"] == "gpu":
            yield Finding("kernels", OK, f"none for the CPU: {problem}")
        else:
            text = f"none: {problem}; models take many times longer"
            advice_given = f"unset {SETTING}" if os.environ.get(SETTING) else origin.again()
            yield Finding("kernels", NOTE, text, advice_given)

    def _model_run(self, probe: Probe) -> Iterator[Finding]:
        if self._model is None:
            return
        for name in ("load", "generate"):
            step = probe.step(name)
            if step.status == "ENDED":
                yield Finding(name, PROBLEM, step.text, self._advice(step.text))
                return
            if step.status != "OK":
                text = f"{step.status}: {step.text}"
                bundled = self.bundle is not None
                yield Finding(name, PROBLEM, text, advice.for_model(text, bundled=bundled))
                return
            yield Finding(name, OK, step.text or self._model)

    # --------------------------------------------------------- Surroundings

    def _surroundings(self) -> Iterator[Finding]:
        for name in ("COWMLX_PYTHON_HOME", "COWMLX_BLAS", SETTING):
            if value := os.environ.get(name):
                yield Finding("environment", NOTE, f"{name} is {value}")
        for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH"):
            if value := os.environ.get(name):
                text = f"{name} is {value}; other libraries than the installed ones may be loaded"
                yield Finding("environment", NOTE, text, "try without it if something is wrong")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= DESCRIPTORS:
            yield Finding("descriptors", OK, f"{soft} files may be open")
        else:
            text = f"only {soft} files may be open (at most {hard})"
            yield Finding("descriptors", NOTE, text, "raise it: ulimit -n 1024, or setrlimit()")
        folder = self._library.parent
        if folder.is_dir() and folder.stat().st_mode & 0o002:
            text = f"every user may write into {folder}, and so into your program"
            yield Finding("permissions", PROBLEM, text, f"chmod o-w {folder}")


def _some(texts: list[str], count: int) -> str:
    """Return the first texts, and how many more there are."""
    more = f" and {len(texts) - count} more" if len(texts) > count else ""
    return "; ".join(texts[:count]) + more


def _with_cuda(pins: dict[str, str], installed: Collection[str]) -> dict[str, str]:
    """Return pins with mlx's build for NVIDIA GPUs, where it has taken the place of mlx-cpu."""
    build = next((name for name in _CUDA_BUILDS if name in installed), None)
    if build is None or "mlx-cpu" in installed:
        return pins
    return {build if name == "mlx-cpu" else name: version for name, version in pins.items()}


def _lost(distribution: metadata.Distribution, *, sizes: bool) -> list[str]:
    """Return which modules of a package are gone, or not of the size that they had."""
    lost = []
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if not (file.suffix == ".py" or binaries.is_binary(path)) or "tests" in file.parts:
            continue  # headers and texts may have been left out
        if not path.is_file():
            lost.append(f"{file} is missing")
        elif sizes and file.size not in (None, path.stat().st_size):
            lost.append(f"{file} has {path.stat().st_size} bytes instead of {file.size}")
    return lost
