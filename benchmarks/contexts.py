"""Several contexts at once: speed together, fairness, latency, cancels."""

from __future__ import annotations

import os
from functools import partial
from math import isnan
from pathlib import Path
from statistics import median

from benchmarks.support.cases import Row, benchmark, compared, median_ratio
from benchmarks.support.hosts import Peer, compile_host, python_host, take_turns
from benchmarks.support.models import models, random_model, random_prompt, vocabulary_size

SHORT = 32  # tokens of a prompt


@benchmark
def fairness(large: bool) -> list[Row]:
    """Two contexts on two threads, tokens/s of each, against one context alone.

    One C host; blocks with one thread and with both take turns. "slower/faster" is 1 when both
    contexts advance equally; "sum/alone" is the cost of sharing the model.
    """
    ((name, folder),) = models("calf")
    prompt = random_prompt(folder, SHORT)
    with Peer([compile_host("crowd"), folder]) as host:

        def rates(count: int) -> list[float]:
            return host.numbers("together", 256, count, *prompt)[2:4]

        runs = take_turns(12, {"alone": partial(rates, 1), "both": partial(rates, 2)})
    single = [rate for rate, _ in runs["alone"]]
    return [
        {
            "model": name,
            "alone": median(single),
            "slower": median(slower for slower, _ in runs["both"]),
            "faster": median(faster for _, faster in runs["both"]),
            "slower/faster": median(slower / faster for slower, faster in runs["both"]),
            "sum/alone": median_ratio([sum(pair) for pair in runs["both"]], single),
            "blocks": runs,
        }
    ]


@benchmark
def short_prompts(large: bool) -> list[Row]:
    """Milliseconds until eight contexts that begin at once all have their first token.

    One C host with a thread for each; "together" is the default, "alone" contexts that are never
    batched. The ways take turns. Prompts above 32 tokens are not processed together.
    """
    rows = []
    for name, folder in models("calf", "S", large and "M"):
        with Peer([compile_host("crowd"), folder]) as host:
            for length in (8, 16, 32, 64, 128):
                prompt = random_prompt(folder, length)
                sides = {
                    f"{way} ms": partial(_last_first_token, host, way, prompt)
                    for way in ("together", "alone")
                }
                row = compared({"model": name, "prompt": length}, take_turns(15, sides), 1e3)
                rows.append({**row, "together/alone": row.pop("ratio")})
    return rows


def _last_first_token(host: Peer, way: str, prompt: list[int]) -> float:
    """Seconds until eight contexts have their first token."""
    return host.numbers(way, 2, 8, *prompt)[-1]


@benchmark
def throughput(large: bool) -> list[Row]:
    """Aggregate decode tokens/s of many contexts, a thread each, against other ways to do it.

    One process each; the ways take turns. "together" is the default; "reference" the same without
    the optimised BLAS; "alone" contexts that are never batched; "locked" whole generations one
    after the other, behind one lock; "mlx-lm" its batch_generate in plain Python. Tokens are
    greedy but for "sampled" and "sampled locked", at temperature 0.8. Ratios: to mlx-lm and, with
    its BLAS, to it; to the locked ones (aims: 4 at 8 contexts, sampled too).
    """
    sizes = {"calf": ((1, 2, 4, 8, 16, 32), 128, 4), "M": ((1, 8), 16, 2)}
    named = models("calf", large and "M")
    return [row for name, folder in named for row in _throughput(name, folder, *sizes[name])]


def _throughput(
    name: str, folder: Path, contexts: tuple[int, ...], max_tokens: int, blocks: int
) -> list[Row]:
    prompt = random_prompt(folder, SHORT)
    program = compile_host("crowd")
    plain = {**os.environ, "COWMLX_BLAS": "reference"}

    def rate(peer: Peer, kind: str, count: int) -> list[float]:
        return peer.numbers(kind, max_tokens, count, *prompt)

    rows = []
    with (
        Peer([program, folder]) as ours,
        Peer([program, folder], env=plain) as reference,
        python_host("batch", folder) as theirs,
    ):
        ways = {
            "together": (ours, "together"),
            "alone": (ours, "alone"),
            "locked": (ours, "locked"),
            "sampled": (ours, "together@0.8"),
            "sampled locked": (ours, "locked@0.8"),
            "reference": (reference, "together"),
            "mlx-lm": (theirs, "batch"),
        }
        for count in contexts:
            runs = take_turns(
                blocks, {way: partial(rate, *host, count) for way, host in ways.items()}
            )
            rates = {way: [run[0] for run in own] for way, own in runs.items()}
            row: Row = {"model": name, "contexts": count}
            row |= {way: median(own) for way, own in rates.items()}
            row |= {
                "ratio": median_ratio(rates["together"], rates["mlx-lm"]),
                "same BLAS": median_ratio(rates["reference"], rates["mlx-lm"]),
                "to locked": median_ratio(rates["together"], rates["locked"]),
                "sampled to locked": median_ratio(rates["sampled"], rates["sampled locked"]),
                "slowest/fastest": median(run[2] / run[3] for run in runs["together"]),
                "first token ms": 1e3 * median(run[1] for run in runs["together"]),
            }
            rows.append({**row, "blocks": rates})
    return rows


