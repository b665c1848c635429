"""Runs a wiring of two branches: branches.py DIMS.

Answers each line "FORM TOKENS" with the seconds that a pass over as many tokens takes. FORM is
"together", all on one stream, or "apart", a stream per branch.
"""

import sys
import time

import bare  # noqa: F401 - the engine's BLAS, before mlx
import mlx.core as mx

from cowmlx.accelerate.device import prepare_for_device
from cowmlx.networks.wiring import WiredModel, Wiring, model

LAYERS = 3
THRESHOLDS = {"together": sys.maxsize, "apart": 0}

dims = int(sys.argv[1])
wiring = Wiring().add_block("stream_0", "embedding", num_embeddings=16, dims=dims)
for index in range(LAYERS):
    here, there = f"stream_{index}", f"stream_{index + 1}"
    for side in ("left", "right"):
        wiring.add_block(f"{side}_{index}", "swiglu", dims=dims, hidden_dims=3 * dims)
    wiring.add_block(there, "identity", dims=dims)
    for side, polarity in (("left", 1), ("right", -1)):
        wiring.connect(here, f"{side}_{index}").connect(f"{side}_{index}", there, polarity)
    wiring.connect(here, there)
network = WiredModel(wiring)
stream = mx.new_stream(mx.default_device())
prepare_for_device(network)
mx.eval(network.parameters())

print("ready", network.blocks["left_0"].gate_proj.weight.size * 3, flush=True)
for line in sys.stdin:
    form, tokens = line.split()
    model._WORTH_A_STREAM = THRESHOLDS[form]
    inputs = mx.zeros((1, int(tokens)), mx.int32)
    begun = time.perf_counter()
    with mx.stream(stream):
        mx.eval(network(inputs))
    print(time.perf_counter() - begun, flush=True)
