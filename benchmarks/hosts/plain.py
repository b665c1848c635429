"""The same as generate.c in plain Python on mlx-lm: plain.py MODEL.

The time of ``import mlx_lm`` stands where the C host's runtime_start does. All kinds
of lines mean the same here.
"""

import sys
import time

begun = time.perf_counter()
from mlx_lm import load, stream_generate  # noqa: E402

imported = time.perf_counter()
model, tokenizer = load(sys.argv[1])
loaded = time.perf_counter()
print("ready", 1e3 * (imported - begun), 1e3 * (loaded - imported), flush=True)

for line in sys.stdin:
    max_tokens, *prompt = map(int, line.split()[1:])
    tokens, marks = [], []
    begun, spent = time.perf_counter(), time.process_time()
    for response in stream_generate(model, tokenizer, prompt, max_tokens=max_tokens):
        if response.finish_reason != "stop":  # the end token is not counted
            marks.append(time.perf_counter())
            tokens.append(response.token)
    spent = time.process_time() - spent
    print(marks[0] - begun, marks[-1] - marks[0], spent, *tokens, flush=True)
