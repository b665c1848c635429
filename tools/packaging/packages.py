"""``make packages``, or one kind of them (wheel npm crates deb go java), in a named folder.

``crates`` are printed in the order in which they are published, since the second depends on the
first. ``go/`` is laid out as a module proxy: with ``GOPROXY=file://…/go`` go finds the module.
``maven/`` is laid out as a Maven repository, which a project can name by a ``file:`` address.

``make packages`` makes every kind. It names the kinds that could not be made, since a tool is
missing or fails, at the end and by its exit status, and makes the rest all the same.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cowmlx.generated.constants import VERSION  # noqa: E402
from tools.packaging.programs import run  # noqa: E402

KINDS = ["wheel", "npm", "crates", "deb", "go", "java"]
BINDINGS = ROOT / "bindings"
# The first version of cargo that packages crates which depend on each other.
CARGO = (1, 90)
# A module of one version names that version's moment; any moment will do.
TIME = "2026-01-01T00:00:00Z"


def require_version(path: Path, version: str) -> None:
    """Exit if a file of a binding has another version than the library."""
    if version != VERSION:
        sys.exit(f"{path} has the version {version}, not {VERSION}")


def crates(folder: Path, scratch: Path) -> Iterator[str]:
    """Package the crates. Their tests compile them."""
    workspace = BINDINGS / "rust"
    said = run("cargo", "--version")
    if tuple(map(int, re.findall(r"\d+", said)[:2])) < CARGO:
        sys.exit(f"crates are packaged by cargo {'.'.join(map(str, CARGO))} or newer, not {said}")
    about = tomllib.loads((workspace / "Cargo.toml").read_text())["workspace"]
    require_version(workspace / "Cargo.toml", about["package"]["version"])
    options = ["--workspace", "--locked", "--no-verify", "--allow-dirty"]
    run("cargo", "package", *options, "--target-dir", scratch, cwd=workspace)
    for name in about["members"]:  # a crate follows the crates that it depends on
        shutil.copy(Path(scratch, "package", f"{name}-{VERSION}.crate"), folder)
        yield f"{name}-{VERSION}.crate"


def go(folder: Path, _: Path) -> Iterator[str]:
    """Make the module for Go."""
    binding = BINDINGS / "go"
    about = (binding / "go.mod").read_text()
    [module] = re.findall(r"^module (\S+)$", about, re.M)
    versions = folder / "go" / module / "@v"
    shutil.rmtree(versions, ignore_errors=True)
    versions.mkdir(parents=True)
    version = f"v{VERSION}"
    (versions / "list").write_text(f"{version}\n")
    (versions / f"{version}.info").write_text(json.dumps({"Version": version, "Time": TIME}))
    (versions / f"{version}.mod").write_text(about)
    with zipfile.ZipFile(versions / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*sorted(binding.iterdir()), ROOT / "LICENSE"]:
            archive.write(path, f"{module}@{version}/{path.name}")
    yield f"go/{module}@{version}"


def java(folder: Path, scratch: Path) -> Iterator[str]:
    """Make the jar for Java."""
    pom = BINDINGS / "java/pom.xml"
    require_version(pom, re.findall(r"<version>(.*?)</version>", pom.read_text())[0])
    name, place = f"cowmlx-{VERSION}", folder / "maven/cowmlx/cowmlx" / VERSION
    copy = shutil.copytree(pom.parent, scratch / "java", ignore=shutil.ignore_patterns("target"))
    run("mvn", "--quiet", "--batch-mode", "package", cwd=copy)
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(copy / "target" / f"{name}.jar", place)
    shutil.copy(pom, place / f"{name}.pom")
    yield f"maven/cowmlx/cowmlx/{VERSION}/{name}.jar"


def make(kind: str, folder: Path) -> None:
    """Make the packages of one kind, and print their names."""
    own = {"crates": crates, "go": go, "java": java}
    maker = own.get(kind) or importlib.import_module(f"tools.packaging.{kind}").packages
    with tempfile.TemporaryDirectory() as scratch:
        print(*maker(folder, Path(scratch)), sep="\n")


def make_all(folder: Path) -> int:
    """Make every kind, a process each; 1 if one of them could not be made."""
    left_out = {}
    for kind in KINDS:
        command = [sys.executable, __file__, kind, str(folder)]
        done = subprocess.run(command, stdout=sys.stdout, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            left_out[kind] = done.stderr.strip()
        else:
            sys.stderr.write(done.stderr)
    for kind, reason in left_out.items():
        print(f"\n{kind}: not made\n{reason}", file=sys.stderr)
    return 1 if left_out else 0


def main() -> int:
    """Make packages; 1 if one of them could not be made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["packages", *KINDS])
    parser.add_argument("folder", type=Path, help="where they go")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.kind == "packages":
        return make_all(folder)
    make(options.kind, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
