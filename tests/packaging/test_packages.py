"""``make packages`` where tools are missing: what lacks one is named, and the rest is made."""

from __future__ import annotations

import os
import sys

import pytest
from support.compiler import run
from support.paths import ROOT

from cowmlx.generated.constants import VERSION
from tools.packaging import deb, npm

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


def needs(library: str, gcc: str = "3.4.34") -> dict[str, object]:
    """The entry of a system's library in a bundle's manifest."""
    return {"libraries": ["libc.so.6", library], "versions": {"GLIBC": "2.35", "GLIBCXX": gcc}}


def test_debian_s_packages_of_what_a_bundle_needs_of_the_system():
    assert deb.dependencies(needs("libz.so.1")) == "libc6 (>= 2.35), zlib1g"
    assert deb.dependencies(needs("libstdc++.so.6")) == "libc6 (>= 2.35), libstdc++6 (>= 15)"


@pytest.mark.parametrize("library", ["libodd.so.1", "libstdc++.so.6"])
def test_what_no_known_package_of_debian_s_has_is_named(library):
    with pytest.raises(SystemExit, match=r"libodd\.so\.1|GLIBCXX_3\.5\.0"):
        deb.dependencies(needs(library, gcc="3.5.0"))


def test_npm_makes_nothing_that_it_would_install_nowhere(monkeypatch, tmp_path):
    monkeypatch.setattr(npm.sys, "platform", "linux")
    monkeypatch.setattr(npm.platform, "machine", lambda: "aarch64")
    with pytest.raises(SystemExit, match="linux-x64, and this is linux-arm64"):
        next(npm.packages(tmp_path, tmp_path))
