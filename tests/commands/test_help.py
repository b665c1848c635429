"""``--help`` of every command: each option says what it is for, and its default."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import pytest
from support.compiler import run
from support.paths import ROOT

from cowmlx.__main__ import make_parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


PARSERS = {parser.prog: parser for parser in parsers(make_parser())}


@pytest.mark.parametrize("name", PARSERS)
def test_every_command_and_option_is_described(name):
    parser = PARSERS[name]
    assert parser.description and "``" not in parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        assert action.help and len(action.help) > 5, (name, action.dest)
        if action.option_strings and not action.required:
            assert "default: " in action.help, (name, action.dest)


@pytest.mark.parametrize("name", PARSERS)
def test_commands_are_listed_with_what_they_do(name):
    for action in PARSERS[name]._actions:
        if isinstance(action, argparse._SubParsersAction):
            listed = {choice.dest: choice.help for choice in action._choices_actions}
            assert listed.keys() == action.choices.keys()
            assert all(listed.values())


@pytest.mark.parametrize("name", PARSERS)
def test_defaults_are_those_that_hold(name):
    """Where a parser has its own default, the text has the same."""
    for action in PARSERS[name]._actions:
        if isinstance(action.default, int | float) and not isinstance(action.default, bool):
            assert f"default: {action.default:g}" in action.help, (name, action.dest)


def test_a_mistyped_command_gets_the_nearest_one():
    done = run([sys.executable, "-m", "cowmlx", "modles"], cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.endswith("there is no command modles; did you mean models?\n")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--jsn"], "unrecognized arguments: --jsn; did you mean --json?\n"),
        (["--quiet"], "unrecognized arguments: --quiet\n"),
    ],
)
def test_an_unknown_option_is_refused_with_the_usage_of_its_command(given, told):
    done = run([sys.executable, "-m", "cowmlx", "models", *given], cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m cowmlx models ")
    assert done.stderr.endswith(told)
