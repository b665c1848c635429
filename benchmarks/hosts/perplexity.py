"""The loss of a trained model by rounded activations, on text.

perplexity.py MODEL [TOKENS], a folder with quantized weights, or bfloat16 on a processor that
multiplies it; 20,000 tokens of Python's own documentation if not given, in windows of 512. Prints a
line of JSON after every eighth window: the perplexity with exact activations, by how many percent
it is higher with those that the library rounds by default, the standard error of that, the mean
divergence of the next token's distribution in 1e-3 nats, and the share of positions in percent
where another token is the best.
"""

import json
import math
import pydoc_data.topics
import sys

import mlx.core as mx
from bare import load

from cowmlx.generated import constants

WINDOW = 512
EVERY = 8
folder = sys.argv[1]
wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
exact = load(folder, activations=constants.ACTIVATIONS_EXACT)
rounded = load(folder)
topics = pydoc_data.topics.topics
text = "\n\n".join(topics[name] for name in sorted(topics))[: 12 * wanted]
tokenizer = exact.tokenizer
tokens = tokenizer.encode(text, add_special=False, parse_special=False)
first = tokenizer.encode("", add_special=True, parse_special=False)[:1]


def logarithms(model, ids):
    """Return (tokens, V) the logarithms of the next token's probabilities."""
    logits = model.network(mx.array([ids]), cache=model.make_cache())[0].astype(mx.float32)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def compare(ids):
    """Return numbers of each position: both losses, the divergence, another best token."""
    right, other = logarithms(exact, ids)[:-1], logarithms(rounded, ids)[:-1]
    following = mx.array(ids[1:])[:, None]
    losses = [-mx.take_along_axis(each, following, axis=-1)[:, 0] for each in (right, other)]
    divergence = mx.sum(mx.exp(right) * (right - other), axis=-1)
    changed = mx.argmax(right, axis=-1) != mx.argmax(other, axis=-1)
    return mx.stack([*losses, divergence, changed.astype(mx.float32)]).tolist()


def report(found):
    """Print the means of what was found."""
    count = len(found[0])
    more = [other - right for right, other in zip(found[0], found[1], strict=True)]
    mean = sum(more) / count
    spread = math.sqrt(sum((each - mean) ** 2 for each in more) / count)
    line = {
        "tokens": count,
        "perplexity": math.exp(sum(found[0]) / count),
        "rounded, %": 100 * math.expm1(mean),
        "standard error, %": 100 * spread / math.sqrt(count),
        "KL, 1e-3": 1e3 * sum(found[2]) / count,
        "changed, %": 100 * sum(found[3]) / count,
    }
    print(json.dumps({name: round(value, 4) for name, value in line.items()}), flush=True)


found = [[], [], [], []]
step = WINDOW - len(first)
for number, begin in enumerate(range(0, min(wanted, len(tokens) - step), step), 1):
    ids = first + tokens[begin : begin + step]
    for column, more in zip(found, compare(ids), strict=True):
        column += more
    if number % EVERY == 0:
        report(found)
report(found)
