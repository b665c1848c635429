"""What is Node's alone: its process ends whatever calls are under way."""

from __future__ import annotations

import pytest
from support.compiler import run
from support.paths import ROOT

pytestmark = pytest.mark.xdist_group("runtimes")


@pytest.mark.parametrize(("where", "status"), [("callback", 3), ("loop", 3), ("exception", 1)])
def test_the_process_ends_while_a_call_runs(node_folder, arguments, where, status):
    host = node_folder / "leaving.mjs"
    host.write_text((ROOT / "tests/runtimes/hosts" / host.name).read_text())
    done = run(["node", host, *arguments[:2], where], cwd=node_folder, timeout=60)
    assert (done.returncode, done.stdout) == (status, "")
    assert ("Error: thrown" in done.stderr) == (where == "exception")
