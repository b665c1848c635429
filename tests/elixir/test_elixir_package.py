"""The Elixir package is formatted, compiles without warnings, and passes its own tests."""

from __future__ import annotations

import re

import pytest
from support.elixir import PACKAGE

pytestmark = pytest.mark.xdist_group("elixir")


def mix(elixir, *arguments: object, **options) -> str:
    """What mix prints; fails with it unless mix succeeds."""
    done = elixir.run("mix", *arguments, **options)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-6000:]
    return output


def test_sources_are_formatted(elixir):
    mix(elixir, "format", "--check-formatted")


def test_the_package_passes_its_tests(elixir):
    """It is compiled first, with warnings as errors."""
    output = mix(elixir, "test", "--warnings-as-errors", env={"MIX_ENV": "test"})
    passed = re.search(r"(\d+) tests?, 0 failures(?!, [1-9]\d* invalid)", output)
    assert passed and int(passed[1]) > 60, output[-6000:]
    assert "warning:" not in output, output[:6000]


def test_every_module_and_function_is_documented(elixir):
    """Modules that are not for users say so."""
    script = (PACKAGE / "test/documented.exs").relative_to(PACKAGE)
    assert mix(elixir, "run", "--no-start", script, env={"MIX_ENV": "test"}).strip() == "documented"
