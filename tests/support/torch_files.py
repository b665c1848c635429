"""Files as ``torch.save`` writes them, made without PyTorch."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "float64": "DoubleStorage",
}
_OLD = (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", b"\x80\x02M\xe9\x03.")


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _number(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _sizes(sizes: Any) -> bytes:
    return b"(" + b"".join(map(_number, sizes)) + b"t"


def _tensor(key: str, kind: str, array: Any, changes: dict[str, Any]) -> bytes:
    strides = [int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim)]
    begin, shape = changes.get("begin", 0), changes.get("shape", array.shape)
    storage = _text("storage") + f"ctorch\n{kind}\n".encode() + _text(key) + _text("cpu")
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + storage
        + _number(array.size)
        + b"tQ"
        + _number(begin)
        + _sizes(shape)
        + _sizes(changes.get("strides", strides))
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )


def saved(
    file: Path, arrays: dict[str, tuple[Any, str]], *, old: bool = False, **changes: Any
) -> Path:
    """Write arrays by name, each with the name of its type, and return the file.

    Args:
        file: where to.
        arrays: numpy's; those of bfloat16 hold the numbers' bits.
        old: in the form before PyTorch 1.6.
        changes: "begin", "shape" or "strides" of every tensor; "compressed".
    """
    value = b"\x80\x02}("
    for index, (name, (array, dtype)) in enumerate(arrays.items()):
        value += _text(name) + _tensor(str(index), TYPES[dtype], array, changes)
    value += b"u}" + _text("_metadata") + b"Nsb."
    parts = [np.ascontiguousarray(array).tobytes() for array, _ in arrays.values()]
    if old:
        system = b"\x80\x02}" + _text("little_endian") + b"\x88s."
        keys = b"\x80\x02](" + b"".join(_text(str(index)) for index in range(len(parts))) + b"e."
        sizes = [array.size for array, _ in arrays.values()]
        stored = [struct.pack("<q", n) + part for n, part in zip(sizes, parts, strict=True)]
        file.write_bytes(b"".join([*_OLD, system, value, keys, *stored]))
        return file
    file.write_bytes(archive(value, parts, compressed=changes.get("compressed", False)))
    return file


def archive(value: bytes, parts: list[bytes], *, compressed: bool = False) -> bytes:
    """Return the archive of a pickle and storages."""
    whole = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(whole, "w", kind) as opened:
        opened.writestr("archive/data.pkl", value)
        opened.writestr("archive/byteorder", "little")
        for index, part in enumerate(parts):
            opened.writestr(f"archive/data/{index}", part)
    return whole.getvalue()
