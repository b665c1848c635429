"""The pinned versions: pyproject.toml has those of the library, and files here repeat them.

``tools/requirements/runtime.txt`` has those of the library for pip. ``constraints.txt`` has every
package that the lists install, at a list's version where a list pins it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

FOLDER = Path("tools/requirements")
LISTS = ["build.txt", "docs.txt", "tools.txt"]
PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)(?:\s*;\s*(?P<marker>.+))?")


def dependencies(root: Path) -> list[str]:
    """Return the requirements of the library, as pyproject.toml has them."""
    found = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in found:
        if not PIN.fullmatch(requirement):
            raise ValueError(f"pyproject.toml: {requirement!r} is not pinned")
    return found


def canonical(name: str) -> str:
    """Return the one spelling by which names of a package compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def runtime(root: Path, note: str) -> str:
    """Return the text of runtime.txt."""
    return "".join(f"{line}\n" for line in [f"# {note}", *dependencies(root)])


def constraints(root: Path) -> str:
    """Return the text of constraints.txt."""
    lines = [line for name in LISTS for line in (root / FOLDER / name).read_text().splitlines()]
    pins = [pin for line in [*lines, *dependencies(root)] if (pin := PIN.fullmatch(line))]
    versions = {canonical(pin["name"]): pin["version"] for pin in pins}

    def pinned(line: re.Match[str]) -> str:
        version = versions.get(canonical(line["name"]), line["version"])
        return line[0].replace(f"=={line['version']}", f"=={version}")

    text = (root / FOLDER / "constraints.txt").read_text()
    return re.sub(rf"^{PIN.pattern}$", pinned, text, flags=re.M)
