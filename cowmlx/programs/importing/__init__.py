"""Importers: files of programs and of other systems' networks as programs of this library."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cowmlx.errors import InvalidArgument, NotFound
from cowmlx.programs.bounds import MAX_BYTES, Pace, Steps
from cowmlx.programs.checking import text
from cowmlx.programs.importing.failures import missing, require_file, unreadable

if TYPE_CHECKING:
    import mlx.core as mx

    from cowmlx.programs.program import Program

IMPORTERS = {".onnx": "onnx_file", ".mlxfn": "mlxfn_walk"}
KINDS = (".json", *IMPORTERS)
ARRAYS = ".safetensors"
"""The ending of the file beside a program's, with the values of its parameters."""


def load_steps(path: str, fixed: str | None = None, gpu: bool = False) -> Steps[Program]:
    """Return the program of a file, in steps.

    Args:
        path: a name that ends with one of :data:`KINDS`.
        fixed: values of inputs and sizes of dimensions, as a JSON object; not for programs.
        gpu: whether it will run on a GPU, which has no float64.

    Raises:
        NotFound: the file is missing, or a package that it needs.
        InputOutput: it cannot be read.
        BadFormat: it is damaged.
        InvalidArgument: the program in it is wrong, or ``fixed`` does not fit it.
        Unsupported: it needs what programs do not have.
    """
    from cowmlx.programs.program import Program

    entry, values = yield from parts_steps(path, fixed)
    return (yield from Program.of_entry_steps(entry, values, gpu))


def parts_steps(
    path: str, fixed: str | None = None
) -> Steps[tuple[dict[str, Any], dict[str, mx.array]]]:
    """Return the program of a file as JSON has it, and arrays for its parameters, in steps."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in KINDS:
        raise InvalidArgument(
            f"path is {path}, must be a name that ends with {' or '.join(KINDS)}",
            argument="path",
            value=ending[:16],
            accepted=", ".join(KINDS),
        )
    given = {}
    if fixed is not None:
        given = yield from text.read_steps(fixed, "fixed")
    if not os.path.exists(path):
        raise NotFound(f"No such file or directory: {path}", file=path)
    require_file(path)
    if ending in IMPORTERS:
        try:
            importer = importlib.import_module(f"{__name__}.{IMPORTERS[ending]}")
        except ModuleNotFoundError as error:
            if error.name != "numpy":
                raise
            raise missing(f"{ending} files", "numpy", error) from error
        imported = yield from importer.load_steps(path, given)
        return imported.entry, (yield from imported.arrays_steps())
    if given:
        raise InvalidArgument(
            f"fixed is for {' and '.join(IMPORTERS)} files: the dimensions of a program are in its "
            "JSON",
            reason="conflict",
            argument="fixed",
        )
    return (yield from _json_steps(path))


def require_json_ending(path: str) -> None:
    """Check the name of a file that a program is written to.

    Raises:
        InvalidArgument: it does not end with .json.
    """
    ending = os.path.splitext(path)[1]
    if ending.lower() != ".json":
        raise InvalidArgument(
            f"cannot write {path}: its name must end with .json",
            argument="path",
            value=ending[:16],
            accepted=".json",
        )


def save(entry: Mapping[str, Any], values: Mapping[str, mx.array], path: str) -> None:
    """Write a program as JSON, and values of its parameters as safetensors beside it.

    Earlier files stay until both are written.

    Args:
        entry: the program as JSON has it.
        values: by the names of parameters.
        path: a name that ends with .json.

    Raises:
        InvalidArgument: it ends otherwise, the program is larger than programs may be, or it has
            no parameters and a file of other values is beside it.
        InputOutput: a file cannot be written.
    """
    from cowmlx.folders import places, safetensors

    require_json_ending(path)
    text = json.dumps(entry, separators=(",", ":"))
    if len(text) > MAX_BYTES:
        raise InvalidArgument(
            f"the program has {len(text):,} bytes of JSON, of {MAX_BYTES:,} at most",
            reason="limit_exceeded",
        )
    beside = os.path.splitext(path)[0] + ARRAYS
    if not values and os.path.exists(beside):
        raise InvalidArgument(
            f"{beside} would be read as values of parameters, and the program has none: move it, "
            "or choose another name",
            reason="conflict",
            argument="path",
        )
    fresh = f"{beside}.partial{ARRAYS}", f"{path}.partial"  # mlx wants this ending
    try:
        if values:
            safetensors.save(fresh[0], dict(values))
            places.sync(fresh[0])
        with open(fresh[1], "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if values:
            os.replace(fresh[0], beside)
        os.replace(fresh[1], path)
    except OSError as error:
        raise places.unwritable(path, error) from error
    finally:
        for name in fresh:
            with suppress(OSError):
                os.remove(name)


def _json_steps(path: str) -> Steps[tuple[dict[str, Any], dict[str, mx.array]]]:
    import mlx.core as mx

    from cowmlx.folders import safetensors

    try:
        with open(path, "rb") as file:
            source = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    entry = yield from text.read_steps(source, "the program")
    beside = os.path.splitext(path)[0] + ARRAYS
    if not os.path.exists(beside):
        return entry, {}
    require_file(beside)
    safetensors.check_file(beside)
    yield
    arrays = safetensors.load(beside)
    pace = Pace()
    for array in arrays.values():
        mx.eval(array)
        yield from pace.rest()
    return entry, arrays
