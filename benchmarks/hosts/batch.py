"""mlx-lm's ``batch_generate`` in plain Python: batch.py MODEL.

Answers lines of crowd.c's form with the tokens/s of all sequences together while they decode.
"""

import sys

from mlx_lm import batch_generate, load

model, tokenizer = load(sys.argv[1])
print("ready", flush=True)

for line in sys.stdin:
    max_tokens, count, *given = map(int, line.split()[1:])
    length = len(given)
    prompts = [[given[(i + 7 * row) % length] for i in range(length)] for row in range(count)]
    done = batch_generate(model, tokenizer, prompts, max_tokens=max_tokens)
    print(done.stats.generation_tps, flush=True)
