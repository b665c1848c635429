"""What sentence-transformers' files add to a model's folder: ``modules.json`` and its modules."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import mlx.core as mx

from cowmlx.errors import NotFound, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.folders import safetensors, torch_file
from cowmlx.folders.config import invalid_config, mismatch
from cowmlx.generated import constants
from cowmlx.models.embedding import normalized as to_length_1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LIST = "modules.json"
_SETTINGS = "config_sentence_transformers.json"
_TOKENS = ("sentence_bert_config.json", "sentence_roberta_config.json")
_SIZE, _LARGEST = 1 << 16, 1 << 24  # of an object, and of a number
# Names of poolings, old and new, in the order in which several are joined.
_POOLINGS = {
    "cls": ("pooling_mode_cls_token", constants.POOLING_CLS),
    "max": ("pooling_mode_max_tokens", constants.POOLING_MAX),
    "mean": ("pooling_mode_mean_tokens", constants.POOLING_MEAN),
    "weightedmean": ("pooling_mode_weightedmean_tokens", constants.POOLING_WEIGHTED),
    "lasttoken": ("pooling_mode_lasttoken", constants.POOLING_LAST),
}
_ROOT_MEAN = ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens")
_ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "Tanh": mx.tanh,
    "Identity": lambda x: x,
    "ReLU": lambda x: mx.maximum(x, 0),
    "Sigmoid": mx.sigmoid,
    "GELU": lambda x: x * (1 + mx.erf(x / 2**0.5)) / 2,
    "SiLU": lambda x: x * mx.sigmoid(x),
}


@dataclass(frozen=True)
class Stage:
    """A layer behind the pooling: an activation of a linear map, or a norm.

    Attributes:
        kind: "Dense" or "LayerNorm".
        weight: (outputs, inputs) of a dense layer, (D,) of a norm.
        bias: (outputs,), or None.
        activation: of a dense layer, by torch's name.
        dims: values that it gives.
        adds_input: whether its input is added to the result of the activation.
        residual: (outputs, inputs), by which that input is mapped first, or None.
        normalizes: whether its input is normalized before all else.
    """

    kind: str
    weight: mx.array
    bias: mx.array | None
    activation: str
    dims: int
    adds_input: bool = False
    residual: mx.array | None = None
    normalizes: bool = False

    def __call__(self, x: mx.array) -> mx.array:
        """Map (B, inputs) to (B, outputs)."""
        if self.normalizes:
            x = to_length_1(x)
        if self.kind == "LayerNorm":
            return mx.fast.layer_norm(x, self.weight, self.bias, 1e-5)
        made = x @ self.weight.T
        made = _ACTIVATIONS[self.activation](made if self.bias is None else made + self.bias)
        if not self.adds_input:
            return made
        return made + (x if self.residual is None else x @ self.residual.T)


@dataclass(frozen=True)
class Sentences:
    """How a folder makes vectors of hidden states.

    Attributes:
        poolings: of ``POOLING_*``; the vectors of several are joined. None: a vector is a token's.
        counts_prompt: whether the tokens of a prompt are pooled, too.
        stages: what follows.
        normalized: whether a vector is normalized at the end.
        prompts: texts that stand in front of others, by name.
        default_prompt: the name of the one that is used unless another is asked for, or None.
        max_tokens: of a text; None for the model's context length.
        lower: whether texts are made lower-case.
        truncate_dims: values of a vector that are kept, or None for all.
    """

    poolings: tuple[int, ...]
    counts_prompt: bool = True
    stages: tuple[Stage, ...] = ()
    normalized: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_tokens: int | None = None
    lower: bool = False
    truncate_dims: int | None = None

    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` reports."""
        names = {number: name for name, (_, number) in _POOLINGS.items()}
        return {
            "pooling": [names[number] for number in self.poolings],
            "normalized": self.normalized,
            "prompts": self.prompts,
            "default_prompt": self.default_prompt,
            "max_tokens": self.max_tokens,
            "truncate_dims": self.truncate_dims,
        }


def folders(path: str) -> list[str]:
    """Return the names of the folders that ``modules.json`` names; none without the file."""
    return [own for _, own in _modules(path) if own] if _is_there(path, _LIST) else []


