"""The kernels compiled for other systems, without a word of the compiler."""

from __future__ import annotations

import importlib.util
import shlex

import pytest
from cross import ARM_OPTIONS, LINUX_ARM, MACS, Cross
from support.compiler import run
from support.paths import ROOT

from tools.packaging import kernels, targets

pytestmark = [pytest.mark.xdist_group("kernels-elsewhere"), pytest.mark.long]

# Those that say something of the system or of the processor; the others only of mlx.
PARTS = {"pool", "select", "module"}
MACHINES = {MACS[0]: "arm64", LINUX_ARM: "aarch64"}


@pytest.mark.parametrize("triple", MACHINES)
def test_kernels_compile(triple, tmp_path, monkeypatch):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: requirements/tools.txt brings it")
    cross = Cross(triple, targets.headers_of_python(tmp_path), tmp_path)
    monkeypatch.chdir(ROOT)
    compiler = shlex.join(targets.zig_command(triple, "c++"))
    build = kernels.Build(
        cross.target, compiler, tmp_path / "made", MACHINES[triple], str(cross.headers)
    )
    found = {one.source.stem: one for one in build.objects()}
    sets = {name for name in found if name.startswith("isa_")}
    assert sets == {"isa_portable", "isa_neon", "isa_i8mm"}
    for name in sorted(sets | PARTS):
        command = found[name].command(compiler.split())
        own = name.removeprefix("isa_")
        if own in ARM_OPTIONS:
            command[command.index(kernels.ARM[own][0])] = ARM_OPTIONS[own][0]
        done = run(command, env=targets.zig_environment(), timeout=600)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), name
