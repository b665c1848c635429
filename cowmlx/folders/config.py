"""Reads a model folder's JSON files, its recommended sampling and its licence."""

from __future__ import annotations

import io
import os
import re
import stat
from contextlib import contextmanager

from cowmlx import json_text
from cowmlx.errors import BadFormat, CowMlxError, InputOutput, NotFound
from cowmlx.folders.opening import without_waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

# What is assumed of a model that names no limit, as recurrent ones do not.
DEFAULT_CONTEXT_LENGTH = 32768
_MAX_CONTEXT = 2**31 - 1  # tokens
MOST_LABELS = 1 << 16  # of a classifier, that are counted and not named

CONTEXT_KEYS = (
    # First: it is the size of a table of positions, beyond which mlx would read other memory.
    "n_positions",
    "max_position_embeddings",
    "max_sequence_length",
    "max_seq_len",
    "max_seq_length",
    "seq_length",
    "model_max_length",
    "n_ctx",
    "ctx_len",
)
# The folder of named chat templates.
TEMPLATES = "additional_chat_templates"
# No tokenizer or config comes near this; files of weights may be larger.
_MAX_TEXT = 1 << 29
_LARGE = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".onnx", ".npz", ".h5", ".msgpack")

_TEXT_PARTS = ("text_config", "language_config", "llm_config")
_TAGGED_FLOATS = {
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "NaN": float("nan"),
}


def invalid_config(message: str, file: str = "config.json", **details: Any) -> BadFormat:
    """Return the error of a config that makes no model."""
    return BadFormat(f"{file}: {message}", reason="invalid_config", file=file, **details)


def mismatch(message: str, path: str | None = None) -> BadFormat:
    """Return the error of weights that are not those of their config, or of another model."""
    return BadFormat(message, reason="weights_mismatch", file=path)


def check_folder(path: str) -> None:
    """Require an existing directory of ordinary files.

    A pipe or device among them could keep its reader for ever.

    Raises:
        NotFound: there is none.
        BadFormat: something in it is neither a file nor a directory, or a text too large.
    """
    if not os.path.isdir(path):
        if os.path.exists(path):
            raise NotFound(f"{path} is not a directory; pass the folder of the model", file=path)
        raise NotFound(f"no such directory: {path}", file=path)
    for folder in (path, os.path.join(path, TEMPLATES)):
        check_files(folder)


def check_files(folder: str) -> None:
    """Require ordinary files in a directory, if there is one.

    Raises:
        BadFormat: something in it is neither a file nor a directory, or a text too large.
    """
    if not os.path.isdir(folder):
        return
    for entry in os.scandir(folder):
        if entry.is_file():
            if not entry.name.endswith(_LARGE):
                _require_size(entry.path, entry.stat().st_size)
        elif not entry.is_dir() and os.path.exists(entry.path):
            raise _neither(entry.path)


def _require_size(path: str, size: int) -> None:
    if size > _MAX_TEXT:
        raise BadFormat(
            f"{path} is larger than {_MAX_TEXT} bytes",
            reason="limit_exceeded",
            file=path,
            limit=_MAX_TEXT,
        )


def _neither(path: str) -> BadFormat:
    return BadFormat(f"{path} is neither a file nor a directory; remove it", file=path)


@contextmanager
def _opened(path: str) -> Iterator[tuple[BinaryIO, int]]:
    """Open an ordinary file for the block; also returns its size.

    The folder may have changed since it was checked. A pipe or device is not waited for.

    Raises:
        OSError: missing or unreadable.
        BadFormat: something else than a file or a directory is there, or a text too large.
    """
    with open(path, "rb", opener=without_waiting) as file:
        known = os.fstat(file.fileno())
        if not stat.S_ISREG(known.st_mode):
            raise _neither(path)
        _require_size(path, known.st_size)
        yield file, known.st_size


