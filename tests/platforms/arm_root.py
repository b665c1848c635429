"""A Debian for ARM in a folder, in which an emulator runs programs, with the library made for it.

Packages of Debian and PyPI are extracted once, into the cache of the tests; nothing in them runs
while that is done. Programs start in namespaces of a user's, with a private binfmt_misc that names
the emulator, so nothing of the machine changes.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import registries
from support.compiler import require
from support.paths import ROOT

from tools.packaging import kernels, targets
from tools.packaging.targets import Python, Target

TRIPLE = "aarch64-linux-gnu"
PACKAGES = ["python3", "libpython3-dev", "gcc", "libstdc++6", "dash", "coreutils"]
TESTING = ["pytest", "iniconfig", "pluggy", "packaging", "pygments", "hypothesis"]
TESTING += ["sortedcontainers", "numpy", "pycparser", "MarkupSafe"]
GLIBCS = [39, 36, 35, 34, 31, 28, 27, 26, 17]  # of manylinux tags
# A processor with dot products and without SME, whose emulation OpenBLAS is wrong in.
PROCESSOR = "neoverse-n1"
# The parts of the tree that go into the root.
PARTS = ["cowmlx", "include", "csrc", "tests", "tools", "models/calf", "examples/c", "bindings"]
GENERATED = ["cowmlx/generated", "cowmlx/host/generated", "csrc/generated"]

# argv: the root, the tree, the emulator, and the command.
ENTER = r"""
set -e
root=$1 tree=$2 emulator=$3
shift 3
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":arm:M::$magic:$mask:$emulator:F" >/proc/sys/fs/binfmt_misc/register
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$tree" "$root/tree"
exec chroot "$root" "$@"
"""
NAMESPACES = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]


@dataclass(frozen=True)
class ArmRoot:
    """A root, and the tree that is at /tree in it."""

    folder: Path
    tree: Path

    def run(self, *command: str, timeout: int) -> subprocess.CompletedProcess[str]:
        """Run a program of the root in the emulator."""
        settings = ["PATH=/usr/bin:/bin", "HOME=/tmp", "COWMLX_PYTHON_HOME=/usr"]
        settings += [f"QEMU_CPU={PROCESSOR}", "PYTHONDONTWRITEBYTECODE=1"]
        arguments = [*settings, *command]
        return subprocess.run(
            [*entered(self.folder, self.tree), "/usr/bin/env", "-i", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def entered(folder: Path, tree: Path) -> list[str]:
    """The beginning of a command in the root."""
    shell = ["bash", "-c", ENTER, "enter", str(folder), str(tree)]
    return [require("unshare"), *NAMESPACES, *shell, require("qemu-aarch64-static")]


def extracted() -> Path:
    """The root without a tree; skips where it cannot be made."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        pytest.skip("the root for ARM is made on Linux x86_64")
    for tool in ("apt-get", "dpkg-deb", "unshare", "qemu-aarch64-static", f"{TRIPLE}-g++"):
        require(tool)
    mounts = "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", mounts], capture_output=True)
    if tried.returncode != 0:
        pytest.skip("this kernel gives users no binfmt_misc; Linux 6.7 and later do")
    pins = "-".join(
        requirement.replace("==", "") for requirement in runtime() if "mlx" in requirement
    )
    return registries.kept(f"arm-root-1-{pins}", fill)


def fill(folder: Path) -> None:
    """Extract Debian's packages and those of PyPI into a folder."""
    fetch_debian(folder)
    [python] = (folder / "usr/lib").glob("python3.*/os.py")
    minor = python.parent.name
    packages = folder / "usr/local/lib" / minor / "dist-packages"
    fetch_wheels(packages, minor.removeprefix("python"))
    (packages / "cowmlx.pth").write_text("/tree\n")
    for name in ("dev", "proc", "tmp", "tree"):
        (folder / name).mkdir(exist_ok=True)
    compiler = folder / "usr/bin/cc"
    if not compiler.is_symlink():
        compiler.symlink_to("gcc")


