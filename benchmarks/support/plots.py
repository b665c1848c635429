"""Pictures of the benchmarks: over the number of contexts, and over their length."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from benchmarks.support.cases import own_results

# Column of throughput.json, and what a reader calls it.
WAYS = {
    "together": "libcowmlx",
    "reference": "libcowmlx, reference BLAS",
    "mlx-lm": "mlx-lm batch_generate",
    "alone": "libcowmlx, solo contexts",
    "locked": "one after the other",
}


def draw_throughput() -> None:
    """Draw ``throughput.png`` and ``latency.png`` from the results of "throughput"."""
    report = json.loads((own_results() / "throughput.json").read_text())
    rows = [row for row in report["rows"] if row["model"] == report["rows"][0]["model"]]
    contexts = [row["contexts"] for row in rows]
    lines = {label: [row[way] for row in rows] for way, label in WAYS.items()}
    axis = "contexts that generate at the same time, a thread each"
    _picture("throughput", axis, "tokens/s of all contexts together", contexts, lines)
    _picture(
        "latency",
        axis,
        "ms to the first token, behind 32 (median)",
        contexts,
        {"libcowmlx": [row["first token ms"] for row in rows]},
    )


def draw_long_context() -> None:
    """Draw ``long_context.png`` from the results of "long_context"."""
    rows = json.loads((own_results() / "long_context.json").read_text())["rows"]
    _picture(
        "long_context",
        "tokens that the context holds",
        "tokens/s of decoding",
        [row["context"] for row in rows],
        {
            f"{label}, {rows[0][f'{name} parameters'] / 1e6:.0f}M": [row[name] for row in rows]
            for name, label in (("xlstm", "xLSTM"), ("llama", "Llama"))
        },
    )


# The functions that draw the pictures of a benchmark.
PICTURES: dict[str, Callable[[], None]] = {
    "throughput": draw_throughput,
    "long_context": draw_long_context,
}


def _picture(
    name: str, axis: str, unit: str, places: list[int], lines: dict[str, list[float]]
) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.use("Agg")
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    for label, values in lines.items():
        axes.plot(places, values, marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.set_xlabel(axis)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(own_results() / f"{name}.png", dpi=110)
