"""Nx's own tests, with the package's backend and compiler.

COWMLX_NX names a folder with checkouts of Nx, complex and telemetry, side by side. Nothing of them
is in the tree.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from support.elixir import SCRATCH

pytestmark = [pytest.mark.xdist_group("elixir"), pytest.mark.long]
BUILT = SCRATCH / "nx"
NAMES = ("telemetry", "complex", "nx")
# Shares of Nx's tests that pass. docs/getting-started/elixir.md names those that do not.
BACKEND = ["nx_test", "nx/lin_alg_test", "nx/vectorize_test", "nx/non_finite_test"]
BACKEND += ["nx/complex_test", "nx/tensor_test"]
OTHERS = ["random", "serving", "container", "type", "batch", "heatmap", "lazy_container"]
OTHERS += ["optional", "floating", "testing", "shape"]


@pytest.fixture(scope="module")
def nx(elixir) -> Path:
    """The folder of Nx; it is compiled into ``BUILT``."""
    if not (named := os.environ.get("COWMLX_NX")):
        pytest.skip("COWMLX_NX names no folder with nx, complex and telemetry")
    folder = Path(named).resolve()
    # The Nx of the repository of that name lies in its folder nx.
    places = {name: folder / name for name in NAMES}
    if (inner := places["nx"] / "nx").is_dir():
        places["nx"] = inner
    shutil.rmtree(BUILT, ignore_errors=True)
    for name in NAMES:
        compile_library(elixir, name, places[name])
    return places["nx"]


def compile_library(elixir, name: str, source: Path) -> None:
    """Compile a library without mix, which would ask for its dependencies."""
    output = BUILT / "lib" / name / "ebin"
    output.mkdir(parents=True)
    is_erlang = name == "telemetry"
    files = sorted(source.glob("src/*.erl" if is_erlang else "lib/**/*.ex"))
    files = [file for file in files if "mix" not in file.relative_to(source).parts]
    command = ["erlc" if is_erlang else "elixirc", "-o", output, *files]
    done = elixir.run(*command, env={"ERL_LIBS": str(BUILT / "lib")}, cwd=source)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    application = APPLICATIONS[name]
    if is_erlang:
        application = (source / "src/telemetry.app.src").read_text()
    (output / f"{name}.app").write_text(application)


NEEDS = '{registered, []}, {vsn, "0.0.0"}, {modules, []}'
APPLICATIONS = {
    "telemetry": "",
    "complex": f"{{application, complex, [{NEEDS}, {{applications, [kernel, stdlib, elixir]}}]}}.",
    "nx": f"{{application, nx, [{NEEDS}, {{mod, {{'Elixir.Nx.Application', []}}}},"
    " {env, [{default_backend, {'Elixir.Nx.BinaryBackend', []}}, {default_defn_options, []}]},"
    " {applications, [kernel, stdlib, elixir, logger, complex, telemetry]}]}.",
}


def environment() -> dict[str, str]:
    """The variables by which mix finds Nx."""
    return {
        "ERL_LIBS": str(BUILT / "lib"),
        "MIX_ENV": "test",
        "MIX_BUILD_ROOT": str(BUILT),
    }


def share(elixir, nx: Path, way: str, files: list[str]) -> float:
    """The share of Nx's tests that pass."""
    arguments = [
        "mix",
        "run",
        "test/nx_suite.exs",
        nx,
        way,
        *(f"test/{name}.exs" for name in files),
    ]
    done = elixir.run(*arguments, env=environment())
    counted = re.search(rf"{way}: (\d+) of (\d+)", done.stdout)
    assert counted, (done.stdout + done.stderr)[-4000:]
    return int(counted[1]) / int(counted[2])


def test_the_package_compiles_with_nx_and_passes_its_tests(elixir, nx):
    arguments = ["mix", "test", "--warnings-as-errors", "test/nx_test.exs"]
    done = elixir.run(*arguments, env=environment())
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert re.search(r"[1-9]\d* tests, 0 failures", done.stdout)


def test_nx_passes_its_tests_with_the_backend(elixir, nx):
    assert share(elixir, nx, "backend", BACKEND) >= 0.95


def test_nx_passes_its_other_tests_with_the_backend(elixir, nx):
    assert share(elixir, nx, "backend", [f"nx/{name}_test" for name in OTHERS]) >= 0.95


def test_nx_passes_its_tests_of_defn_with_the_compiler(elixir, nx):
    assert share(elixir, nx, "compiler", ["nx/defn/grad_test", "nx/defn_test"]) >= 0.95
