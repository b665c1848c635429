"""The rules of the house: imports go down only, nobody but C has threads and locks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

PACKAGE = ROOT / "cowmlx"
MODULES = sorted(PACKAGE.rglob("*.py"))
BRIDGE = PACKAGE / "bridge/bridge.pyx"
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# The rooms, and what lies in those that have subfolders, from top to bottom: what stands on
# a floor may import what stands below it, and itself. "*" are all that are not named.
FLOORS = {
    "cowmlx": [
        ["_bridge"],
        ["engine"],
        ["services"],
        ["scheduling"],
        ["generation"],
        ["cache"],
        ["training"],
        ["models"],
        ["vision"],
        ["machines"],
        ["program"],
        ["programs"],
        ["accelerate"],
        ["text", "networks"],
        ["folders"],
        # Small parts, which stand on nothing but each other.
        [
            "handles",
            "errors",
            "failures",
            "device_failures",
            "memory",
            "json_text",
            "call",
            "remembered",
            "steps",
            "modules",
            "blas",
            "cuda",
            "resources",
            "interpreter",
            "arrays",
            "quantized_formats",
            "generated",
        ],
    ],
    "cowmlx.generation": [
        ["*"],
        ["sampling", "tool_calls"],
        ["grammar"],
        ["constrains", "gbnf", "grammar_bounds"],
    ],
    "cowmlx.models": [["converting"], ["*"]],
    "cowmlx.text": [["*"], ["templates", "patterns"]],
    "cowmlx.networks": [["architectures"], ["wiring"], ["blocks", "encoders"], ["light_route"]],
    "cowmlx.accelerate": [["device"], ["fused"], ["*"]],
    "cowmlx.programs": [
        ["importing"],
        ["program", "single"],
        ["information", "traced"],
        ["forms"],
        ["running"],
        ["checking"],
        ["sizes", "control"],
        ["graph"],
        ["operations"],
        ["dimensions", "failure"],
        ["bounds"],
    ],
    "cowmlx.programs.importing": [["*"]],
    "cowmlx.training": [["language"], ["*"]],
    "cowmlx.commands": [
        ["chat", "convert", "models", "program", "train", "wiring"],
        ["doctor"],
        ["bundle"],
        ["*"],
    ],
    "cowmlx.host": [["*"], ["generated"]],
}
# Floors whose parts may import each other: files without an order among them.
TOGETHER = {"generated", "*"}
# Modules that no part of the engine imports: the package itself and its command line.
OUTSIDE = ["__init__", "__main__", "commands", "host", "ranks"]
# The one that may have a second thread: it answers the host while mlx computes.
SPEAKS = "cowmlx.ranks.voice"

BELOW_CONTEXTS = {"models", "machines", "text", "networks", "accelerate", "folders"}
THREADS = {"threading", "_thread", "asyncio", "concurrent", "multiprocessing", "queue"}
LOCKS = {"Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Event", "Barrier"}


def part_of(module: str, room: str = "cowmlx") -> str:
    """``cowmlx.generation.pieces`` belongs to ``generation``, and in that room to ``pieces``."""
    rest = module.removeprefix(room).lstrip(".")
    return rest.split(".")[0] or "__init__"


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def floor_of(part: str, room: str = "cowmlx") -> int:
    floors = FLOORS[room]
    named = {name for floor in floors for name in floor}
    part = part if part in named else "*"
    return next(height for height, floor in enumerate(floors) if part in floor)


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


def own_imports(path: Path, *, typing_too: bool = False, room: str = "cowmlx") -> set[str]:
    """The parts of a room that a module imports."""
    found = imports(ast.parse(path.read_text()), typing_too=typing_too)
    return {part_of(module, room) for module in found if module.startswith(f"{room}.")}


def parts() -> set[str]:
    return {part_of(name_of(path)) for path in MODULES}


def test_every_part_has_its_floor():
    assert parts() - set(OUTSIDE) <= {part for floor in FLOORS["cowmlx"] for part in floor}


def test_every_room_with_rooms_has_floors():
    packages = {path.parent for path in MODULES if path.name == "__init__.py"}
    rooms = {name_of(path.parent) for path in packages if path != PACKAGE}
    assert rooms == set(FLOORS)


@pytest.mark.parametrize("room", FLOORS)
def test_floors_name_what_is_there(room):
    folder = ROOT / room.replace(".", "/")
    there = {path.stem for path in folder.iterdir()} | {"_bridge", "*"}
    assert {part for floor in FLOORS[room] for part in floor} <= there


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path):
    name = name_of(path)
    for room in FLOORS:
        part = part_of(name, room)
        if not name.startswith(f"{room}.") or (room == "cowmlx" and part in OUTSIDE):
            continue
        height = floor_of(part, room)
        together = bool(TOGETHER & set(FLOORS[room][height]))
        for other in own_imports(path, room=room) - {part}:
            lower = floor_of(other, room)
            assert lower > height or (together and lower == height), f"{name} imports {other}"


def test_the_bridge_imports_nothing_that_is_not_there():
    source = BRIDGE.read_text()
    found = re.findall(r"^\s*from cowmlx(?:\.(\w+))? (?:c?import) (\w+)", source, re.MULTILINE)
    named = {module or name for module, name in found}
    assert "engine" in named
    assert named - {"bridge"} <= parts()


def test_every_call_has_one_method():
    """The engine would take either of two; another name would hide it."""
    called = re.findall(
        r'^METHODS\[.*\] = "(\w+)"$', (PACKAGE / "generated/call_arguments.pxi").read_text(), re.M
    )
    services = [ast.parse(path.read_text()) for path in (PACKAGE / "services").glob("*.py")]
    services.append(ast.parse((PACKAGE / "engine.py").read_text()))
    classes = [node for tree in services for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [node.name for kind in classes for node in kind.body if hasattr(node, "args")]
    assert len(called) > 30
    assert [name for name in called if methods.count(name) != 1] == []


def test_nothing_below_imports_the_bridge():
    for path in MODULES:
        if part_of(name_of(path)) not in OUTSIDE:
            assert "_bridge" not in own_imports(path, typing_too=True), name_of(path)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if part_of(name_of(path)) in BELOW_CONTEXTS], ids=name_of
)
def test_models_never_know_contexts(path):
    """Not even to name their types."""
    above = {"engine", "services", "scheduling", "generation", "cache", "handles", "call"}
    assert not own_imports(path, typing_too=True) & above


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_threads_and_no_locks(path):
    tree = ast.parse(path.read_text())
    command_line = part_of(name_of(path)) in OUTSIDE  # a host like any other
    forbidden = THREADS if command_line else {*THREADS, "ctypes"}
    for module in imports(tree, typing_too=True):
        if name_of(path) != SPEAKS:
            assert module.split(".")[0] not in forbidden, f"{name_of(path)} imports {module}"
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    assert not called & LOCKS or name_of(path) == SPEAKS


def test_no_test_imports_another():
    """Nor a program that a test runs: what two need lies in tests/support."""
    pattern = re.compile(r"^\s*(?:from|import) +(?:\w+\.)*(test_\w+)", re.MULTILINE)
    found = {path.name: pattern.findall(path.read_text()) for path in TESTS}
    assert {name: imported for name, imported in found.items() if imported} == {}


def test_no_two_tests_share_a_name():
    """Folders of tests are no packages, so that pytest collects one module of a name."""
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_the_bridge_takes_no_lock():
    source = BRIDGE.read_text()
    for word in [*THREADS, "pthread", *LOCKS]:
        assert not re.search(rf"\b{word}\b", source), f"{BRIDGE.name} speaks of {word}"


def test_only_the_bridge_is_cython():
    assert [path.name for path in PACKAGE.rglob("*.pyx")] == ["bridge.pyx"]
    assert [path.name for path in PACKAGE.rglob("*.pxd")] == ["cow_mlx.pxd"]


def test_the_bridge_has_no_list_comprehensions():
    """Where a list cannot grow, those of Cython 3.3 release an item twice."""
    pattern = re.compile(r"\[.*\sfor\s|^\s*for .* in [^:]*$", re.M)
    found = {path.name: pattern.findall(path.read_text()) for path in PACKAGE.rglob("*.p[xy][xi]")}
    assert "values.pxi" in found
    assert not any(found.values()), found


def test_no_handler_of_the_bridge_returns():
    """Without memory an exception may have no traceback: Cython 3.3 would release it there."""
    found = []
    for path in PACKAGE.rglob("*.p[xy][xi]"):
        handler = None  # the indentation of one that is open
        for line in filter(str.strip, path.read_text().splitlines()):
            indent = len(line) - len(line.lstrip())
            if handler is not None and indent <= handler:
                handler = None
            if re.match(r"\s*except\b.*:", line):
                handler = indent
            elif handler is not None and re.match(r"\s*(return|break|continue)\b", line):
                found.append((path.name, line))
    assert not found


def test_json_from_outside_is_read_in_one_place():
    """What is read elsewhere is our own: the doctor's host wrote it."""
    allowed = {PACKAGE / "json_text.py", PACKAGE / "commands/doctor/checks.py"}
    pattern = re.compile(r"\bjson\.loads?\(|raw_decode\(")
    found = {path for path in MODULES if pattern.search(path.read_text())}
    assert found <= allowed


def test_one_place_knows_what_shortages_look_like():
    sources = [*MODULES, *PACKAGE.rglob("*.px?")]
    pattern = re.compile(r"bad_alloc|\[malloc|nable to allocate|EMFILE|ENFILE")
    found = {path for path in sources if pattern.search(path.read_text())}
    assert found == {PACKAGE / "failures.py", PACKAGE / "device_failures.py"}