def fetch_debian(folder: Path) -> None:
    """Extract packages of the machine's own Debian, for ARM, with all that they need."""
    with tempfile.TemporaryDirectory() as scratch:
        state, cache = Path(scratch, "state"), Path(scratch, "cache")
        for path in (state / "lists/partial", cache / "archives/partial"):
            path.mkdir(parents=True)
        (state / "status").touch()
        settings = {
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "APT::Install-Recommends": "0",
            "APT::Sandbox::User": "root",
            "Debug::NoLocking": "1",
            "Dir::State": str(state),
            "Dir::State::status": str(state / "status"),
            "Dir::Cache": str(cache),
        }
        apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
        for command in (["update"], ["install", "-y", "--download-only", *PACKAGES]):
            done = subprocess.run([*apt, *command], capture_output=True, text=True, timeout=300)
            if done.returncode != 0:
                pytest.skip(f"Debian's packages for ARM cannot be fetched: {done.stderr[-200:]}")
        for package in sorted((cache / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True, timeout=120)


def runtime() -> list[str]:
    """What the library runs with, pinned."""
    text = (ROOT / "tools/requirements/runtime.txt").read_text()
    return re.findall(r"^[\w-]+==[\w.]+", text, re.M)


def fetch_wheels(folder: Path, version: str) -> None:
    """Install packages of PyPI for ARM."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--only-binary=:all:", "--target", str(folder)]
    pip += [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in GLIBCS]
    pip += ["--platform=manylinux2014_aarch64", "--implementation=cp", "--python-version", version]
    constraints = str(ROOT / "tools/requirements/constraints.txt")
    done = subprocess.run(
        [*pip, *runtime(), *TESTING, "-c", constraints], capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        pytest.skip(f"PyPI's packages for ARM cannot be fetched: {done.stderr[-200:]}")


def copied(tree: Path) -> None:
    """Copy what the root needs of the source tree, without what was built for this machine."""
    for part in [*PARTS, *GENERATED]:
        ignored = shutil.ignore_patterns(
            "*.so", "*.so.*", "__pycache__", "lib" if part == "cowmlx" else ""
        )
        shutil.copytree(ROOT / part, tree / part, dirs_exist_ok=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tree)
    (tree / "cowmlx/lib").mkdir()


def built(folder: Path, tree: Path) -> ArmRoot:
    """Compile the library, the bridge, the kernels and a demo into a copy of the tree."""
    copied(tree)
    [headers] = (folder / "usr/include").glob("python3.*/Python.h")
    minor = int(headers.parent.name.removeprefix("python3."))
    python = Python(minor, "/usr", str(headers.parent), TRIPLE)
    # Debian's headers ask for one of the processor's, which lies beside the C library's.
    beside = ["-idirafter", str(folder / "usr/include"), "-Wno-psabi"]
    lib, target = tree / "cowmlx/lib", Target("linux")
    suffix = f".cpython-3{minor}-{TRIPLE}.so"

    def compile_c(arguments: list[str]) -> None:
        command = [f"{TRIPLE}-gcc", *arguments, *beside]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr

    compile_c(target.library_command(ROOT, lib / target.library, python))
    compile_c(target.probe_command(ROOT, lib / "cowmlx-probe"))
    blas = target.shared_command(ROOT / "csrc/blas/cblas.c", lib / "libcowmlx_blas.so", "-ldl")
    compile_c(blas)
    bridge = [*targets.SHARED, "-shared", "-Iinclude", "-Icsrc", *python.options()]
    source, output = "build/cowmlx/bridge/bridge.c", tree / f"cowmlx/_bridge{suffix}"
    compile_c([*bridge, source, "-o", str(output)])
    host = [str(lib / target.library), "-Wl,-rpath,$ORIGIN/cowmlx/lib", "-pthread"]
    demo = ROOT / "examples/c/generate.c"
    compile_c(target.host_command(ROOT, [demo], tree / "generate", *host))

    [mlx] = folder.glob("usr/local/lib/python3.*/dist-packages/mlx")
    compiler = shlex.join([f"{TRIPLE}-g++", *beside])
    scratch = ROOT / "build/arm-kernels"
    scratch.parent.mkdir(exist_ok=True)
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        build = kernels.Build(target, compiler, scratch, "aarch64", str(headers.parent), mlx)
        build.write(tree / f"cowmlx/accelerate/_kernels{suffix}", None)
    finally:
        os.chdir(before)
    return ArmRoot(folder, tree)
