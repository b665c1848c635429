"""Models on several machines: how they are split, a rank's part, and the host's side."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx import failures
from cowmlx.accelerate.device import form_for, fuse_layers, prepare_for_device, start_readers
from cowmlx.accelerate.fused.decode import logits_behind
from cowmlx.errors import InvalidArgument, OutOfRange, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.folders import weights
from cowmlx.generated import constants
from cowmlx.machines import handshake
from cowmlx.machines.network import DTYPES, Facts, RemoteNetwork
from cowmlx.machines.opening import Opening, Workers
from cowmlx.models import fingerprint, network, registry
from cowmlx.networks import architectures, light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

    from cowmlx.models.model import Model

    Steps = Generator[tuple[float, str] | Callable[[float], object], None, "Loaded"]

TENSOR, PIPELINE = "tensor", "pipeline"
SPLITS = {
    constants.SPLIT_AUTO: "auto",
    constants.SPLIT_TENSOR: TENSOR,
    constants.SPLIT_PIPELINE: PIPELINE,
}
# What every rank has as many of, in a config.
_KV_HEADS = "num_key_value_heads"
_HEADS = (
    "num_attention_heads",
    _KV_HEADS,
    "linear_num_key_heads",
    "linear_num_value_heads",
)


class Rank:
    """A rank of a group that is not there yet, for a split that is only tried out."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self._size, self._rank = size, rank

    def size(self) -> int:
        """Return how many there are."""
        return self._size

    def rank(self) -> int:
        """Return which it is."""
        return self._rank


def choose(net: Module, config: dict[str, Any], split: str, size: int) -> str:
    """Return how a network is split between ranks: by itself, where that is not said.

    Raises:
        Unsupported: its architecture cannot be, or not so.
        InvalidArgument: not between so many ranks.
    """
    can = {TENSOR: hasattr(net, "shard"), PIPELINE: _pipelined(net) is not None}
    kinds = [kind for kind in (PIPELINE, TENSOR) if can[kind]]
    architecture = config["model_type"]
    if not kinds:
        raise Unsupported(
            f"workers are given, but a {architecture} model cannot be split between machines: its "
            "architecture has neither a tensor split nor a pipeline",
            argument="workers",
            value=architecture,
        )
    if split == "auto":
        problems = [_why_not(net, config, kind, size) for kind in kinds]
        if "" in problems:
            return kinds[problems.index("")]
        kind, problem = kinds[0], problems[0]
    elif split in kinds:
        kind, problem = split, _why_not(net, config, split, size)
    else:
        raise Unsupported(
            f"split is {split}, but a {architecture} model can be split as a {kinds[0]} alone",
            argument="split",
            value=split,
        )
    if problem:
        raise InvalidArgument(
            f"worker_count is {size - 1}, but a {architecture} model cannot be split as a {kind} "
            f"between {size} ranks: {problem}",
            argument="worker_count",
            value=size - 1,
        )
    return kind


def _pipelined(net: Any) -> Any | None:
    """Return the module of a network that has a pipeline, or None."""
    places = (net, getattr(net, "model", None), getattr(net, "language_model", None))
    inner = getattr(places[2], "model", None)
    return next((part for part in (*places, inner) if hasattr(part, "pipeline")), None)


def _why_not(net: Module, config: dict[str, Any], kind: str, size: int) -> str:
    """Say why a network cannot be split so; "" if it can."""
    if kind == PIPELINE:
        part: Any = _pipelined(net)
        count = len(part.layers)
        return "" if count >= size else f"it has {count} layers, must have {size} at least"
    inner = config.get("text_config")
    of_text = inner if isinstance(inner, dict) else config
    for name in _HEADS:
        heads = of_text.get(name)
        if not isinstance(heads, int) or heads % size == 0:
            continue
        repeats = name == _KV_HEADS and _repeats_heads(net)
        if not repeats or heads < 1 or size % heads:
            divisor = " or a divisor" if repeats else ""
            return f"its {name} is {heads}, must be a multiple{divisor} of {size}"
    return ""


def _repeats_heads(net: Module) -> bool:
    """Whether several ranks of a network may have the same head of keys and values."""
    modules = [kind.__module__.rpartition(".")[2] for kind in type(net).__mro__]
    return "qwen3_5" in modules


def split_network(net: Any, kind: str, group: Any) -> None:
    """Leave a rank's own part of a network, in place and lazily.

    Raises:
        Unsupported: its weights cannot be split so.
    """
    try:
        if kind == PIPELINE:
            part: Any = _pipelined(net)
            part.pipeline(group)
        else:
            net.shard(group)
    except Exception as exc:
        failures.reraise_shortage(exc)
        reason = str(exc).partition("\n")[0]
        raise Unsupported(
            f"the weights of this {type(net).__module__.rpartition('.')[2]} model cannot be split "
            f"as a {kind} between {group.size()} ranks ({reason})",
            argument="split",
            value=kind,
        ) from exc


