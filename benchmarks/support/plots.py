"""Pictures of the benchmarks over the number of contexts."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.support.paths import RESULTS

# Column of throughput.json, and what a reader calls it.
WAYS = {
    "together": "libcowmlx",
    "reference": "libcowmlx, reference BLAS",
    "mlx-lm": "mlx-lm batch_generate",
    "alone": "libcowmlx, solo contexts",
    "locked": "one after the other",
}


def draw() -> None:
    """Draw ``throughput.png`` and ``latency.png`` from the results of "throughput"."""
    import matplotlib

    matplotlib.use("Agg")
    report = json.loads((RESULTS / "throughput.json").read_text())
    rows = [row for row in report["rows"] if row["model"] == report["rows"][0]["model"]]
    contexts = [row["contexts"] for row in rows]
    lines = {label: [row[way] for row in rows] for way, label in WAYS.items()}
    _picture("throughput", "tokens/s of all contexts together", contexts, lines)
    _picture(
        "latency",
        "ms to the first token, behind 32 (median)",
        contexts,
        {"libcowmlx": [row["first token ms"] for row in rows]},
    )


def _picture(name: str, unit: str, contexts: list[int], lines: dict[str, list[float]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    for label, values in lines.items():
        axes.plot(contexts, values, marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts, [str(count) for count in contexts])
    axes.set_xlabel("contexts that generate at the same time, a thread each")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
