"""Trainings being saved and loaded, whole or not at all."""

from __future__ import annotations

import os

from cowmlx.cache import disk
from cowmlx.cache.disk_reader import Reader
from cowmlx.errors import BadFormat, InputOutput, NotFound
from cowmlx.training import saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from cowmlx.services.training_runs import Trainee

FILE = "training.safetensors"
FORMAT = "cow_mlx_training"


def save(trainee: Trainee, folder: str) -> Generator[None, None, None]:
    """Return the steps that write a training as it is now.

    Raises:
        NotFound, InputOutput: the folder cannot be made, or the file not be written.
    """
    metadata, arrays = saved.described(trainee.training, trainee.options)
    return _write(folder, metadata, arrays)


def _write(
    folder: str, metadata: dict[str, str], arrays: dict[str, object]
) -> Generator[None, None, None]:
    try:
        os.mkdir(folder)
    except FileExistsError:
        pass
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"cannot make {folder}: the folder that it is in is missing", file=folder
        ) from None
    except OSError as exc:
        raise InputOutput(
            f"cannot make {folder}: {exc.strerror or exc}", reason="write_failed", file=folder
        ) from exc
    path = os.path.join(folder, FILE)
    yield from disk.write(path, metadata, arrays, FORMAT)  # type: ignore[arg-type]


def load(trainee: Trainee, folder: str) -> Generator[None, None, None]:
    """Let a training be what was saved; the last step alone changes it.

    Raises:
        NotFound, InputOutput: there is none, or it cannot be read.
        BadFormat: it is damaged, or of another training.
    """
    path = os.path.join(folder, FILE)
    reader = Reader(path, FORMAT, "saved training", "saved_training_mismatch")
    training = trainee.training
    try:
        try:
            state = saved.check(training, trainee.options, reader.metadata, reader.arrays)
        except saved.Mismatch as mismatch:
            raise BadFormat(
                f"{path} is of another training: {mismatch}",
                reason="saved_training_mismatch",
                file=path,
            ) from None
        except BadFormat as error:
            raise reader.bad(str(error)) from None
        arrays = yield from reader.read()
    finally:
        reader.close()
    saved.take_over(training, state, arrays)
