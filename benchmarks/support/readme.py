"""The table of README.md, made of the JSON files of the benchmarks."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.support.paths import RESULTS, ROOT

BEGIN, END = "<!-- benchmarks:begin -->\n", "<!-- benchmarks:end -->"


def write_table() -> None:
    """Replace what stands between the markers."""
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    after = rest.split(END)[1]
    readme.write_text(before + BEGIN + table() + END + after)


def table() -> str:
    """Medians of interleaved pairs, and the conditions of the run."""
    lines = ["| | libcowmlx | beside it | ratio |", "|---|---|---|---|"]
    for row in _rows("startup"):
        if row["host"].endswith(".pyc: all"):
            ours, theirs = row["total"], row["total"] / row["ratio"]
            lines.append(_line("process start to first token, ms", ours, theirs, row["ratio"]))
            lines.append(f"| of which `runtime_start`, ms | {row['start']:.0f} | | |")
    for row in _rows("memory"):
        what = f"{row['memory']}, MB"
        lines.append(_line(what, row["C host"], row["mlx-lm"], row["ratio"]))
    for row in _rows("decode"):
        what = f"decode {row['model']} (`{row['way']}`), tokens/s"
        lines.append(_line(what, row["C ABI"], row["mlx-lm"], row["ratio"]))
    for row in _rows("prefill"):
        what = f"prefill {row['model']}, {row['prompt']} tokens, tokens/s"
        lines.append(_line(what, row["C ABI"], row["mlx-lm"], row["ratio"]))
    for row in _rows("round_trip"):
        what = f"round trip of a call, {row['clients']} threads, µs (beside: bare C)"
        lines.append(_line(what, row["median"], row["bare median"], row["ratio"]))
    for row in _rows("grammar"):
        if row["grammar"] == "schema":
            what = f"decode {row['model']} with a JSON schema, tokens/s (beside: without)"
            lines.append(_line(what, row["with"], row["without"], row["ratio"]))
    for row in _rows("saved"):
        what = f"cache of {row['model']}, {row['MB']:.0f} MB: {row['way']}, MB/s"
        lines.append(_line(what, row["C ABI"], row["mlx-lm"], row["ratio"]))
    report = _report("decode")
    versions = report["versions"]
    return "\n".join(
        [
            "Medians of interleaved pairs, mlx-lm in plain Python beside a C host, the same model",
            f"and machine: {report['cpu']}, {report['cores']} shared cores, {report['system']},",
            f"mlx {versions['mlx']}, mlx-lm {versions['mlx-lm']}. `make bench` runs them again.",
            "",
            *lines,
            "",
        ]
    )


def _line(what: str, ours: float, theirs: float, ratio: float) -> str:
    return f"| {what} | {_number(ours)} | {_number(theirs)} | {ratio:.2f} |"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _report(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _rows(name: str) -> list[dict[str, Any]]:
    return _report(name)["rows"]
