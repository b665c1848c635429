"""Loads models, and inspects them without reading their weights."""

from __future__ import annotations

import os
from typing import NamedTuple

from cowmlx import failures
from cowmlx.accelerate.device import note_sources, prepare_for_device, start_readers
from cowmlx.errors import (
    BadFormat,
    CowMlxError,
    DeviceMissing,
    OutOfMemory,
    Unsupported,
    details_of,
)
from cowmlx.folders import config as config_files
from cowmlx.folders import places, quantization, weights
from cowmlx.generated import constants, status
from cowmlx.models import (
    adapters,
    chat_format,
    config_bounds,
    full_route,
    network,
    quantizing,
)
from cowmlx.models.model import Model
from cowmlx.networks import architectures, light_route
from cowmlx.networks.architectures import supported as supported_architectures
from cowmlx.text import tokenizer_files
from cowmlx.text.chat_template import ChatTemplate, named, read_sources
from cowmlx.text.tokenizer import Tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import ModuleType
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.device import Form
    from cowmlx.models.images import ImageStore, NoImages
    from cowmlx.models.model import Model
    from cowmlx.models.quantizing import Quantizing
    from cowmlx.models.sentences import Sentences

__all__ = ["load", "supported_architectures"]


def load(
    path: str,
    *,
    adapter_path: str | None,
    lazy: bool,
    trust_remote_code: bool,
    activations: int = constants.ACTIVATIONS_DEFAULT,
    on_files: Callable[[int], None] | None = None,
    on_size: Callable[[int, int], Iterator[object]] | None = None,
    quantize: Quantizing | None = None,
) -> Generator[tuple[float, str], None, Model]:
    """Load a model from a folder, step by step.

    Yields (fraction, stage): the fraction of bytes evaluated, rising from 0.0 to 1.0. Closing
    the generator between two steps releases everything. Weights are evaluated on the default
    stream of the thread that steps.

    Args:
        path: a folder in Hugging Face format, or its entry or name in Hugging Face's cache.
        adapter_path: a folder with a LoRA or DoRA adapter, or None.
        lazy: evaluate nothing; weights are read when they are first used.
        trust_remote_code: run code that comes with the model.
        activations: ``ACTIVATIONS_DEFAULT``, ``_EXACT`` or ``_INT8``.
        on_files: receives the bytes of the weights' files before they are read; may raise.
        on_size: receives the bytes of the weights, and those that reading them takes at its peak;
            makes room for them in the steps that it yields; may raise.
        quantize: the format to quantize the weights to, or None.

    Returns:
        The model.

    Raises:
        NotFound, BadFormat, Unsupported, OutOfMemory, InputOutput: see the messages.
    """
    with weights.loading(path):
        steps = _load(
            path, adapter_path, lazy, trust_remote_code, activations, on_files, on_size, quantize
        )
        return (yield from steps)


class Folder(NamedTuple):
    """What a model's folder has, its weights still on disk."""

    path: str
    name: str
    files: list[str]
    config: dict[str, Any]
    tokenizer: Tokenizer
    sources: dict[str, str]
    settings: dict[str, Any]
    end_tokens: list[int] | None
    network: Module
    width: int
    package: str
    route: str
    sentences: Sentences | None = None


def read_folder(
    path: str, trust: bool, on_files: Callable[[int], None] | None = None
) -> Generator[tuple[float, str], None, Folder]:
    """Read a folder, step by step, up to its weights.

    Args:
        path: as for :func:`load`.
        trust: whether code of the folder may run.
        on_files: receives the bytes of the weights' files; may raise.

    Raises:
        NotFound, BadFormat, Unsupported, OutOfMemory, InputOutput: see the messages.
    """
    yield 0.0, "config"
    path, name = places.find(path)
    config_files.check_folder(path)
    places.refuse_other_formats(path)
    config = config_files.read_config(path)
    architecture = "" if config.get("model_file") else architectures.name(config)
    files = weights.shards(path)
    if on_files is not None:
        on_files(sum(os.path.getsize(file) for file in files))
    end_tokens = config_files.end_tokens(config)

    yield 0.0, "tokenizer"
    settings = tokenizer_files.read_config(path)
    tokenizer, sources, tokenizer_is_light = _load_tokenizer(path, settings, config, trust)

    yield 0.0, "network"
    net, config, package = read_network(path, config, architecture, files, trust)
    width = prove(net, config, package)
    light = tokenizer_is_light and package == light_route.ALIAS
    return Folder(
        path,
        name,
        files,
        config,
        tokenizer,
        sources,
        settings,
        end_tokens,
        net,
        width,
        package,
        "light" if light else "mlx-lm",
        _sentences(path, net),
    )