class Shard:
    """A rank's part of a model.

    Attributes:
        network: takes and gives what the whole one does.
        nbytes: of its weights.
        layers: how many it has.
        vocabulary, dtype: of the logits.
        kernels: the member of ``model_info``, for one rank alone.
    """

    def __init__(self, net: Module, package: str, vocabulary: int, dtype: str) -> None:
        self.network = net
        self.vocabulary = vocabulary
        self.dtype = dtype
        self.package = package
        self.nbytes = weights.nbytes(net)
        self.layers = len(self.make_cache())
        self.kernels: dict[str, Any] | None = None

    def make_cache(self) -> list[Any]:
        """Return fresh caches of its layers."""
        made: list[Any] = light_route.cache_module(self.package).make_prompt_cache(self.network)
        return made

    def decode(self, ids: mx.array, layers: list[Any]) -> mx.array:
        """Return logits (1, V) behind a token (1,)."""
        return logits_behind(self.network, ids, layers)


def load(wanted: dict[str, Any], group: Any) -> Generator[float, None, Shard]:
    """Load a rank's part of a model; yields the fraction that is read.

    Args:
        wanted: "path", "print", "split" and "activations".
        group: of all ranks; None for one rank.

    Raises:
        BadFormat: the folder is another model's.
        CowMlxError: as for a model on one machine.
    """
    path = wanted["path"]
    config_files.check_folder(path)  # before a pipe in it keeps this rank for ever
    fingerprint.require_folder(path, wanted["print"])
    yield 0.0
    config = config_files.read_config(path)
    architecture = "" if config.get("model_file") else architectures.name(config)
    files = weights.shards(path)
    net, _, package = registry.read_network(path, config, architecture, files, trust=False)
    if group is not None:
        split_network(net, wanted["split"], group)
    form = prepare_for_device(net, wanted["activations"])
    start_readers(net, files)
    logits = network.traced(net, package)  # by all ranks, and computed by none
    for fraction in weights.evaluate(net, path):
        import mlx.core as mx

        mx.clear_cache()  # of what the other ranks hold
        yield fraction
    shard = Shard(net, package, logits.shape[-1], str(logits.dtype).rpartition(".")[2])
    if group is None:
        shard.kernels = fuse_layers(net, shard.make_cache, form)
    return shard


MAX_WORKERS = 63
MIN_SILENCE_MS = 100


class Loaded(NamedTuple):
    """A model, and why its contexts are not batched, nor their prompts, or None."""

    model: Model
    alone: str | None
    prompts: str | None


def check_workers(params: dict[str, Any]) -> Workers | None:
    """Return the workers of ``cow_mlx_model_params``; None if there are none.

    Raises:
        InvalidArgument: a value is out of range, or options exclude each other.
    """
    given: list[str] = params["workers"]
    if params["split"] not in SPLITS:
        known = ", ".join(f"{value} ({name})" for value, name in SPLITS.items())
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
        handshake.parse_address(address or "", f"workers[{index}]")
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


def load_on_machines(
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
    with weights.loading(path):
        return (yield from _load_on_machines(path, workers, split, activations, threads))


def _load_on_machines(
    path: str, workers: Workers, split: int, activations: int, threads: int
) -> Steps:
    folder = yield from registry.read_folder(path, trust=False)
    size = len(workers.addresses) + 1
    kind = SPLITS[split]
    form = form_for(folder.network, activations)
    model = registry.assemble(folder, form)
    if size > 1:
        kind = choose(folder.network, folder.config, kind, size)
        split_network(folder.network, kind, Rank(size))  # nothing is computed
    folder_print = yield from fingerprint.of_folder(folder.path)
    wanted = {
        "model": folder.name,
        "print": folder_print,
        "split": kind,
        "activations": activations,
    }
    width = model.vocabulary_size
    del folder
    opening = Opening(workers, wanted, model.path, threads)
    answers = yield from opening.steps()
    try:
        facts = _facts(answers, width)
        network = RemoteNetwork(opening.group, facts)
        kernels = answers[0].get("kernels")
        kernels = kernels if isinstance(kernels, dict) else None
        model.run_on(network, kind, folder_print, kernels)
    except BaseException:
        opening.close()
        raise
    whys = [answers[0].get(name) for name in ("alone", "prompts")]
    yield 1.0, "done"
    return Loaded(model, *(why if isinstance(why, str) else None for why in whys))


def _facts(answers: list[dict[str, Any]], width: int) -> Facts:
    """Return what holds for all ranks.

    Raises:
        InvalidArgument: they do not agree with the model that is here.
    """
    first = answers[0]
    if first.get("vocabulary") != width or first.get("dtype") not in DTYPES:
        raise InvalidArgument("the first rank's logits are not those of this model")
    windows = [answer["window"] for answer in answers if isinstance(answer.get("window"), int)]
    trims = all(answer.get("trims") is True for answer in answers)
    return Facts(width, first["dtype"], trims, min(windows, default=None))
