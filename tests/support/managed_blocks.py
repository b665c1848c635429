"""Runs code blocks in languages that call the library through its bindings."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from support.code_blocks import Block
from support.compiler import require, run
from support.outside import needs
from support.paths import ROOT

WRAPS = ROOT / "tests/docs/wraps"
# Compiled and run by tests of the package, and by those of the examples.
SWIFT = (
    ROOT / "bindings/swift/Tests/CowMLXTests/PageTests.swift",
    ROOT / "bindings/swift/Tests/CowMLXTests/GuideTests.swift",
    ROOT / "examples/swift/programs/Sources/hello/main.swift",
)
ELIXIR = [ROOT / f"bindings/elixir/test/{name}_test.exs" for name in ("page", "guide", "nx")]
GO_MODULE = f"""module page

go 1.25.0

require cowmlx.internal/cowmlx v1.0.0

require github.com/ebitengine/purego v0.11.3 // indirect

replace cowmlx.internal/cowmlx => {ROOT}/bindings/go
"""


def placed(block: Block, suffix: str) -> str:
    """A block in the program that it is a part of, or alone. Its mark is a comment, a line."""
    if not block.note.startswith("wrap: "):
        return block.code
    wrap = WRAPS / f"{block.note.removeprefix('wrap: ')}.{suffix}"
    mark = "# BLOCK" if suffix == "py" else "/* BLOCK */"
    return wrap.read_text().replace(mark, block.code)


def go_environment() -> dict[str, str]:
    """Go's caches, where HOME is another, and no C compiler."""
    needs("go", (1, 25), "version")
    names = ("GOCACHE", "GOMODCACHE", "GOPROXY")
    values = run(["go", "env", *names]).stdout.splitlines()
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    return {**dict(zip(names, values, strict=True)), **fixed}


def flush(code: str) -> str:
    """Code without its indentation."""
    return "".join(f"{line.strip()}\n" for line in code.strip().splitlines())


class Managed:
    """The part of a Runner that runs them."""

    folder: Path
    environment: dict[str, str]
    execute: Callable[..., None]  # runs a program, which has to end well

    def run_js(self, block: Block) -> None:
        source = self.folder / "page.mjs"
        source.write_text(placed(block, "mjs"))
        self.execute(require("node"), source)

    def run_go(self, block: Block) -> None:
        source = self.folder / "page"
        source.mkdir(exist_ok=True)
        (source / "main.go").write_text(placed(block, "go"))
        (source / "go.mod").write_text(GO_MODULE)
        (source / "go.sum").write_text((ROOT / "bindings/go/go.sum").read_text())
        self.execute("go", "build", "-C", source, "-o", self.folder / "program", ".")
        self.execute(self.folder / "program")

    def run_java(self, block: Block) -> None:
        code = placed(block, "java")
        named = re.search(r"\bclass (\w+)", code)
        assert named, "neither a class nor a part of one (wrap: ...)"
        source = self.folder / f"{named[1]}.java"
        source.write_text(code)
        self.execute(require("java"), "-cp", self.environment["CLASSPATH"], source)

    def run_swift(self, block: Block) -> None:
        code = flush(block.code)
        assert any(code in flush(path.read_text()) for path in SWIFT), f"not as in {SWIFT}"

    def run_elixir(self, block: Block) -> None:
        code = flush(block.code)
        assert any(code in flush(path.read_text()) for path in ELIXIR), f"not as in {ELIXIR}"
