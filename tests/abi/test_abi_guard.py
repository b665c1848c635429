"""The guard of the ABI: what it lets pass, and what it stops."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from support.compiler import require, run
from support.paths import LIBRARY, ROOT

GENERATION, PIECE = "} cow_mlx_generation_params;", "} cow_mlx_piece;"
VERSION = "COW_MLX_API uint32_t cow_mlx_abi_version(void);"
NAME = "cow_mlx_status_name(cow_mlx_status status)"


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """The guard's tools; elsewhere it says that it has checked nothing."""
    pytest.importorskip("pycparser")
    if sys.platform == "darwin":
        pytest.skip("libabigail reads ELF; macOS has none")
    for tool in ("abidw", "abidiff"):
        require(tool)


def guard(*arguments: object, env=None):
    return run([sys.executable, ROOT / "tools/abi/guard.py", "check", *arguments], env=env)


DECLARATION = re.compile(r"^COW_MLX_API ([^;]*\));", re.MULTILINE)


def exporting(include: Path) -> str:
    """A C file that defines each function of the header, without its work."""
    header = "".join(part.read_text() for part in include.rglob("*.h"))
    declared = DECLARATION.findall(header)
    assert len(declared) > 100
    bodies = [f"{text} {{ __builtin_trap(); }}" for text in declared]
    return "\n".join(["#include <cow_mlx_compat.h>", *bodies, ""])


@pytest.fixture
def after(tmp_path):
    """The guard's verdict on a library whose header was edited: (old text, new text)."""

    def verdict(*edits: tuple[str, str], compiler: str = "cc", options: tuple[str, ...] = ()):
        include = tmp_path / "include"
        shutil.copytree(ROOT / "include", include)
        for old, new in edits:
            path = next(part for part in include.rglob("*.h") if old in part.read_text())
            text = path.read_text()
            assert text.count(old) == 1, f"{old!r} in {path.name}"
            path.write_text(text.replace(old, new))
        source, library = tmp_path / "exports.c", tmp_path / "libcowmlx.so.1"
        source.write_text(exporting(include))
        command = [require(compiler), "-std=c11", "-g", "-fPIC", "-fvisibility=hidden", "-shared"]
        command += ["-Wl,-soname,libcowmlx.so.1", "-I", include, *options]
        done = run([*command, source, "-o", library])
        assert done.returncode == 0, done.stderr
        return guard(library, "--include", include)

    return verdict


def assert_stopped(done, word: str) -> None:
    assert done.returncode == 1, done.stdout
    assert word in done.stderr
    assert "docs/abi.md" in done.stderr


def assert_passed(done, *news: str) -> None:
    assert done.returncode == 0, done.stderr
    assert ("run make abi" in done.stdout) == bool(news)
    for word in news:
        assert word in done.stdout


def test_library_is_as_recorded_or_grown():
    done = guard(LIBRARY)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("compiler", "options"),
    [("cc", ()), ("cc", ("-O3", "-gdwarf-4")), ("clang", ("-O2",))],
    ids=["cc", "cc of other options", "clang"],
)
def test_compiler_makes_no_difference(after, compiler, options):
    assert_passed(after(compiler=compiler, options=options))


@pytest.mark.parametrize("struct", ["generation_params", "context_params", "stats", "event"])
def test_struct_with_its_size_may_grow_at_its_end(after, struct):
    end = f"}} cow_mlx_{struct};"
    assert_passed(after((end, f"  uint64_t more;\n{end}")), "uint64_t more")


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param([("float top_p ", "uint64_t more; float top_p ")], id="in the middle"),
        pytest.param([(PIECE, f"int32_t more; {PIECE}")], id="in its padding"),
        pytest.param([("} cow_mlx_text;", "size_t more; } cow_mlx_text;")], id="without a size"),
    ],
)
def test_struct_may_not_grow_elsewhere(after, edits):
    assert_stopped(after(*edits), "more")


