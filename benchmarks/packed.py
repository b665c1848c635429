"""A model of 4 bits on a CPU, tokens/s of decoding and of a prompt: C ABI against mlx-lm.

Both load the same folder, packed weights with bfloat16 scales, and generate in turns. On a CPU the
library computes such models in float32, so that their tokens may differ.
"""

from __future__ import annotations

from statistics import median

from benchmarks.support.models import random_model, random_prompt
from benchmarks.support.peers import Peer, c_host, median_ratio, plain_host, take_turns
from benchmarks.support.report import Row

MODEL = "S of 4 bits"
PROMPT_TOKENS, TOKENS, BLOCKS = 64, 12, 3


def measure(large: bool) -> list[Row]:
    """Measure both on one model."""
    folder = random_model(MODEL)
    prompt = random_prompt(folder, PROMPT_TOKENS)
    with c_host(folder) as ours, plain_host(folder) as theirs:

        def rates(peer: Peer) -> tuple[float, float]:
            done = peer.generate("next", TOKENS, prompt)
            return (len(done.tokens) - 1) / done.rest, PROMPT_TOKENS / done.first

        mine, plain = take_turns(BLOCKS, lambda: rates(ours), lambda: rates(theirs))
    return [
        {
            "model": MODEL,
            "what": what,
            "C ABI": median(own),
            "mlx-lm": median(other),
            "ratio": median_ratio(own, other),
            "blocks": {"C ABI": own, "mlx-lm": other},
        }
        for what, own, other in zip(
            ("decode", "prefill"), zip(*mine, strict=True), zip(*plain, strict=True), strict=True
        )
    ]
