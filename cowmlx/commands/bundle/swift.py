"""The Swift package around a bundle, which brings the library as a resource.

SwiftPM copies the resources of a package beside the programs that depend on it, and the package
looks for the library there. Its other containers do not fit: an ``.artifactbundle`` holds programs
(from Swift 6.2 static libraries, too), and an ``.xcframework`` a single library, without Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cowmlx.commands.bundle import BundleError
from cowmlx.commands.origin import TREE

SOURCES = TREE / "bindings/swift/Sources"
RESOURCES = ("lib", "python", "licences", "MANIFEST.json")
OTHERS = ("include", "models")
MARK = """/// The library and its parts, as resources beside the program.
public enum CowMLXBundle {}
"""


def targets() -> list[str]:
    """Return the targets of the Swift package, without the one that links an installed library."""
    if not SOURCES.is_dir():
        raise BundleError(f"{SOURCES} does not exist: --swift needs a source tree")
    names = sorted(path.name for path in SOURCES.iterdir() if path.is_dir())
    return [name for name in names if name != "CowMLXLinked"]


def sources() -> Iterator[tuple[Path, Path]]:
    """Yield each source of the package with its place in the bundle."""
    for target in targets():
        for path in sorted((SOURCES / target).rglob("*")):
            if path.is_file():
                yield path, Path("Sources") / path.relative_to(SOURCES)


def package(folder: Path) -> str:
    """Return the text of Package.swift for a bundle."""
    names = targets()
    excluded = [f"Sources/{name}" for name in names]
    excluded += [name for name in OTHERS if (folder / name).is_dir()]
    lines = ["// swift-tools-version:6.0", "import PackageDescription", ""]
    lines += ["let package = Package(", '  name: "CowMLX",', "  platforms: [.macOS(.v14)],"]
    lines += ["  products: ["]
    products = [name for name in names if name != "CCowMLX"]
    lines += [f'    .library(name: "{name}", targets: ["{name}"]),' for name in products]
    lines += ["  ],", "  targets: ["]
    for name in names:
        needs = {"CCowMLX": [], "CowMLX": ["CCowMLX", "CowMLXBundle"]}.get(name, ["CowMLX"])
        lines += [f'    .target(name: "{name}", dependencies: {quoted(needs)}),']
    lines += ["    .target(", '      name: "CowMLXBundle", path: ".",']
    lines += [f"      exclude: {quoted(excluded)},", '      sources: ["Sources/CowMLXBundle"],']
    copies = ", ".join(f'.copy("{name}")' for name in RESOURCES)
    lines += [f"      resources: [{copies}]),", "  ],", "  swiftLanguageModes: [.v6]", ")", ""]
    return "\n".join(lines)


def quoted(names: list[str]) -> str:
    """Return a list of texts in Swift."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
