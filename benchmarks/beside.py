"""A context that generates while another thread's programs are made and run.

One C host; nothing and each kind of work take turns. "tokens/s", "gap" and "longest gap" (ms
between two tokens) beside the same of a context alone; "done/s" is how much of the work was done
meanwhile, "longest turn" the ms that program_info tells. "small" is a run of 76 operations on 64
numbers, "products" four products of 1,024 x 1,024, "loop" 1,000 rounds, "upload" an array of 64
MiB and its sum, "create" a program of 8,000 nodes that is read and checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import endless_calf, random_prompt
from benchmarks.support.peers import Peer, median_ratio
from benchmarks.support.report import Row

MAX_TOKENS = 192
BLOCKS = 5
NUMBERS = {"small": 64, "products": 1 << 20, "loop": 64, "upload": 1 << 24, "create": 1}


def measure(large: bool) -> list[Row]:
    """Measure on calf."""
    name, folder = endless_calf()
    prompt = random_prompt(folder, 32)
    with TemporaryDirectory() as programs:
        for kind, program in _programs().items():
            (Path(programs) / f"{kind}.json").write_text(json.dumps(program))
        with Peer([compile_host("beside"), folder, programs]) as host:

            def ask(kind: str) -> list[float]:
                words = host.ask(kind, MAX_TOKENS, NUMBERS.get(kind, 1), *prompt)
                return [float(word) for word in words]

            return [_row(name, kind, ask) for kind in NUMBERS]


def _row(name: str, kind: str, ask: Any) -> Row:
    alone, beside = [], []
    for _ in range(BLOCKS):
        alone.append(ask("nothing"))
        beside.append(ask(kind))
    (rate, gap, longest, _, _), (rates, gaps, longests, done, turns) = (
        list(zip(*side, strict=True)) for side in (alone, beside)
    )
    return {
        "model": name,
        "beside": kind,
        "tokens/s": median(rates),
        "alone": median(rate),
        "ratio": median_ratio(list(rates), list(rate)),
        "gap": 1e3 * median(gaps),
        "gap, alone": 1e3 * median(gap),
        "longest gap": 1e3 * median(longests),
        "longest gap, alone": 1e3 * median(longest),
        "done/s": median(done),
        "longest turn": 1e3 * max(turns) or None,
        "blocks": {"alone": alone, "beside": beside},
    }


def _programs() -> dict[str, dict[str, Any]]:
    def program(nodes: list[dict[str, Any]], output: str, **more: Any) -> dict[str, Any]:
        inputs = [{"name": "x", "dtype": "float32", "shape": ["n"]}]
        return {"inputs": inputs, "nodes": nodes, "outputs": [output], **more}

    def chain(count: int) -> dict[str, Any]:
        nodes = [
            {"name": f"v{at}", "op": op, "inputs": [f"v{at - 1}" if at else "x"]}
            for at, op in enumerate(("sin", "tanh", "abs", "square") * (count // 4))
        ]
        return program(nodes, nodes[-1]["name"])

    million = {"name": "x", "dtype": "float32", "shape": [1 << 20]}
    square = {"name": "v0", "op": "reshape", "inputs": ["x"], "attributes": {"shape": [1024, -1]}}
    products = [
        {"name": f"v{at + 1}", "op": "matmul", "inputs": [f"v{at}", "v0"]} for at in range(4)
    ]
    state = [
        {"name": "i", "dtype": "int32", "shape": []},
        {"name": "x", "dtype": "float32", "shape": ["n"]},
    ]
    numbers = [
        {"name": "zero", "dtype": "int32", "value": 0},
        {"name": "one", "dtype": "int32", "value": 1},
        {"name": "most", "dtype": "int32", "value": 1000},
    ]
    loop = {
        "outputs": ["j", "y"],
        "op": "while",
        "inputs": ["zero", "x"],
        "attributes": {"condition": "go", "body": "round", "max_iterations": 1000},
    }
    functions = [
        {
            "name": "go",
            "inputs": state,
            "constants": numbers[2:],
            "nodes": [{"name": "p", "op": "less", "inputs": ["i", "most"]}],
            "outputs": ["p"],
        },
        {
            "name": "round",
            "inputs": state,
            "constants": numbers[1:2],
            "nodes": [
                {"name": "k", "op": "add", "inputs": ["i", "one"]},
                {"name": "z", "op": "sin", "inputs": ["x"]},
            ],
            "outputs": ["k", "z"],
        },
    ]
    return {
        "small": chain(76),
        "products": program([square, *products], "v4") | {"inputs": [million]},
        "loop": program([loop], "y", constants=numbers[:1], functions=functions),
        "upload": program([{"name": "s", "op": "sum", "inputs": ["x"]}], "s"),
        "create": chain(8000),
    }
