"""What ``bundle --swift`` adds to a bundle."""

from __future__ import annotations

import re

import pytest
from support.compiler import run
from support.paths import ROOT

from cowmlx.commands.bundle import BundleError, swift

pytestmark = pytest.mark.xdist_group("bundle")


def test_package_names_folders_that_are_there(small):
    text = swift.package(small)
    resources = re.findall(r'\.copy\("([^"]+)"\)', text)
    assert set(resources) == {"lib", "python", "licences", "MANIFEST.json"}
    assert all((small / name).exists() for name in resources)
    excluded = re.search(r"exclude: \[(.*)\]", text)[1]
    assert set(re.findall('"([^"]+)"', excluded)) == {
        "include",
        *(f"Sources/{name}" for name in swift.targets()),
    }


def test_sources_are_those_of_the_package():
    places = [place for _, place in swift.sources()]
    assert "CowMLXLinked" not in swift.targets()
    names = run(["git", "ls-files", "bindings/swift/Sources"], cwd=ROOT).stdout.split()
    known = {name.removeprefix("bindings/swift/") for name in names if "CowMLXLinked" not in name}
    assert known <= {str(place) for place in places}


def test_a_tree_without_sources_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(swift, "SOURCES", tmp_path / "none")
    with pytest.raises(BundleError, match="--swift needs a source tree"):
        swift.targets()
