"""Swift, from the PATH or in a root of another release that COWMLX_SWIFT_ROOT names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.compiler import require, run
from support.paths import CALF, LIBRARY, ROOT

PACKAGE = ROOT / "bindings/swift"
SCRATCH = ROOT / "build/swift"
IN_ROOT = ROOT / "tools/swift/in_root"
NEEDED = (6, 0)
LINUX = sys.platform == "linux"
# A build takes less time without what debuggers read.
PLAIN = ["-debug-info-format", "none"]


class Swift:
    """Runs Swift, and programs that it has built.

    Args:
        prefix: the command that runs another one where Swift is.
        library: the folder of the library that programs load there.
    """

    def __init__(self, prefix: list[str], library: Path):
        self.prefix = prefix
        self.library = library

    def run(self, *command: object, **options) -> subprocess.CompletedProcess[str]:
        """Run a command where Swift is, in the tree."""
        environment = {
            **os.environ,
            "COWMLX_LIB_DIR": str(self.library),
            "COWMLX_TEST_MODEL": str(CALF),
            **options.pop("env", {}),
        }
        settings = {"cwd": ROOT, "env": environment, "timeout": 900, **options}
        return run([*self.prefix, *map(str, command)], **settings)

    def package(self, command: str, *options: object, **settings):
        """Run a command of SwiftPM on the package; builds are kept below ``build``.

        Args:
            command: such as ``build``.
            options: further ones.
            settings: those of ``run``; and ``scratch``, the folder of the build.
        """
        scratch = SCRATCH / settings.pop("scratch", "debug")
        places = ["--package-path", PACKAGE, "--scratch-path", scratch, *PLAIN]
        # ThreadSanitizer ends at once where the system places memory as it does at random.
        still = ["setarch", "-R"] if "--sanitize=thread" in options and LINUX else []
        return self.run(*still, "swift", command, *places, *options, **settings)


def find_swift(bundle) -> Swift:
    """Swift, or skip the test and name what is missing.

    Args:
        bundle: makes a bundle and returns its folder; a root's Python is not this one, so the
            library comes there with a Python.
    """
    if root := os.environ.get("COWMLX_SWIFT_ROOT"):
        require("unshare")
        prefix = [str(IN_ROOT), root]
        done = run([*prefix, "swift", "--version"])
        if done.returncode:
            pytest.skip(f"swift does not run in the root {root}: {done.stderr.strip()}")
        found = done.stdout
    else:
        prefix, found = [], run([require("swift"), "--version"]).stdout
    version = re.search(r"Swift version (\d+)\.(\d+)", found)
    if not version or tuple(map(int, version.groups())) < NEEDED:
        pytest.skip(f"swift is {found.strip()}; {'.'.join(map(str, NEEDED))} is needed")
    return Swift(prefix, bundle() / "lib" if prefix else LIBRARY.parent)
