"""``make java``: the jar for Java, in a folder that is named.

``maven/`` there is laid out as a Maven repository, which a project can name by a ``file:`` address.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cowmlx.generated.constants import VERSION  # noqa: E402
from tools.packaging.programs import run  # noqa: E402

BINDING = ROOT / "bindings/java"
NAME = f"cowmlx-{VERSION}"


def main() -> None:
    """Make the jar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where it goes")
    folder = parser.parse_args().folder.resolve()
    about = (BINDING / "pom.xml").read_text()
    found = re.findall(r"<version>(.*?)</version>", about)[0]
    if found != VERSION:
        sys.exit(f"{BINDING / 'pom.xml'} has the version {found}, not {VERSION}")
    place = folder / "maven/cowmlx/cowmlx" / VERSION
    with tempfile.TemporaryDirectory() as scratch:
        ignored = shutil.ignore_patterns("target")
        copy = shutil.copytree(BINDING, Path(scratch, "java"), ignore=ignored)
        run("mvn", "--quiet", "--batch-mode", "package", cwd=copy)
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(copy / "target" / f"{NAME}.jar", place)
    shutil.copy(BINDING / "pom.xml", place / f"{NAME}.pom")
    print(f"maven/cowmlx/cowmlx/{VERSION}/{NAME}.jar")


if __name__ == "__main__":
    main()
