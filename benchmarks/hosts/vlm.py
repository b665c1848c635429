"""The same as image.c in Python on mlx-vlm: vlm.py MODEL.

Lines of the kind "image" mean the same here. It is run by a Python that has mlx-vlm.
"""

import json
import sys
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_vlm.generate import generate_step
from mlx_vlm.utils import load_model
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

FACTOR, STEP = 1664525, 1013904223  # of picture.h


def drawn(seed: int, width: int, height: int) -> np.ndarray:
    """Return the pixels of picture.h, (height, width, 3)."""
    powers = np.multiply.accumulate(np.full(width * height * 3, FACTOR, np.uint32))
    sums = np.add.accumulate(np.append(np.uint32(1), powers[:-1]), dtype=np.uint32)
    states = powers * np.uint32(seed + 1) + sums * np.uint32(STEP)
    return (states >> 24).astype(np.uint8).reshape(height, width, 3)


mx.set_default_device(mx.cpu)
folder = Path(sys.argv[1])
model, processor = load_model(folder), Gemma3ImageProcessorPil.from_pretrained(folder)
config = json.loads((folder / "config.json").read_text())
soft = [config["image_token_index"]] * config["mm_tokens_per_image"]
print("ready", flush=True)

for line in sys.stdin:
    count, seed, width, height, before, *around = map(int, line.split()[1:])
    pixels = drawn(seed, width, height)
    begun, spent = time.perf_counter(), time.process_time()
    values = mx.array(np.stack(processor([Image.fromarray(pixels)])["pixel_values"]))
    prompt = mx.array([[*around[:before], *soft, *around[before:]]])
    steps = generate_step(
        prompt, model, values, mx.ones_like(prompt), max_tokens=count, temperature=0.0
    )
    tokens, marks = [], []
    for token, _ in steps:
        tokens.append(token)
        marks.append(time.perf_counter())
    spent = time.process_time() - spent
    print(marks[0] - begun, marks[-1] - marks[0], spent, *tokens, flush=True)