def _sentences(path: str, net: Module) -> Sentences | None:
    """Read what sentence-transformers' files say; None if the folder has none."""
    if not os.path.lexists(os.path.join(path, "modules.json")):
        return None
    from cowmlx.models import sentences  # late: few folders have them

    return sentences.read(path, net.dims if network.is_encoder(net) else 0)


def _load(
    path: str,
    adapter_path: str | None,
    lazy: bool,
    trust: bool,
    activations: int,
    on_files: Callable[[int], None] | None,
    on_size: Callable[[int, int], Iterator[object]] | None,
    quantize: Quantizing | None,
) -> Generator[tuple[float, str], None, Model]:
    if adapter_path is not None:
        adapter_path = places.resolved(adapter_path)
    adapter = None if adapter_path is None else adapters.check(adapter_path)
    folder = yield from read_folder(path, trust, None if quantize else on_files)
    net, path = folder.network, folder.path
    if adapter is not None and network.is_encoder(net):
        raise Unsupported(
            f"adapter_path is given, but {path} is an encoder; adapters are for models that "
            "generate",
            argument="adapter_path",
            file=path,
        )
    group_bytes = weights.GROUP_BYTES
    if quantize is not None:
        quantizing.apply(net, folder.config, quantize, path)
        group_bytes = int(group_bytes * quantize.ratio)
    form = prepare_for_device(net, activations)
    if adapter is not None and adapter_path is not None:
        adapters.apply(net, adapter_path, adapter, folder.package, form)
        net.eval()
        adapters.prove(net, adapter_path, folder.package)

    start_readers(net, folder.files)
    unread = weights.Unread(net, folder.files, path, group_bytes) if lazy else None
    if not lazy:
        if on_size is not None:
            for _ in on_size(*weights.bytes_to_load(net, form.passing, group_bytes)):
                yield 0.0, "weights"
        for fraction in weights.evaluate(net, path, group_bytes):
            if fraction < 1.0:
                yield fraction, "weights"
    model = assemble(folder, form, unread)
    if not lazy:
        model.fuse_layers()
    yield 1.0, "done"
    return model


def read_network(
    path: str, config: dict[str, Any], architecture: str, files: list[str], trust: bool
) -> tuple[Module, dict[str, Any], str]:
    """Return a folder's network, its weights lazily, its config, and the package it is of."""
    config_bounds.check_sizes(config, architecture)
    network.check_causal(config, architecture)
    known = bool(architecture) and architectures.is_light(architecture)
    if known and quantization.is_light(config):
        from cowmlx.accelerate.sources import Sources  # late: a start needs none of it

        arrays = weights.read(files)
        sources = Sources(files, arrays)
        net: Module = network.build(config, architecture, arrays, path)
        note_sources(net, sources)
        return net, config, light_route.ALIAS
    architectures.require_in_mlx_lm(architecture, config)
    if any(map(weights.is_of_torch, files)):
        raise Unsupported(
            f"{path} has weights of PyTorch, which mlx-lm does not read, and a model of this kind "
            "needs mlx-lm; convert them to safetensors",
            file=os.path.basename(files[0]),
        )
    net, config = full_route.load_network(path, config, trust_remote_code=trust)
    return net, config, full_route.PACKAGE


def _load_tokenizer(
    path: str, settings: dict[str, Any], config: dict[str, Any], trust: bool
) -> tuple[Tokenizer, dict[str, str], bool]:
    """Return the tokenizer, the chat templates by name, and whether transformers was spared."""
    if not tokenizer_files.needs_full_route(path, settings, config, trust_remote_code=trust):
        return tokenizer_files.load(path, settings, config), read_sources(path, settings), True
    backend, special, template = full_route.load_tokenizer(path, trust_remote_code=trust)
    sources = named(template) if template is not None else read_sources(path, settings)
    return Tokenizer(backend, special), sources, False


def _module(net: Module) -> ModuleType | None:
    """Return the module of a network's architecture."""
    import sys

    return sys.modules.get(type(net).__module__)


def _defaults(net: Module) -> dict[str, Any]:
    """Return what the architecture's module says about tokenizers of its checkpoints."""
    defaults = getattr(_module(net), "TOKENIZER_DEFAULTS", None)
    return dict(defaults) if isinstance(defaults, dict) else {}


def prove(net: Module, config: dict[str, Any], package: str) -> int:
    """Return the width of a network's logits.

    Raises:
        BadFormat: the config makes no network that runs.
        Unsupported: this device does not run it.
    """
    try:
        network.check_windows(net, config, package)
        return network.prove(net, package)
    except BadFormat:
        raise
    except Exception as exc:
        failures.reraise_shortage(exc)
        import mlx.core as mx

        if "metal" in str(exc).lower() and mx.default_device() == mx.Device(mx.cpu):
            raise DeviceMissing(f"this model needs Apple's GPU ({exc})") from exc
        arguments = getattr(_module(net), "ModelArgs", object)
        raise network.unusable(config, arguments, exc) from exc


