"""Guards the library's ABI against its recorded state in abi/.

    python tools/abi.py check [LIBRARY]    fail if a host that runs today could break
    python tools/abi.py record             record the built library as what hosts rely on

Functions, structs and their types are compared by libabigail (abidw and abidiff), names and values
of constants here, since a binary does not hold them. docs/abi.md says what may change and how.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from header import read_headers

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
HEADERS = ["cow_mlx.h", "cow_mlx_compat.h"]
LIBRARY = ROOT / "cowmlx/lib/libcowmlx.so.1"
DUMP = ROOT / "abi/libcowmlx.1.abi"
CONSTANTS = ROOT / "abi/libcowmlx.1.constants"
TOOLS = ["abidw", "abidiff"]

# What depends on the machine, the compiler or a comment's length stays out of the dump.
PORTABLE = ["--no-comp-dir-path", "--no-corpus-path", "--no-show-locs"]
PORTABLE += ["--no-architecture", "--no-elf-needed", "--type-id-style", "hash"]
PUBLIC = ["--drop-private-types", "--exported-interfaces-only"]

FAILED, CHANGED = 1 | 2, 4  # bits of abidiff's exit status


class Broken(Exception):
    """The ABI is not what was recorded, or cannot be read."""


def dump(library: Path, include: Path, out: Path) -> None:
    """Write the types and functions that a library exports."""
    command = ["abidw", *PORTABLE, *PUBLIC, "--headers-dir", str(include), str(library)]
    done = subprocess.run([*command, "--out-file", str(out)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Broken(f"abidw cannot read {library}:\n{done.stdout}{done.stderr}")
    if "<class-decl" not in out.read_text():
        raise Broken(f"{library} has no debug information: build it with -g")


def compare(old: Path, new: Path, *options: str) -> str:
    """What abidiff finds to say about two dumps; "" if they are the same."""
    done = subprocess.run(
        ["abidiff", "--no-architecture", *options, str(old), str(new)],
        capture_output=True,
        text=True,
    )
    if done.returncode & FAILED or done.returncode < 0:
        raise Broken(f"abidiff failed:\n{done.stdout}{done.stderr}")
    return done.stdout if done.returncode & CHANGED else ""


def growing(tree: ElementTree.ElementTree) -> dict[str, ElementTree.Element]:
    """The structs that may grow at their end, since they start with their size."""
    found = {}
    for struct in tree.iterfind(".//class-decl"):
        first = struct.find("data-member/var-decl")
        if first is not None and first.get("name") == "struct_size":
            found[struct.get("name", "")] = struct
    return found


def as_seen_before(fresh: Path, out: Path) -> None:
    """Write a dump with the structs cut to their recorded sizes, as a host of then sees them.

    A new member in what was padding stays: the old size includes it, so the library would read
    what such a host never wrote. abidiff's own way, has_data_member_inserted_at, lets that pass,
    and every other change of the struct too.
    """
    tree = ElementTree.parse(fresh)
    recorded = growing(ElementTree.parse(DUMP))
    for name, struct in growing(tree).items():
        if name not in recorded:
            continue
        size = recorded[name].get("size-in-bits", "")
        if int(struct.get("size-in-bits", "")) < int(size):
            continue
        struct.set("size-in-bits", size)
        for member in struct.findall("data-member"):
            if int(member.get("layout-offset-in-bits", "")) >= int(size):
                struct.remove(member)
    tree.write(out)


def constants(include: Path) -> dict[str, str]:
    """The names and values of all constants of the headers."""
    found: dict[str, str] = {}
    for header in read_headers([include / name for name in HEADERS]):
        macros = re.findall(r"^#define (COW_MLX_\w+) (\w+)$", header.path.read_text(), flags=re.M)
        found |= dict(macros)
        for enum in header.enums():
            found |= {name: str(value) for name, value in enum.values.items()}
    return found


def recorded_constants() -> dict[str, str]:
    """The constants as they were recorded."""
    return dict(line.split() for line in CONSTANTS.read_text().splitlines())


def check(library: Path, include: Path) -> list[str]:
    """Raise if something is gone or different; what is merely new."""
    news = []
    old, new = recorded_constants(), constants(include)
    changed = [
        f"{name} was {value} and is {new.get(name, 'gone')}"
        for name, value in old.items()
        if new.get(name) != value
    ]
    if changed:
        raise Broken("constants have changed:\n" + "\n".join(changed))
    news += [f"new constant {name}" for name in new if name not in old]
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh.abi"
        dump(library, include, fresh)
        as_seen_before(fresh, seen := Path(folder) / "seen.abi")
        if report := compare(DUMP, seen, "--no-added-syms", "--harmless"):
            raise Broken(report)
        if report := compare(DUMP, fresh):
            news.append(report.strip())
    return news


def record(library: Path, include: Path) -> None:
    """Record a library and its headers."""
    dump(library, include, DUMP)
    lines = [f"{name} {value}\n" for name, value in constants(include).items()]
    CONSTANTS.write_text("".join(lines))


def main() -> int:
    """Check or record; 1 if the ABI is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["check", "record"])
    parser.add_argument("library", nargs="?", type=Path, default=LIBRARY, help="default: ours")
    parser.add_argument("--include", type=Path, default=INCLUDE, help="folder of its headers")
    arguments = parser.parse_args()
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print(f"abi: NOT CHECKED, {missing[0]} is missing (Debian: apt-get install abigail-tools)")
        return 0 if arguments.action == "check" else 1
    try:
        if arguments.action == "record":
            record(arguments.library, arguments.include)
            return 0
        news = check(arguments.library, arguments.include)
    except Broken as broken:
        print(f"abi: {broken}\nabi: a host of ABI 1 could break; see docs/abi.md", file=sys.stderr)
        return 1
    for line in news:
        print(f"abi: {line}")
    if news:
        print("abi: compatible, but not recorded yet: run make abi")
    return 0


if __name__ == "__main__":
    sys.exit(main())
