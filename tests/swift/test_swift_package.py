"""The Swift package is formatted, builds without warnings, and passes its own tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.swift import PACKAGE

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


def test_the_package_builds_without_warnings(swift):
    done = swift.package("build", "--build-tests")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    assert "warning:" not in output, output[:4000]


def test_the_package_passes_its_tests(swift):
    assert count_passed(swift.package("test", "--disable-xctest")) > 80


def test_starts_and_stops(swift):
    alone = {"COWMLX_TEST_LIFECYCLE": "1"}
    options = ["--disable-xctest", "--filter", "LifecycleTests"]
    assert count_passed(swift.package("test", *options, env=alone)) >= 10


@pytest.mark.long  # each needs another build
@pytest.mark.parametrize("sanitizer", sorted(ENVIRONMENTS))
def test_a_sanitizer_has_nothing_to_say(swift, sanitizer):
    options = ["--disable-xctest", f"--sanitize={sanitizer}"]
    options += ["--filter", "TaskTests|ChatTests|GenerationTests"]
    done = swift.package("test", *options, env=ENVIRONMENTS[sanitizer], scratch=sanitizer)
    assert count_passed(done) > 20
    assert "Sanitizer" not in done.stdout + done.stderr
