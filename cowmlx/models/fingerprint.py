"""Hashes that identify models: of their memory, and of a folder."""

from __future__ import annotations

import os
from typing import NamedTuple

from cowmlx import resources
from cowmlx.errors import InputOutput
from cowmlx.folders import weight_samples, weights
from cowmlx.folders.config import mismatch
from cowmlx.steps import finished

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.models.model import Model
    from cowmlx.text.tokenizer import Tokenizer

# Bytes that a tokenizer's text takes for each token, in the library and in Python.
_TOKEN_TEXT = 256
# Keys of a config that say nothing about what the network computes.
_IRRELEVANT = ("transformers_version", "_name_or_path")
_FOLDER = "folder "  # what stands before the hash of a folder


class Fingerprint(NamedTuple):
    """Hashes of a model's parts: equal in every process, however the model was loaded.

    Attributes:
        model: of the config, and of the names, shapes, types and a sample of the values of all
            parameters but an adapter's; of a model on several machines, of its folder.
        adapter: of an adapter's parameters and scales; "" without one.
        tokenizer: of all that makes text tokens.
    """

    model: str
    adapter: str
    tokenizer: str


def compute(model: Model, *, read: bool = False) -> Generator[None, None, Fingerprint]:
    """Return a model's fingerprint, a group of parameters a step; at once when it is known.

    Args:
        model: whose weights are read, if they were loaded lazily.
        read: whether they are read for sure.
    """
    known: Fingerprint | None = model.remembered.get("fingerprint")
    if known is not None:
        return known
    from cowmlx.accelerate import blocks

    remembered = model.remembered  # a new one takes its place when the weights change
    if not read:
        model.read_weights()
    plain, own = _sha256(), _sha256()
    plain.update(_stable(model.config))
    on_ranks = model.folder_print is not None  # which have the parameters
    adapted = {} if on_ranks else _adapted_modules(model.network)
    for path, module in sorted(adapted.items()):
        own.update(f"{path} {getattr(module, 'scale', None)!r}\n".encode())
    own_arrays = {} if on_ranks else blocks.parameters(model.network)
    origins = [(*_origin(name, adapted), array) for name, array in own_arrays.items()]
    origins.sort(key=lambda origin: origin[:2])
    named = [(name, array, own if is_own else plain) for name, is_own, array in origins]
    yield from weight_samples.hash_steps(named)
    tokenizer = _sha256(_tokenizer_text(model.tokenizer).encode("utf-8", "replace"))
    whole = f"{_FOLDER}{model.folder_print}" if on_ranks else plain.hexdigest()
    fingerprint = Fingerprint(whole, own.hexdigest() if adapted else "", tokenizer.hexdigest())
    remembered.keep("fingerprint", fingerprint)
    return fingerprint


def _sha256(data: bytes = b"") -> Any:
    import hashlib  # late: it loads OpenSSL, which takes milliseconds

    return hashlib.sha256(data)


def is_folder(hashed: str) -> bool:
    """Whether the hash of a model is that of one on several machines."""
    return hashed.startswith(_FOLDER)


def _stable(config: dict[str, Any]) -> bytes:
    import json

    kept = {key: value for key, value in config.items() if key not in _IRRELEVANT}
    return json.dumps(kept, sort_keys=True, default=lambda value: type(value).__name__).encode()


def _adapted_modules(network: Module) -> dict[str, Any]:
    """Return the modules by their paths that an adapter was put around."""
    return {path: module for path, module in network.named_modules() if "lora_a" in module}


def _origin(name: str, adapted: dict[str, Any]) -> tuple[str, bool]:
    """Return a parameter's name in the plain model, and whether it is an adapter's own."""
    path = name
    while path:
        path = path.rpartition(".")[0]
        if path in adapted:
            part, _, leaf = name.removeprefix(f"{path}.").partition(".")
            plain = part in ("linear", "embedding")
            return (f"{path}.{leaf}", False) if plain else (name, True)
    return name, False


def _tokenizer_text(tokenizer: Tokenizer) -> str:
    """Return all of a tokenizer as text; of one that is code, its vocabulary."""
    backend = tokenizer.backend
    if hasattr(backend, "to_str"):
        # Where Python has no memory for the text, the library prints, and gives up.
        what = "the text of a tokenizer"
        resources.require_memory(_TOKEN_TEXT * tokenizer.vocabulary_size, what)
        return str(backend.to_str())
    return repr([backend.id_to_token(token) for token in range(tokenizer.vocabulary_size)])


SAMPLES = 32  # of each file
SAMPLE = 4096  # bytes
_MAX_HEADER = 1 << 20  # bytes of a file's beginning, where its tensors are listed


def of_folder(path: str) -> Generator[tuple[float, str], None, str]:
    """Return the fingerprint of a model's folder; yields a load's progress behind each file.

    Raises:
        InputOutput: it cannot be read.
    """
    digest = _sha256()
    for name in ["config.json", *weights.names(path)]:
        try:
            with open(os.path.join(path, name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                digest.update(f"{name} {size}\n".encode())
                digest.update(file.read(_MAX_HEADER))
                for sample in range(SAMPLES):
                    # The last one is the file's end, where a copy that broke off differs.
                    file.seek(max(0, size - SAMPLE) * sample // (SAMPLES - 1))
                    digest.update(file.read(SAMPLE))
        except OSError as exc:
            raise InputOutput(f"cannot read {name} in {path}: {exc}", file=name) from exc
        yield 0.0, "network"
    return digest.hexdigest()


def require_folder(path: str, expected: str) -> None:
    """Make sure that a folder is that of a certain model.

    Raises:
        BadFormat: it is another one.
    """
    if finished(of_folder(path)) != expected:
        raise mismatch(
            f"{path} is another model than the host's: their files differ; copy the host's folder",
            path,
        )
