"""The tables of the pages, from the JSON files of the benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.support.paths import RESULTS, ROOT

BEGIN, END = "<!-- benchmarks:begin -->\n", "<!-- benchmarks:end -->"
PEERS_BEGIN, PEERS_END = "<!-- peers:begin -->\n", "<!-- peers:end -->"
KERNELS_BEGIN, KERNELS_END = "<!-- kernels:begin -->\n", "<!-- kernels:end -->"
FIRST_BEGIN, FIRST_END = "<!-- first-answer:begin -->\n", "<!-- first-answer:end -->"
INSTALLING = ROOT / "docs/getting-started/install.md"
PAGE = ROOT / "docs/guides/performance.md"
# The make of processor whose results are all there; of others, pages show peers and kernels.
MAKE = "intel"
START = "process start to first token, ms"


def pages() -> dict[Any, str]:
    """The pages that show numbers, with those of the JSON files."""
    shown = {ROOT / "README.md": ten_numbers(), PAGE: all_numbers()}
    fresh = {}
    for path, text in shown.items():
        fresh[path] = _replaced(path.read_text(), BEGIN, END, text)
    fresh[PAGE] = _replaced(fresh[PAGE], PEERS_BEGIN, PEERS_END, _each_make("peers", _peers_table))
    kernels = _each_make("roofline", _roofline_table)
    fresh[PAGE] = _replaced(fresh[PAGE], KERNELS_BEGIN, KERNELS_END, kernels)
    answers = _first_answer_table(_report("first_answer"))
    fresh[INSTALLING] = _replaced(INSTALLING.read_text(), FIRST_BEGIN, FIRST_END, answers)
    return fresh


def _replaced(page: str, begin: str, end: str, text: str) -> str:
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def write_tables() -> None:
    """Replace the tables between the markers of the pages."""
    for path, text in pages().items():
        path.write_text(text)


class Lines(NamedTuple):
    """The lines of one benchmark.

    Attributes:
        benchmark: its name.
        label: a pattern for the line's first cell.
        ours: the column of libcowmlx.
        beside: the column of the other side.
        other: the other side's name for readers.
        ratio: the column of the quotient.
        shown: whether a row has a line.
    """

    benchmark: str
    label: str
    ours: str
    beside: str
    other: str = "mlx-lm"
    ratio: str = "ratio"
    shown: Callable[[dict[str, Any]], bool] = lambda row: True


TABLE = (
    Lines("memory", "{memory}, MB", "C host", "mlx-lm"),
    Lines("decode", "decode {model} (`{way}`), tokens/s", "C ABI", "mlx-lm"),
    Lines("prefill", "prefill {model}, {prompt} tokens, tokens/s", "C ABI", "mlx-lm"),
    Lines(
        "quantized",
        "{what} {model}, tokens/s",
        "C ABI",
        "mlx-lm",
        "mlx-lm, which computes in bfloat16",
    ),
    Lines("blas", "{what} {model}, tokens/s", "openblas", "reference", "libcowmlx, reference BLAS"),
    Lines(
        "throughput",
        "decode {model}, {contexts} contexts together, tokens/s",
        "together",
        "mlx-lm",
        "mlx-lm `batch_generate`",
    ),
    Lines(
        "throughput",
        "the same, {contexts} contexts, both with the reference BLAS",
        "reference",
        "mlx-lm",
        "mlx-lm `batch_generate`",
        "same BLAS",
        lambda row: row["contexts"] in (8, 32),
    ),
    Lines(
        "throughput",
        "the same, {contexts} contexts",
        "together",
        "locked",
        "one after the other",
        "to locked",
        lambda row: row["contexts"] in (8, 32),
    ),
    Lines(
        "throughput",
        "the same at temperature 0.8, {contexts} contexts",
        "sampled",
        "sampled locked",
        "one after the other",
        "sampled to locked",
        lambda row: row["contexts"] in (8, 32) and "sampled" in row,
    ),
    Lines("interference", "{model}, {what}", "beside others", "alone", "alone, or in turns"),
    Lines(
        "first_token",
        "first token behind 1,016, {prefix} prefix, ms",
        "first token",
        "cold",
        "cold",
    ),
    Lines(
        "short_prompts",
        "first tokens of 8 contexts, {model}, {prompt} tokens each, ms",
        "together ms",
        "alone ms",
        "one prompt after the other",
        "together/alone",
        lambda row: row["prompt"] in (16, 64),
    ),
    Lines(
        "drafting",
        "decode {model} with drafts ({way}), tokens/s",
        "drafted",
        "plain",
        "without",
    ),
    Lines(
        "grammar",
        "decode {model} with a JSON schema, tokens/s",
        "with",
        "without",
        "without",
        shown=lambda row: row["grammar"] == "schema",
    ),
    Lines(
        "long_context",
        "decode behind {context:,} tokens, xLSTM, tokens/s",
        "xlstm",
        "llama",
        "a Llama of its size",
    ),
    Lines(
        "long_context",
        "state behind {context:,} tokens, xLSTM, MB",
        "xlstm state MB",
        "llama state MB",
        "the same Llama",
        "state ratio",
    ),
    Lines(
        "recurrence",
        "prefill xLSTM ({what}), 2,048 tokens, tokens/s",
        "chunkwise",
        "sequential",
        "one position after the other",
        shown=lambda row: row["chunk"] == 64,
    ),
    Lines("saved", "cache of {model}, {MB:.0f} MB: {way}, MB/s", "C ABI", "mlx-lm"),
    Lines(
        "round_trip",
        "round trip of a call, {clients} threads, µs",
        "median",
        "bare median",
        "bare C",
    ),
)

# README.md's: lines of the whole table, and their names there.
TEN = {
    START: "process start to first token, calf, ms",
    "RSS used, MB": "memory of the process that has generated, calf, MB",
    "decode calf (`next`), tokens/s": "decode calf (1 M parameters), tokens/s",
    "decode S (`next`), tokens/s": "decode S (15 M), tokens/s",
    "decode S of 4 bits, tokens/s": "decode S, weights of 4 bits, tokens/s",
    "prefill calf, 512 tokens, tokens/s": "prefill calf, 512 tokens, tokens/s",
    "prefill S, 512 tokens, tokens/s": "prefill S, 512 tokens, tokens/s",
    "decode calf, 8 contexts together, tokens/s": "8 contexts of calf together, tokens/s",
    "decode calf, 32 contexts together, tokens/s": "32 contexts of calf together, tokens/s",
    "first token behind 1,016, warm prefix, ms": "first token behind 1,016 known ones, calf, ms",
}


class Line(NamedTuple):
    """A line of a table: label, our number, the other side and its number, the quotient."""

    what: str
    ours: float
    other: str
    beside: float
    ratio: float

    def __str__(self) -> str:
        digits = 2 if self.ratio >= 0.01 else 4
        beside = f"{self.other}: {_number(self.beside)}"
        return f"| {self.what} | {_number(self.ours)} | {beside} | {self.ratio:.{digits}f} |"


def lines() -> Iterator[Line]:
    """Every line of the whole table."""
    startup = {row["host"]: row for row in _rows("startup")}
    ours, theirs = (
        next((row for host, row in startup.items() if host.endswith(end)), None)
        for end in (".pyc: all", "mlx-lm")
    )
    if ours and theirs:
        yield Line(START, ours["total"], "mlx-lm", theirs["total"], ours["ratio"])
    for own in TABLE:
        for row in filter(own.shown, _rows(own.benchmark)):
            what = own.label.format(**row)
            yield Line(what, row[own.ours], own.other, row[own.beside], row[own.ratio])


HEAD = "| | libcowmlx | beside it | libcowmlx ÷ beside it, median of pairs |\n|---|---|---|---|"


def all_numbers() -> str:
    """The whole table, the conditions of the run, and pictures."""
    report = _report("decode")
    versions = report["versions"]
    return "\n".join(
        [
            f"A C host, and beside it plain Python where it says mlx-lm: {_machine(report)}, mlx",
            f"{versions['mlx']}, mlx-lm {versions['mlx-lm']}.",
            "",
            HEAD,
            *map(str, lines()),
            "",
            f"![tokens/s over contexts](../../benchmarks/results/{MAKE}/throughput.png)",
            "",
            f"![tokens/s over context length](../../benchmarks/results/{MAKE}/long_context.png)",
            "",
        ]
    )


def ten_numbers() -> str:
    """README.md's table, and one picture."""
    rows_by_name = {line.what: line for line in lines()}
    chosen = [
        rows_by_name[what]._replace(what=label)
        for what, label in TEN.items()
        if what in rows_by_name
    ]
    return "\n".join(
        [
            f"The same model on the same machine ({_machine(_report('decode'))}):",
            "",
            HEAD,
            *map(str, chosen),
            "",
            f"![tokens/s over contexts](benchmarks/results/{MAKE}/throughput.png)",
            "",
        ]
    )


