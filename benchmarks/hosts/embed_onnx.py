"""onnxruntime as a host that embeds texts: embed_onnx.py MODEL TOKENIZER TEXTS THREADS POOLING.

Texts of similar length are computed together, filled up to the longest. Prints "ready IDLE" (MB,
before the model is loaded) and answers the lines of texts.h.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

MODEL, TOKENIZER, TEXTS, THREADS, POOLING = sys.argv[1:6]
TOGETHER = 2048  # tokens of a batch, with what fills it up

idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(THREADS)
session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
inputs = {own.name for own in session.get_inputs()}
(output,) = [own.name for own in session.get_outputs() if len(own.shape) == 3]
tokenizer = Tokenizer.from_file(TOKENIZER)
tokenizer.no_padding()
tokenizer.no_truncation()
texts = Path(TEXTS).read_text().splitlines()
vectors = [np.zeros(0, np.float32)] * len(texts)


def compute(tokens: list[list[int]]) -> np.ndarray:
    """Return the vectors of texts, of length 1."""
    ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
    mask = np.zeros_like(ids)
    for row, own in enumerate(tokens):
        ids[row, : len(own)] = own
        mask[row, : len(own)] = 1
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    (states,) = session.run([output], {name: given[name] for name in inputs})
    if POOLING == "cls":
        pooled = states[:, 0]
    elif len(tokens) == 1:
        pooled = states.mean(axis=1)
    else:
        sums = (mask[:, None].astype(np.float32) @ states)[:, 0]
        pooled = sums / mask.sum(axis=1, dtype=np.float32)[:, None]
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def embed(first: int, count: int) -> None:
    """Embed texts [first, first + count)."""
    own = texts[first : first + count]
    made = tokenizer.encode_batch_fast(own) if count > 1 else [tokenizer.encode(own[0])]
    tokens = [encoding.ids for encoding in made]
    batch: list[int] = []
    order = sorted(range(count), key=lambda index: len(tokens[index]))
    for index in [*order, -1]:
        if batch and (index < 0 or len(tokens[index]) * (len(batch) + 1) > TOGETHER):
            rows = compute([tokens[member] for member in batch])
            for member, row in zip(batch, rows, strict=True):
                vectors[first + member] = row
            batch = []
        batch.append(index)


print("ready", idle / 1024, flush=True)
for line in sys.stdin:
    kind, *rest = line.split()
    spent, begun = time.process_time(), time.perf_counter()
    if kind == "all":
        embed(0, len(texts))
    elif kind == "each":
        for place in range(0, len(texts), int(rest[0])):
            embed(place, 1)
    else:
        np.concatenate(vectors).tofile(rest[0])
    print(time.perf_counter() - begun, time.process_time() - spent, flush=True)
