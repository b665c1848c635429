"""Trained parameters for contexts, and as folders that mlx-lm reads: adapters and models."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.utils import tree_unflatten

from cowmlx import failures
from cowmlx.accelerate import blocks
from cowmlx.accelerate.device import take_out
from cowmlx.errors import CowMlxError, InputOutput, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.folders import places, safetensors, weights
from cowmlx.memory import RequireRoom
from cowmlx.models import adapters, mtp
from cowmlx.models import network as networks
from cowmlx.models.model import Model
from cowmlx.steps import finished
from cowmlx.training.language.objective import LanguageObjective
from cowmlx.training.language.options import FULL
from cowmlx.vision import image_encoders

_ADAPTER_CONFIG, _ADAPTER = "adapter_config.json", "adapters.safetensors"
_CONFIG, _INDEX = "config.json", "model.safetensors.index.json"
_QUANTIZATION = ("quantization", "quantization_config")
# Bytes of weights in one file, which is written in one step.
_MAX_SHARD = 512 << 20
_SHARD = re.compile(r"model(-[0-9]{5}-of-[0-9]{5})?\.safetensors")
# Endings of files that belong to a model but hold no weights.
_BESIDE = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")


def published(objective: LanguageObjective) -> Model:
    """Return the model with its trained parameters; see :func:`published_steps`."""
    return finished(published_steps(objective))


def published_steps(
    objective: LanguageObjective, require_room: RequireRoom = lambda size, what: None
) -> Generator[None, None, Model]:
    """Return the model with its trained parameters, for ``context_set_adapter``, in bounded steps.

    All other weights are the model's own arrays. Later steps do not change it.

    Args:
        objective: its parameters are those at the first step.
        require_room: raises where so many bytes may not be taken for a named purpose.

    Raises:
        OutOfMemory: there is no memory for the parameters.
    """
    trained = objective.parameters()
    arrays = stored(objective)
    copies = [array for name, array in arrays.items() if array.dtype != trained[name].dtype]
    del trained
    require_room(sum(array.nbytes for array in copies), "the adapter")
    while copies:
        mx.eval(copies.pop())
        yield
    return adapters.adapted_by(objective.model, settings(objective), arrays)


def settings(objective: LanguageObjective) -> dict[str, Any]:
    """Return the ``adapter_config.json`` of the trained parameters."""
    return objective.options.adapter_config(len(objective.network.layers))


def stored(objective: LanguageObjective) -> dict[str, mx.array]:
    """Return the trained parameters; weights of the model have its dtypes."""
    values = objective.parameters()
    own = blocks.parameters(objective.model.network)
    return {
        name: value.astype(own[name].dtype) if name in own else value
        for name, value in values.items()
    }


def export(
    objective: LanguageObjective, folder: str, *, fuse: bool = False, dequantize: bool = False
) -> Generator[None, None, None]:
    """Write the trained parameters, all or nothing, yielding between files.

    Args:
        objective: its parameters are written as they are at the first step.
        folder: to make; an earlier export there is replaced.
        fuse: write a model with the adapter merged into its weights, and no adapter; so it is
            with "full".
        dequantize: write merged layers with 16 or 32 bits; otherwise quantized layers are
            quantized again, which rounds.

    Raises:
        NotFound, InputOutput: the folder cannot be written, is the model's own or has files that
            no export writes; or the model's own cannot be read.
        Unsupported: an adapter cannot be merged into quantized weights of this kind.
    """
    check_place(objective, folder, fuse=fuse)
    if fuse or objective.options.kind == FULL:
        yield from _export_model(objective, folder, dequantize)
        return
    arrays, config = stored(objective), settings(objective)
    _require_declared(objective, config, arrays)
    with places.whole(folder, *_form(objective, fuse)) as fresh:
        yield
        safetensors.save(os.path.join(fresh, _ADAPTER), arrays)
        _write_json(os.path.join(fresh, _ADAPTER_CONFIG), config)
        yield


def check_place(objective: LanguageObjective, folder: str, *, fuse: bool = False) -> None:
    """Refuse a folder that an export must not replace.

    Raises:
        InputOutput: it is the model's own, or has files that no export writes.
    """
    with suppress(OSError):  # one of them is missing
        if os.path.samefile(folder, objective.model.path):
            raise InputOutput(
                f"cannot write {folder}: the model that is trained is there; name a new folder",
                reason="write_failed",
                file=folder,
            )
    places.check(folder, *_form(objective, fuse))


def _form(objective: LanguageObjective, fuse: bool) -> tuple[str, Callable[[str], bool]]:
    """Return the file that every export has, and which files and folders it may have."""
    if fuse or objective.options.kind == FULL:
        return _CONFIG, partial(_is_written, objective.model.path)
    return _ADAPTER_CONFIG, {_ADAPTER_CONFIG, _ADAPTER}.__contains__


def _require_declared(
    objective: LanguageObjective, config: dict[str, Any], arrays: dict[str, mx.array]
) -> None:
    """Check that arrays have the names and shapes of the adapter that a config declares.

    Raises:
        CowMlxError: they have not; a reader would refuse the folder.
    """
    net = networks.share(objective.model.network)
    adapters.insert_layers(net, config, objective.model.package)
    mx.eval(mx.random.state)  # the layers' first values have split mlx's key
    items = weights.flatten(net.parameters()).items()
    is_own = adapters.is_adapter_parameter
    declared = {name: array.shape for name, array in items if is_own(name)}
    for name in sorted(declared.keys() | arrays.keys()):
        shape = arrays[name].shape if name in arrays else None
        if shape != declared.get(name):
            raise CowMlxError(
                f"cannot export the adapter: {name} has the shape {shape}, and its config declares "
                f"{declared.get(name)}"
            )


def _export_model(
    objective: LanguageObjective, folder: str, dequantize: bool
) -> Generator[None, None, None]:
    model = yield from published_steps(objective)
    net = networks.share(model.network)
    take_out(net)
    dense = _fuse(net, dequantize)
    config = config_files.read_json(os.path.join(model.path, _CONFIG))
    for key in _QUANTIZATION:
        if model.config.get(key) is not None:  # it may have been quantized as it was loaded
            config[key] = model.config[key]
    if dense:
        _note_dense(config, dense, net)
    arrays = _as_stored(net, model)
    tower = _tower(net, model, arrays)
    if not tower and "vision_tower" not in net:
        config.pop("vision_config", None)
    arrays |= tower | _head(net, model)
    with places.whole(folder, *_form(objective, fuse=True)) as fresh:
        yield
        _copy_beside(model.path, fresh)
        yield
        yield from _write_shards(fresh, arrays)
        _write_json(os.path.join(fresh, _CONFIG), config)
        yield


def _fuse(net: Any, dequantize: bool) -> list[str]:
    """Merge adapters into the weights; return the layers that are no longer quantized."""
    fused, dense = [], []
    for name, layer in adapters.layers_of(net).items():
        base = layer.get("linear", layer.get("embedding"))
        if base.get("global_scale") is not None:
            raise Unsupported(
                f"fuse is true, but the weights of {name} have a global scale, which merging would "
                "lose; export an adapter",
                argument="options_json.fuse",
                value=name,
            )
        made = layer.fuse(dequantize=dequantize) if "scales" in base else layer.fuse()
        if "scales" in base and "scales" not in made:
            dense.append(name)
        fused.append((name, made))
    if fused:
        net.update_modules(tree_unflatten(fused))
    return dense


def _note_dense(config: dict[str, Any], dense: list[str], net: Any) -> None:
    """Note in a config the layers that are no longer quantized."""
    quantized = any("scales" in module for _, module in net.named_modules())
    for key in _QUANTIZATION:
        if not quantized:
            config.pop(key, None)
        elif isinstance(config.get(key), dict):
            config[key] = {**config[key], **dict.fromkeys(dense, False)}


def _as_stored(net: Any, model: Model) -> dict[str, mx.array]:
    """Return a network's weights in the dtypes of the model's folder."""
    arrays = weights.flatten(net.parameters())
    try:
        found = _sanitized(net, weights.read(weights.shards(model.path)))
        types = {name: array.dtype for name, array in found.items()}
    except Exception as error:  # the folder is gone or changed: keep the dtypes in memory
        failures.reraise_shortage(error)
        types = {}
    return {
        name: array.astype(types[name])
        if name in types
        and mx.issubdtype(array.dtype, mx.floating)
        and mx.issubdtype(types[name], mx.floating)
        else array
        for name, array in arrays.items()
    }


def _sanitized(net: Any, arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return stored weights under the names of a network, lazily."""
    if not hasattr(net, "sanitize"):
        return arrays
    own: Any = networks.share(net)
    for _, module in own.named_modules():
        # Gemma's networks take out their head where it is tied, which they have done before.
        if getattr(module, "tie_word_embeddings", False) is True:
            module.setdefault("lm_head", None)
    found: dict[str, mx.array] = own.sanitize(arrays)
    return found