def read(path: str, dims: int) -> Sentences | None:
    """Read a folder's files; None if it is none of sentence-transformers.

    Args:
        path: the model's folder.
        dims: values of a hidden state; 0 if they are not known.

    Raises:
        NotFound: a module's file is missing.
        BadFormat: a file is malformed, or two do not fit.
        Unsupported: a module is of a kind that is not known.
    """
    if not _is_there(path, _LIST):
        return None
    settings = _optional(path, _SETTINGS)
    tokens: dict[str, Any] = {}
    for name in _TOKENS:
        tokens |= _optional(path, name)
    poolings: tuple[int, ...] = ()
    counts_prompt, normalized = True, False
    stages: list[Stage] = []
    for kind, own in _modules(path):
        config_files.check_files(os.path.join(path, own))
        file = os.path.join(path, own, "config.json")
        if kind == "Pooling":
            poolings, counts_prompt = _pooling(config_files.read_json(file), file)
        elif kind in ("Dense", "LayerNorm"):
            given = stages[-1].dims if stages else dims * max(len(poolings), 1)
            stage = _stage(kind, os.path.join(path, own), given, of_tokens=not poolings)
            stages.append(replace(stage, normalizes=normalized))
            normalized = False
        elif kind == "Normalize":
            normalized = True
    prompts, default = _prompts(settings)
    return Sentences(
        poolings,
        counts_prompt,
        tuple(stages),
        normalized,
        prompts,
        default,
        _size(tokens, "max_seq_length", _TOKENS[0]),
        tokens.get("do_lower_case") is True,
        _size(settings, "truncate_dim", _SETTINGS),
    )


def _optional(path: str, name: str) -> dict[str, Any]:
    """Read a file that a folder need not have."""
    return config_files.read_json(os.path.join(path, name), optional=not _is_there(path, name))


def _is_there(path: str, name: str) -> bool:
    return os.path.lexists(os.path.join(path, name))  # a link to nothing is an odd file


_KNOWN = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout")


def _modules(path: str) -> list[tuple[str, str]]:
    """Return the kind and the folder of each module."""
    listed = config_files.read_json_array(os.path.join(path, _LIST))
    found: list[tuple[str, str]] = []
    for entry in listed:
        if not isinstance(entry, dict):
            raise invalid_config("it must hold objects with type and path", _LIST)
        named, given = entry.get("type"), entry.get("path")
        if not isinstance(named, str) or not isinstance(given, str):
            raise invalid_config("a module has no type or no path", _LIST)
        own = _name_of_folder(given)
        kind = named.rpartition(".")[2]
        if kind not in _KNOWN:
            raise Unsupported(
                f"{_LIST} has a module of the type {named[:80]}; known are {', '.join(_KNOWN)}",
                file=_LIST,
            )
        if kind == "Transformer" and (found or own):
            raise Unsupported(
                f"{_LIST} has the Transformer {own!r} at place {len(found)}; it must be the first, "
                "and lie in the model's folder itself",
                file=_LIST,
            )
        if kind == "Pooling" and len(found) > 1:
            raise Unsupported(
                f"{_LIST} has the Pooling {own!r} at place {len(found)}; it must follow the "
                "Transformer",
                file=_LIST,
            )
        found.append((kind, own))
    if not found or found[0][0] != "Transformer":
        raise invalid_config("its first module is no Transformer", _LIST)
    return found


def _name_of_folder(given: str) -> str:
    """Return the name in a module's path, which is empty for the model's folder itself.

    Raises:
        BadFormat: it leads somewhere else than to a folder in the model's.
    """
    own = given.rstrip("/")
    odd = own in (".", "..") or "/" in own or "\\" in own or not own.isprintable()
    if odd or (given and not own):
        raise invalid_config(f"the path {given[:80]!r} is no name of a folder", _LIST)
    return own


def _pooling(config: dict[str, Any], file: str) -> tuple[tuple[int, ...], bool]:
    """Return the poolings of a module, and whether prompts are pooled."""
    named = config.get("pooling_mode")
    if named is None:
        old = {key: name for name, (key, _) in _POOLINGS.items()}
        old[_ROOT_MEAN[1]] = _ROOT_MEAN[0]
        named = [name for key, name in old.items() if config.get(key) is True]
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not names:
        raise invalid_config("it names no pooling", file)
    for name in names:
        if not isinstance(name, str) or name not in _POOLINGS:
            raise Unsupported(
                f"{file} has the pooling {str(name)[:60]!r}; known are {', '.join(_POOLINGS)}",
                file=file,
            )
    if len(set(names)) < len(names):
        raise invalid_config("it names a pooling twice", file)
    return tuple(_POOLINGS[name][1] for name in names), config.get("include_prompt") is not False


