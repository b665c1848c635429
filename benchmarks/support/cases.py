"""The table of benchmarks, the rows that they return, and JSON with the conditions of a run."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support.paths import INCLUDE, RESULTS

PACKAGES = ("mlx", "mlx-lm", "tokenizers", "transformers")
# Folders of results, and what is in the names of their processors.
MAKES = {
    "intel": "intel",
    "amd-zen1": "zen 1",
    "amd-zen2": "zen 2",
    "amd-zen3": "zen 3",
    "amd-zen4": "zen 4",
    "amd-zen5": "zen 5",
    "amd": "amd",
    "apple": "apple",
}

Row = dict[str, Any]
Benchmark = Callable[[bool], list[Row]]

# By name, in the order in which all of them run.
BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(function: Benchmark) -> Benchmark:
    """Register a benchmark under its name; its docstring says what it measures.

    The function takes whether to measure large models too, and returns the rows of its table.
    """
    BENCHMARKS[function.__name__] = function
    return function


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the pairs of a run: noise that hits both sides cancels."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def compared(row: Row, runs: Mapping[str, Sequence[float]], scale: float = 1) -> Row:
    """Add the medians of all sides to a row, the first side's ratio to the second, and the runs."""
    ours, theirs, *_ = runs.values()
    medians = {side: scale * median(own) for side, own in runs.items()}
    return {**row, **medians, "ratio": median_ratio(ours, theirs), "blocks": dict(runs)}


def publish(name: str, summary: str, rows: list[Row]) -> None:
    """Print the rows of a benchmark and write them to its JSON file."""
    print(f"\n{name}: {summary}")
    print_table([{key: value for key, value in row.items() if not _is_raw(value)} for row in rows])
    folder = own_results()
    folder.mkdir(exist_ok=True)
    report = {"benchmark": name, "summary": summary, **conditions(), "rows": rows}
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")


def own_results() -> Path:
    """The folder for results of this make of processor; those of others stay."""
    name = cpu().lower()
    found = (folder for folder, word in MAKES.items() if word in name)
    return RESULTS / next(found, platform.machine().lower())


def conditions() -> Row:
    """What the numbers depend on: versions, machine, load, date."""
    now = datetime.datetime.now(datetime.UTC)
    versions = {"library": library_version(), "python": platform.python_version()}
    for package in PACKAGES:
        versions[package] = version(package)
    return {
        "date": now.isoformat(timespec="seconds"),
        "versions": versions,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def library_version() -> str:
    """COW_MLX_VERSION of the header."""
    for line in (INCLUDE / "cow_mlx.h").read_text().splitlines():
        if line.startswith("#define COW_MLX_VERSION "):
            return line.split('"')[1]
    raise ValueError("cow_mlx.h defines no COW_MLX_VERSION")


def cpu() -> str:
    """The processor's name, and behind an AMD's the generation of its cores."""
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    parts = [line.partition(":") for line in lines]
    entries = {key.strip(): value.strip() for key, _, value in parts}
    name = entries.get("model name") or platform.processor() or platform.machine()
    # Zen 1 and 2 have the same family, and so have Zen 3 and 4; AVX-512 came with Zen 4.
    if "AMD" not in name or "cpu family" not in entries:
        return name
    first_or_second = 2 if int(entries["model"]) >= 0x30 else 1
    third_or_fourth = 4 if "avx512f" in entries["flags"] else 3
    generations = {"23": first_or_second, "25": third_or_fourth, "26": 5}
    zen = generations.get(entries["cpu family"])
    return f"{name} (Zen {zen})" if zen else name


def print_table(rows: list[Row]) -> None:
    """Print rows with equal or different keys, a column for each."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print("  " + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def _is_raw(value: Any) -> bool:
    """Single measurements go to the JSON file only."""
    return isinstance(value, list | dict)
