"""Writes a converted model: resumable, and in its place only once it is whole.

The folder is made beside its place, under a name with the ending ``.converting``. A record there
says of which source and options it is. A conversion that was stopped leaves it, and the next one
with the same source and options keeps the shards that are whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager, suppress
from typing import NamedTuple

from cowmlx import json_text
from cowmlx.errors import BadFormat, BadState, InputOutput, NotFound
from cowmlx.folders import places, stored_tensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    import mlx.core as mx

    from cowmlx.folders.stored_tensors import Specification
    from cowmlx.models.converting.sources import Part, Source

ENDING = ".converting"
SHARD_BYTES = 2 << 30
_RECORD = "conversion.json"
_FORMAT = "cowmlx conversion 1"
_INDEX = "model.safetensors.index.json"


class Shard(NamedTuple):
    """A file of weights: its name, and the parts that it has."""

    name: str
    parts: list[Part]

    @property
    def tensors(self) -> dict[str, Specification]:
        """Types and shapes by name."""
        return {name: own for part in self.parts for name, own in part.tensors.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(stored_tensors.nbytes(*own) for own in self.tensors.values())


def shards(parts: list[Part], most: int) -> list[Shard]:
    """Divide parts among files of at most ``most`` bytes, larger single parts excepted."""
    groups: list[list[Part]] = [[]]
    size = 0
    for part in parts:
        own = sum(stored_tensors.nbytes(*tensor) for tensor in part.tensors.values())
        if groups[-1] and size + own > most:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += own
    count = len(groups)
    if count == 1:
        return [Shard("model.safetensors", groups[0])]
    return [
        Shard(f"model-{number:05}-of-{count:05}.safetensors", group)
        for number, group in enumerate(groups, 1)
    ]


def write(
    source: Source, path: str, options: dict[str, Any], most: int = SHARD_BYTES
) -> Generator[tuple[float, str], None, int]:
    """Write the folder of a converted model, step by step.

    Yields (fraction, stage): the fraction of the weights' bytes. Closing the generator between
    two steps leaves the unfinished folder, which the next conversion continues.

    Args:
        source: the model.
        path: the new folder; absent or empty.
        options: of the conversion; one with others does not continue it.
        most: bytes of a shard.

    Returns:
        the bytes of the weights.

    Raises:
        NotFound: the folder above does not exist.
        InputOutput: it cannot be written, something else is there, or the disk is too small.
        BadState: another process writes the same folder.
    """
    target = os.path.realpath(path)
    _require_nothing_at(path, target)
    planned = shards(source.parts, most)
    record: dict[str, Any] = {"format": _FORMAT, "source": os.path.abspath(source.path)}
    record |= {"files": source.files, "options": options, "shards": len(planned)}
    with _unfinished(target, record) as folder:
        total = yield from _write_shards(planned, folder)
        yield 1.0, "other files"
        _write_rest(source, folder, planned, total)
        os.unlink(os.path.join(folder, _RECORD))
        places.sync(folder)
        try:
            os.rename(folder, target)
            places.sync(os.path.dirname(target))
        except OSError as exc:
            raise places.unwritable(path, exc) from exc
    return total


def _write_shards(planned: list[Shard], folder: str) -> Generator[tuple[float, str], None, int]:
    total = sum(shard.nbytes for shard in planned)
    kept = [
        stored_tensors.is_whole(os.path.join(folder, shard.name), shard.tensors)
        for shard in planned
    ]
    rest = sum(shard.nbytes for shard, whole in zip(planned, kept, strict=True) if not whole)
    free = shutil.disk_usage(folder).free
    if rest > free:
        raise InputOutput(
            f"cannot write {folder}: {rest:,} bytes of weights are to be written, and the disk has "
            f"{free:,}",
            reason="write_failed",
            file=folder,
            needed=rest,
            available=free,
        )
    done = 0
    for shard, whole in zip(planned, kept, strict=True):
        yield done / (total or 1), shard.name
        if not whole:
            file = os.path.join(folder, shard.name)
            stored_tensors.write(file, shard.tensors, _arrays(shard))
        done += shard.nbytes
    return total


def _arrays(shard: Shard) -> Iterator[tuple[str, mx.array]]:
    """Yield the tensors of a shard in order; one part at a time is in memory."""
    for part in shard.parts:
        made = part.make()
        for name in part.tensors:
            yield name, made.pop(name)


def _write_rest(source: Source, folder: str, planned: list[Shard], total: int) -> None:
    shard_of = {name: shard.name for shard in planned for name in shard.tensors}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(shard_of.items()))}
    texts = {
        **source.texts,
        _INDEX: json.dumps(index, indent=1),
        "config.json": json.dumps(source.config, indent=1, sort_keys=True),
    }
    for name in (*source.copied, *source.texts):
        _require_inside(name)
    try:
        for name, file in source.copied.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copyfile(file, os.path.join(folder, name))
            places.sync(os.path.join(folder, name))
        for name, text in texts.items():
            _put(os.path.join(folder, name), text)
    except OSError as exc:
        raise places.unwritable(folder, exc) from exc


def _require_inside(name: str) -> None:
    """Refuse a name that leads out of the folder it is written to.

    Raises:
        BadFormat: it is absolute, or goes up.
    """
    if os.path.isabs(name) or ".." in name.split("/"):
        raise BadFormat(f"{name[:80]!r} is no name of a file in the new folder", file=name)


# ------------------------------------------------------------------ The folder


def _require_nothing_at(path: str, target: str) -> None:
    try:
        inside = os.listdir(target)
    except (FileNotFoundError, NotADirectoryError):
        return  # if no folder is above it, that is seen next
    except OSError as exc:
        raise places.unwritable(path, exc) from exc
    if inside:
        raise InputOutput(
            f"cannot write {path}: the folder is there already and has {min(inside)}; name a new "
            "folder",
            reason="write_failed",
            file=path,
        )


@contextmanager
def _unfinished(target: str, record: dict[str, Any]) -> Iterator[str]:
    """Make the unfinished folder, or take the one that is there; locked meanwhile."""
    folder = target + ENDING
    try:
        with suppress(FileExistsError):
            os.mkdir(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"cannot write {target}: there is no folder above it", file=target) from None
    except OSError as exc:
        raise places.unwritable(folder, exc) from exc
    try:
        _lock(descriptor, folder)
        _begin(folder, record)
        yield folder
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadState(f"{folder} is being written by another process", file=folder) from None
    except OSError:
        return  # some network file systems have no locks


def _begin(folder: str, record: dict[str, Any]) -> None:
    """Write the record; or see that the folder is of the same source and options.

    Raises:
        InputOutput: it is of others.
    """
    file = os.path.join(folder, _RECORD)
    if not os.path.exists(file):
        if left := os.listdir(folder):
            raise _of_another(folder, f"it has {min(left)}, and no {_RECORD}")
        _put(file, json.dumps(record, indent=1))
        return
    try:
        with open(file, "rb") as opened:
            found = json_text.parse(opened.read())
    except (OSError, json_text.Malformed) as exc:
        raise _of_another(folder, f"{_RECORD} cannot be read: {exc}") from exc
    wanted = json_text.parse(json.dumps(record))
    if found != wanted:
        keys = [
            key for key in wanted if not isinstance(found, dict) or found.get(key) != wanted[key]
        ]
        raise _of_another(folder, f"its {' and '.join(keys)} differ")


def _of_another(folder: str, why: str) -> InputOutput:
    return InputOutput(
        f"{folder} is of another conversion: {why}; delete it, or name another folder",
        reason="write_failed",
        file=folder,
    )


def _put(file: str, text: str) -> None:
    """Write a text; it takes its place once it is on the disk."""
    partial = f"{file}.partial"
    with open(partial, "w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(partial, file)
