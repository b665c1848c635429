"""Weights: from shards on disk into a network, and their evaluation group by group."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from functools import partial

from cowmlx import failures, resources
from cowmlx.errors import BadFormat, CowMlxError, InputOutput, NotFound, OutOfMemory
from cowmlx.folders import config as config_files
from cowmlx.folders import safetensors
from cowmlx.folders.config import mismatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

# A load can be cancelled between two groups: no group holds more, one large tensor excepted.
GROUP_BYTES = 128 * 1024 * 1024
# How names of files with weights begin and end: safetensors, then PyTorch's.
_KINDS = (("model", ".safetensors"), ("pytorch_model", ".bin"))
_NAMED = 5
_IN_PLACE = "_read_in_place"  # of a network: the identities of arrays
_BLOCK_AXES = 3  # of a weight in blocks, which are filled up behind its rows


def shards(path: str) -> list[str]:
    """List the folder's ``model*.safetensors``, or else ``pytorch_model*.bin``, checked.

    Raises:
        NotFound: there is none.
        BadFormat: one is damaged.
    """
    files = [os.path.join(path, name) for name in names(path)]
    if not files:
        raise NotFound(
            f"{path} has no model*.safetensors; mlx_lm.convert makes them of other formats",
            file="model*.safetensors",
        )
    for file in files:
        if is_of_torch(file):
            from cowmlx.folders import torch_file  # late: zipfile takes milliseconds

            torch_file.places(file)
        else:
            safetensors.check_file(file)
    return files


def names(path: str) -> list[str]:
    """List the names of a folder's files of weights, sorted."""
    inside = sorted(os.listdir(path))
    for begin, end in _KINDS:
        found = [name for name in inside if name.startswith(begin) and name.endswith(end)]
        if found:
            return found
    return []


def is_of_torch(file: str) -> bool:
    """Whether a file of weights is PyTorch's, which is read at once."""
    return file.endswith(_KINDS[1][1])


def read(files: list[str]) -> dict[str, mx.array]:
    """Map every tensor of the shards lazily; nothing is read but the headers.

    Those of PyTorch are read at once.

    Raises:
        BadFormat, OutOfMemory: mlx refuses a file.
    """
    weights: dict[str, mx.array] = {}
    for file in files:
        with loading(file):
            if is_of_torch(file):
                from cowmlx.folders import torch_file  # late: zipfile takes milliseconds

                weights.update(torch_file.load(file))
            else:
                weights.update(safetensors.load(file))
    return weights


def start_readers(files: list[str]) -> None:
    """Let mlx start the threads that read large arrays, if some of these are.

    Raises:
        OutOfMemory: they cannot be started.
    """
    import mlx.core as mx

    if resources.large_readers_run():
        return
    for file in files:
        if os.path.getsize(file) < resources.LARGE_READ or is_of_torch(file):
            continue
        large = [a for a in safetensors.load(file).values() if a.nbytes >= resources.LARGE_READ]
        if large:
            smallest = min(large, key=lambda array: array.nbytes)
            resources.start_large_readers(partial(mx.eval, smallest))
            return


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
        raise mismatch(f"{path} lacks {_some(missing)}, which the config asks for", path)
    extra = sorted(weights.keys() - expected.keys())
    if extra:
        raise mismatch(f"{path} has {_some(extra)}, which the config has no place for", path)
    pairs = [(name, weights[name], expected[name]) for name in sorted(expected)]
    wrong = [f"{n} is {_shape(a)}, not {_shape(b)}" for n, a, b in pairs if a.shape != b.shape]
    if wrong:
        shown = "; ".join(wrong[:_NAMED])
        raise mismatch(
            f"{path}: {len(wrong)} weights have other shapes than the config gives them: {shown}",
            path,
        )
    wrong = [
        f"{n} is {_type(a)}, not {_type(b)}" for n, a, b in pairs if _is_float(a) != _is_float(b)
    ]
    if wrong:
        shown = "; ".join(wrong[:_NAMED])
        raise mismatch(f"{path}: {len(wrong)} weights are of types that do not fit: {shown}", path)
    network.load_weights(list(weights.items()), strict=False)


