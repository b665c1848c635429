"""Every code block of every page is compiled and run, or fails for having no way to be.

A page's blocks run in their order in one folder that holds ``models``. By language:

- ``c``, ``cpp``, ``rust``: a block with a main is a program, compiled and run; with a title it is
  that file, and shell blocks compile and run it. A part of a program is named one by the comment
  ``<!-- wrap: context -->`` before it, and is put into tests/docs/wraps/context.c, .cpp or .rs.
- ``js``, ``go``, ``java``: likewise, with the bindings. ``swift``, ``elixir``: part of a file
  that the tests of these packages run.
- ``cmake``: written, and built by a shell block.
- ``sh``: run; of ``make``, only ``make install`` does something. Under ``<!-- not run: why -->``
  the shell only reads it. ``python``: run. Under ``<!-- needs: PACKAGE -->`` both are run where
  Python has that package.
- ``json``, ``toml``, ``xml``: parsed; JSON with a title is that file, for shell blocks.
- ``text``: under ``<!-- output -->``, what the block before has printed, or, behind a set of tabs
  (``=== "C"``), the one in any language; under
  ``<!-- files of FOLDER -->``, what a block before has put there, but for what an option brings.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.block_runner import RUST, Runner
from support.code_blocks import Block, blocks_of
from support.compiler import require, run
from support.managed_blocks import go_environment
from support.outside import java_classes, node_packages
from support.paths import LIBRARY, ROOT

RUST_CRATES = ROOT / "bindings/rust"
DOCC = sorted((ROOT / "bindings/swift/Sources").rglob("*.docc/*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="session")
def crates(tmp_path_factory) -> Path:
    """The crates with their streams, and the one that these need, compiled without Cargo."""
    folder = tmp_path_factory.mktemp("crates")
    if run([require("rustc"), *RUST, "--print=sysroot"]).returncode != 0:
        pytest.skip("rustc is older than 1.85")
    extern = [f"--extern={name}={folder}/lib{name}.rlib" for name in ("cowmlx_sys", "futures_core")]
    features = ["--cfg", 'feature="stream"']
    for name, source, options in (
        ("futures_core", futures_core(), []),
        ("cowmlx_sys", RUST_CRATES / "cowmlx-sys/src/lib.rs", ["-lcowmlx", f"-L{LIBRARY.parent}"]),
        ("cowmlx", RUST_CRATES / "cowmlx/src/lib.rs", [*extern, *features]),
    ):
        command = [require("rustc"), *RUST, "--crate-type=rlib", f"--crate-name={name}", *options]
        done = run([*command, f"--out-dir={folder}", "--cap-lints=allow", source])
        assert done.returncode == 0, done.stderr
    return folder


def futures_core() -> Path:
    """The source of the crate of that name, at the version that ours are locked to."""
    options = ["--locked", "--format-version=1", "--manifest-path", RUST_CRATES / "Cargo.toml"]
    done = run([require("cargo"), "metadata", *options])
    if done.returncode:
        pytest.skip(f"cargo cannot fetch the crates: {done.stderr.strip().splitlines()[0]}")
    packages = json.loads(done.stdout)["packages"]
    [found] = [package for package in packages if package["name"] == "futures-core"]
    return Path(found["manifest_path"]).parent / "src/lib.rs"


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory) -> Path:
    """The binding for Node.js, and koffi."""
    return node_packages(tmp_path_factory.mktemp("node")) / "node_modules"


@pytest.fixture(scope="session")
def class_path(tmp_path_factory) -> str:
    """The binding for Java, and JNA."""
    return java_classes(tmp_path_factory.mktemp("java"))


def run_blocks(blocks: list[Block], workspace, environment, request) -> None:
    """Run blocks of a page, with what their languages need."""
    languages = {block.language for block in blocks}
    if "rust" in languages:
        environment["CRATES"] = str(request.getfixturevalue("crates"))
    if "js" in languages:
        (workspace / "node_modules").symlink_to(request.getfixturevalue("node_modules"))
    if "java" in languages:
        environment["CLASSPATH"] = request.getfixturevalue("class_path")
    if "go" in languages:
        environment |= go_environment()
    runner = Runner(workspace, environment)
    for block in blocks:
        if block.language == "" and "┌" in block.code:
            continue  # a drawing
        try:
            runner.run(block)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{block.place}: {error}") from error
    assert not runner.titles, "no shell block compiles and runs these"
    if runner.missing:
        pytest.skip(f"all but the blocks that need {', '.join(sorted(runner.missing))}")


def of(page: Path) -> list[Block]:
    """Its blocks."""
    return blocks_of(page.read_text(), name_of(page))


def name_of(page: Path) -> str:
    """Its path from the root."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", DOCC, ids=name_of)
