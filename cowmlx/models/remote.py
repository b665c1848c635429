"""Loading a model on several machines: what the host does of it."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.accelerate.device import form_for
from cowmlx.errors import CowMlxError, InvalidArgument, OutOfRange
from cowmlx.folders import fingerprint, weights
from cowmlx.generated import constants
from cowmlx.machines import addresses
from cowmlx.machines.network import DTYPES, Facts, RemoteNetwork
from cowmlx.machines.opening import Opening, Workers
from cowmlx.models import registry, shards

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.models.model import Model

    Steps = Generator[tuple[float, str] | Callable[[float], object], None, "Loaded"]

MAX_WORKERS = 63
MIN_SILENCE_MS = 100
MAX_VOCABULARY = 1 << 24


class Loaded(NamedTuple):
    """A model, and why its contexts are not batched, nor their prompts, or None."""

    model: Model
    alone: str | None
    prompts: str | None


def check(params: dict[str, Any]) -> Workers | None:
    """Return the workers of ``cow_mlx_model_params``; None if there are none.

    Raises:
        InvalidArgument: a value is out of range, or options exclude each other.
    """
    given: list[str] = params["workers"]
    if params["split"] not in shards.SPLITS:
        known = ", ".join(f"{value} ({name})" for value, name in shards.SPLITS.items())
        raise OutOfRange("split", params["split"], known)
    if params["connect_timeout_ms"] < 1:
        raise OutOfRange("connect_timeout_ms", params["connect_timeout_ms"], "above 0")
    if params["silence_timeout_ms"] < MIN_SILENCE_MS:
        accepted = f"at least {MIN_SILENCE_MS}"
        raise OutOfRange("silence_timeout_ms", params["silence_timeout_ms"], accepted)
    if not given:
        for name in ("secret_path", "split"):
            if params[name]:
                raise InvalidArgument(
                    f"{name} is given, but worker_count is 0",
                    reason="conflict",
                    argument=name,
                    other="worker_count",
                )
        return None
    _check_workers(given, params)
    return Workers(
        given,
        params["secret_path"],
        params["connect_timeout_ms"] / 1000,
        params["silence_timeout_ms"] / 1000,
    )


def _check_workers(given: list[str], params: dict[str, Any]) -> None:
    if len(given) > MAX_WORKERS:
        raise OutOfRange("worker_count", len(given), f"at most {MAX_WORKERS}")
    for index, address in enumerate(given):
        addresses.parse(address or "", f"workers[{index}]")
    if params["secret_path"] is None:
        raise InvalidArgument(
            "secret_path is NULL, but there are workers: it names a file with the secret that "
            "they have, too",
            reason="missing",
            argument="secret_path",
        )
    for name in ("adapter_path", "lazy", "trust_remote_code"):
        if params[name]:
            raise InvalidArgument(
                f"{name} is given, which a model with workers cannot have yet",
                reason="conflict",
                argument=name,
                other="workers",
            )


def load(
    path: str,
    workers: Workers,
    split: int = constants.SPLIT_AUTO,
    activations: int = constants.ACTIVATIONS_DEFAULT,
    threads: int = 0,
) -> Steps:
    """Load a model on this machine and workers, step by step.

    Yields (fraction, stage), or what waits for news of machines. Closing the generator between two
    steps ends every rank.

    Args:
        path: as for a model on one machine.
        workers: the other machines; none: one rank, here.
        split: one of ``SPLIT_``.
        activations: one of ``ACTIVATIONS_``.
        threads: that the rank here computes with; 0: as many as there are processors.

    Raises:
        CowMlxError: see the messages.
    """
    loading = _load(path, workers, split, activations, threads)
    try:
        return (yield from loading)
    except (CowMlxError, GeneratorExit, KeyboardInterrupt):
        raise
    except Exception as exc:
        raise weights.failure(exc, path) from exc


def _load(path: str, workers: Workers, split: int, activations: int, threads: int) -> Steps:
    folder = yield from registry.read_folder(path, trust=False)
    size = len(workers.addresses) + 1
    kind = shards.SPLITS[split]
    form = form_for(folder.network, activations)
    model = registry.assemble(folder, form)
    if size > 1:
        kind = shards.choose(folder.network, folder.config, kind, size)
        shards.split(folder.network, kind, shards.Rank(size))  # nothing is computed
    folder_print = fingerprint.of(folder.path)
    wanted = {
        "model": folder.name,
        "print": folder_print,
        "split": kind,
        "activations": activations,
    }
    width = model.vocabulary_size
    del folder
    opening = Opening(workers, wanted, model.path, threads)
    told = yield from opening.steps()
    try:
        facts = _facts(told, width)
        network = RemoteNetwork(opening.group, facts)
        kernels = told[0].get("kernels")
        kernels = kernels if isinstance(kernels, dict) else None
        model.run_on(network, kind, folder_print, kernels)
    except BaseException:
        opening.close()
        raise
    whys = [told[0].get(name) for name in ("alone", "prompts")]
    yield 1.0, "done"
    return Loaded(model, *(why if isinstance(why, str) else None for why in whys))


def _facts(told: list[dict[str, Any]], width: int) -> Facts:
    """Return what holds for all ranks.

    Raises:
        InvalidArgument: they do not agree with the model that is here.
    """
    first = told[0]
    if first.get("vocabulary") != width or first.get("dtype") not in DTYPES:
        raise InvalidArgument("the first rank's logits are not those of this model")
    windows = [each["window"] for each in told if isinstance(each.get("window"), int)]
    trims = all(each.get("trims") is True for each in told)
    return Facts(width, first["dtype"], trims, min(windows, default=None))
