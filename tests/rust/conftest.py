"""Cargo, and the crates of bindings/rust."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable

import pytest
from support.compiler import require, run
from support.paths import CALF, LIBRARY, ROOT

WORKSPACE = ROOT / "bindings/rust"
TARGET = ROOT / "build/rust"

Cargo = Callable[..., subprocess.CompletedProcess[str]]


def pytest_configure(config: pytest.Config) -> None:
    """The mark exists without pytest-xdist too."""
    config.addinivalue_line("markers", "xdist_group(name): tests that one worker runs")


def version_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


@pytest.fixture(scope="session")
def cargo() -> Cargo:
    """Runs cargo on the workspace; skips the test where it or the crates cannot be had."""
    program = require("cargo")
    needed = re.search(r'rust-version = "(.+)"', (WORKSPACE / "Cargo.toml").read_text())[1]
    found = run([program, "--version"]).stdout.split()[1]
    if version_of(found) < version_of(needed):
        pytest.skip(f"cargo {found} is older than the crates' rust-version, {needed}")

    def cargo(command: str, *arguments: object, env=None, **options):
        environment = {
            **os.environ,
            "CARGO_TARGET_DIR": str(TARGET),
            "CARGO_INCREMENTAL": "0",
            "COWMLX_LIB_DIR": str(LIBRARY.parent),
            "COWMLX_TEST_MODEL": str(CALF),
            "RUST_BACKTRACE": "0",
            "RUSTDOCFLAGS": "-D warnings",
            **(env or {}),
        }
        environment = {name: value for name, value in environment.items() if value is not None}
        words = [program, command, *arguments]
        return run(words, env=environment, cwd=WORKSPACE, **{"timeout": 900, **options})

    fetched = cargo("fetch", "--locked", "--quiet")
    if fetched.returncode and cargo("fetch", "--locked", "--quiet", "--offline").returncode:
        pytest.skip(f"cargo cannot fetch the crates: {fetched.stderr.strip().splitlines()[0]}")
    return cargo


@pytest.fixture(scope="session")
def component(cargo: Cargo) -> Callable[[str], None]:
    """Skips the test unless cargo has a component."""

    def component(name: str) -> None:
        if cargo(name, "--version").returncode:
            pytest.skip(f"cargo-{name} is not installed")

    return component
