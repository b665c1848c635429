"""Whether two machines have the same model: a hash of its config and of samples of its weights."""

from __future__ import annotations

import hashlib
import os

from cowmlx.errors import BadFormat, InputOutput

SAMPLES = 32  # of each file
SAMPLE = 4096  # bytes
_MAX_HEADER = 1 << 20  # bytes of a file's beginning, where its tensors are listed


def of(path: str) -> str:
    """Return the fingerprint of a model's folder.

    Raises:
        InputOutput: it cannot be read.
    """
    found = hashlib.sha256()
    names = sorted(
        name
        for name in os.listdir(path)
        if name == "config.json" or (name.startswith("model") and name.endswith(".safetensors"))
    )
    for name in names:
        try:
            with open(os.path.join(path, name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                found.update(f"{name} {size}\n".encode())
                found.update(file.read(_MAX_HEADER))
                for sample in range(SAMPLES):
                    # The last one is the file's end, where a copy that broke off differs.
                    file.seek(max(0, size - SAMPLE) * sample // (SAMPLES - 1))
                    found.update(file.read(SAMPLE))
        except OSError as exc:
            raise InputOutput(f"cannot read {name} in {path}: {exc}", file=name) from exc
    return found.hexdigest()


def require(path: str, expected: str) -> None:
    """Make sure that a folder is that of a certain model.

    Raises:
        BadFormat: it is another one.
    """
    if of(path) != expected:
        raise BadFormat(
            f"{path} is another model than the host's: their files differ; copy the host's folder",
            reason="weights_mismatch",
            file=path,
        )
