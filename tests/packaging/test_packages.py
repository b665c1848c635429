"""``make packages`` where tools are missing: what lacks one is named, and the rest is made."""

from __future__ import annotations

import os
import sys

from support.compiler import run
from support.paths import ROOT

from cowmlx.generated.constants import VERSION

# All but the wheel, which needs nothing but Python, and time.
MAKE = (
    "from tools.packaging import packages as p; p.KINDS.remove('wheel'); raise SystemExit(p.main())"
)


def test_what_lacks_a_tool_is_named_and_the_rest_is_made(tmp_path):
    (tmp_path / "bin").mkdir()
    env = {**os.environ, "PATH": str(tmp_path / "bin"), "PYTHONPATH": str(ROOT)}
    done = run([sys.executable, "-c", MAKE, "packages", tmp_path / "dist"], cwd=ROOT, env=env)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "crates: not made\ncargo is not installed" in done.stderr
    assert "java: not made\nmvn is not installed" in done.stderr
    assert "deb: not made" in done.stderr and "dpkg-deb" in done.stderr
    assert "npm: not made" in done.stderr
    made = [path.name for path in (tmp_path / "dist").rglob("*") if path.is_file()]
    assert sorted(made) == ["list", f"v{VERSION}.info", f"v{VERSION}.mod", f"v{VERSION}.zip"]
