"""``make go``: the module for Go, in a folder that is named.

``go/`` there is laid out as a module proxy: with ``GOPROXY=file://…/go`` go finds it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cowmlx.generated.constants import VERSION  # noqa: E402

BINDING = ROOT / "bindings/go"
# A module of one version says that of a moment; any moment will do.
TIME = "2026-01-01T00:00:00Z"


def main() -> None:
    """Make the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where it goes")
    folder = parser.parse_args().folder.resolve()
    about = (BINDING / "go.mod").read_text()
    [module] = re.findall(r"^module (\S+)$", about, re.M)
    versions = folder / "go" / module / "@v"
    shutil.rmtree(versions, ignore_errors=True)
    versions.mkdir(parents=True)
    version = f"v{VERSION}"
    (versions / "list").write_text(f"{version}\n")
    (versions / f"{version}.info").write_text(json.dumps({"Version": version, "Time": TIME}))
    (versions / f"{version}.mod").write_text(about)
    files = [*sorted(BINDING.iterdir()), ROOT / "LICENSE"]
    with zipfile.ZipFile(versions / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, f"{module}@{version}/{path.name}")
    print(f"go/{module}@{version}")


if __name__ == "__main__":
    main()
