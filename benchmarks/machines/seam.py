"""What it costs that a model is in another process: a step with one rank here, and without.

    python -m benchmarks.machines.seam [MODEL [TOKENS]]

Tokens of one context, in blocks that take turns; the quotient is the median of those of neighbours.
Then what an entry of the log takes that computes nothing, and the memory of a rank while it loads.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import mlx.core as mx

from benchmarks.support.models import random_model

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import in_process

from cowmlx.generated.defaults import CONTEXT, GENERATION
from cowmlx.machines.opening import Workers
from cowmlx.models import split_models
from cowmlx.services.loading import Loading

BLOCKS, WARM = 8, 8


def on_a_rank(engine: Any, folder: Path) -> int:
    """Load a model into one rank here; its handle."""
    call: Any = in_process.Call()
    models = engine.models
    steps = models._load_remote(
        split_models.load_on_machines(str(folder), Workers([], "", 60.0, 30.0), activations=1)
    )
    stream = engine.runtime.streams.take()

    def opened(model: Any) -> int:
        from cowmlx.cache.shared import SharedPrefixes
        from cowmlx.generated import constants

        models._prefixes[model] = SharedPrefixes(0)
        return int(engine.runtime.handles.add(constants.KIND_MODEL, model))

    engine.runtime.scheduler.add(Loading(call, steps, stream, lambda: None, opened))
    in_process.finish(engine)
    if call.error is not None:
        raise call.error
    return int(call.result)


def block(engine: Any, context: int, tokens: int) -> float:
    """Milliseconds of a token."""
    call: Any = in_process.Call()
    fields = {**GENERATION, "bias_tokens": [], "bias_values": [], "max_tokens": tokens + WARM}
    engine.context_begin(call, context, [*range(20, 52)], {**fields, "stop": []})
    in_process.finish(engine)
    taken = 0
    began = 0.0
    while taken < tokens + WARM:
        if taken == WARM:
            began = perf_counter()
        call = in_process.Call()
        engine.context_next(call, context)
        while call.result is None and call.error is None:
            engine.step()
        taken += 1
    milliseconds = 1e3 * (perf_counter() - began) / tokens
    engine.context_reset(context)
    return milliseconds


def latency(engine: Any, model: int) -> float:
    """Milliseconds of an entry that computes nothing, and its answer."""
    group = engine.models.get(model).network.group
    times = []
    for _ in range(200):
        began = perf_counter()
        entry = group.post({"op": "nothing"}, size=0)
        while not entry.answers:
            group.poll(0.01)
        times.append(perf_counter() - began)
    return 1e3 * median(times)


def main() -> None:
    """Measure, and say so."""
    name = sys.argv[1] if len(sys.argv) > 1 else "M"
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 24
    folder = random_model(name)
    with in_process.started() as engine:
        models = in_process.loaded(engine, folder), on_a_rank(engine, folder)
        contexts = [engine.context_create(model, CONTEXT) for model in models]
        pairs = [[block(engine, context, tokens) for context in contexts] for _ in range(BLOCKS)]
        report = {
            "model": name,
            "here_ms": median(here for here, _ in pairs),
            "rank_ms": median(there for _, there in pairs),
            "quotient": median(there / here for here, there in pairs),
            "entry_ms": latency(engine, models[1]),
            "ranks": engine.model_info(models[1])["ranks"],
            "peak_of_rank": engine.models.get(models[1]).network.group.peers[0].peak,
            "host_active_bytes": mx.get_active_memory(),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
