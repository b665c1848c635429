"""Calls of the C ABI: their round trip, copies of arrays, programs and their operations."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.support.cases import Row, benchmark, compared, median_ratio
from benchmarks.support.hosts import Peer, compile_host, python_host, take_turns
from benchmarks.support.models import models, random_prompt
from benchmarks.support.paths import CALF


@benchmark
def round_trip(large: bool) -> list[Row]:
    """Round trip of a call, microseconds: the library's queue against a bare exchange in C.

    The call is model_is_end, which does next to nothing; the bare exchange has the same threads,
    mutex and condition variables, and no library. Both sides sleep while they wait. Blocks of
    both take turns in one process. The aim is a ratio of at most 1.3, and calls per second that
    do not fall as clients are added.
    """
    command = [compile_host("round_trip"), "31", "0.1", CALF]  # blocks, seconds of each
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    blocks: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for line in output.splitlines():
        clients, side, *numbers = line.split()
        blocks[clients][side].append([float(number) for number in numbers])
    rows = []
    for clients, sides in blocks.items():
        runs = {side: list(zip(*own[1:], strict=True)) for side, own in sides.items()}  # warm
        row: Row = {"clients": int(clients)}
        for at, name in enumerate(("median", "p99", "calls/s")):
            row |= {name: median(runs["library"][at]), f"bare {name}": median(runs["bare"][at])}
        row["ratio"] = median_ratio(runs["library"][0], runs["bare"][0])
        rows.append({**row, "blocks": sides})
    return rows


@benchmark
def arrays(large: bool) -> list[Row]:
    """Upload and read of arrays, GB/s, against memcpy on the same thread, by size.

    All three take turns in one process, into memory that has been written before: an upload
    reuses the memory of a freed array. The aim is 0.8 of memcpy's bandwidth from 1 MB on.
    """
    largest = 1 << (30 if large else 28)  # bytes
    command = [str(compile_host("arrays")), "9", str(largest)]  # rounds
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rounds: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for line in output.splitlines():
        size, *seconds = line.split()
        rounds[int(size)].append(tuple(float(number) for number in seconds))
    rows = []
    for size, times in rounds.items():
        copies, uploads, reads = zip(*times[1:], strict=True)  # the first warms up
        row: Row = {"bytes": size, "memcpy": size / median(copies) / 1e9}
        row |= {"upload": size / median(uploads) / 1e9, "read": size / median(reads) / 1e9}
        row |= {"upload ratio": median_ratio(copies, uploads)}
        rows.append({**row, "read ratio": median_ratio(copies, reads)})
    return rows


@benchmark
def programs(large: bool) -> list[Row]:
    """Program runs against array_apply and plain Python mlx: µs of 1, 75 and 1,000 nodes.

    One process in Python on the CPU, whose sides take turns. Values are small (4 x 16): the
    overhead counts, not mlx's operations. "program" takes the host's memory and fills it; "apply"
    makes a call of array_apply for each node and reads the last result; "plain" evaluates an
    array. "gradient" is the derivative of the result's sum. "cpu" is processor time of all
    threads, which a busy machine changes less.
    """
    runs_of = {1: 1000, 75: 100, 1000: 10}
    sides = {"value": ("program", "plain", "apply"), "gradient": ("program", "plain")}
    with python_host("programs") as host:

        def cost(side: str, what: str, nodes: int) -> list[float]:
            return host.numbers(side, what, nodes, runs_of[nodes])

        return [
            wall_and_cpu(
                {"nodes": nodes, "what": what},
                take_turns(7, {side: partial(cost, side, what, nodes) for side in sides[what]}),
            )
            for nodes in runs_of
            for what in sides
        ]


def wall_and_cpu(row: Row, runs: dict[str, list[list[float]]]) -> Row:
    """Compare pairs of seconds, by the clock and of processor time, in µs."""
    walls, cpus = ({side: [pair[at] for pair in runs[side]] for side in runs} for at in (0, 1))
    row = compared(row, walls, 1e6)
    row |= {f"cpu, {side}": 1e6 * median(own) for side, own in cpus.items()}
    return {**row, "cpu, ratio": compared({}, cpus)["ratio"]}


@benchmark
def beside(large: bool) -> list[Row]:
    """A context that generates while another thread creates and runs programs.

    One C host; no work and each kind of work take turns. "tokens/s", "gap" and "longest gap" (ms
    between two tokens) beside the same of a context alone; "done/s" is the work done meanwhile,
    "longest turn" the ms that program_info reports. "small" is a run of 76 operations on 64
    numbers, "products" four products of 1,024 x 1,024, "loop" 1,000 rounds, "upload" an array of
    64 MiB and its sum, "create" a program of 8,000 nodes that is read and checked.
    """
    numbers = {"small": 64, "products": 1 << 20, "loop": 64, "upload": 1 << 24, "create": 1}
    ((name, folder),) = models("calf")
    prompt = random_prompt(folder, 32)
    with TemporaryDirectory() as place:
        for kind, program in _programs().items():
            (Path(place) / f"{kind}.json").write_text(json.dumps(program))
        with Peer([compile_host("beside"), folder, place]) as host:

            def ask(kind: str) -> list[float]:
                return host.numbers(kind, 192, numbers.get(kind, 1), *prompt)

            return [
                _beside(
                    {"model": name, "beside": kind},
                    take_turns(5, {"beside": partial(ask, kind), "alone": partial(ask, "nothing")}),
                )
                for kind in numbers
            ]


def _beside(row: Row, runs: dict[str, list[list[float]]]) -> Row:
    columns = {side: list(zip(*own, strict=True)) for side, own in runs.items()}
    rates, gaps, longest, done, turns = columns["beside"]
    row |= {"tokens/s": median(rates), "alone": median(columns["alone"][0])}
    row |= {"ratio": median_ratio(rates, columns["alone"][0])}
    row |= {"gap": 1e3 * median(gaps), "gap, alone": 1e3 * median(columns["alone"][1])}
    row |= {"longest gap": 1e3 * median(longest)}
    row |= {"longest gap, alone": 1e3 * median(columns["alone"][2])}
    row |= {"done/s": median(done), "longest turn": 1e3 * max(turns) or None}
    return {**row, "blocks": runs}


def _programs() -> dict[str, dict[str, Any]]:
    def node(name: str, op: str, *inputs: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "op": op, "inputs": list(inputs), **more}

    def declared(name: str, dtype: str, *shape: object) -> dict[str, Any]:
        return {"name": name, "dtype": dtype, "shape": shape}

    def constant(name: str, value: int) -> dict[str, Any]:
        return {"name": name, "dtype": "int32", "value": value}

    x = declared("x", "float32", "n")

    def program(nodes: list[dict[str, Any]], output: str, **more: Any) -> dict[str, Any]:
        return {"inputs": [x], "nodes": nodes, "outputs": [output], **more}

    def chain(count: int) -> dict[str, Any]:
        operations = ("sin", "tanh", "abs", "square") * (count // 4)
        nodes = [
            node(f"v{at}", op, f"v{at - 1}" if at else "x") for at, op in enumerate(operations)
        ]
        return program(nodes, nodes[-1]["name"])

    square = node("v0", "reshape", "x", attributes={"shape": [1024, -1]})
    products = [node(f"v{at + 1}", "matmul", f"v{at}", "v0") for at in range(4)]
    state = [declared("i", "int32"), x]
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
            "constants": [constant("most", 1000)],
            "nodes": [node("p", "less", "i", "most")],
            "outputs": ["p"],
        },
        {
            "name": "round",
            "inputs": state,
            "constants": [constant("one", 1)],
            "nodes": [node("k", "add", "i", "one"), node("z", "sin", "x")],
            "outputs": ["k", "z"],
        },
    ]
    million = declared("x", "float32", 1 << 20)
    return {
        "small": chain(76),
        "products": program([square, *products], "v4") | {"inputs": [million]},
        "loop": program([loop], "y", constants=[constant("zero", 0)], functions=functions),
        "upload": program([node("s", "sum", "x")], "s"),
        "create": chain(8000),
    }
