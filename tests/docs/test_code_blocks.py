"""Every code block of every page is compiled and run, or fails for having no way to be.

A page's blocks run in their order in one folder that holds ``models``. By language:

- ``c``, ``cpp``, ``rust``: a block with a main is a program, compiled and run; with a title it is
  that file, and shell blocks compile and run it. A part of a program is named one by the comment
  ``<!-- wrap: context -->`` before it, and is put into tests/docs/wraps/context.c, .cpp or .rs.
- ``js``, ``go``, ``java``: likewise, with the bindings. ``swift``: found in its example, as it is.
- ``cmake``: written, and built by a shell block.
- ``sh``: run; of ``make``, only ``make install`` does something. Under ``<!-- not run: why -->``
  the shell only reads it. ``python``: run.
- ``json``, ``toml``: parsed; JSON with a title is that file, for shell blocks.
- ``text``: under ``<!-- output -->``, what the block before has printed; under
  ``<!-- files of FOLDER -->``, what a block before has put there, but for what an option brings.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.block_runner import RUST, Runner
from support.code_blocks import blocks_of
from support.compiler import require, run
from support.managed_blocks import go_environment
from support.outside import java_classes, node_packages
from support.paths import LIBRARY, ROOT

RUST_CRATES = ROOT / "bindings/rust"
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_a_page(page, workspace, environment, request):
    text = page.read_text()
    if "```rust" in text:
        environment["CRATES"] = str(request.getfixturevalue("crates"))
    if "```js" in text:
        (workspace / "node_modules").symlink_to(request.getfixturevalue("node_modules"))
    if "```java" in text:
        environment["CLASSPATH"] = request.getfixturevalue("class_path")
    if "```go" in text:
        environment |= go_environment()
    runner = Runner(workspace, environment)
    for block in blocks_of(text, str(page.relative_to(ROOT))):
        if block.language == "" and "┌" in block.code:
            continue  # a drawing
        try:
            runner.run(block)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{block.place}: {error}") from error
    assert not runner.titles, "no shell block compiles and runs these"


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