def assemble(folder: Folder, form: Form, unread: weights.Unread | None = None) -> Model:
    """Return the model of a folder.

    Args:
        folder: with the network that computes.
        form: of it.
        unread: its weights, if they are left on disk.
    """
    tokenizer = folder.tokenizer
    defaults = _defaults(folder.network)
    end_tokens = folder.end_tokens
    if end_tokens is None:
        named_ends = defaults.get("eos_token_ids")
        end_tokens = [named_ends] if isinstance(named_ends, int) else list(named_ends or ())
    ends = set(end_tokens)
    if tokenizer.eos_token_id is not None:
        ends.add(tokenizer.eos_token_id)
    tokenizer.limit = max(tokenizer.vocabulary_size, folder.width)
    return Model(
        folder,
        form,
        chat_template=_chat_template(tokenizer, folder.sources, folder.settings, defaults),
        settings={**defaults, **folder.settings},
        end_tokens=frozenset(ends),
        unread=unread,
        images=_images(folder),
    )


def _images(folder: Folder) -> ImageStore | NoImages | None:
    """Return what a model has for images; None if its config knows none."""
    if not isinstance(folder.config.get("vision_config"), dict):
        return None
    from cowmlx.models.images import images_of  # late: few models take images

    return images_of(folder.path, folder.config, folder.tokenizer, folder.network)


def _chat_template(
    tokenizer: Tokenizer,
    sources: dict[str, str],
    settings: dict[str, Any],
    defaults: dict[str, Any],
) -> ChatTemplate | None:
    """Return the chat template: the folder's, or mlx-lm's Python one where that is asked for."""
    renderer = None
    name = settings.get("chat_template_type", defaults.get("chat_template_type"))
    if isinstance(name, str) and ("chat_template_type" in settings or not sources):
        renderer = full_route.import_renderer(name)
    if not sources and renderer is None:
        return None

    def markers() -> list[str]:
        parser = chat_format.tool_parser(tokenizer, sources, {**defaults, **settings})
        return chat_format.ChatFormat(tokenizer, parser).texts

    return ChatTemplate(
        sources,
        tokenizer.special_tokens,
        thinking=chat_format.thinking(tokenizer) is not None,
        renderer=renderer,
        markers=markers,
    )


# Members of model_info that model_inspect repeats for a model that loads.
_SAME = (
    *("architecture", "parameters", "quantization", "bytes", "context_length"),
    *("vocabulary_size", "chat_template", "tools", "thinking"),
)


# Members of model_inspect about contexts.
_OF_CONTEXTS = "cache_bytes_per_1000_tokens", "peak_bytes_of_1000_tokens"


def inspect(
    path: str, context_bytes: Callable[[Model], dict[str, int | None]]
) -> Generator[None, None, dict[str, Any]]:
    """Look at a model's folder, step by step.

    Args:
        path: of the folder, or of its entry in Hugging Face's cache, or its name there.
        context_bytes: members about a context of 1,000 tokens; it may raise what a context would.

    Returns:
        The members of ``model_inspect``.

    Raises:
        NotFound: there is no such folder.
        OutOfMemory: there is no memory to look at it.
    """
    folder, name = places.find(path)
    report: dict[str, Any] = {"name": name, "path": folder, "loads": True, "problem": None}
    report |= dict.fromkeys((*_SAME, "bits", "load_bytes", *_OF_CONTEXTS))
    report |= {"license": None, "sampling": {}}
    try:
        config_files.check_folder(folder)
    except CowMlxError as error:
        return {**report, "loads": False, "problem": _problem(error)}
    try:
        config = config_files.read_config(folder)
    except CowMlxError:
        config = {}  # the loader says why
    named = config.get("model_type")
    report["architecture"] = named if isinstance(named, str) else None
    report["license"] = config_files.licence(folder, config)
    report["sampling"] = config_files.sampling(folder)
    yield
    try:
        model = yield from _opened(folder)
        info = model.info()
        report |= {key: info[key] for key in _SAME}
        report["bits"] = _bits(model)
        _, report["load_bytes"] = weights.bytes_to_load(model.network, model.form.passing)
    except OutOfMemory:
        raise
    except CowMlxError as error:
        return {**report, "loads": False, "problem": _problem(error)}
    try:
        report |= context_bytes(model)
    except Unsupported as error:  # it loads, but has no such contexts
        report["problem"] = _problem(error)
    return report


def _problem(error: CowMlxError) -> dict[str, Any]:
    return {
        "status": status.NAMES[error.status],
        "message": str(error),
        "reason": error.reason,
        "details": details_of(error),
    }


def _opened(path: str) -> Generator[None, None, Model]:
    """Load a model whose weights stay on disk, and with none of the folder's code."""
    loading = load(path, adapter_path=None, lazy=True, trust_remote_code=False)
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
