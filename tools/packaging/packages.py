"""``make packages``: every kind of package that can be made here, in a folder that is named.

What cannot be made, since a tool is missing or fails, is named at the end, and is the exit status;
the rest is made all the same.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = ["wheel", "npm", "crates", "deb", "go", "java"]


def main() -> int:
    """Make the packages; 1 if one of them could not be made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where they go")
    folder = parser.parse_args().folder.resolve()
    left_out = {}
    for kind in KINDS:
        command = [sys.executable, str(HERE / f"{kind}.py"), str(folder)]
        done = subprocess.run(command, stdout=sys.stdout, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            left_out[kind] = done.stderr.strip()
        else:
            sys.stderr.write(done.stderr)
    for kind, reason in left_out.items():
        print(f"\n{kind}: not made\n{reason}", file=sys.stderr)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
