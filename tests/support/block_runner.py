"""Runs the code blocks of a page; tests/docs/test_code_blocks.py tells how."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL

from support.code_blocks import Block
from support.compiler import compile_c, require, run
from support.hosts import linked
from support.managed_blocks import Managed, placed
from support.paths import LIBRARY

RUST = ["--edition=2024", "--codegen=debuginfo=0"]
TOOLS = ["cc", "c++", "cmake", "pkg-config", "cargo"]  # that pages need and a machine may lack
STANDARDS = {"c": ("cc", "c11"), "cpp": ("c++", "c++17")}


def wrapped(block: Block, suffix: str) -> str:
    """The program in C, C++ or Rust that a block is, or is a part of."""
    code = placed(block, suffix)
    assert re.search(r"\bmain\(", code), "neither a program nor a part of one (wrap: ...)"
    return code


def listed(folder: Path) -> list[str]:
    """What lies in a folder, as ls -p tells it."""
    return [path.name + "/" * path.is_dir() for path in folder.iterdir()]


class Runner(Managed):
    """Runs a page's blocks.

    Args:
        folder: where.
        environment: of programs.

    Attributes:
        missing: packages without which blocks were only read.
    """

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.folder, self.environment = folder, environment
        self.printed: str | None = ""
        self.titles: set[str] = set()
        self.missing: set[str] = set()

    def run(self, block: Block) -> None:
        """Try one block; fails if it does, or if nothing tries its language."""
        language = getattr(self, f"run_{block.language}", None)
        assert language, f"{block.place}: nothing tests the language {block.language!r}"
        needed = block.note.removeprefix("needs: ") if block.note.startswith("needs: ") else ""
        if needed and not find_spec(needed):
            self.missing.add(needed)
            self.printed = None
            if block.language == "python":
                compile(block.code, block.place, "exec")
            return
        language(block)

    def execute(self, *command: str | Path) -> None:
        done = run(list(command), cwd=self.folder, env=self.environment, stdin=DEVNULL)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        self.printed = done.stdout

    def run_c(self, block: Block) -> None:
        name = block.title or f"hello.{block.language}"
        source, program = self.folder / name, self.folder / "program"
        source.write_text(wrapped(block, block.language))
        compiler, standard = STANDARDS[block.language]
        options = [*linked(LIBRARY), "-ldl"]
        compile_c([source], program, *options, compiler=compiler, std=standard)
        if block.title:
            self.titles.add(block.title)
        else:
            self.execute(program)

    run_cpp = run_c

    def run_rust(self, block: Block) -> None:
        source, program = self.folder / "hello.rs", self.folder / "program"
        source.write_text(wrapped(block, "rs"))
        crates = self.environment["CRATES"]
        options = [f"-Ldependency={crates}", f"--extern=cowmlx={crates}/libcowmlx.rlib"]
        options += [f"-L{LIBRARY.parent}", f"-Clink-arg=-Wl,-rpath,{LIBRARY.parent}"]
        done = run([require("rustc"), *RUST, "-Dwarnings", *options, source, "-o", program])
        assert done.returncode == 0, done.stderr
        self.execute(program)

    def run_cmake(self, block: Block) -> None:
        assert block.title == "CMakeLists.txt", "no shell block can build what has no title"
        (self.folder / block.title).write_text(block.code)
        self.titles.add("cmake")

    def run_sh(self, block: Block) -> None:
        for tool in TOOLS:
            if re.search(rf"(?<![\w/-]){re.escape(tool)} ", block.code):
                require(tool)
        if block.note.startswith("not run: "):  # and why
            self.execute("bash", "-n", "-c", block.code)
            return
        self.titles -= {title for title in self.titles if title in block.code}
        self.execute("bash", "-euo", "pipefail", "-c", block.code)

    def run_python(self, block: Block) -> None:
        self.execute(sys.executable, "-c", placed(block, "py"))

    def run_json(self, block: Block) -> None:
        json.loads(block.code)
        if block.title:
            (self.folder / block.title).write_text(block.code)
            self.titles.add(block.title)

    def run_xml(self, block: Block) -> None:
        ElementTree.fromstring(block.code)

    def run_toml(self, block: Block) -> None:
        tomllib.loads(block.code)

    def run_text(self, block: Block) -> None:
        if block.note.startswith("files of "):
            folder = self.folder / block.note.removeprefix("files of ")
            told = dict(line.split(maxsplit=1) for line in block.code.splitlines())
            missing = {n for n, text in told.items() if "--" not in text} - set(listed(folder))
            assert not missing, f"{folder.name} has none of {missing}"
            assert set(listed(folder)) <= set(told), "more files than are listed"
            return
        assert block.note == "output", "text is what a block before gives (output, files of ...)"
        if self.printed is None:
            return  # that block needs what is missing
        printed, told = self.printed.rstrip(), block.code.rstrip()
        assert printed == told, f"printed is {printed!r}, not {told!r}"
