"""Where the time of a decode step goes, without the library around it: split.py MODEL.

Answers each line "KIND COUNT TOKEN..." with the microseconds per token of building the step's
graph in Python and of evaluating it.
"""

import sys
import time

import mlx.core as mx
from bare import load

model = load(sys.argv[1])
print("ready", flush=True)

for line in sys.stdin:
    count, *prompt = map(int, line.split()[1:])
    layers = model.make_cache()
    token = mx.argmax(model.network(mx.array([prompt]), cache=layers)[:, -1], axis=-1)
    mx.eval(token)
    building = evaluating = 0.0
    for _ in range(count):
        begun = time.perf_counter()
        token = mx.argmax(model.network(token[:, None], cache=layers)[:, -1], axis=-1)
        built = time.perf_counter()
        mx.eval(token)
        building += built - begun
        evaluating += time.perf_counter() - built
    print(1e6 * building / count, 1e6 * evaluating / count, flush=True)