def test_code_of_docc_pages_is_tested(page, workspace, environment, request):
    """Their Swift is that of files that Swift tests run."""
    blocks = of(page)
    assert blocks
    run_blocks(blocks, workspace, environment, request)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_of_a_page(page, workspace, environment, request):
    """Of tabs in several languages, that of C alone."""
    blocks = [block for block in of(page) if not block.tabs or block.language == "c"]
    run_blocks(blocks, workspace, environment, request)


TABBED = [page for page in PAGES if any(block.tabs for block in of(page))]


@pytest.mark.long
@pytest.mark.parametrize("language", ["cpp", "rust", "js", "go", "java", "python"])
@pytest.mark.parametrize("page", TABBED, ids=name_of)
def test_tabs_of_a_page(page, language, workspace, environment, request):
    """Every set of tabs has the language, and its block prints what the page says."""
    sets = {block.tabs for block in of(page)} - {0}
    blocks = [block for block in with_output(of(page)) if block.language in (language, "text")]
    assert {block.tabs for block in blocks if block.language == language} == sets
    run_blocks(blocks, workspace, environment, request)


@pytest.mark.parametrize("language", ["swift", "elixir"])
@pytest.mark.parametrize("page", TABBED, ids=name_of)
def test_tabs_that_packages_run(page, language, workspace, environment, request):
    """Every set of tabs has the language; its block is part of a file that the package runs."""
    blocks = [block for block in of(page) if block.tabs and block.language == language]
    assert [block.tabs for block in blocks] == sorted({block.tabs for block in of(page)} - {0})
    run_blocks(blocks, workspace, environment, request)


def with_output(blocks: list[Block]) -> list[Block]:
    """The blocks that are in tabs, and what they print."""
    before = [None, *blocks]
    return [
        block
        for last, block in zip(before, blocks, strict=False)
        if block.tabs or (last and last.tabs and block.note == "output")
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```brainfuck\n+\n```", "nothing tests the language"),
        ("```\nls\n```", "nothing tests the language ''"),
        ("    ls\n", "nothing tests the language ''"),
        ("```c\ncow_mlx_runtime_start(NULL);\n```", "neither a program"),
        ("<!-- wrap: context -->\n\n```c\nno_such_thing();\n```", "no_such_thing"),
        ("<!-- wrap: context -->\n\n```c\ncheck(cow_mlx_context_free(0));\n```", "EHANDLE"),
        ("```sh\nfalse\n```", ""),
        ("```sh\nmake no_such_target\n```", "no_such_target"),
        ("<!-- not run: no Mac -->\n\n```sh\nif then\n```", "syntax error"),
        ("<!-- files of build -->\n\n```text\nlib/ libraries\n```", "has none of"),
        ("```json\n{,}\n```", ""),
        ("```sh\necho one\n```\n\n<!-- output -->\n\n```text\ntwo\n```", "two"),
    ],
)
def test_bad_block_fails(workspace, environment, text, reason):
    runner = Runner(workspace, environment)
    with pytest.raises((AssertionError, ValueError)) as error:
        for block in blocks_of(text, "page"):
            runner.run(block)
    assert reason in str(error.value)
