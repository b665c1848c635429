"""The Swift package is formatted, builds without warnings, and passes its own tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.swift import PACKAGE, SCRATCH

pytestmark = pytest.mark.xdist_group("swift")

# Python and mlx keep what they have allocated until the process ends. What this package leaks shows
# in the handles and descriptors that the tests count.
SUPPRESSIONS = Path(__file__).parent / "thread_sanitizer.txt"
ENVIRONMENTS = {
    "thread": {"TSAN_OPTIONS": f"suppressions={SUPPRESSIONS}:print_suppressions=0"},
    "address": {"ASAN_OPTIONS": "detect_leaks=0"},
}


def count_passed(done) -> int:
    """The number of tests that have passed; fails with what was reported if one has not."""
    output = done.stdout + done.stderr
    marks = "✘|error:|warning:|ERROR|Sanitizer"
    reported = [line for line in output.splitlines() if re.search(marks, line)]
    passed = re.search(r"Test run with (\d+) tests? passed", output)
    assert done.returncode == 0 and passed, "\n".join(reported[:40]) or output[-4000:]
    return int(passed[1])


@pytest.mark.long
def test_sources_are_formatted(swift):
    files = sorted((PACKAGE / "Sources").rglob("*.swift")) + sorted(PACKAGE.glob("Tests/*/*.swift"))
    written = [path for path in files if path.parent.name != "Generated"]
    done = swift.run("swift", "format", "lint", "--strict", *written)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.fixture(scope="module")
def built(swift) -> str:
    """What the build of the package and its tests has told; the other tests use it."""
    done = swift.package("build", "--build-tests")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    return output


def test_the_package_builds_without_warnings(built):
    assert "warning:" not in built, built[:4000]


def test_the_package_passes_its_tests(swift, built):
    assert count_passed(swift.package("test", "--skip-build", "--disable-xctest")) > 150


def test_starts_and_stops(swift, built):
    alone = {"COWMLX_TEST_LIFECYCLE": "1"}
    options = ["--skip-build", "--disable-xctest", "--filter", "LifecycleTests"]
    assert count_passed(swift.package("test", *options, env=alone)) >= 10


@pytest.mark.long
def test_docc_pages_are_built(swift, built, tmp_path):
    """Without a link that leads nowhere; parameters whose name says all have no comment."""
    about = json.loads(swift.run("swift", "-print-target-info").stdout)
    tools = Path(about["paths"]["runtimeResourcePath"]).parents[1] / "bin"
    graphs, modules = tmp_path / "graphs", SCRATCH / "debug/debug"
    graphs.mkdir()
    done = swift.run(
        *(tools / "swift-symbolgraph-extract", "-module-name", "CowMLX"),
        *("-target", about["target"]["triple"], "-minimum-access-level", "public"),
        *("-I", modules / "Modules", "-I", PACKAGE / "Sources/CCowMLX/include"),
        *("-Xcc", f"-fmodule-map-file={modules}/CCowMLX.build/module.modulemap"),
        *("-output-dir", graphs),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    done = swift.run(
        *(tools / "docc", "convert", PACKAGE / "Sources/CowMLX/CowMLX.docc"),
        *("--fallback-display-name", "CowMLX", "--fallback-bundle-identifier", "cowmlx"),
        *("--additional-symbol-graph-dir", graphs, "--output-path", tmp_path / "pages"),
    )
    told = re.findall("^(?:warning|error): .*", done.stdout + done.stderr, flags=re.M)
    assert done.returncode == 0, told
    assert [line for line in told if not line.endswith("is missing documentation")] == []
    assert (tmp_path / "pages/data/documentation/cowmlx/context.json").is_file()


@pytest.mark.long  # each needs another build
@pytest.mark.parametrize("sanitizer", sorted(ENVIRONMENTS))
def test_a_sanitizer_has_nothing_to_say(swift, sanitizer):
    options = ["--disable-xctest", f"--sanitize={sanitizer}"]
    environment = {**ENVIRONMENTS[sanitizer], "COWMLX_SANITIZED": "1"}  # fewer tests: Package.swift
    done = swift.package("test", *options, env=environment, scratch=sanitizer)
    assert count_passed(done) > 60
    assert "Sanitizer" not in done.stdout + done.stderr
