"""Runs programs and the same functions of plain mlx: programs.py.

Answers each line "SIDE WHAT NODES RUNS" with the seconds of a run, and those of processor time.
SIDE is "program" or "plain", WHAT "value" or "gradient".
"""

import json
import sys
import time
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import benchmarks.hosts.bare  # noqa: F401, I001 - the engine's BLAS, before mlx

import mlx.core as mx

from cowmlx.programs.program import Program

UNARY = ("sin", "tanh", "exp", "sigmoid", "square", "abs")
OPERATIONS = ("sin", "add", "tanh", "multiply", "exp", "subtract", "sigmoid", "maximum", "square")

mx.set_default_device(mx.cpu)
mx.disable_compile()
x = mx.random.normal((4, 16), key=mx.random.key(0))
mx.eval(x)


@cache
def plain(what, nodes):
    """The function in plain mlx; the last operation keeps its numbers small."""

    def function(x):
        value = x
        for at in range(nodes):
            operation = getattr(mx, OPERATIONS[at % len(OPERATIONS)])
            value = operation(value) if operation.__name__ in UNARY else operation(value, x)
        return value

    chosen = function if what == "value" else mx.grad(lambda x: function(x).sum())
    return lambda: mx.eval(chosen(x))


@cache
def program(what, nodes):
    """The same as a program."""
    listed, last = [], "x"
    for at in range(nodes):
        op = OPERATIONS[at % len(OPERATIONS)]
        inputs = [last] if op in UNARY else [last, "x"]
        last = f"v{at}"
        listed.append({"name": last, "op": op, "inputs": inputs})
    listed.append({"name": "sum", "op": "sum", "inputs": [last]})
    made = Program.parse(
        json.dumps(
            {
                "inputs": [{"name": "x", "dtype": "float32", "shape": ["rows", 16]}],
                "nodes": listed,
                "outputs": [last if what == "value" else "sum"],
            }
        )
    )
    if what == "gradient":
        spec = {"gradient": {"of": "sum", "with_respect_to": ["x"]}}
        made = made.derive(json.dumps(spec))
    return lambda: made.run([x]).finish()


print("ready", flush=True)
for line in sys.stdin:
    side, what, nodes, runs = line.split()
    function = {"program": program, "plain": plain}[side](what, int(nodes))
    function()
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(int(runs)):
        function()
    wall = (time.perf_counter() - begun) / int(runs)
    print(wall, (time.process_time() - cpu) / int(runs), flush=True)
