"""Sources of a conversion: a model's folder, or a GGUF file."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import NamedTuple

from cowmlx.accelerate.device import is_quantized
from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.folders import gguf_file, places, weights
from cowmlx.models import network, quantizing, registry, sentences
from cowmlx.models.converting import gguf_network, gguf_tokenizer
from cowmlx.networks import architectures, light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

    from cowmlx.folders.stored_tensors import Specification
    from cowmlx.models.converting.gguf_network import Weight
    from cowmlx.models.quantizing import Quantizing

GGUF = ".gguf"
DTYPES = ("bfloat16", "float16", "float32")
# Weights, and lists of them, which the new folder has instead.
_NOT_COPIED = (
    *(".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".partial"),
    *(".index.json", ".tflite", ".ot"),
)


class Part(NamedTuple):
    """Tensors that are made together.

    Attributes:
        tensors: their types and shapes by name.
        make: returns them; called at most once.
    """

    tensors: dict[str, Specification]
    make: Callable[[], dict[str, mx.array]]


class Source(NamedTuple):
    """A model that is converted.

    Attributes:
        path: its folder or file.
        files: names, sizes and times of change of the weights' files.
        parts: of the weights, in order.
        config: ``config.json``.
        copied: files to copy, by name in the new folder.
        texts: texts to write, by name.
    """

    path: str
    files: list[list[Any]]
    parts: list[Part]
    config: dict[str, Any]
    copied: dict[str, str]
    texts: dict[str, str]


def read(path: str, quantize: Quantizing | None, dtype: str | None) -> Source:
    """Read a model up to its weights.

    Args:
        path: as for ``model_load``; or a GGUF file, or a folder with one and no safetensors.
        quantize: the format of the weights, None: as they are.
        dtype: of weights that are not quantized, one of :data:`DTYPES`; None: as they are, where a
            GGUF file with weights in blocks has float32, or bfloat16 beside quantized weights.

    Raises:
        NotFound, BadFormat, Unsupported, InputOutput, InvalidArgument: see the messages.
    """
    file = _gguf_in(path)
    if file is not None:
        return _of_gguf(file, quantize, dtype)
    return _of_folder(path, quantize, dtype)


def _gguf_in(path: str) -> str | None:
    """Return the GGUF file that a path means, None if it means none.

    Raises:
        InvalidArgument: it means several.
    """
    if os.path.isfile(path):
        with open(path, "rb") as file:
            begins_so = file.read(len(gguf_file.MAGIC)) == gguf_file.MAGIC
        return path if begins_so or path.endswith(GGUF) else None
    folder = places.resolved(path)
    if not os.path.isdir(folder):
        return None
    names = sorted(os.listdir(folder))
    found = [name for name in names if name.endswith(GGUF)]
    if not found or any(name.endswith(".safetensors") for name in names):
        return None
    if len(found) > 1:
        raise InvalidArgument(
            f"{folder} has {len(found)} GGUF files; name one: {os.path.join(folder, found[0])}",
            reason="conflict",
            file=folder,
        )
    return os.path.join(folder, found[0])


def _identity(path: str) -> list[Any]:
    known = os.stat(path)
    return [os.path.basename(path), known.st_size, known.st_mtime_ns]


def _quantized(net: Module, config: dict[str, Any], how: Quantizing | None, path: str) -> None:
    if how is not None:
        quantizing.apply(net, config, how, path)


# -------------------------------------------------------------------- Folders


def _of_folder(path: str, quantize: Quantizing | None, dtype: str | None) -> Source:
    path, _ = places.find(path)
    config_files.check_folder(path)
    places.refuse_other_formats(path)
    config = config_files.read_config(path)
    architecture = "" if config.get("model_file") else architectures.name(config)
    files = weights.shards(path)
    net, config, package = registry.read_network(path, config, architecture, files, False)
    registry.prove(net, config, package)
    arrays = _head(net, config, architecture, files, path, quantize, dtype)
    if dtype is not None:
        _cast(net, config, dtype, path)
    _quantized(net, config, quantize, path)
    kept = dict(config)
    kept.pop("_name_or_path", None)
    if "vision_tower" not in net:
        kept.pop("vision_config", None)  # mlx-lm has the text part alone
    arrays |= weights.flatten(net.parameters())
    parts = [
        Part({name: (array.dtype, array.shape)}, partial(_taken, arrays, name))
        for name, array in arrays.items()
    ]
    return Source(path, [_identity(file) for file in files], parts, kept, _copied(path), {})


def _head(
    net: Module,
    config: dict[str, Any],
    architecture: str,
    files: list[str],
    path: str,
    quantize: Quantizing | None,
    dtype: str | None,
) -> dict[str, mx.array]:
    """Return the weights of a head for draft_heads as the new folder has them, lazily."""
    from cowmlx.models import mtp  # late: it needs mlx

    found = mtp.stored_head(net, config, architecture, files, path)
    if found is None:
        return {}
    head, name_of = found
    if dtype is not None:
        _cast(head, {}, dtype, path)
    if quantize is not None:
        quantizing.apply_to_head(head, net, quantize)
    return {name_of(name): array for name, array in weights.flatten(head.parameters()).items()}


def _taken(arrays: dict[str, mx.array], name: str) -> dict[str, mx.array]:
    """Return an array, and let go of it."""
    return {name: arrays.pop(name)}


def _cast(net: Module, config: dict[str, Any], dtype: str, path: str) -> None:
    """Give the floating-point weights of a network another type, lazily.

    Raises:
        Unsupported: they are quantized.
    """
    import mlx.core as mx

    if is_quantized(net):
        raise Unsupported(
            f"dtype is {dtype}, but the weights of {path} are quantized already; convert the "
            "original weights",
            argument="dtype",
            value=dtype,
        )
    wanted, kept = getattr(mx, dtype), getattr(net, "cast_predicate", lambda _: True)
    changed = [
        (name, array.astype(wanted))
        for name, array in weights.flatten(net.parameters()).items()
        if mx.issubdtype(array.dtype, mx.floating) and kept(name)
    ]
    net.load_weights(changed, strict=False)
    config["dtype" if "dtype" in config else "torch_dtype"] = dtype


def _copied(path: str) -> dict[str, str]:
    """Return the files beside the weights by their names."""
    found = {}
    inners = sentences.folders(path)
    for inner in ("", config_files.TEMPLATES, *inners):
        folder = os.path.join(path, inner)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            file = os.path.join(folder, name)
            own = name.startswith(".")
            if inner not in inners:  # of which all files are small
                own = own or name == "config.json" or name.endswith(_NOT_COPIED)
            if os.path.isfile(file) and not own:
                found[os.path.join(inner, name)] = file
    return found


# ----------------------------------------------------------------- GGUF files


def _of_gguf(path: str, quantize: Quantizing | None, dtype: str | None) -> Source:
    import mlx.core as mx

    contents = gguf_file.read(path)
    facts = gguf_network.Facts(contents)
    kind = gguf_network.family(facts)
    config = gguf_network.config(facts, kind)
    stored = gguf_network.weights(facts, kind)
    texts = gguf_tokenizer.texts(contents, config["max_position_embeddings"])
    config |= texts.config
    chosen = dtype or _dtype(stored, quantize)
    config["torch_dtype"] = chosen
    wanted = getattr(mx, chosen)
    zeros = {name: mx.zeros(weight.tensor.shape, wanted) for name, weight in stored.items()}
    net = network.build(config, config["model_type"], zeros, path)
    registry.prove(net, config, light_route.ALIAS)
    _quantized(net, config, quantize, path)
    parts = [
        Part(
            specified, partial(_made, contents, stored[f"{owner}.{leaf}"], owner, leaf, own, wanted)
        )
        for owner, leaf, own, specified in _modules(net)
    ]
    generation = {name: config[name] for name in ("bos_token_id", "eos_token_id")}
    written = {
        "tokenizer.json": texts.tokenizer,
        "tokenizer_config.json": texts.settings,
        "generation_config.json": json.dumps(generation, indent=1),
    }
    return Source(path, [_identity(path)], parts, config, {}, written)


def _dtype(stored: dict[str, Weight], quantize: Quantizing | None) -> str:
    """Return the type of a file's matrices, where one of mlx holds them exactly."""
    kinds = {weight.tensor.type.name for weight in stored.values() if len(weight.tensor.shape) > 1}
    if kinds == {"F16"}:
        return "float16"
    if kinds == {"BF16"} or quantize is not None:
        return "bfloat16"
    return "float32"


