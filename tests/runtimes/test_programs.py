"""Programs in other runtimes: nested functions, runs that are cancelled beside others, batches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.outside import command
from support.paths import LIBRARY, ROOT

pytestmark = pytest.mark.xdist_group("runtimes")


@pytest.fixture(scope="module")
def of_node(node_folder) -> dict[str, Any]:
    host = node_folder / "programs.mjs"
    host.write_text((ROOT / "tests/runtimes/hosts" / host.name).read_text())
    done = command("node", host, LIBRARY, cwd=node_folder)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_functions_of_node_nest(of_node):
    assert of_node["nested"] == 9


def test_a_signal_of_node_cancels_one_run(of_node):
    assert of_node["beside"] == [6001, "AbortError"]
    assert of_node["alone"] == [None, "AbortError"]


def test_a_batch_that_node_refuses_stays_the_host_s(of_node):
    assert of_node["twice"] == ["conflict", 1]
    assert of_node["closed"] == ["unknown_handle", 1]


def test_lists_of_node_that_share_a_count_have_one_length(of_node):
    assert of_node["lists"] == ["conflict", "conflict", "null_argument"]


def test_the_end_of_a_context_of_go_cancels_one_run(go_programs):
    done = command(go_programs / "programs", LIBRARY, cwd=go_programs)
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "beside": [10000, True],
        "alone": [None, True],
        "others": 10000,
    }
