"""``make crates``: the crates as they are published, in a folder that is named.

They are published in the order in which they are printed, since the second depends on the first.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cowmlx.generated.constants import VERSION  # noqa: E402
from tools.packaging.programs import run  # noqa: E402

WORKSPACE = ROOT / "bindings/rust"
# The first version of cargo that packages crates which depend on each other.
CARGO = (1, 90)


def crates() -> list[str]:
    """Return the crates, each behind those that it depends on."""
    workspace = tomllib.loads((WORKSPACE / "Cargo.toml").read_text())["workspace"]
    if workspace["package"]["version"] != VERSION:
        sys.exit(f"{WORKSPACE / 'Cargo.toml'} must have the version {VERSION}")
    return list(workspace["members"])


def main() -> None:
    """Make the crates. Whether they compile is what their tests tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where they go")
    folder = parser.parse_args().folder.resolve()
    said = run("cargo", "--version")
    if tuple(map(int, re.findall(r"\d+", said)[:2])) < CARGO:
        sys.exit(f"crates are packaged by cargo {'.'.join(map(str, CARGO))} or newer, not {said}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        options = ["--workspace", "--locked", "--no-verify", "--allow-dirty"]
        run("cargo", "package", *options, "--target-dir", scratch, cwd=WORKSPACE)
        for name in crates():
            shutil.copy(Path(scratch, "package", f"{name}-{VERSION}.crate"), folder)
            print(f"{name}-{VERSION}.crate")


if __name__ == "__main__":
    main()