def _modules(net: Any) -> list[tuple[str, str, Any, dict[str, Specification]]]:
    """Return what a network's tensors are made from: module, leaf of the weight, and tensors.

    The module is None unless its weight is quantized.
    """
    modules: dict[str, Any] = dict(net.named_modules())
    made: dict[tuple[str, str], tuple[Any, dict[str, Specification]]] = {}
    for name, array in weights.flatten(net.parameters()).items():
        owner, _, leaf = name.rpartition(".")
        quantized = "scales" in modules[owner] and leaf != "bias"
        key = (owner, "weight" if quantized else leaf)
        module = modules[owner] if quantized else None
        made.setdefault(key, (module, {}))[1][name] = (array.dtype, array.shape)
    return [(owner, leaf, *rest) for (owner, leaf), rest in made.items()]


def _made(
    contents: gguf_file.Contents,
    weight: Weight,
    owner: str,
    leaf: str,
    module: Any,
    dtype: mx.Dtype,
) -> dict[str, mx.array]:
    """Return the tensors of a part."""
    import mlx.core as mx

    numbers = contents.numbers(weight.tensor)
    array = mx.array(numbers if weight.change is None else weight.change(numbers)).astype(dtype)
    del numbers
    if module is None:
        return {f"{owner}.{leaf}": array}
    parts = mx.quantize(array, module.group_size, module.bits, mode=module.mode)
    names = ("weight", "scales", "biases")
    return {f"{owner}.{name}": part for name, part in zip(names, parts, strict=False)}