def evaluate(network: Module, path: str, group_bytes: int = GROUP_BYTES) -> Iterator[float]:
    """Evaluate a network's parameters, yielding the fraction of bytes after each group.

    Args:
        network: whose they are.
        path: the folder, for messages.
        group_bytes: the size of a group; smaller than :data:`GROUP_BYTES` where parameters are
            computed from larger ones.

    Raises:
        BadFormat, OutOfMemory: the evaluation failed.
    """
    import mlx.core as mx

    named = _named(network)
    total = sum(array.nbytes for _, array in named) or 1
    done = 0
    for group in _groups(named, group_bytes):
        size = sum(array.nbytes for array in group)
        resources.require_memory(size, f"a part of the weights of {path}")
        try:
            with _keeping_nothing(computed=group_bytes < GROUP_BYTES):
                mx.eval(group)
        except Exception as exc:
            # What else fails there is of this group too, and no later work's.
            with suppress(Exception):
                mx.synchronize()
            raise failure(exc, path) from exc
        done += size
        yield min(done / total, 1.0)


@contextmanager
def _keeping_nothing(*, computed: bool) -> Iterator[None]:
    """Let mlx free buffers at once while weights are computed from larger ones, not keep them."""
    import mlx.core as mx

    if not computed:
        yield
        return
    before = mx.set_cache_limit(0)
    try:
        yield
    finally:
        mx.set_cache_limit(before)
        resources.trim()


def bytes_to_load(network: Module, forms: int, group_bytes: int = GROUP_BYTES) -> tuple[int, int]:
    """Return the bytes of a network's weights, and those that :func:`evaluate` takes at its peak.

    Args:
        network: with weights that are not evaluated.
        forms: in how many forms, beside its own, a group of weights is there for a moment, without
            those of :func:`note_read_in_place`.
        group_bytes: as for :func:`evaluate`.
    """
    in_place = vars(network).get(_IN_PLACE, ())
    most = read = 0
    for group in _groups(_named(network), group_bytes):
        read += sum(array.nbytes for array in group)
        copied = sum(array.nbytes for array in group if id(array) not in in_place)
        most = max(most, read + forms * copied)
    return read, most


def note_read_in_place(network: Module, arrays: Iterable[mx.array]) -> None:
    """Note which weights of a network are read into their own memory alone."""
    vars(network)[_IN_PLACE] = frozenset(map(id, arrays))


def _named(network: Module) -> list[tuple[str, mx.array]]:
    return list(flatten(network.parameters()).items())