def _machine(report: dict[str, Any]) -> str:
    return f"{report['cpu']}, {report['cores']} shared cores, {report['system']}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _report(name: str, folder: Path = RESULTS / MAKE) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text())


def _rows(name: str) -> list[dict[str, Any]]:
    return _report(name)["rows"] if (RESULTS / MAKE / f"{name}.json").exists() else []


def _each_make(name: str, table: Callable[[list[dict[str, Any]]], str]) -> str:
    """A table for each make of processor that has results of a benchmark."""
    shown = []
    for path in sorted(RESULTS.glob(f"*/{name}.json")):
        report = _report(name, path.parent)
        shown.append(f"{_machine(report)}:\n\n{table(report['rows'])}")
    return "\n".join(shown)


def _first_answer_table(report: dict[str, Any]) -> str:
    """The time of each language's commands; the page has the commands."""
    lines = ["| you write | install, s | build and run, s | together, s |\n|---|---|---|---|"]
    for row in report.get("rows", ()):
        install, answer = row["seconds"]
        total = sum(row["seconds"])
        lines.append(f"| {row['language']} | {install:.1f} | {answer:.1f} | {total:.1f} |")
    machine = f"{report.get('cpu', '')}, {report.get('cores', '')} shared cores"
    lines += ["", f"Measured on {machine}, with a load of {report.get('load', '')} by others."]
    return "\n".join([*lines, "", ""])


