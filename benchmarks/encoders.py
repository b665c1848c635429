"""The library beside onnxruntime and llama.cpp: embeddings by trained encoders, texts/s and MB.

All sides have the same weights: float32, or of 8 bits, which the library and llama.cpp quantize in
groups of a row, onnxruntime in whole matrices ("dynamic"). They embed 1,000 texts of 5 to 200
tokens, together or one at a time, with two threads, and take turns. A ratio is to the better one of
the others. "memory" is the peak of a process that has done both, "idle" what it takes before it
loads the model, "limit" 1.1 times the weights and 30 MB above that. "cosine" is the smallest one
of a vector to onnxruntime's of float32. The processor ratio compares times of all threads, which
other programs change less. For speeds, ratios above 1 are better; for sizes, below 1.
llama.cpp is built for this machine, and packages are fetched: see support/encoders.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.peers import Choice
from benchmarks.support.cases import Row, median_ratio
from benchmarks.support.encoders import ENCODERS, GGML, TEXTS, Forms, forms, onnxruntime_folder
from benchmarks.support.hosts import Peer, compile_host, peak, python_host, take_turns
from benchmarks.support.llama_cpp import LlamaCpp, llama_cpp

THREADS = 2
BLOCKS = 2  # turns of each side
STEP = 4  # of the texts that are embedded one at a time: every so many
# The first one warms up for both.
WORKLOADS = {"one at a time": (f"each {STEP}", TEXTS // STEP), "together": ("all", TEXTS)}
OURS, ONNX, LLAMA = "library", "onnxruntime", "llama.cpp"
EXACT = "fp32"  # the first format, whose vectors others are compared with
BATCH = 2048  # tokens that llama.cpp computes together


def encoders(large: bool, choice: Choice) -> list[Row]:
    """Measure all cells; of the options, --encoders, --blocks, --folder and --no-amx count."""
    theirs = llama_cpp(choice.folder, THREADS, choice.amx)
    rows = []
    for model in choice.encoders or ENCODERS:
        made = forms(model, choice.folder / "encoders", theirs.gguf_package)
        for stored in GGML:
            print(f"encoders: {model} {stored}", flush=True)
            cell = Cell(made, stored, model, theirs, choice.blocks or BLOCKS)
            rows += [{"model": model, "format": stored, **row} for row in cell.rows()]
    return rows


@dataclass(frozen=True)
class Cell:
    """A model in a format, on all sides."""

    forms: Forms
    stored: str
    model: str
    theirs: LlamaCpp
    blocks: int

    def rows(self) -> list[Row]:
        """Measure its workloads."""
        rows: list[Row] = []
        with self._running() as peers:
            for workload, (line, count) in WORKLOADS.items():
                sides = {side: partial(peer.numbers, line) for side, peer in peers.items()}
                runs = take_turns(self.blocks, sides, warm_up=not rows)
                rates = {side: [count / wall for wall, _ in own] for side, own in runs.items()}
                spent = {side: [count / cpu for _, cpu in own] for side, own in runs.items()}
                row: Row = {"workload": workload, "unit": "texts/s", **_beside(rates, max)}
                row["processor ratio"] = _beside(spent, max)["ratio"]
                rows.append({**row, "blocks": rates, "by processor time": spent})
            sizes = {side: [peak(peer.pid)] for side, peer in peers.items()}
            (idle,) = peers[OURS].times
            file = self.forms.folders[self.stored] / "model.safetensors"
            weights = file.stat().st_size / 2**20
            row = {"workload": "memory", "unit": "MB", **_beside(sizes, min), "idle": idle}
            rows.append({**row, "weights": weights, "limit": idle + 1.1 * weights + 30})
            cosines = self._cosines(peers)
        for row in rows:
            print(f"  {row['workload']}: {row['ratio']:.2f}", flush=True)
        return [{**row, "cosine": cosines[OURS], "cosines": cosines} for row in rows]

    @contextmanager
    def _running(self) -> Iterator[dict[str, Peer]]:
        """Hosts of all sides at once."""
        own, texts = self.forms, self.forms.texts
        pooling = ENCODERS[self.model].pooling
        program = self.theirs.compile_host("embed")
        environment = {**os.environ, "PYTHONPATH": str(onnxruntime_folder())}
        given = own.onnx[self.stored], own.tokenizer, texts, THREADS, pooling
        starts: dict[str, Callable[[], Peer]] = {
            OURS: partial(Peer, [compile_host("embed"), own.folders[self.stored], texts]),
            ONNX: partial(python_host, "embed_onnx", *given, env=environment),
            LLAMA: partial(Peer, [program, own.gguf[self.stored], THREADS, texts, BATCH]),
        }
        with ExitStack() as stack:
            yield {side: stack.enter_context(start()) for side, start in starts.items()}

    def _cosines(self, peers: Mapping[str, Peer]) -> dict[str, float]:
        """The smallest cosine of each side's vectors to those of float32."""
        import numpy as np

        with tempfile.TemporaryDirectory() as folder:
            own = {}
            for side, peer in peers.items():
                peer.ask("write", Path(folder) / side)
                own[side] = np.fromfile(Path(folder) / side, np.float32).reshape(TEXTS, -1)
        exact = self.forms.texts.with_suffix(".npy")
        if self.stored == EXACT:
            np.save(exact, own[ONNX])
        known = np.load(exact)
        return {side: float((rows * known).sum(axis=1).min()) for side, rows in own.items()}


def _beside(runs: Mapping[str, list[float]], better: Callable[..., float]) -> Row:
    """The medians of all sides, and the library's ratio to the better one of the others."""
    others = [better(pair) for pair in zip(runs[ONNX], runs[LLAMA], strict=True)]
    medians = {side: median(own) for side, own in runs.items()}
    return {**medians, "ratio": median_ratio(runs[OURS], others)}
