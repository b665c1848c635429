"""Compares a model with quantized forms, exact and with activations of eight bits.

activations.py MODEL, of 32 bits. Answers each line "TOKENS BITS SEQUENCES LENGTH" with the mean
divergence of the next token's distribution and the share of positions where another token is the
best: of quantized weights from plain ones, and of rounded activations from exact ones. TOKENS are
"sampled" from the plain model or "random".
"""

import json
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
from bare import load

from cowmlx.generated import constants

GROUP = 64
folder = Path(sys.argv[1])
plain = load(folder)


def quantized(bits, place):
    """Write the model with quantized weights; returns its folder."""
    weights = {}
    for name, array in mx.load(str(folder / "model.safetensors")).items():
        if array.ndim != 2:
            weights[name] = array
            continue
        parts = mx.quantize(array, group_size=GROUP, bits=bits)
        stem = name.removesuffix(".weight")
        for part, kind in zip(parts, ("weight", "scales", "biases"), strict=True):
            weights[f"{stem}.{kind}"] = part
    mx.save_safetensors(str(place / "model.safetensors"), weights, {"format": "mlx"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = {"group_size": GROUP, "bits": bits}
    (place / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (place / name).write_bytes((folder / name).read_bytes())
    return place


def sample(count, length):
    """Return (count, length) tokens that the plain model samples behind its first one."""
    first = plain.config.get("bos_token_id", 1)
    cache, last = plain.make_cache(), mx.full((count, 1), first)
    tokens = [last]
    for index in range(length - 1):
        logits = plain.network(last, cache=cache)[:, -1]
        last = mx.random.categorical(logits, key=mx.random.key(index))[:, None]
        mx.eval(last)
        tokens.append(last)
    return mx.concatenate(tokens, axis=1)


def logarithms(model, tokens):
    """Return (positions, V) the logarithms of the next token's probabilities."""
    rows = []
    for sequence in tokens:
        logits = model.network(sequence[None], cache=model.make_cache())[0].astype(mx.float32)
        rows.append(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
        mx.eval(rows[-1])
    return mx.concatenate(rows)


def compare(right, other):
    """Return the mean divergence, and the share of positions with another best token."""
    divergence = mx.sum(mx.exp(right) * (right - other), axis=-1).mean()
    changed = mx.argmax(right, axis=-1) != mx.argmax(other, axis=-1)
    return divergence.item(), changed.astype(mx.float32).mean().item()


print("ready", flush=True)
for line in sys.stdin:
    kind, *numbers = line.split()
    bits, count, length = map(int, numbers)
    if kind == "sampled":
        tokens = sample(count, length)
    else:
        low = 16  # special tokens come first
        key = mx.random.key(7)
        tokens = mx.random.randint(low, plain.vocabulary_size, (count, length), key=key)
    with tempfile.TemporaryDirectory() as place:
        made = quantized(bits, Path(place))
        exact = load(made, activations=constants.ACTIVATIONS_EXACT)
        rounded = load(made, activations=constants.ACTIVATIONS_INT8)
        results = [logarithms(model, tokens) for model in (plain, exact, rounded)]
    print(*compare(*results[:2]), *compare(*results[1:]), flush=True)