def _roofline_table(rows: Iterable[dict[str, Any]]) -> str:
    """The table of the `roofline` benchmark: a line per kernel, a column per number of rows."""
    measured = [row for row in rows if "of limit" in row]
    if not measured:
        return ""
    lines: dict[str, dict[int, str]] = {}
    for row in measured:
        unit = "GB/s" if row["bound"] == "reading" else "10⁹ multiply-adds/s"
        cell = f"{row[unit]:.3g} {'GB/s' if row['bound'] == 'reading' else 'G/s'}"
        lines.setdefault(row["what"], {})[row["rows"]] = f"{cell} ({row['of limit']:.0%})"
    columns = sorted({row["rows"] for row in measured})
    head = [
        f"| | {' | '.join(f'{count} rows' if count > 1 else '1 row' for count in columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    body = [
        f"| {what} | {' | '.join(line.get(count, '') for count in columns)} |"
        for what, line in lines.items()
    ]
    return "\n".join([*head, *body, ""])


WORKLOADS = {
    "prefill": "prompt of 512",
    "decode": "decode",
    "4k prefill": "prompt of 3,840",
    "4k decode": "decode behind it",
    "16k prefill": "prompt of 16,128",
    "16k decode": "decode behind it",
    "32k prefill": "prompt of 32,512",
    "32k decode": "decode behind it",
    "rows8": "8 together",
    "rows16": "16 together",
    "start": "start to first token",
    "memory": "memory",
}


def _peers_table(rows: Iterable[dict[str, Any]]) -> str:
    """The table of the `peers` benchmark: a line per model and format, a column per workload.

    A workload that was not measured has no column.
    """
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        side = "" if row["side"] == "library" else f", {row['side']}"
        line = lines.setdefault(f"{row['model']} {row['format']}{side}", {})
        line[row["workload"]] = _cell(row)
    if not lines:
        return ""
    columns = [name for name in WORKLOADS if any(name in line for line in lines.values())]
    head = [
        f"| | {' | '.join(WORKLOADS[name] for name in columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    body = [
        f"| {label} | {' | '.join(line.get(name, '') for name in columns)} |"
        for label, line in lines.items()
    ]
    return "\n".join([*head, *body, ""])


def _cell(row: dict[str, Any]) -> str:
    share = f" ({row['of limit']:.0%})" if "of limit" in row else ""
    return f"{row['ratio']:.2f}{share}"