def _tower(net: Any, model: Model, arrays: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return the stored weights of the model's vision tower; empty if it has none.

    Args:
        net: the network that is written.
        model: from the folder with the tower.
        arrays: the network's weights as they are written.
    """
    if not isinstance(model.config.get("vision_config"), dict):
        return {}
    stored = weights.read(weights.shards(model.path))
    stored = {
        name: array
        for name, array in stored.items()
        if name not in arrays and image_encoders.is_of_tower(name, model.config)
    }
    bare = {name.removeprefix("model."): array for name, array in stored.items()}
    for named in (stored, bare):
        try:
            read = _sanitized(net, arrays | named)
        except Exception as error:  # the network does not know its weights under these names
            failures.reraise_shortage(error)
            continue
        if read.keys() == arrays.keys():
            return named
    return {}


def _head(net: Any, model: Model) -> dict[str, mx.array]:
    """Return the weights of the model's head for draft_heads; empty if it has none."""
    files = weights.shards(model.path)
    found = mtp.stored_head(net, model.config, model.architecture, files, model.path)
    if found is None:
        return {}
    head, name_of = found
    return {name_of(name): array for name, array in weights.flatten(head.parameters()).items()}


def _write_shards(folder: str, arrays: dict[str, mx.array]) -> Generator[None, None, None]:
    shards: list[dict[str, mx.array]] = [{}]
    size = 0
    for name, array in sorted(arrays.items()):
        if shards[-1] and size + array.nbytes > _MAX_SHARD:
            shards.append({})
            size = 0
        shards[-1][name] = array
        size += array.nbytes
    total = len(shards)
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        many = f"model-{number:05d}-of-{total:05d}.safetensors"
        file = "model.safetensors" if total == 1 else many
        safetensors.save(os.path.join(folder, file), shard)
        places |= dict.fromkeys(shard, file)
        yield
    index = {
        "metadata": {"total_size": sum(array.nbytes for array in arrays.values())},
        "weight_map": places,
    }
    _write_json(os.path.join(folder, _INDEX), index)


def _is_written(source: str, name: str) -> bool:
    """Whether an export of a model writes a file or folder.

    Args:
        source: the model's folder.
        name: of the file or folder, or its path in the export.
    """
    if name in (_CONFIG, _INDEX) or _SHARD.fullmatch(name):
        return True
    is_template = name.split(os.sep)[0] == config_files.TEMPLATES
    return (is_template or _is_copied(name)) and os.path.exists(os.path.join(source, name))


def _is_copied(name: str) -> bool:
    is_known = name.endswith(_BESIDE) and not name.endswith(".index.json")
    return is_known and name not in (_CONFIG, _ADAPTER_CONFIG)


def _copy_beside(source: str, folder: str) -> None:
    """Copy a model's files that hold no weights: its tokenizer, templates and code."""
    config_files.check_folder(source)
    try:
        for entry in os.scandir(source):
            if _is_copied(entry.name) and entry.is_file():
                shutil.copyfile(entry.path, os.path.join(folder, entry.name))
        templates = os.path.join(source, config_files.TEMPLATES)
        if os.path.isdir(templates):
            shutil.copytree(templates, os.path.join(folder, config_files.TEMPLATES))
    except shutil.Error as exc:
        raise InputOutput(f"cannot copy {source} ({exc})", file=source) from exc


def _write_json(path: str, value: dict[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=4, sort_keys=True)
        file.write("\n")
