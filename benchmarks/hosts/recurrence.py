"""Processes a prompt with a form of the mLSTM recurrence: recurrence.py MODEL.

Answers each line "WHAT CHUNK LENGTH" with the seconds that LENGTH tokens take. WHAT is "cell", the
recurrence of one block alone, or "model", the network on a prompt in the engine's pieces. CHUNK is
the size of chunks, or 0 for one position after the other.
"""

import sys
import time

import mlx.core as mx
from bare import load

from cowmlx.generation.pace import PREFILL_CHUNK
from cowmlx.networks.blocks import mlstm, mlstm_cell

EPS = 1e-6
model = load(sys.argv[1])
layers = [block.mlstm_layer for block in model.network.layers]
heads = layers[0]._heads
qk_dims, _, v_dims, _ = (size // heads for size in layers[0]._sizes)


def run(inputs, state, *, chunk_size, eps):
    """Run the recurrence in one of its forms."""
    if chunk_size == 0:
        return mlstm_cell.sequential(inputs, state, eps=eps)
    return mlstm_cell.mlstm(inputs, state, chunk_size=chunk_size, eps=eps)


def cell(chunk, length):
    """Seconds of the recurrence alone."""
    mx.random.seed(7)
    q, k = mx.random.normal((2, 1, heads, length, qk_dims))
    v = mx.random.normal((1, heads, length, v_dims))
    i, f = mx.random.normal((2, 1, heads, length))
    inputs = mlstm_cell.Inputs(q, k, v, i, f)
    state = mlstm_cell.empty_state(1, heads, qk_dims, v_dims)
    mx.eval(inputs, state)
    begun = time.perf_counter()
    mx.eval(run(inputs, state, chunk_size=chunk, eps=EPS))
    return time.perf_counter() - begun


def whole(chunk, length):
    """Seconds of the network."""
    mlstm.mlstm = run
    for layer in layers:
        layer._chunk_size = chunk
    tokens = mx.random.randint(16, model.vocabulary_size, (1, length), key=mx.random.key(7))
    states = model.make_cache()
    mx.eval(tokens)
    begun = time.perf_counter()
    for start in range(0, length, PREFILL_CHUNK):
        model.network(tokens[:, start : start + PREFILL_CHUNK], cache=states)
        mx.eval([state.state for state in states])
    return time.perf_counter() - begun


print("ready", flush=True)
for line in sys.stdin:
    what, *numbers = line.split()
    print({"cell": cell, "model": whole}[what](*map(int, numbers)), flush=True)