@benchmark
def sampling(large: bool) -> list[Row]:
    """Eight contexts that sample at temperature 0.8, a thread each: together against in turns.

    Aggregate decode tokens/s of a C host. "together" is the default; "locked" whole generations
    one after the other, behind one lock; the aim is a ratio of 4. "greedy" is the ratio of the
    same without sampling; the difference is the cost of sampling. They take turns.
    """
    ways = ("together@0.8", "locked@0.8", "together", "locked")
    rows = []
    for name, folder in models("calf", "S of 4 bits", "wide", large and "M of 4 bits"):
        prompt = random_prompt(folder, SHORT)
        with Peer([compile_host("crowd"), folder]) as host:
            runs = take_turns(4, {way: partial(_rate_of_eight, host, way, prompt) for way in ways})
        sampled, locked, greedy, greedy_locked = runs.values()
        row = compared({"model": name, "contexts": 8}, {"together": sampled, "locked": locked})
        rows.append({**row, "greedy": median_ratio(greedy, greedy_locked), "blocks": runs})
    return rows


def _rate_of_eight(host: Peer, way: str, prompt: list[int]) -> float:
    return host.numbers(way, 96, 8, *prompt)[0]


@benchmark
def processor(large: bool) -> list[Row]:
    """Contexts with a logits_fn that changes nothing, a thread each, against contexts without.

    One C host; the ways take turns. Tokens/s of all contexts together, greedy. "ms" is the extra
    time of a step, in which each context gets a token: a round trip to the host's thread, and
    copies of the logits. "wide" is a small network with a large vocabulary.
    """
    sizes = {"calf": 256, "S of 4 bits": 64, "wide": 64}
    rows = []
    for name, folder in models(*sizes):
        prompt = random_prompt(folder, SHORT)
        with Peer([compile_host("crowd"), folder]) as host:
            for count in (1, 4):
                given = (sizes[name], count, *prompt)
                ways = {way: partial(host.numbers, way, *given) for way in ("asked", "together")}
                runs = take_turns(8, ways)
                asked, plain = ([numbers[0] for numbers in run] for run in runs.values())
                row: Row = {"model": name, "vocabulary": vocabulary_size(folder), "contexts": count}
                steps = (1e3 * count * (1 / a - 1 / b) for a, b in zip(asked, plain, strict=True))
                row |= {"ms": median(steps)}
                rows.append(compared(row, {"with": asked, "without": plain}))
    return rows


@benchmark
def interference(large: bool) -> list[Row]:
    """Contexts beside others: latency of newcomers, gaps beside a prompt, two models.

    One C host. "newcomer": ms to the first token behind 32 tokens, alone and while 8 others
    decode. "prefill": the longest gap in ms between two tokens of 8 contexts, without other work
    and while another context processes 2,000 tokens. "two models": s for calf and another small
    model at once, beside one after the other. Ratios are of the second to the first.
    """
    ((name, folder),) = models("calf")
    prompt, short = random_prompt(folder, 2000), random_prompt(folder, 128)
    with Peer([compile_host("mixed"), folder, random_model("calf-shaped")]) as host:

        def ask(kind: str, threads: int, tokens: list[int], count: int = 1500) -> float:
            return host.numbers(kind, count, threads, *tokens)[0]

        cases = {
            "newcomer, ms": (("newcomer", 8, short), ("newcomer", 0, short), 1e3),
            "longest gap, ms": (("prefill", 8, prompt), ("prefill", 8, short), 1e3),
            "two models, s": (("both", 0, short, 128), ("turns", 0, short, 128), 1),
        }
        rows = []
        for what, (beside, alone, scale) in cases.items():
            sides = {"beside others": partial(ask, *beside), "alone": partial(ask, *alone)}
            rows.append(compared({"model": name, "what": what}, take_turns(5, sides), scale))
    return rows


@benchmark
def cancel(large: bool) -> list[Row]:
    """How long a prompt continues after it was cancelled, at moments spread over it.

    One C host. "returned": ms from the cancel, by another thread, until the begin has returned;
    "idle": until the context answers another call. The first prompt, of a model of unknown speed,
    has a separate row; the others are of the same model afterwards.
    """
    moments = [37 + 83 * step for step in range(10)]  # ms after a begin: steps that fit no chunk
    rows: list[Row] = []
    for name, folder in models("S", "S of 4 bits", "M", large and "L"):
        prompt = random_prompt(folder, 3000)
        with Peer([compile_host("cancel"), folder]) as host:
            for which, chosen in (("first", moments[2:3]), ("others", moments)):
                answers = [host.numbers("cancel", moment, *prompt) for moment in chosen]
                rows.append(_cancels(name, which, answers))
    return rows


def _cancels(name: str, which: str, answers: list[list[float]]) -> Row:
    answers = [answer for answer in answers if not isnan(answer[0])]
    if not answers:
        raise RuntimeError(f"{name}: every prompt had ended before it was cancelled")
    returned, idle, held = zip(*answers, strict=True)
    return {
        "model": name,
        "prompts": which,
        "returned, median ms": 1e3 * median(returned),
        "returned, longest ms": 1e3 * max(returned),
        "idle, longest ms": 1e3 * max(idle),
        "cancels": {"returned": returned, "idle": idle, "held": held},
    }
