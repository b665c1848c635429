"""Arrays in files that commands read and write: numpy's .npy, and safetensors."""

from __future__ import annotations

import ast
import os
from collections.abc import Generator, Mapping
from typing import Any

from cowmlx.commands.terminal import CommandError
from cowmlx.steps import finished

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 1 << 16
_MAX_RANK = 8
_MAX_BYTES = 1 << 40
# The name of mlx's dtype and its bytes. numpy has no bfloat16.
_KINDS = {
    "|b1": ("bool", 1),
    "|u1": ("uint8", 1),
    "<u2": ("uint16", 2),
    "<u4": ("uint32", 4),
    "<u8": ("uint64", 8),
    "|i1": ("int8", 1),
    "<i2": ("int16", 2),
    "<i4": ("int32", 4),
    "<i8": ("int64", 8),
    "<f2": ("float16", 2),
    "<f4": ("float32", 4),
    "<f8": ("float64", 8),
    "<c8": ("complex64", 8),
}


def read(path: str) -> Any:
    """Return the array of a .npy file, or the arrays of a safetensors file by name.

    Raises:
        CommandError: it is neither.
        CowMlxError: a safetensors file that is damaged.
        OSError: it cannot be read.
    """
    ending = _ending(path)
    if ending == ".npy":
        return _read_npy(path)
    if ending == ".safetensors":
        from cowmlx.folders import safetensors

        safetensors.check_file(path)
        return safetensors.load(path)
    raise CommandError(f"cannot read {path}: a name ends with .npy or .safetensors")


def check_write(path: str, dtypes: Mapping[str, str]) -> None:
    """Check that :func:`write` can write arrays of these names and dtypes into such a file.

    Raises:
        CommandError: another ending, several arrays for a .npy file, or a dtype numpy lacks.
    """
    ending = _ending(path)
    if ending == ".safetensors":
        return
    if ending != ".npy":
        raise CommandError(f"cannot write {path}: a name ends with .npy or .safetensors")
    if len(dtypes) != 1:
        raise CommandError(
            f"{path} holds one array, and there are {len(dtypes)}: name one as NAME={path}"
        )
    ((name, dtype),) = dtypes.items()
    if dtype not in (known for known, _ in _KINDS.values()):
        raise CommandError(f"{name} is {dtype}, which .npy files do not have; write .safetensors")


def write(path: str, arrays: Mapping[str, Any]) -> None:
    """Write one array as .npy, or arrays by name as safetensors, whole or not at all.

    Raises:
        CommandError: see :func:`check_write`.
        NotFound, InputOutput: it cannot be written.
    """
    from cowmlx.cache import disk

    check_write(path, {name: _dtype(array) for name, array in arrays.items()})
    finished(disk.write_whole(path, lambda descriptor: _put(descriptor, _ending(path), arrays)))


def _put(descriptor: int, ending: str, arrays: Mapping[str, Any]) -> Generator[None, None, None]:
    import mlx.core as mx

    with open(descriptor, "wb", closefd=False) as file:
        if ending == ".npy":
            mx.save(file, *arrays.values())
        else:
            mx.save_safetensors(file, dict(arrays))
    yield
    os.fsync(descriptor)


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("mlx.core.").removesuffix("_")


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _read_npy(path: str) -> Any:
    from cowmlx.programs.checking.constants import array_of

    def bad(reason: str) -> CommandError:
        return CommandError(f"{path} is damaged or no .npy file: {reason}")

    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        if start[:6] != _MAGIC or start[6:7] not in (b"\x01", b"\x02", b"\x03"):
            raise bad("it does not begin as one")
        width = 2 if start[6] == 1 else 4
        length = int.from_bytes(file.read(width), "little")
        if length > _MAX_HEADER:
            raise bad(f"a header of {length} bytes")
        code, columns, shape = _header(file.read(length), bad)
        name, itemsize = _KINDS[code]
        needed = itemsize
        for dimension in shape:
            needed *= dimension
        rest = size - 8 - width - length
        if needed != rest or needed > _MAX_BYTES:
            raise bad(f"{shape} of {name} takes {needed} bytes, and there are {rest}")
        array = array_of(file.read(needed), name, shape[::-1] if columns else shape)
    return array.transpose() if columns else array


def _header(text: bytes, bad: Any) -> tuple[str, bool, tuple[int, ...]]:
    try:
        header = ast.literal_eval(text.decode("latin-1").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise bad("its header cannot be read") from None
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise bad("its header lacks descr, fortran_order or shape")
    code, shape = header["descr"], header["shape"]
    if not isinstance(code, str) or code not in _KINDS:
        raise bad(f"its dtype is {code!r:.40}, must be one of {', '.join(_KINDS)}")
    whole = isinstance(shape, tuple) and all(
        isinstance(length, int) and not isinstance(length, bool) and 0 <= length < 2**31
        for length in shape
    )
    if not whole or len(shape) > _MAX_RANK:
        raise bad(f"its shape is {shape!r:.80}")
    return code, header["fortran_order"] is True, shape
