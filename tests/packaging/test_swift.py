"""The Swift package: its module map imports the header, and its example runs."""

from __future__ import annotations

import shutil

import pytest
from support.compiler import require, run
from support.paths import INCLUDE, LIBRARY, ROOT
from support.streamed import TEXT, check_streamed

pytestmark = pytest.mark.xdist_group("packaging")
PACKAGE = ROOT / "bindings/swift"


def test_the_module_map_imports_the_header(tmp_path):
    """As clang reads it, by which Swift does."""
    source, program = tmp_path / "host.c", tmp_path / "host"
    source.write_text(
        "#pragma clang module import CCowMLX\n"
        "int main(void) { return cow_mlx_abi_version() != COW_MLX_ABI_VERSION; }\n"
    )
    modules = ["-fmodules", f"-fmodules-cache-path={tmp_path / 'cache'}", f"-I{INCLUDE}"]
    modules += [f"-fmodule-map-file={PACKAGE / 'Sources/CCowMLX/module.modulemap'}"]
    modules += [f"-L{LIBRARY.parent}", "-lcowmlx", f"-Wl,-rpath,{LIBRARY.parent}"]
    done = run([require("clang"), *modules, source, "-o", program])
    assert done.returncode == 0, done.stderr
    assert run([program]).returncode == 0


def test_the_example_streams(installed, model, story, tmp_path):
    swift = require("swift")
    package = shutil.copytree(PACKAGE, tmp_path / "package")
    rpath = ["-Xlinker", "-rpath", "-Xlinker", installed.lib]
    env = {**installed.environment, "PKG_CONFIG_PATH": str(installed.lib / "pkgconfig")}
    done = run([swift, "build", "--package-path", package, *rpath], env=env, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    check_streamed(installed.run([package / ".build/debug/stream", model, TEXT]).stdout, story)
