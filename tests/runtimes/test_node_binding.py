"""What is tried in Node alone: its process ends at any time, and each operation has a function."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.compiler import run
from support.paths import ROOT

from cowmlx.programs.operations import ROWS
from cowmlx.programs.operations.row import Operation

pytestmark = pytest.mark.xdist_group("runtimes")


@pytest.mark.parametrize(
    ("where", "status"), [("callback", 3), ("loop", 3), ("exception", 1), ("thread", 3)]
)
def test_the_process_ends_while_a_call_runs(node_folder, arguments, where, status):
    """Or a worker thread alone; those that listen for the end hear of it."""
    host = node_folder / "leaving.mjs"
    host.write_text((ROOT / "tests/runtimes/hosts" / host.name).read_text())
    done = run(["node", host, *arguments[:2], where], cwd=node_folder, timeout=60)
    assert (done.returncode, done.stdout) == (status, "left\n")
    assert ("Error: thrown" in done.stderr) == (where == "exception")


def test_contexts_that_no_one_closes_are_freed(node_folder, arguments):
    """One after the other, on another thread; the error of a cancel is not another call's."""
    host = node_folder / "collected.mjs"
    host.write_text((ROOT / "tests/runtimes/hosts" / host.name).read_text())
    done = run(["node", "--expose-gc", host, *arguments[:2]], cwd=node_folder, timeout=120)
    said = "20\n0\nContext.cancel: the context is closed\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


@pytest.mark.long
def test_more_callbacks_wait_than_koffi_has_room_for(node_folder, arguments):
    host = node_folder / "crowd.mjs"
    host.write_text((ROOT / "tests/runtimes/hosts" / host.name).read_text())
    done = run(["node", host, *arguments[:2], "300"], cwd=node_folder, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "AbortError\n1500\n", "")


def test_every_operation_has_its_function(node_folder):
    """What it adds to a program is what the table's example says."""
    host = node_folder / "operations.mjs"
    host.write_text((ROOT / "tests/runtimes/hosts" / host.name).read_text())
    asked = [asked_of(row) for row in ROWS]
    done = run(["node", host], cwd=node_folder, input=json.dumps(asked))
    assert done.returncode == 0, done.stderr
    for row, node in zip(asked, json.loads(done.stdout), strict=True):
        names = [each and f"x{at}" for at, each in enumerate(row["inputs"])]
        assert node["op"] == row["name"]
        assert node["inputs"] == names, row["name"]
        assert node["attributes"] == (row["attributes"] or {}), row["name"]
        assert len(node["outputs"]) == row["count"], row["name"]


def asked_of(row: Operation) -> dict[str, Any]:
    """The host's view of an operation: its example's inputs, by their dtypes."""
    example = row.examples[0]
    places = max(
        len(example.inputs), 0 if row.inputs and row.inputs[0].variadic else len(row.inputs)
    )
    inputs = [each and each.partition("[")[0] for each in example.inputs]
    return {
        "name": row.name,
        "inputs": inputs + [None] * (places - len(inputs)),
        "attributes": example.attributes if row.attributes else None,
        "results": 2 if row.outputs_vary else 0,
        "variadic": bool(row.inputs) and row.inputs[0].variadic,
        "count": 2 if row.outputs_vary else len(row.outputs),
    }
