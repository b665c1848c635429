"""The cost of quantized keys and values: ``python -m benchmarks.kv_bits MODEL TEXT [TOKENS]``.

Prints, for every ``kv_bits``, the perplexity of the first TOKENS (2048) of a text, the mean KL
divergence of the next token's distribution from that with keys and values of the model's type, how
often another token is the best, and the bytes of the cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from cowmlx.cache.layers import KVQuantization
from cowmlx.models import registry
from cowmlx.models.model import Model
from cowmlx.steps import finished

_CHUNK = 32  # tokens whose distributions are in memory


def main() -> None:
    """Measure a model."""
    path, text, *rest = sys.argv[1:]
    loading = registry.load(path, adapter_path=None, lazy=False, trust_remote_code=False)
    model = finished(loading)
    with open(text, encoding="utf-8") as file:
        encoding = model.tokenizer.encode_steps(file.read(), add_special=True, parse_special=False)
    tokens = finished(encoding)[: int(rest[0]) if rest else 2048]
    print(f"{model.name}, {len(tokens)} tokens: bits, perplexity, KL in nats, other best, bytes")
    layers = {bits: KVQuantization(model, bits, 0).maker(model)() for bits in (0, 8, 4)}
    sums: dict[int, Any] = {bits: [0.0, 0.0, 0.0] for bits in layers}
    for start in range(0, len(tokens) - 1, _CHUNK):
        ids = tokens[start : start + _CHUNK]
        following = tokens[start + 1 : start + 1 + _CHUNK]
        exact = None
        for bits, logprobs in _logprobs(model, ids[: len(following)], layers):
            exact = logprobs if exact is None else exact
            chosen = mx.take_along_axis(logprobs, mx.array(following)[:, None], 1)
            divergence = (mx.exp(exact) * (exact - logprobs)).sum()
            others = (exact.argmax(-1) != logprobs.argmax(-1)).sum()
            values = [-chosen.sum().item(), divergence.item(), others.item()]
            sums[bits] = [a + b for a, b in zip(sums[bits], values, strict=True)]
    for bits, (surprise, divergence, others) in sums.items():
        count = len(tokens) - 1
        perplexity = mx.exp(mx.array(surprise / count)).item()
        size = sum(layer.nbytes for layer in layers[bits])
        print(
            f"{bits} {perplexity:.3f} {divergence / count:.5f} {others / count:.2%} {size:,}",
            flush=True,
        )


def _logprobs(
    model: Model, ids: list[int], layers: dict[int, list[Any]]
) -> Iterator[tuple[int, mx.array]]:
    """Yield float32 (S, V) behind each of some tokens, for every number of bits."""
    for bits, caches in layers.items():
        logits = model.network(mx.array([ids]), cache=caches)[0].astype(mx.float32)
        logprobs = logits - mx.logsumexp(logits, -1, keepdims=True)
        mx.eval(logprobs, [layer.state for layer in caches])
        yield bits, logprobs


if __name__ == "__main__":
    main()
