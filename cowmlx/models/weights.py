"""Weights: from shards on disk into a network, and their evaluation group by group."""

from __future__ import annotations

import errno
import os

from cowmlx.errors import BadFormat, CowMlxError, InputOutput, NotFound, OutOfMemory
from cowmlx.models import config as config_files
from cowmlx.models import safetensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

# A load can be cancelled between two groups: no group holds more, one large tensor excepted.
GROUP_BYTES = 128 * 1024 * 1024
_NAMED = 5


def shards(path: str) -> list[str]:
    """List the folder's ``model*.safetensors``, checked by their headers.

    Raises:
        NotFound: there is none.
        BadFormat: one is damaged.
    """
    files = sorted(
        os.path.join(path, name)
        for name in os.listdir(path)
        if name.startswith("model") and name.endswith(".safetensors")
    )
    if not files:
        raise NotFound(
            f"{path} has no model*.safetensors; mlx_lm.convert makes them of other formats"
        )
    for file in files:
        safetensors.check_file(file)
    return files


def read(files: list[str]) -> dict[str, mx.array]:
    """Map every tensor of the shards lazily; nothing is read but the headers.

    Raises:
        BadFormat, OutOfMemory: mlx refuses a file.
    """
    weights: dict[str, mx.array] = {}
    for file in files:
        try:
            weights.update(safetensors.load(file))
        except Exception as exc:
            raise failure(exc, file) from exc
    return weights


def assign(network: Module, weights: dict[str, mx.array], path: str) -> None:
    """Put weights into a network; every name and shape must match.

    Raises:
        NotFound: weights are missing because a shard that the index names is.
        BadFormat: weights are missing, left over, of another shape, or no floating-point numbers.
    """
    expected = flatten(network.parameters())
    missing = sorted(expected.keys() - weights.keys())
    if missing:
        _require_indexed_shards(path)
        raise BadFormat(f"{path} lacks {_some(missing)}, which the config asks for")
    extra = sorted(weights.keys() - expected.keys())
    if extra:
        raise BadFormat(f"{path} has {_some(extra)}, which the config has no place for")
    wrong = [
        f"{name} is {_shape(weights[name])}, not {_shape(expected[name])}"
        for name in sorted(expected)
        if weights[name].shape != expected[name].shape
    ]
    if wrong:
        shown = "; ".join(wrong[:_NAMED])
        raise BadFormat(
            f"{path}: {len(wrong)} weights have other shapes than the config gives them: {shown}"
        )
    unusable = [
        f"{name} is {_type(weights[name])}, not {_type(expected[name])}"
        for name in sorted(expected)
        if _is_float(weights[name]) != _is_float(expected[name])
    ]
    if unusable:
        shown = "; ".join(unusable[:_NAMED])
        raise BadFormat(f"{path}: {len(unusable)} weights are of types that do not fit: {shown}")
    network.load_weights(list(weights.items()), strict=False)


def evaluate(network: Module, path: str) -> Iterator[float]:
    """Evaluate a network's parameters, yielding the fraction of bytes after each group.

    Raises:
        BadFormat, OutOfMemory: the evaluation failed.
    """
    import mlx.core as mx

    named = list(flatten(network.parameters()).items())
    total = sum(array.nbytes for _, array in named) or 1
    done = 0
    for group in _groups(named):
        try:
            mx.eval(group)
        except Exception as exc:
            raise failure(exc, path) from exc
        done += sum(array.nbytes for array in group)
        yield min(done / total, 1.0)


def count(network: Module) -> int:
    """Count parameters; a packed weight counts the numbers it stands for."""
    import mlx.core as mx

    total = 0
    for _, module in network.named_modules():
        own = {key: value for key, value in module.items() if not _holds_modules(value)}
        bits = getattr(module, "bits", None)
        for name, array in flatten(own).items():
            if not isinstance(array, mx.array) or name.startswith("_"):
                continue
            if isinstance(bits, int) and "scales" in module:
                if name == "weight":
                    total += array.size * 32 // bits
                elif name == "bias":
                    total += array.size
            else:
                total += array.size
    return total


def flatten(tree: Any) -> dict[str, mx.array]:
    """Return the arrays of a tree of parameters by their full names."""
    from mlx.utils import tree_flatten

    return dict(tree_flatten(tree))


def failure(exc: BaseException, where: str) -> CowMlxError:
    """Turn what mlx or tokenizers raised while loading into an error of ours."""
    if isinstance(exc, CowMlxError):
        return exc
    message = f"{type(exc).__name__}: {exc}"
    lowered = message.lower()
    if isinstance(exc, MemoryError) or any(
        words in lowered for words in ("bad_alloc", "out of memory", "unable to allocate", "malloc")
    ):
        return OutOfMemory(f"not enough memory for {where} ({message})")
    if getattr(exc, "errno", None) in (errno.EMFILE, errno.ENFILE, errno.EIO):
        return InputOutput(f"cannot read {where} ({message})")
    return BadFormat(f"cannot load {where} ({message})")


def _groups(named: list[tuple[str, mx.array]]) -> Iterator[list[mx.array]]:
    """Split parameters at layer borders, and within a layer at :data:`GROUP_BYTES`."""
    group: list[mx.array] = []
    size = 0
    layer = ""
    for name, array in named:
        here = _layer(name)
        if group and (here != layer or size + array.nbytes > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(array)
        size += array.nbytes
        layer = here
    if group:
        yield group


def _layer(name: str) -> str:
    """Return a parameter's name up to its first index: ``model.layers.3``."""
    parts = name.split(".")
    for index, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: index + 1])
    return ""


def _holds_modules(value: Any) -> bool:
    from mlx.nn.layers.base import Module

    if isinstance(value, Module):
        return True
    if isinstance(value, dict):
        return any(_holds_modules(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_modules(item) for item in value)
    return False


def _require_indexed_shards(path: str) -> None:
    index = os.path.join(path, "model.safetensors.index.json")
    files = config_files.read_json(index, optional=True).get("weight_map")
    if not isinstance(files, dict):
        return
    for name in sorted({value for value in files.values() if isinstance(value, str)}):
        if not os.path.exists(os.path.join(path, name)):
            raise NotFound(f"{path} has no {name}, which model.safetensors.index.json names")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} weights ({shown}{more})"


def _is_float(array: mx.array) -> bool:
    import mlx.core as mx

    return mx.issubdtype(array.dtype, mx.floating)


def _type(array: mx.array) -> str:
    return str(array.dtype).rpartition(".")[2]


def _shape(array: mx.array) -> str:
    return "x".join(map(str, array.shape)) or "a scalar"
