"""Deeply nested texts are refused, whatever recursion limit a host's interpreter has."""

from __future__ import annotations

import pytest
from support.compiler import run
from support.hosts import HOSTS
from support.paths import ROOT

EXPECTED = """\
messages EINVAL
messages EINVAL
messages EINVAL
shallow OK
grammar EINVAL
grammar EINVAL
grammar EINVAL
grammar EINVAL
config.json EFORMAT
tokenizer.json EFORMAT
tokenizer_config.json EFORMAT
parentheses EFORMAT
not EFORMAT
sum EFORMAT
attributes EFORMAT
filters EFORMAT
blocks EFORMAT
macro EFORMAT
loop EFORMAT
tojson EFORMAT
string EFORMAT
"""


@pytest.mark.parametrize("limit", [200, 1_000_000])
def test_nesting(python, model, environment, tmp_path, limit):
    env = {**environment, "PYTHONPATH": str(ROOT / "tests")}
    done = run([python, HOSTS / "deep.py", model, limit, tmp_path], env=env)
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr
