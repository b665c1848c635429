"""The rules of the house: imports go down only, nobody but C has threads and locks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import CSRC, ROOT

PACKAGE = ROOT / "cowmlx"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From top to bottom. A part may import what stands below it, and itself.
FLOORS = [
    ["_bridge"],
    ["engine"],
    ["tokenizing"],
    ["scheduler", "loading", "saving", "embedding"],
    ["generation"],
    ["cache"],
    ["models"],
    # Small parts, which stand on nothing but each other.
    [
        "handles",
        "errors",
        "failures",
        "json_text",
        "streams",
        "calls",
        "output",
        "blas",
        "stepped",
        "resources",
        "_constants",
        "_defaults",
        "_reasons",
        "failure_details",
        "_defaults",
        "_reasons",
        "failure_details",
        "_status",
    ],
]
# Modules that no part of the engine imports: the package itself and its command line.
OUTSIDE = ["__init__", "__main__", "bundle", "commands", "doctor"]

THREADS = {"threading", "_thread", "asyncio", "concurrent", "multiprocessing", "queue"}
LOCKS = {"Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Event", "Barrier"}


def part_of(module: str) -> str:
    """``cowmlx.generation.stop`` belongs to ``generation``."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def floor_of(part: str) -> int:
    return next(height for height, floor in enumerate(FLOORS) if part in floor)


def imports(tree: ast.AST, *, typing_too: bool = False) -> Iterator[str]:
    """Every module that a tree imports, but for those under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not typing_too:
            for other in node.orelse:
                yield from imports(other)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node, typing_too=typing_too)


def own_imports(path: Path, *, typing_too: bool = False) -> set[str]:
    """The parts of the package that a module imports."""
    found = imports(ast.parse(path.read_text()), typing_too=typing_too)
    names = {module for module in found if module.split(".")[0] == "cowmlx"}
    return {part_of(module) for module in names if module != "cowmlx"}


def parts() -> set[str]:
    return {part_of(name_of(path)) for path in MODULES}


def test_every_part_has_its_floor():
    assert parts() - set(OUTSIDE) <= {part for floor in FLOORS for part in floor}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path):
    part = part_of(name_of(path))
    if part in OUTSIDE:
        return
    height = floor_of(part)
    for other in own_imports(path) - {part}:
        lower = floor_of(other)
        leaf = height == lower == len(FLOORS) - 1
        assert lower > height or leaf, f"{name_of(path)} imports {other}"


def test_the_bridge_imports_nothing_that_is_not_there():
    source = (PACKAGE / "_bridge.pyx").read_text()
    found = re.findall(r"^\s*from cowmlx(?:\.(\w+))? (?:c?import) (\w+)", source, re.MULTILINE)
    named = {module or name for module, name in found}
    assert "engine" in named
    assert named - {"_cow_mlx"} <= parts()


def test_nothing_below_imports_the_bridge():
    for path in MODULES:
        if part_of(name_of(path)) not in OUTSIDE:
            assert "_bridge" not in own_imports(path, typing_too=True), name_of(path)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if part_of(name_of(path)) == "models"], ids=name_of
)
def test_models_never_know_contexts(path):
    """Not even to name their types."""
    above = {"engine", "scheduler", "loading", "generation", "cache", "handles", "calls"}
    assert not own_imports(path, typing_too=True) & above


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_threads_and_no_locks(path):
    tree = ast.parse(path.read_text())
    command_line = part_of(name_of(path)) in OUTSIDE  # a host like any other
    forbidden = THREADS if command_line else {*THREADS, "ctypes"}
    for module in imports(tree, typing_too=True):
        assert module.split(".")[0] not in forbidden, f"{name_of(path)} imports {module}"
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    assert not called & LOCKS


def test_the_bridge_takes_no_lock():
    source = (PACKAGE / "_bridge.pyx").read_text()
    for word in [*THREADS, "pthread", *LOCKS]:
        assert not re.search(rf"\b{word}\b", source), f"_bridge.pyx speaks of {word}"


def test_only_the_bridge_is_cython():
    assert [path.name for path in PACKAGE.rglob("*.pyx")] == ["_bridge.pyx"]
    assert [path.name for path in PACKAGE.rglob("*.pxd")] == ["_cow_mlx.pxd"]


def test_only_the_boot_code_knows_python():
    including = re.compile(r"^\s*#\s*include\s*[<\"]Python\.h[>\"]", re.MULTILINE)
    files = [path for path in CSRC.rglob("*.[ch]") if including.search(path.read_text())]
    assert {path.name for path in files} == {"python_api.h"}
    headers = r"#\s*include\s*\"(python_api|thread_state)\.h\""
    users = {path.name for path in CSRC.rglob("*.[ch]") if re.search(headers, path.read_text())}
    assert users == {"bootstrap.c", "python_api.c", "thread_state.c", "thread_state.h"}


def test_json_from_outside_is_read_in_one_place():
    """What is read elsewhere is our own: the doctor's host wrote it."""
    allowed = {PACKAGE / "json_text.py", PACKAGE / "doctor/probe.py"}
    pattern = re.compile(r"\bjson\.loads?\(|raw_decode\(")
    found = {path for path in MODULES if pattern.search(path.read_text())}
    assert found <= allowed


def test_one_place_knows_what_shortages_look_like():
    sources = [*MODULES, *PACKAGE.glob("*.pyx"), *PACKAGE.glob("*.pxi")]
    pattern = re.compile(r"bad_alloc|\[malloc|nable to allocate|EMFILE|ENFILE")
    found = {path for path in sources if pattern.search(path.read_text())}
    assert found == {PACKAGE / "failures.py"}