def _stage(kind: str, folder: str, given: int, *, of_tokens: bool) -> Stage:
    """Read a module with weights.

    Args:
        kind: "Dense" or "LayerNorm".
        folder: the module's.
        given: how many values it gets; 0 if that is not known.
        of_tokens: whether no pooling comes before, so that it gets the vectors of tokens.
    """
    config, activation = _settings_of(kind, os.path.join(folder, "config.json"), of_tokens)
    prefix = "linear" if kind == "Dense" else "norm"
    place, stored = _stored(folder)
    found = stored.get(f"{prefix}.weight")
    if found is None or not found.size or found.ndim != (2 if kind == "Dense" else 1):
        raise mismatch(f"{place} lacks {prefix}.weight, the weight of a {kind}", place)
    dims, inputs = int(found.shape[0]), int(found.shape[-1])
    if given and inputs != given:
        raise mismatch(
            f"{place}: {prefix}.weight takes {inputs} values, but is given {given}", place
        )
    weight = _taken(stored, f"{prefix}.weight", found.shape, place)
    bias = _taken(stored, f"{prefix}.bias", (dims,), place)
    residual, adds_input = None, kind == "Dense" and config.get("use_residual") is True
    if adds_input and inputs != dims:
        residual = _taken(stored, "residual.weight", (dims, inputs), place)
        if residual is None:
            raise mismatch(f"{place} lacks residual.weight, which use_residual asks for", place)
    if stored:
        raise mismatch(f"{place} has {min(stored)[:60]}, for which a {kind} has no place", place)
    assert weight is not None
    return Stage(kind, weight, bias, activation, dims, adds_input, residual)


def _settings_of(kind: str, file: str, of_tokens: bool) -> tuple[dict[str, Any], str]:
    """Return the config of a module with weights, and its activation."""
    config = config_files.read_json(file)
    known = ("sentence_embedding", *["token_embeddings"] * of_tokens)
    for name in ("module_input_name", "module_output_name"):
        if config.get(name) not in (None, *known):
            raise Unsupported(
                f"{file}: {name} is {config[name]!r}, not {' or '.join(known)}", file=file
            )
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if kind == "Dense" and activation not in _ACTIVATIONS:
        raise Unsupported(
            f"{file}: activation_function is {activation[:60]!r}; known are "
            f"{', '.join(_ACTIVATIONS)}",
            file=file,
        )
    return config, activation


def _taken(
    stored: dict[str, mx.array], name: str, shape: tuple[int, ...], place: str
) -> mx.array | None:
    """Take a weight out of those stored, as float32; None if there is none."""
    array = stored.pop(name, None)
    if array is None:
        return None
    if array.shape != shape:
        raise mismatch(f"{place}: {name} is {array.shape}, not {shape}", place)
    array = array.astype(mx.float32)
    mx.eval(array)
    return array


def _stored(folder: str) -> tuple[str, dict[str, mx.array]]:
    """Return the file of a module's weights, and the weights by name."""
    file = os.path.join(folder, "model.safetensors")
    if os.path.isfile(file):
        safetensors.check_file(file)
        return file, safetensors.load(file)
    other = os.path.join(folder, "pytorch_model.bin")
    if os.path.isfile(other):
        return other, torch_file.load(other)
    raise NotFound(f"{folder} has no model.safetensors", file="model.safetensors")


def _prompts(settings: dict[str, Any]) -> tuple[dict[str, str], str | None]:
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    texts = isinstance(prompts, dict) and all(
        isinstance(text, str) and len(text) < _SIZE for text in prompts.values()
    )
    if not texts:
        raise invalid_config("prompts must be an object of texts", _SETTINGS, key="prompts")
    if default is not None and not (isinstance(default, str) and default in prompts):
        raise invalid_config(
            f"default_prompt_name is {str(default)[:60]!r}, which prompts does not have",
            _SETTINGS,
            key="default_prompt_name",
        )
    return dict(prompts), default


def _size(settings: dict[str, Any], name: str, file: str) -> int | None:
    value = settings.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
        raise invalid_config(f"{name} is {str(value)[:60]}, no positive integer", file, key=name)
    return value
