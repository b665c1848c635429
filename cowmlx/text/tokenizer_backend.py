"""From a ``tokenizer.json`` to a tokenizer of the ``tokenizers`` library.

Most are built of the file's parts, which takes half of the memory that the library's own way takes.
The library itself reads files that :mod:`.tokenizer_parts` does not.
"""

from __future__ import annotations

import json

from cowmlx import resources
from cowmlx.errors import BadFormat, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.text import tokenizer_bounds, tokenizer_cache, tokenizer_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.text.tokenizer_parts import Merges, Parts

# How many times its file's size a tokenizer takes, while it is being made: of parts, and by the
# library.
_TIMES_OF_PARTS = 8
_TIMES_OF_LIBRARY = 16
_OPTIONS = ("dropout", "unk_token", "end_of_word_suffix")
_FLAGS = ("fuse_unk", "byte_fallback", "ignore_merges")
_NO_MODEL = {"type": "BPE", "vocab": {}, "merges": []}


class File:
    """A ``tokenizer.json`` that was read.

    Attributes:
        path: the file.
        digest: the hash of its bytes; "" of a small file, which is neither kept nor shared.

    Raises:
        BadFormat: it is empty.
        NotFound, InputOutput: it is missing or unreadable.
        OutOfMemory: there is no memory for its tokenizer.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._data = config_files.read_bytes(path)
        if not self._data:
            raise BadFormat(f"{path} is empty", file=path)
        resources.require_memory(_TIMES_OF_PARTS * len(self._data), path)
        self.digest = tokenizer_cache.digest(self._data)

    def load(self) -> tuple[int, Any]:
        """Make the tokenizer, and forget the bytes.

        Returns:
            The bytes that it may make of one (:func:`tokenizer_bounds.check`), and the tokenizer.

        Raises:
            BadFormat: the file is malformed, or passes a bound, or was changed meanwhile.
            NotFound, InputOutput: it has gone meanwhile.
            OutOfMemory: there is no memory for it.
            Unsupported: the package tokenizers is not there.
        """
        parts = self._parts()
        if parts is not None:
            self._data = b""
        if parts is not None:
            vocabulary = parts.vocabulary
            growth, state = tokenizer_bounds.check_text(parts.rest, self.path, vocabulary)
            backend = _of_parts(self.path, state, parts.merges)
            if backend is not None:
                return growth, backend
            self._data = config_files.read_bytes(self.path)  # once more
            if tokenizer_cache.digest(self._data) != self.digest:
                raise BadFormat(f"{self.path} was changed while it was read", file=self.path)
        data, self._data = self._data, b""
        # What is checked is what the library gets.
        text = config_files.text_of(data, self.path)
        growth = tokenizer_bounds.check_text(text, self.path)[0]
        del text
        return growth, _by_library(self.path, data)

    def _parts(self) -> Parts | None:
        entry = tokenizer_cache.CACHE.entry(self.digest)
        parts = None if entry is None else entry.read()
        if parts is None:
            try:
                parts = tokenizer_parts.split(self._data)
            except tokenizer_parts.Irregular:
                return None
            if entry is not None:
                entry.write(parts)
        return parts


def _library(file: str) -> Any:
    try:
        import tokenizers
    except ImportError as exc:
        raise Unsupported(
            f"{file} needs the package tokenizers, which cannot be imported here ({exc}); "
            "install it",
            reason="package_unusable",
            package="tokenizers",
        ) from exc
    return tokenizers


def _by_library(file: str, data: bytes) -> Any:
    tokenizers = _library(file)
    # The library ends the process where memory does.
    resources.require_memory(_TIMES_OF_LIBRARY * len(data), file)
    try:
        return tokenizers.Tokenizer.from_buffer(data)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        # The library's panics are no Exceptions.
        raise BadFormat(
            f"{file} is not a usable tokenizer ({exc})", reason="invalid_tokenizer", file=file
        ) from exc


def _of_parts(file: str, state: dict[str, Any], merges: Merges) -> Any:
    """Return the tokenizer; None if the library must read the file, or say what is wrong."""
    tokenizers = _library(file)
    model = state["model"]
    known = {"type", "vocab", "merges", "continuing_subword_prefix", *_OPTIONS, *_FLAGS}
    if model.get("continuing_subword_prefix") or not model.keys() <= known:
        return None
    options = {name: model[name] for name in _OPTIONS if model.get(name) is not None}
    flags = {name: model[name] for name in _FLAGS if name in model}
    if not all(type(flag) is bool for flag in flags.values()):
        return None
    added = state.get("added_tokens") or []
    text = json.dumps({**state, "added_tokens": [], "model": _NO_MODEL})
    try:
        backend = tokenizers.Tokenizer.from_str(text)
        backend.model = tokenizers.models.BPE(model["vocab"], merges, **options, **flags)
        ids = [token.pop("id") for token in added]
        backend.add_tokens([tokenizers.AddedToken(**token) for token in added])
        if [backend.token_to_id(token["content"]) for token in added] != ids:
            return None
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:  # what the library raises for the whole file is reported
        return None
    return backend