class Unread:
    """The weights of a network that were left on disk until they are first used.

    Args:
        network: whose they are.
        files: the shards that hold them.
        path: the folder, for messages.
        group_bytes: as for :func:`evaluate`.
    """

    def __init__(
        self, network: Module, files: list[str], path: str, group_bytes: int = GROUP_BYTES
    ) -> None:
        import mlx.core as mx

        self._network: Module | None = network
        self._sizes = {file: os.path.getsize(file) for file in files}
        self._path = path
        self._group_bytes = group_bytes
        self._done = 0.0  # the fraction that is read
        self._stream = mx.default_stream(mx.default_device())  # that they are read on
        self._damage = ""

    @property
    def pending(self) -> bool:
        """Whether they are still on disk, or refused."""
        return self._network is not None or bool(self._damage)

    def bytes_to_load(self, forms: int) -> tuple[int, int]:
        """Return the bytes of all weights, and those that reading the rest takes at its peak.

        Args:
            forms: as for :func:`bytes_to_load`.

        Raises:
            InputOutput: they could not be read earlier.
        """
        self._require_readable()
        if self._network is None:
            return 0, 0
        size, peak = bytes_to_load(self._network, forms, self._group_bytes)
        return size, peak - int(self._done * size)

    def refuse(self, damage: str) -> None:
        """Let every later read fail: what was read is not what it should be."""
        self._damage = damage

    def read(self) -> None:
        """Read them, all at once: see :meth:`steps`."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[float]:
        """Read them, yielding the fraction of bytes after each group; nothing once they are read.

        Raises:
            InputOutput: they could not be read, by this call or an earlier one.
            OutOfMemory: there is no memory for them now.
        """
        import mlx.core as mx

        self._require_readable()
        if self._network is None:
            return
        groups = evaluate(self._network, self._path, self._group_bytes)
        while True:
            try:
                with mx.stream(self._stream):  # not across a yield, where others work
                    fraction = next(groups, None)
            except Exception as exc:
                error = failures.translate(exc)
                if isinstance(error, OutOfMemory):
                    raise error from None
                self._damage = self._reason(exc)
                raise InputOutput(f"{self._damage}; load the model again") from exc
            if fraction is None:
                break
            self._done = max(self._done, fraction)
            yield fraction
        self._network = None

    def _require_readable(self) -> None:
        if self._damage:
            raise InputOutput(f"{self._damage}; load the model again")

    def _reason(self, exc: Exception) -> str:
        for file, size in self._sizes.items():
            now = os.path.getsize(file) if os.path.exists(file) else 0
            if now < size:
                return f"{file} has {now} bytes, but had {size} when the model was loaded"
        return f"the weights of {self._path} could not be read when they were first used ({exc})"


def drop(network: Module) -> None:
    """Let all parameters be arrays without memory, of the same shapes and types."""
    import mlx.core as mx
    from mlx.utils import tree_map

    network.update(tree_map(mx.zeros_like, network.parameters()))


def count(network: Module) -> int:
    """Count parameters; a packed weight counts the numbers it stands for."""
    total = 0
    for module, name, array, size in _own_arrays(network):
        bits = getattr(module, "bits", None)
        if isinstance(bits, int) and "scales" in module:
            if name == "weight":
                total += size * 32 // bits
            elif name == "bias":
                total += array.size
        else:
            total += size
    return total


def nbytes(network: Module) -> int:
    """Return the bytes of all parameters."""
    return sum(size * array.itemsize for _, _, array, size in _own_arrays(network))


def _own_arrays(network: Module) -> Iterator[tuple[Any, str, mx.array, int]]:
    """Yield a network's parameters: their module, name, and how many numbers they have.

    Those in blocks (``cowmlx.accelerate``) are filled up behind their rows, which does not count.
    """
    import mlx.core as mx

    from cowmlx.modules import modules_of

    for module in modules_of(network):
        rows = getattr(module, "unfilled_rows", None)
        own = {key: value for key, value in module.items() if not _holds_modules(value)}
        for name, array in flatten(own).items():
            if not isinstance(array, mx.array) or name.startswith("_"):
                continue
            filled = isinstance(rows, int) and array.ndim == _BLOCK_AXES
            size = int(rows or 0) * array.shape[1] if filled else array.size
            yield module, name, array, size


def flatten(tree: Any) -> dict[str, mx.array]:
    """Return the arrays of a tree of parameters by their full names."""
    from mlx.utils import tree_flatten

    return dict(tree_flatten(tree))


def failure(exc: BaseException, where: str) -> CowMlxError:
    """Turn what mlx or tokenizers raised while loading into an error of ours."""
    error = failures.translate(exc)
    if isinstance(error, CowMlxError):
        return error
    if isinstance(exc, RuntimeError) and "[read]" in str(exc):
        return InputOutput(f"cannot read {where} ({exc})", file=where)
    return BadFormat(f"cannot load {where} ({type(exc).__name__}: {exc})", file=where)


@contextmanager
def loading(where: str) -> Iterator[None]:
    """Turn errors of mlx and of other packages in the block into errors of ours.

    Raises:
        BadFormat, InputOutput, OutOfMemory: with ``where`` in the message.
    """
    try:
        yield
    except (CowMlxError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as exc:
        raise failure(exc, where) from exc


def _groups(named: list[tuple[str, mx.array]], most: int) -> Iterator[list[mx.array]]:
    """Split parameters at layer borders, and within a layer at ``most`` bytes."""
    group: list[mx.array] = []
    size = 0
    layer = ""
    for name, array in named:
        here = _layer(name)
        if group and (here != layer or size + array.nbytes > most):
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
    if not os.path.isdir(path):  # a GGUF file, which has no index
        return
    index = "".join(_KINDS[any(map(is_of_torch, names(path)))]) + ".index.json"
    files = config_files.read_json(os.path.join(path, index), optional=True).get("weight_map")
    if not isinstance(files, dict):
        return
    for name in sorted({value for value in files.values() if isinstance(value, str)}):
        if not os.path.exists(os.path.join(path, name)):
            raise NotFound(f"{path} has no {name}, which {index} names", file=name)


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
