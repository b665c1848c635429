"""The Rust crates are formatted, free of warnings, and pass their own tests."""

from __future__ import annotations

import re

import pytest
from support.paths import ROOT

pytestmark = pytest.mark.xdist_group("cargo")

LINKED, LOADED = "stream,serde", "stream,dlopen"


def test_crates_are_formatted(cargo, component):
    component("fmt")
    done = cargo("fmt", "--check")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("features", [pytest.param(LINKED, marks=pytest.mark.long), LOADED])
def test_crates_pass_their_tests(cargo, features):
    done = cargo("test", "--locked", "--quiet", "--workspace", "--features", features)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(map(int, re.findall(r"(\d+) passed", done.stdout))) > 80


@pytest.mark.long
@pytest.mark.parametrize("features", ["", LINKED, LOADED])
def test_clippy_has_nothing_to_say(cargo, component, features):
    component("clippy")
    options = ["--locked", "--quiet", "--workspace", "--all-targets", "--features", features]
    done = cargo("clippy", *options, "--", "-D", "warnings")
    assert (done.returncode, done.stderr) == (0, "")


def test_everything_public_is_documented(cargo):
    options = ["--locked", "--quiet", "--workspace", "--no-deps", "--features", LINKED]
    done = cargo("doc", *options)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lock_file_names_the_public_index_alone():
    sources = re.findall(r"^source = (.*)$", (ROOT / "bindings/rust/Cargo.lock").read_text(), re.M)
    assert set(sources) == {'"registry+https://github.com/rust-lang/crates.io-index"'}
