"""Encoded images for hosts that damage them, and images of absurd sizes."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

KINDS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
SIZES = ((65535, 65535), (2**31 - 1, 2**31 - 1), (1, 2**26 + 1), (0, 0), (64, 64))


def png(width: int, height: int) -> bytes:
    """A PNG whose header tells a size, with next to no pixels."""
    return png_of(width, height, b"\0" * 64)


def png_of(
    width: int,
    height: int,
    data: bytes,
    *,
    depth: int = 8,
    color: int = 2,
    before: bytes = b"",
    behind: bytes = b"",
) -> bytes:
    """A PNG of these rows, each with its filter's byte, and chunks before and behind them."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(data))
    return b"\x89PNG\r\n\x1a\n" + header + before + pixels + behind + chunk(b"IEND", b"")


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG."""
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def files(folder: Path) -> list[Path]:
    """Write an image of each kind, and those of absurd sizes, into a folder."""
    image = pytest.importorskip("PIL.Image", reason="needs pillow")
    pixels = np.random.default_rng(3).integers(0, 256, (18, 33, 3), np.uint8)
    contents = {f"size{at}.png": png(*size) for at, size in enumerate(SIZES)}
    for kind in KINDS:
        out = io.BytesIO()
        image.fromarray(pixels).save(out, kind)
        contents[f"whole.{kind.lower()}"] = out.getvalue()
    made = []
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        made.append(folder / name)
    return made
