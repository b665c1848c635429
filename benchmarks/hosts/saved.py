"""The same as saved.c in plain Python on mlx-lm: saved.py MODEL FILE.

"synced" saves and waits for the disk, as the library does. A load evaluates what it has loaded,
which mlx-lm itself leaves for later.
"""

import os
import sys
import time

import mlx.core as mx
from mlx_lm import load
from mlx_lm.models.cache import load_prompt_cache, make_prompt_cache, save_prompt_cache

_, folder, file = sys.argv
model, _ = load(folder)
cache = make_prompt_cache(model)
print("ready", flush=True)

for line in sys.stdin:
    kind, _, *prompt = line.split()
    begun = time.perf_counter()
    if kind == "begin":
        model(mx.array([[int(token) for token in prompt]]), cache=cache)
        mx.eval([layer.state for layer in cache])
    elif kind == "load":
        cache = load_prompt_cache(file)
        mx.eval([layer.state for layer in cache])
    else:
        save_prompt_cache(file, cache)
    if kind == "synced":
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    print(time.perf_counter() - begun, flush=True)