@pytest.mark.parametrize("grown", [False, True], ids=["same size", "grown too"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            "  uint64_t seed;              /**< the same",
            "  double seed;                /**< the same",
            id="another type of the same size",
        ),
        pytest.param("  int32_t top_k; ", "  uint32_t top_k; ", id="another sign"),
        pytest.param("  size_t presence_window ", "  int32_t presence_window ", id="smaller"),
        pytest.param("size_t total,", "int32_t total,", id="a callback's parameter"),
    ],
)
def test_member_may_not_change(after, old, new, grown):
    growth = [(GENERATION, f"  uint64_t more;\n{GENERATION}")] if grown else []
    assert_stopped(after((old, new), *growth), "cow_mlx_generation_params")


def test_members_may_not_change_places(after):
    swapped = [("priority; ", "first; "), ("  int32_t overflow; ", "  int32_t priority; ")]
    swapped.append(("int32_t first; ", "int32_t overflow; "))
    assert_stopped(after(*swapped), "'int32_t priority' offset")


def test_member_may_not_be_renamed(after):
    assert_stopped(after(("int32_t priority;", "int32_t urgency;")), "urgency")


def test_function_may_not_go(after):
    gone = (VERSION, VERSION.removeprefix("COW_MLX_API "))
    assert_stopped(after(gone), "1 Removed function")


def test_function_may_not_change(after):
    changed = NAME.replace("cow_mlx_status status", "int64_t status")
    assert_stopped(after((NAME, changed)), "parameter 1")


IS_END = "cow_mlx_model_is_end(cow_mlx_model model, int32_t token, bool* out)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Of the same size: libabigail takes the name of a type for harmless.
        (IS_END, "cow_mlx_model_is_end(int32_t token, cow_mlx_model model, bool* out)"),
        (IS_END, IS_END.replace("cow_mlx_model model", "cow_mlx_context model")),
    ],
    ids=["swapped", "of another type"],
)
def test_arguments_keep_their_meaning(after, old, new):
    assert_stopped(after((old, new)), "cow_mlx_model_is_end")


def test_arguments_of_one_type_keep_their_order(after):
    known = "cow_mlx_prompt_fn)(size_t processed, size_t total,"
    swapped = "cow_mlx_prompt_fn)(size_t total, size_t processed,"
    assert_stopped(after((known, swapped)), "another order")


def test_an_argument_may_be_renamed(after):
    new = IS_END.replace("int32_t token", "int32_t id")
    assert_passed(after((IS_END, new)), "other names in cow_mlx_model_is_end")


def test_function_may_come(after):
    declared = (VERSION, f"{VERSION}\nCOW_MLX_API int cow_mlx_more(void);")
    assert_passed(after(declared), "cow_mlx_more")


@pytest.mark.parametrize(
    "new", ["FINISH_TIMEOUT = 7 ", "FINISH_EXPIRED = 6 "], ids=["value", "name"]
)
def test_constant_may_not_change(after, new):
    assert_stopped(after(("FINISH_TIMEOUT = 6 ", new)), "COW_MLX_FINISH_TIMEOUT was 6")


def test_macro_may_not_change(after):
    done = after(("COW_MLX_NUL SIZE_MAX", "COW_MLX_NUL (SIZE_MAX - 1)"))
    assert_stopped(done, "COW_MLX_NUL was SIZE_MAX and is (SIZE_MAX - 1)")


def test_status_may_come(after):
    old = "  X(EFORK, "
    assert_passed(after((old, f'  X(EMORE, -15, "more") \\\n{old}')), "COW_MLX_EMORE")


def test_another_soname_is_stopped(after):
    assert_stopped(after(options=("-Wl,-soname,libcowmlx.so.2",)), "libcowmlx.so.2")


def test_library_without_debug_information_is_named(after):
    done = after(options=("-g0",))
    assert done.returncode == 1
    assert "build it with -g" in done.stderr


def test_missing_tool_is_said(tmp_path):
    (tmp_path / "cc").symlink_to(require("cc"))
    done = guard(LIBRARY, env={"PATH": str(tmp_path)})
    assert done.returncode == 0
    assert "NOT CHECKED, abidw is missing" in done.stdout


def test_record_holds_no_path_of_this_machine():
    text = (ROOT / "tools/abi/recorded/libcowmlx.1.abi").read_text()
    paths = set(re.findall(r"path='([^']*)'", text))
    assert all(not Path(path).is_absolute() for path in paths), paths
    assert str(ROOT) not in text
