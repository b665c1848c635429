"""``make npm``: packages for Node.js.

``cowmlx`` is bindings/node, with declarations for TypeScript. ``cowmlx-PLATFORM-ARCHITECTURE`` is a
bundle for this platform, which npm installs beside it, as one of its optional dependencies.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cowmlx.commands.bundle import manifest
from cowmlx.generated.constants import VERSION
from tools.packaging.programs import ROOT, bundle, run
from tools.packaging.targets import Target

BINDING = ROOT / "bindings/node"
COMPILER = ROOT / "tools/packaging/typescript"
TYPESCRIPT = ROOT / "build/typescript"
PLATFORMS = ["darwin-arm64", "linux-x64"]
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def here() -> str:
    """Return this platform as Node.js names it."""
    system = "darwin" if sys.platform == "darwin" else "linux"
    machine = platform.machine()
    return f"{system}-{ARCHITECTURES.get(machine, machine)}"


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a file that npm reads."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def compiler() -> Path:
    """Install TypeScript's compiler at its pinned version; return its path."""
    stamp, lock = TYPESCRIPT / "package-lock.json", COMPILER / "package-lock.json"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        shutil.rmtree(TYPESCRIPT, ignore_errors=True)
        fresh = shutil.copytree(COMPILER, TYPESCRIPT.with_name(".typescript"), dirs_exist_ok=True)
        run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=fresh)
        fresh.rename(TYPESCRIPT)
    return TYPESCRIPT / "node_modules/.bin/tsc"


def binding(folder: Path) -> Path:
    """Lay out the package with the JavaScript."""
    folder.mkdir()
    shutil.copytree(BINDING / "lib", folder / "lib")
    run(compiler(), "--project", BINDING / "tsconfig.json", "--outDir", folder / "lib")
    about = json.loads((BINDING / "package.json").read_text())
    if about["version"] != VERSION:
        sys.exit(f"{BINDING / 'package.json'} has the version {about['version']}, not {VERSION}")
    path = about["exports"]
    about["exports"] = {"types": path.replace(".js", ".d.ts"), "default": path}
    about["types"] = about["exports"]["types"]
    about["optionalDependencies"] = {f"{about['name']}-{name}": VERSION for name in PLATFORMS}
    write_json(folder / "package.json", about)
    shutil.copy(BINDING / "README.md", folder)
    shutil.copy(ROOT / "LICENSE", folder)
    return folder


def library(folder: Path) -> Path:
    """Lay out the package with the library for this platform."""
    bundle(folder, headers=False)
    system, architecture = here().split("-")
    about = {
        "name": f"cowmlx-{here()}",
        "version": VERSION,
        "description": f"The library of the package cowmlx for {system} on {architecture}",
        "license": "SEE LICENSE IN licences",
        "os": [system],
        "cpu": [architecture],
        "main": "index.cjs",
    }
    if system == "linux":
        about["libc"] = ["glibc"]
    write_json(folder / "package.json", about)
    path = f'require("node:path").join(__dirname, "lib", "{Target().library}")'
    (folder / "index.cjs").write_text(f"module.exports = {path};\n")
    shutil.copy(ROOT / "LICENSE", folder)
    readme = "The library of the package `cowmlx` for one platform. Install that one.\n"
    (folder / "README.md").write_text(f"# {about['name']}\n\n{readme}")
    manifest.renew(folder, "npm", "what npm and Node.js read")
    return folder


def packages(folder: Path, scratch: Path) -> Iterator[str]:
    """Make both packages, and yield their names."""
    if here() not in PLATFORMS:
        sys.exit(f"packages for Node.js are for {' and '.join(PLATFORMS)}, and this is {here()}")
    for package in (binding(scratch / "binding"), library(scratch / "library")):
        made = run("npm", "pack", "--json", "--pack-destination", folder, cwd=package)
        yield json.loads(made)[0]["filename"]
