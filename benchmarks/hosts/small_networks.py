"""Small networks that hosts/networks.py trains, each written once for all sides.

A network is a function of a side's operations `o`, a batch `x`, what belongs to it `y`, and
parameters `p` by name. It returns the mean loss.
"""

from itertools import count, pairwise

import numpy as np

BATCH, ROWS = 64, 1024
CLASSES, WORDS, WIDTH, HEADS, LATENT, HIDDEN = 10, 1000, 64, 4, 20, 64


def logistic(o, x, y, p):
    """Two classes of 30 features."""
    return o.binary_cross_entropy(x @ p["w"] + p["b"], y)


def mlp(o, x, y, p):
    """Pictures as rows, two hidden layers."""
    for at in ("1", "2"):
        x = o.relu(x @ p["w" + at] + p["b" + at])
    return o.cross_entropy(x @ p["w3"] + p["b3"], y)


def convolutions(o, x, y, p):
    """Two convolutions of stride 2, and a linear layer."""
    for at in ("1", "2"):
        x = o.relu(o.conv(x, p["k" + at], p["b" + at], stride=2))
    return o.cross_entropy(o.flat(x) @ p["w3"] + p["b3"], y)


def vae(o, x, noise, p):
    """A variational autoencoder (Kingma and Welling, 2013) of 20 latent numbers."""
    hidden = o.relu(x @ p["w1"] + p["b1"])
    mean, spread = hidden @ p["w2"] + p["b2"], hidden @ p["w3"] + p["b3"]
    latent = mean + noise * o.exp(0.5 * spread)
    logits = o.relu(latent @ p["w4"] + p["b4"]) @ p["w5"] + p["b5"]
    distance = o.mean(1 + spread - mean * mean - o.exp(spread))
    return o.binary_cross_entropy(logits, o.sigmoid(x)) - 0.5 * LATENT / 784 * distance


def encoder(o, x, y, p):
    """Two layers of a transformer's encoder (Vaswani et al., 2017) over 32 words, norms first."""
    x = o.embedding(p["words"], x) + p["places"]
    for at in ("1", "2"):

        def part(name, x, at=at):
            return x @ p[name + at] + p["b" + name + at]

        normed = o.layer_norm(x, p["n" + at], p["bn" + at])
        q, k, v = (o.heads(part(name, normed)) for name in ("q", "k", "v"))
        x = x + part("o", o.joined(o.attention(q, k, v)))
        x = x + part("d", o.gelu(part("u", o.layer_norm(x, p["m" + at], p["bm" + at]))))
    return o.cross_entropy(o.mean(x, 1) @ p["w"] + p["b"], y)


def lstm(o, x, y, p):
    """A picture's rows one after the other (Hochreiter and Schmidhuber, 1997)."""
    last = o.lstm(x, p["wx"], p["wh"], p["bias"])
    return o.cross_entropy(last @ p["w"] + p["b"], y)


def resnet(o, x, y, p):
    """Four residual blocks of two convolutions (He et al., 2015), of 16 and 32 channels."""

    def normed(x, at, stride=1):
        made = o.conv(x, p["k" + at], None, stride=stride)
        return o.batch_norm(made, p["n" + at], p["b" + at])

    x = o.relu(normed(x, "0"))
    for at, (before, channels) in enumerate(BLOCKS):
        stride = channels // before
        short = x if stride == 1 else o.conv(x, p[f"s{at}"], None, stride=stride)
        x = o.relu(normed(o.relu(normed(x, f"{at}a", stride)), f"{at}b") + short)
    return o.cross_entropy(o.pooled(x) @ p["w"] + p["b"], y)


BLOCKS = ((16, 16), (16, 16), (16, 32), (32, 32))


def dense(*sizes):
    """Shapes of the linear layers between these sizes."""
    shapes = {}
    for at, (before, behind) in enumerate(pairwise(sizes), 1):
        shapes |= {f"w{at}": (before, behind), f"b{at}": (behind,)}
    return shapes


def encoder_shapes():
    """Shapes of the encoder's parameters."""
    shapes = {"words": (WORDS, WIDTH), "places": (32, WIDTH)}
    for at in ("1", "2"):
        for name in ("q", "k", "v", "o"):
            shapes |= {name + at: (WIDTH, WIDTH), f"b{name}{at}": (WIDTH,)}
        shapes |= {"u" + at: (WIDTH, 4 * WIDTH), "bu" + at: (4 * WIDTH,)}
        shapes |= {"d" + at: (4 * WIDTH, WIDTH), "bd" + at: (WIDTH,)}
        shapes |= {name + at: (WIDTH,) for name in ("n", "bn", "m", "bm")}
    return {**shapes, "w": (WIDTH, CLASSES), "b": (CLASSES,)}


def resnet_shapes():
    """Shapes of the residual network's parameters."""
    shapes = {"k0": (16, 3, 3, 1), "n0": (16,), "b0": (16,)}
    for at, (before, channels) in enumerate(BLOCKS):
        shapes |= {f"k{at}a": (channels, 3, 3, before), f"k{at}b": (channels, 3, 3, channels)}
        shapes |= {name + f"{at}{half}": (channels,) for name in "nb" for half in "ab"}
        if before != channels:
            shapes[f"s{at}"] = (channels, 1, 1, before)
    return {**shapes, "w": (32, CLASSES), "b": (CLASSES,)}


# A function, the shape of a row, and the shapes of parameters.
NETWORKS = {
    "logistic": (logistic, (30,), {"w": (30,), "b": ()}),
    "mlp": (mlp, (784,), dense(784, 256, 128, CLASSES)),
    "convolutions": (
        convolutions,
        (28, 28, 1),
        {"k1": (8, 3, 3, 1), "b1": (8,), "k2": (16, 3, 3, 8), "b2": (16,)}
        | {"w3": (784, CLASSES), "b3": (CLASSES,)},
    ),
    "vae": (
        vae,
        (784,),
        {"w1": (784, 400), "b1": (400,), "w2": (400, LATENT), "b2": (LATENT,)}
        | {"w3": (400, LATENT), "b3": (LATENT,), "w4": (LATENT, 400), "b4": (400,)}
        | {"w5": (400, 784), "b5": (784,)},
    ),
    "encoder": (encoder, (32,), encoder_shapes()),
    "lstm": (
        lstm,
        (28, 28),
        {"wx": (28, 4 * HIDDEN), "wh": (HIDDEN, 4 * HIDDEN), "bias": (4 * HIDDEN,)}
        | {"w": (HIDDEN, CLASSES), "b": (CLASSES,)},
    ),
    "resnet": (resnet, (28, 28, 1), resnet_shapes()),
}


def data(network):
    """Rows, what belongs to them, and parameters."""
    _, row, shapes = NETWORKS[network]
    rng = np.random.default_rng(0)
    if network == "encoder":
        x = rng.integers(0, WORDS, (ROWS, *row)).astype(np.int32)
    else:
        x = rng.standard_normal((ROWS, *row)).astype(np.float32)
    if network == "vae":
        y = rng.standard_normal((ROWS, LATENT)).astype(np.float32)
    elif network == "logistic":
        y = rng.integers(0, 2, ROWS).astype(np.float32)
    else:
        y = rng.integers(0, CLASSES, ROWS).astype(np.int32)
    initial = {
        name: np.asarray(0.1 * rng.standard_normal(shape), np.float32)
        for name, shape in shapes.items()
    }
    return x, y, initial


def batches():
    """Yield the slice of every batch, again and again."""
    for made in count():
        at = made * BATCH % ROWS
        yield slice(at, at + BATCH)
