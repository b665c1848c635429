"""What a model is, what it would need, and whether it would load: without loading it."""

from __future__ import annotations

from cowmlx.errors import CowMlxError, OutOfMemory, Unsupported
from cowmlx.failure_details import details_of
from cowmlx.folders import config as config_files
from cowmlx.folders import places, recommended
from cowmlx.generated import constants, status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.models.model import Model

# What is told of a model that loads, from what model_info tells.
_SAME = (
    "architecture",
    "parameters",
    "quantization",
    "bytes",
    "context_length",
    "vocabulary_size",
    "chat_template",
    "tools",
    "thinking",
)


def inspect(
    path: str, cache_bytes: Callable[[Model], int | None]
) -> Generator[None, None, dict[str, Any]]:
    """Look at a model's folder, step by step.

    Args:
        path: of the folder, or of its entry in Hugging Face's cache, or its name there.
        cache_bytes: what a context of 1,000 tokens holds; it may raise what a context would.

    Returns:
        What ``model_inspect`` tells.

    Raises:
        NotFound: there is no such folder.
        OutOfMemory: there is no memory to look at it.
    """
    folder, name = places.find(path)
    told: dict[str, Any] = {"name": name, "path": folder, "loads": True, "problem": None}
    told |= dict.fromkeys((*_SAME, "bits", "cache_bytes_per_1000_tokens"))
    try:
        config = config_files.read_config(folder)
    except CowMlxError:
        config = {}  # the loader says why
    named = config.get("model_type")
    told["architecture"] = named if isinstance(named, str) else None
    told["license"] = recommended.licence(folder, config)
    told["sampling"] = recommended.sampling(folder)
    yield
    try:
        model = yield from _opened(folder)
        info = model.info()
        told |= {key: info[key] for key in _SAME}
        told["bits"] = _bits(model)
    except OutOfMemory:
        raise
    except CowMlxError as error:
        return {**told, "loads": False, "problem": _problem(error)}
    try:
        told["cache_bytes_per_1000_tokens"] = cache_bytes(model)
    except Unsupported as error:  # it loads, but has no such contexts
        told["problem"] = _problem(error)
    return told


def _problem(error: CowMlxError) -> dict[str, Any]:
    return {
        "status": status.NAMES[error.status],
        "message": str(error),
        "reason": error.reason,
        "details": details_of(error),
    }


def _opened(path: str) -> Generator[None, None, Model]:
    """Load a model whose weights stay on disk, and with none of the folder's code."""
    from cowmlx.models import registry

    loading = registry.load(
        path,
        adapter_path=None,
        lazy=True,
        trust_remote_code=False,
        activations=constants.ACTIVATIONS_DEFAULT,
    )
    while True:
        try:
            next(loading)
        except StopIteration as stop:
            model: Model = stop.value
            return model
        yield


def _bits(model: Model) -> int:
    """Return the bits of a weight: those that most of the network's numbers have."""
    quantization = model.quantization
    bits = quantization.get("bits") if isinstance(quantization, dict) else None
    if isinstance(bits, int):
        return bits
    return round(8 * model.nbytes / max(1, model.parameters))