def read_text(path: str) -> str:
    """Read a UTF-8 file.

    Raises:
        NotFound, InputOutput, BadFormat: missing, unreadable, or no UTF-8.
    """
    return text_of(read_bytes(path), path)


def text_of(data: bytes, path: str) -> str:
    """Return the text of a UTF-8 file's bytes.

    Raises:
        BadFormat: they are no UTF-8.
    """
    try:
        return io.TextIOWrapper(io.BytesIO(data), "utf-8").read()
    except UnicodeDecodeError as exc:
        raise BadFormat(
            f"{path} is not UTF-8 text: {exc.reason} at byte {exc.start}",
            reason="invalid_utf8",
            file=path,
            byte=exc.start,
        ) from exc


def read_bytes(path: str) -> bytes:
    """Read a file.

    Raises:
        NotFound, InputOutput: missing or unreadable.
        BadFormat: a pipe or device is there, or a text too large.
    """
    try:
        with _opened(path) as (file, size):
            return file.read(size)
    except FileNotFoundError:
        folder, name = os.path.split(path)
        raise NotFound(f"{folder} has no {name}", file=name) from None
    except OSError as exc:
        raise InputOutput(f"cannot read {path}: {exc.strerror or exc}", file=path) from exc


def read_json(path: str, *, optional: bool = False) -> dict[str, Any]:
    """Read a JSON object; an absent optional file is an empty one.

    Raises:
        NotFound, InputOutput: as :func:`read_text`.
        BadFormat: malformed JSON, with line and column, or no object.
    """
    if optional and not os.path.exists(path):
        return {}
    value = _parsed(path)
    if not isinstance(value, dict):
        raise BadFormat(f"{path} must hold a JSON object, not {type(value).__name__}", file=path)
    return value


def read_json_array(path: str) -> list[Any]:
    """Read a JSON array.

    Raises:
        NotFound, InputOutput, BadFormat: as :func:`read_json`.
    """
    value = _parsed(path)
    if not isinstance(value, list):
        raise BadFormat(f"{path} must hold a JSON array, not {type(value).__name__}", file=path)
    return value


def _parsed(path: str) -> Any:
    try:
        return json_text.parse(read_text(path))
    except json_text.Malformed as exc:
        raise BadFormat(f"{path} is not JSON: {exc}", file=path, **exc.place) from exc


def read_config(path: str) -> dict[str, Any]:
    """Read ``config.json`` as mlx-lm does: end tokens come from ``generation_config.json``.

    Raises:
        NotFound, InputOutput, BadFormat: as :func:`read_json`.
    """
    config: dict[str, Any] = _untag(read_json(os.path.join(path, "config.json")))
    try:
        generation = read_json(os.path.join(path, "generation_config.json"), optional=True)
    except BadFormat:
        # mlx-lm ignores a malformed one, and nothing else in it matters here.
        generation = {}
    if generation.get("eos_token_id"):
        config["eos_token_id"] = generation["eos_token_id"]
    if "quantization_config" not in config:
        text = config.get("text_config")
        if isinstance(text, dict) and "quantization_config" in text:
            config["quantization_config"] = text["quantization_config"]
        else:
            separate = read_json(os.path.join(path, "hf_quant_config.json"), optional=True)
            if separate:
                config["quantization_config"] = separate
    for part in (config, config.get("text_config")):
        if isinstance(part, dict):
            _name_rotations(part)
    return config


def _name_rotations(config: dict[str, Any]) -> None:
    """Add the older names of the values that transformers 5 stores as ``rope_parameters``.

    Many of mlx-lm's networks know only these, and would rotate by their defaults.
    """
    stored = config.get("rope_parameters")
    if not isinstance(stored, dict):
        return
    whole = stored.get("full_attention", stored)
    if not isinstance(whole, dict):
        return
    sliding = stored.get("sliding_attention")
    scaled = whole.get("rope_type", "default") != "default"
    named = {
        "rope_theta": whole.get("rope_theta"),
        "rope_scaling": whole if scaled else None,
        "partial_rotary_factor": whole.get("partial_rotary_factor"),
        "rope_local_base_freq": sliding.get("rope_theta") if isinstance(sliding, dict) else None,
    }
    for name, value in named.items():
        if value is not None and config.get(name) is None:
            config[name] = value


