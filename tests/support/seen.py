"""Prompts with images."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int32

import numpy as np

from .library import Library


def said(lib: Library, model: int, *parts: str | Sequence[int]) -> list[int]:
    """The prompt of a message: texts, and images of random pixels as (height, width, seed)."""
    content, opened = [], []
    for part in parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
            continue
        height, width, seed = part
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        out = c_int32()
        call = lib.c.cow_mlx_media_from_pixels
        lib.check(call(pixels.ctypes.data, width, height, 3, width * 3, byref(out)))
        opened.append(out.value)
        content.append({"type": "image", "media": out.value})
    tokens = lib.chat_prompt(model, [{"role": "user", "content": content}])
    for handle in opened:
        lib.check(lib.c.cow_mlx_media_free(handle))
    return tokens
