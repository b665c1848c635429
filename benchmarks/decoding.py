"""One context that generates: beside mlx-lm, beside other options, and by the parts of a step."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.support.cases import Row, benchmark, compared, median_ratio
from benchmarks.support.hosts import Peer, c_host, plain_host, python_host, take_turns
from benchmarks.support.models import draftable, models, random_prompt, vocabulary_size

SHORT = 32  # tokens of a prompt


@benchmark
def decode(large: bool) -> list[Row]:
    """Decode, tokens/s: through the C ABI against mlx-lm in plain Python, greedy.

    Both are processes that have loaded the same model and generate in turns from the same prompt;
    a rate counts from the first token to the last. "next" is a C host's loop of begin and next,
    "callback" its one call with a callback. Every block compares their tokens. "CPU ms" is
    processor time of a token on all threads, with its share of the prompt: other processes on the
    machine disturb it less.
    """
    sizes = {"calf": (256, 12), "S": (64, 8), "M": (24, 6)}
    named = models("calf", "S", large and "M")
    return [row for name, folder in named for row in _decode(name, folder, *sizes[name])]


def _decode(name: str, folder: Path, max_tokens: int, blocks: int) -> list[Row]:
    prompt = random_prompt(folder, SHORT)
    with c_host(folder) as ours, plain_host(folder) as theirs:
        expected = theirs.generate("next", max_tokens, prompt).tokens

        def rate(peer: Peer, kind: str) -> tuple[float, float]:
            done = peer.generate(kind, max_tokens, prompt)
            if kind == "next" and done.tokens != expected:
                raise AssertionError(f"{name}: the tokens differ:\n{done.tokens}\n{expected}")
            return (len(expected) - 1) / done.rest, 1e3 * done.cpu / len(expected)

        sides = {
            "next": partial(rate, ours, "next"),
            "callback": partial(rate, ours, "callback"),
            "mlx-lm": partial(rate, theirs, "next"),
        }
        runs = take_turns(blocks, sides)
    plain, costs = zip(*runs.pop("mlx-lm"), strict=True)
    rows = []
    for way, results in runs.items():
        rates, own_costs = zip(*results, strict=True)
        row: Row = {"model": name, "tokens": len(expected), "way": way}
        row |= {"CPU ms": median(own_costs), "mlx-lm CPU ms": median(costs)}
        row |= {"CPU ratio": median_ratio(own_costs, costs)}
        rows.append(compared(row, {"C ABI": rates, "mlx-lm": plain}))
    return rows


@benchmark
def prefill(large: bool) -> list[Row]:
    """Prefill, tokens/s to the first token: C ABI against mlx-lm in plain Python.

    Both process the same random prompt from an empty cache, in turns. The hosts ask for a second
    token, whose time does not count, because mlx-lm starts to compute it in any case.
    """
    sizes = [("calf", 512, 6), ("calf", 2000, 3), ("S", 512, 3), ("S", 2000, 3)]
    return [_prefill(*size) for size in (sizes if large else sizes[:3])]


def _prefill(model: str, length: int, blocks: int) -> Row:
    ((name, folder),) = models(model)
    prompt = random_prompt(folder, length)
    with c_host(folder) as ours, plain_host(folder) as theirs:
        expected = theirs.generate("next", 2, prompt).tokens

        def rate(peer: Peer) -> float:
            done = peer.generate("next", 2, prompt)
            if done.tokens != expected:
                raise AssertionError(f"{name}: {done.tokens} and {expected} differ")
            return length / done.first

        runs = take_turns(blocks, {"C ABI": partial(rate, ours), "mlx-lm": partial(rate, theirs)})
    return compared({"model": name, "prompt": length}, runs)


@benchmark
def split(large: bool) -> list[Row]:
    """What a token costs, in microseconds: in all, and of it building and evaluating its graph.

    A C host on the library and a Python process that only builds and evaluates take turns. "rest"
    is sampling, detokenizing, the scheduler, the queue and the host's thread, less the overlap
    with evaluation. "one layer" is calf's shape with a single layer.
    """
    return [_split(name, folder) for name, folder in models("calf", "one-layer")]


def _split(name: str, folder: Path) -> Row:
    prompt, tokens = random_prompt(folder, SHORT), 200
    with c_host(folder) as ours, python_host("split", folder) as bare:
        runs = take_turns(
            6,
            {
                "token": lambda: [1e6 / ours.generate("next", tokens, prompt).rate],
                "parts": lambda: bare.numbers("split", tokens, *prompt),
            },
        )
    building, evaluating = (median(values) for values in zip(*runs["parts"], strict=True))
    total = median(cost for (cost,) in runs["token"])
    row: Row = {"model": name, "token": total, "building": building, "evaluating": evaluating}
    return {**row, "rest": total - building - evaluating, "blocks": runs}


@benchmark
def quantized(large: bool) -> list[Row]:
    """A model of 4 bits on a CPU, tokens/s of decoding and of a prompt: C ABI against mlx-lm.

    Both load the same folder, quantized weights with bfloat16 scales, and generate in turns. On a
    CPU the library computes such models in float32, so that their tokens may differ.
    """
    ((name, folder),) = models("S of 4 bits")
    prompt = random_prompt(folder, 64)
    with c_host(folder) as ours, plain_host(folder) as theirs:

        def rates(peer: Peer) -> tuple[float, float]:
            done = peer.generate("next", 12, prompt)
            return done.rate, len(prompt) / done.first

        runs = take_turns(3, {"C ABI": partial(rates, ours), "mlx-lm": partial(rates, theirs)})
    return [
        compared(
            {"model": name, "what": what}, {side: [r[at] for r in runs[side]] for side in runs}
        )
        for at, what in enumerate(("decode", "prefill"))
    ]


@benchmark
def blas(large: bool) -> list[Row]:
    """Decode and prefill in tokens/s with the optimised BLAS against mlx's own, Linux CPU.

    Two C hosts that take turns, one with COWMLX_BLAS=reference.
    """
    sizes = {"calf": (128, 1000, 5), "S": (32, 512, 3), "M": (16, 128, 2)}
    named = models("calf", "S", large and "M")
    return [row for name, folder in named for row in _blas(name, folder, *sizes[name])]


def _blas(name: str, folder: Path, max_tokens: int, length: int, blocks: int) -> list[Row]:
    short, long = random_prompt(folder, SHORT), random_prompt(folder, length)
    reference = {**os.environ, "COWMLX_BLAS": "reference"}
    with c_host(folder) as ours, c_host(folder, env=reference) as plain:

        def decode_rate(peer: Peer) -> float:
            return (max_tokens - 1) / peer.generate("callback", max_tokens, short).rest

        def prefill_rate(peer: Peer) -> float:
            return length / peer.generate("callback", 1, long).first

        rows = []
        for what, rate in (("decode", decode_rate), (f"prefill {length}", prefill_rate)):
            sides = {"openblas": partial(rate, ours), "reference": partial(rate, plain)}
            rows.append(compared({"model": name, "what": what}, take_turns(blocks, sides)))
    return rows


@benchmark
def drafting(large: bool) -> list[Row]:
    """Decoding with drafts, tokens/s, against decoding without.

    One C host each; the ways take turns and must give the same tokens. "draft" proposes four
    tokens with a model of one of S's six layers that is always right, so its ratio is an upper
    bound; "lookup" continues calf's repetition of a prompt that it has processed.
    """
    ((_, calf),) = models("calf")
    cases = [("S", draftable("S", 1), "draft", 64), ("calf", (calf,), "lookup", 256)]
    if large:
        cases.append(("M", draftable("M", 1), "draft", 24))
    return [_drafting(*case) for case in cases]


def _drafting(name: str, folders: tuple[Path, ...], way: str, max_tokens: int) -> Row:
    prompt = random_prompt(folders[0], SHORT)
    with c_host(*folders) as host:
        expected = host.generate("next", max_tokens, prompt).tokens

        def rate(kind: str) -> float:
            done = host.generate(kind, max_tokens, prompt)
            if done.tokens != expected:
                raise AssertionError(f"{name}: the tokens differ:\n{done.tokens}\n{expected}")
            return done.rate

        runs = take_turns(8, {"drafted": partial(rate, way), "plain": partial(rate, "next")})
    return compared({"model": name, "way": way}, runs)


@benchmark
def grammar(large: bool) -> list[Row]:
    """Decoding with a grammar, tokens/s, against decoding without.

    One C host each; the ways take turns and give equally many tokens, greedy. "regex" matches any
    text, "schema" a list of objects that never ends. "ms" is the extra cost of a token: its mask
    is computed beside the network, so it is at most the part that takes longer. "compile" is the
    extra time of begin in ms. "wide" is a small network with a large vocabulary.
    """
    sizes = {"calf": 256, "S": 64, "wide": 64}
    return [row for name, folder in models(*sizes) for row in _grammar(name, folder, sizes[name])]


def _grammar(name: str, folder: Path, max_tokens: int) -> list[Row]:
    prompt = random_prompt(folder, SHORT)

    def rate(host: Peer, kind: str) -> tuple[float, float]:
        done = host.generate(kind, max_tokens, prompt)
        if len(done.tokens) != max_tokens:
            raise AssertionError(f"{kind} gave {len(done.tokens)} tokens and not {max_tokens}")
        return done.rate, done.first

    with c_host(folder) as host:
        ways = {kind: partial(rate, host, kind) for kind in ("next", "regex", "schema")}
        runs = take_turns(8, ways)
    plain, firsts = zip(*runs.pop("next"), strict=True)
    rows: list[Row] = []
    for kind, results in runs.items():
        rates, own_firsts = zip(*results, strict=True)
        row: Row = {"model": name, "vocabulary": vocabulary_size(folder), "grammar": kind}
        row |= {"ms": 1e3 * median(1 / a - 1 / b for a, b in zip(rates, plain, strict=True))}
        row |= {"compile": 1e3 * median(a - b for a, b in zip(own_firsts, firsts, strict=True))}
        rows.append(compared(row, {"with": rates, "without": plain}))
    return rows