def end_tokens(config: dict[str, Any]) -> list[int] | None:
    """Return the end tokens that the config names; None if it names none.

    Raises:
        BadFormat: ``eos_token_id`` is neither an integer nor a list of them.
    """
    value = config.get("eos_token_id")
    if value is None:
        return None
    tokens = value if isinstance(value, list) else [value]
    if any(isinstance(token, bool) or not isinstance(token, int) for token in tokens):
        raise invalid_config(f"eos_token_id must hold integers, not {value!r}", key="eos_token_id")
    return list(tokens)


def context_length(config: dict[str, Any], tokenizer_config: dict[str, Any]) -> int:
    """Return how many tokens the model was made for.

    The first positive integer among the usual keys of the config, of its text part, and of
    the tokenizer's ``model_max_length``; :data:`DEFAULT_CONTEXT_LENGTH` if there is none.
    """
    parts = [config]
    parts += [config[key] for key in _TEXT_PARTS if isinstance(config.get(key), dict)]
    for part in parts:
        for key in CONTEXT_KEYS:
            if _is_length(part.get(key)):
                return int(part[key])
    length = tokenizer_config.get("model_max_length")
    # transformers writes 10**30 for "unknown".
    if _is_length(length) and int(length or 0) < 10**9:
        return int(length or 0)
    return DEFAULT_CONTEXT_LENGTH


def _is_length(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 1 <= value <= _MAX_CONTEXT
    )


def _untag(value: Any) -> Any:
    """Turn transformers' tagged non-finite floats back into floats."""
    if isinstance(value, dict):
        if len(value) == 1 and value.get("__float__") in _TAGGED_FLOATS:
            return _TAGGED_FLOATS[value["__float__"]]
        return {key: _untag(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_untag(item) for item in value]
    return value


# Of generation_config.json: the members of cow_mlx_generation_params by the same names.
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "typical_p": (0, 1),
    "top_k": (0, 2**31 - 1),
    "repetition_penalty": (0, 100),
}
_POSITIVE = ("top_p", "typical_p", "repetition_penalty")
_WHOLE = ("top_k",)
_MAX_README = 1 << 16  # bytes that are looked through for a licence
_FRONT = r"(?s)---[^\S\n]*\n(.*?)\n---[^\S\n]*\n"
_LICENSE = r"(?m)^license(_name)?:\s*[\"']?([\w.+-]{1,64})"


def sampling(path: str) -> dict[str, float]:
    """Return what ``generation_config.json`` recommends; values that cannot be are left out.

    Greedy where it says that nothing is to be sampled.
    """
    try:
        stored = read_json(os.path.join(path, "generation_config.json"), optional=True)
    except CowMlxError:
        return {}  # mlx-lm ignores a malformed one
    if stored.get("do_sample") is False:
        return {"temperature": 0.0}
    recommended: dict[str, float] = {}
    for name, (low, high) in _RANGES.items():
        value = stored.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if low <= value <= high and not (name in _POSITIVE and value == 0):
            recommended[name] = int(value) if name in _WHOLE else float(value)
    return recommended


def licence(path: str, config: dict[str, Any]) -> str | None:
    """Return the licence that the config or the front matter of the README names."""
    named = config.get("license")
    if isinstance(named, str) and re.fullmatch(_LICENSE, f"license: {named}"):
        return named
    try:
        with _opened(os.path.join(path, "README.md")) as (file, size):
            text = file.read(min(size, _MAX_README)).decode("utf-8", "replace")
    except (OSError, BadFormat):
        return None
    front = re.match(_FRONT, text.replace("\r\n", "\n"))
    licences = dict(re.findall(_LICENSE, front[1])) if front else {}
    return licences.get("_name") or licences.get("")
