"""The table of README.md, made of the JSON files of the benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.support.paths import RESULTS, ROOT

BEGIN, END = "<!-- benchmarks:begin -->\n", "<!-- benchmarks:end -->"


def write_table() -> None:
    """Replace what stands between the markers."""
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    after = rest.split(END)[1]
    readme.write_text(before + BEGIN + table() + END + after)


class Lines(NamedTuple):
    """The lines of one benchmark: a pattern of the row's columns, and columns to show."""

    benchmark: str
    label: str
    ours: str
    beside: str
    ratio: str = "ratio"
    shown: Callable[[dict[str, Any]], bool] = lambda row: True


TABLE = (
    Lines("memory", "{memory}, MB", "C host", "mlx-lm"),
    Lines("decode", "decode {model} (`{way}`), tokens/s", "C ABI", "mlx-lm"),
    Lines("prefill", "prefill {model}, {prompt} tokens, tokens/s", "C ABI", "mlx-lm"),
    Lines("packed", "{what} {model}, bfloat16 beside, tokens/s", "C ABI", "mlx-lm"),
    Lines("blas", "{what} {model}, tokens/s (beside: reference BLAS)", "openblas", "reference"),
    Lines(
        "throughput", "decode {model}, {contexts} contexts together, tokens/s", "together", "mlx-lm"
    ),
    Lines(
        "throughput",
        "the same, {contexts} contexts (beside: one after the other)",
        "together",
        "locked",
        "to locked",
        lambda row: row["contexts"] in (8, 32),
    ),
    Lines("interference", "{model}, {what} (beside: alone, or in turns)", "beside others", "alone"),
    Lines("first_token", "first token behind 1,016, {prefix} prefix, ms", "first token", "cold"),
    Lines("drafting", "decode {model} with guesses ({way}) (beside: without)", "guessing", "plain"),
    Lines(
        "grammar",
        "decode {model} with a JSON schema, tokens/s (beside: without)",
        "with",
        "without",
        shown=lambda row: row["grammar"] == "schema",
    ),
    Lines(
        "long_context",
        "decode behind {context:,} tokens, xLSTM, tokens/s (beside: a Llama of its size)",
        "xlstm",
        "llama",
    ),
    Lines(
        "long_context",
        "state behind {context:,} tokens, xLSTM, MB (beside: the same Llama)",
        "xlstm state MB",
        "llama state MB",
        "state ratio",
    ),
    Lines(
        "recurrence",
        "prefill xLSTM ({what}), 2,048 tokens, tokens/s (beside: one position after the other)",
        "chunkwise",
        "sequential",
        shown=lambda row: row["chunk"] == 64,
    ),
    Lines("saved", "cache of {model}, {MB:.0f} MB: {way}, MB/s", "C ABI", "mlx-lm"),
    Lines(
        "round_trip",
        "round trip of a call, {clients} threads, µs (beside: bare C)",
        "median",
        "bare median",
    ),
)


def table() -> str:
    """Medians of interleaved pairs, and the conditions of the run."""
    lines = ["| | libcowmlx | beside it | ratio |", "|---|---|---|---|"]
    for row in _rows("startup"):
        if row["host"].endswith(".pyc: all"):
            ours, theirs = row["total"], row["total"] / row["ratio"]
            lines.append(_line("process start to first token, ms", ours, theirs, row["ratio"]))
            lines.append(f"| of which `runtime_start`, ms | {row['start']:.0f} | | |")
    for own in TABLE:
        lines += [
            _line(own.label.format(**row), row[own.ours], row[own.beside], row[own.ratio])
            for row in _rows(own.benchmark)
            if own.shown(row)
        ]
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
            "![tokens/s over contexts](benchmarks/results/throughput.png)",
            "",
            "![tokens/s over context length](benchmarks/results/long_context.png)",
            "",
        ]
    )


def _line(what: str, ours: float, theirs: float, ratio: float) -> str:
    digits = 2 if ratio >= 0.01 else 4
    return f"| {what} | {_number(ours)} | {_number(theirs)} | {ratio:.{digits}f} |"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _report(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _rows(name: str) -> list[dict[str, Any]]:
    return _report(name)["rows"] if (RESULTS / f"{name}.json").exists() else []
