"""Guards the library's ABI against its recorded state in tools/abi/recorded/.

    python tools/abi/guard.py check [LIBRARY]    fail if a host that runs today could break
    python tools/abi/guard.py record             record the built library as what hosts rely on

Functions, structs and their layout are compared by libabigail (abidw and abidiff); names and values
of constants, the names of types and the order of arguments here, since a binary does not hold them
or libabigail takes them for harmless. docs/abi.md says what may change and how.
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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.bindings.header import (  # noqa: E402
    Alias,
    Header,
    Signature,
    Struct,
    Type,
    read_headers,
    text_of,
)

INCLUDE = ROOT / "include"
HEADERS = ["cow_mlx.h", "cow_mlx_compat.h"]
LIBRARY = ROOT / "cowmlx/lib/libcowmlx.so.1"
DUMP = ROOT / "tools/abi/recorded/libcowmlx.1.abi"
CONSTANTS = ROOT / "tools/abi/recorded/libcowmlx.1.constants"
DECLARATIONS = ROOT / "tools/abi/recorded/libcowmlx.1.declarations"
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
    structs = {}
    for struct in tree.iterfind(".//class-decl"):
        first = struct.find("data-member/var-decl")
        if first is not None and first.get("name") == "struct_size":
            structs[struct.get("name", "")] = struct
    return structs


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


def headers(include: Path) -> list[Header]:
    """The public headers, parsed."""
    return read_headers([include / name for name in HEADERS])


def spelled(kind: Type) -> str:
    """A type as C spells it, with the names of typedefs."""
    if kind.function is not None:
        return f"({'; '.join(arguments(kind.function))})"
    return f"{'const ' if kind.const else ''}{kind.name}{''.join(kind.pointers)}"


def arguments(signature: Signature) -> list[str]:
    """The result of a function and its arguments: "type name"."""
    named = [f"{spelled(kind)} {name}" for name, kind in signature.params]
    return [f"{spelled(signature.result)} return", *named]


def declarations(include: Path) -> dict[str, list[str]]:
    """What functions, callbacks and structs consist of, in order: "type name" each."""
    declared: dict[str, list[str]] = {}
    for header in headers(include):
        declared |= {one.name: arguments(one.signature) for one in header.functions}
        for one in header.declarations:
            if isinstance(one, Struct) and one.members is not None:
                declared[one.name] = [f"{spelled(kind)} {name}" for name, kind in one.members]
            elif isinstance(one, Alias):
                function = one.type.function
                declared[one.name] = (
                    arguments(function) if function else [f"{spelled(one.type)} type"]
                )
    return declared


def recorded_declarations() -> dict[str, list[str]]:
    """The declarations as they were recorded."""
    lines = (line.split(": ", 1) for line in DECLARATIONS.read_text().splitlines())
    return {name: parts.split(", ") for name, parts in lines}


def declaration_problem(name: str, old: list[str], new: list[str]) -> str:
    """What a host of the old declaration would trip over; "" if nothing."""
    grows = old[0].endswith(" struct_size")
    if len(new) != len(old) and not (grows and len(new) > len(old)):
        return f"{name} had {len(old) - 1} arguments or members and has {len(new) - 1}"
    (old_types, old_names), (new_types, new_names) = (
        tuple(zip(*(part.rsplit(" ", 1) for part in parts), strict=True))
        for parts in (old, new[: len(old)])
    )
    if old_types != new_types:
        return f"{name} was ({', '.join(old)}) and is ({', '.join(new)})"
    if old_names != new_names and sorted(old_names) == sorted(new_names):
        return f"{name} takes them in another order: ({', '.join(new)}), not ({', '.join(old)})"
    return ""


def compare_declarations(include: Path) -> list[str]:
    """Raise if a declaration is gone or different; what is merely renamed."""
    old, new = recorded_declarations(), declarations(include)
    changes = [
        declaration_problem(name, parts, new[name]) if name in new else f"{name} is gone"
        for name, parts in old.items()
    ]
    if problems := [problem for problem in changes if problem]:
        raise Broken("declarations have changed:\n" + "\n".join(problems))
    return [
        f"other names in {name}" for name, parts in old.items() if new[name][: len(parts)] != parts
    ]


def constants(include: Path) -> dict[str, str]:
    """The names and values of all constants of the headers."""
    values: dict[str, str] = {}
    for header in headers(include):
        macros = re.findall(
            r"^#define (COW_MLX_\w+) ((?![_\"]).+)$", text_of(header.path), flags=re.M
        )
        values |= dict(macros)
        for enum in header.enums():
            values |= {name: str(value) for name, value in enum.values.items()}
    return values


def recorded_constants() -> dict[str, str]:
    """The constants as they were recorded."""
    return dict(line.split(" ", 1) for line in CONSTANTS.read_text().splitlines())


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
    return news + compare_declarations(include)


def record(library: Path, include: Path) -> None:
    """Record a library and its headers."""
    dump(library, include, DUMP)
    lines = [f"{name} {value}\n" for name, value in constants(include).items()]
    CONSTANTS.write_text("".join(lines))
    lines = [f"{name}: {', '.join(parts)}\n" for name, parts in declarations(include).items()]
    DECLARATIONS.write_text("".join(lines))


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
