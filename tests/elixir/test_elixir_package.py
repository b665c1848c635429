"""The Elixir package is formatted, compiles without warnings, and passes its own tests."""

from __future__ import annotations

import re

import pytest
from support.elixir import PACKAGE, SCRATCH

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


def test_a_load_that_no_thread_waits_for_is_logged(elixir):
    """A scheduler of the node takes its result, and the message with it."""
    script = """
    CowMLX.Runtime.start!(device: "cpu", log: self())
    CowMLX.Model.load!(System.fetch_env!("COWMLX_TEST_MODEL"))
    receive do
      {:cow_mlx_log, _, "model loaded: " <> _} -> IO.puts("logged")
    after
      60_000 -> IO.puts("not logged")
    end
    """
    output = mix(elixir, "run", "--no-start", "-e", script, env={"MIX_ENV": "test"})
    assert output.splitlines()[-1:] == ["logged"], output


@pytest.mark.long
def test_the_package_bears_load(elixir):
    """Thousands of processes, and what kills them."""
    output = mix(elixir, "test", "--only", "long", env={"MIX_ENV": "test"})
    passed = re.search(r"(\d+) doctests, (\d+) tests, 0 failures, (\d+) ex", output)
    assert passed, output[-6000:]
    doctests, tests, excluded = map(int, passed.groups())
    assert doctests + tests - excluded >= 4, output[-6000:]


@pytest.mark.long
def test_dialyzer_finds_nothing(elixir, tmp_path):
    mix(elixir, "compile", env={"MIX_ENV": "test"})
    beams = SCRATCH / "test/lib/cowmlx/ebin"
    done = elixir.run("elixir", "-pa", beams, "test/dialyzed.exs", beams, tmp_path / "plt")
    if done.stdout.startswith("dialyzer is not there"):
        pytest.skip(done.stdout.strip())
    assert (done.stdout, done.returncode) == ("clean\n", 0), done.stdout + done.stderr


def test_every_module_and_function_is_documented(elixir):
    """Functions have types, too. Modules that are not for users say so."""
    script = (PACKAGE / "test/documented.exs").relative_to(PACKAGE)
    assert mix(elixir, "run", "--no-start", script, env={"MIX_ENV": "test"}).strip() == "documented"
