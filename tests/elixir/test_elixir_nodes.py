"""Nodes that end in the middle of work, several of them on one machine, and the example."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.elixir import SCRATCH
from support.paths import ROOT

pytestmark = pytest.mark.xdist_group("elixir")
ENVIRONMENT = {"MIX_ENV": "test"}

TRAINING = """
CowMLX.start!(device: "cpu")
alias CowMLX.{Op, Program, Training}
x = Program.input("x", :float32, ["rows"])
w = Program.parameter("w", :float32, [], init: "zeros")
program = Program.build!(loss: Op.mean(Op.square(Op.subtract(x, w))))
stop = fn event -> if event.step == 20, do: %s end
Training.fit(program, %%{x: [1, 2]}, steps: 1_000_000_000, callbacks: [stop])
"""

GENERATING = """
CowMLX.start!(device: "cpu")
model = CowMLX.Model.load!(System.fetch_env!("COWMLX_TEST_MODEL"))
for _ <- 1..8 do
  spawn(fn -> CowMLX.Context.complete(CowMLX.Context.create!(model), "Once", max_tokens: 400) end)
end
context = CowMLX.Context.create!(model)
messages = [%{role: "user", content: "What is 3 + 4?"}]
IO.puts(CowMLX.Chat.answer!(context, messages).text)
System.halt(5)
"""


@pytest.fixture(scope="module")
def compiled(elixir):
    """Runs Elixir without mix, which would let nodes wait for each other: runs a script."""
    done = elixir.run("mix", "compile", env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    start = "{:ok, _} = Application.ensure_all_started(:cowmlx)"
    code = SCRATCH / "test/lib/cowmlx/ebin"
    return lambda script: elixir.run("elixir", "-pa", code, "-e", start, "-e", script)


# It returns at once, and ends applications in order.
STOP = "(System.stop(7); Process.sleep(:infinity))"


@pytest.mark.long
@pytest.mark.parametrize("stop", ["System.halt(7)", STOP])
def test_a_node_stops_while_it_trains(compiled, stop):
    done = compiled(TRAINING % stop)
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.long  # each starts a Python
def test_two_nodes_of_a_machine_stop_while_they_generate(compiled):
    with ThreadPoolExecutor() as pool:
        ends = list(pool.map(compiled, [GENERATING] * 2))
    assert [(done.returncode, done.stderr) for done in ends] == [(5, "")] * 2
    assert all(done.stdout == "3 + 4 = 7.\n" for done in ends)


@pytest.mark.long
def test_the_example_learns_digits(elixir):
    done = elixir.run("mix", "run", ROOT / "examples/elixir/digits.exs", env=ENVIRONMENT)
    accuracy = re.search(r"^accuracy ([\d.]+) %$", done.stdout, re.M)
    assert accuracy, done.stdout[-2000:] + done.stderr[-2000:]
    assert float(accuracy[1]) > 97
