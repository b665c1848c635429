"""Starts, stops and the ends of processes."""

from __future__ import annotations

import signal
import sys

import pytest
from support.compiler import run
from support.hosts import HOSTS
from support.paths import ROOT


@pytest.fixture
def run_forking_host(environment):
    """Runs a host in Python that forks; fails unless it ends well and without a word on stderr."""

    def run_it(name: str, *arguments: object) -> str:
        env = {**environment, "PYTHONPATH": str(ROOT / "tests")}
        # Python 3.12 and later warn of the fork of any process that has threads.
        options = ["-W", "ignore:This process:DeprecationWarning"]
        done = run([sys.executable, *options, HOSTS / name, *arguments], env=env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run_it


def test_starts_and_stops(run_host, expected):
    assert run_host("lifecycle.c") == expected * 2


def test_ten_threads_make_the_first_start(run_host):
    run_host("race.c")


def test_threads_start_and_stop_all_the_time(run_host):
    run_host("storm.c")


def test_log(run_host):
    run_host("logged.c")


@pytest.mark.parametrize("turn", range(20))
def test_exit_without_stop_while_generating(run_host, turn):
    run_host("leave.c")


def test_interrupt_ends_the_host_as_before(host, model, environment):
    done = run([host("interrupted.c"), model, "default"], env=environment)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_own_interrupt_handler_is_kept(run_host):
    run_host("interrupted.c", "handler")


def test_fork_while_generating(run_host, expected):
    assert run_host("forked.c") == expected


def test_children_forked_while_eight_contexts_generate_exit(run_host):
    run_host("forked_exit.c")


def test_children_of_a_python_host_exit(run_forking_host, model):
    stdout = run_forking_host("forked_exit.py", model)
    assert stdout.split() == [str(turn) for turn in range(50)]


def test_children_keep_arrays_unless_the_runtime_has_stopped(run_forking_host):
    kept, freed = [False] * 3, [True] * 3
    stdout = run_forking_host("forked_arrays.py")
    assert stdout.splitlines() == [f"running: {kept}", f"stopped: {freed}"]


def test_every_function_knows_when_it_cannot_be_called(run_forking_host):
    assert run_forking_host("states.py") == "refused everywhere\n"


def test_a_log_function_may_call_the_library(run_host):
    run_host("reentrant_log.c")


def test_threads_that_are_cancelled_inside_calls(run_host, expected):
    assert run_host("cancelled_threads.c") == expected


def test_cancels_from_a_signal_handler(run_host, expected):
    assert run_host("signalled.c") == expected
