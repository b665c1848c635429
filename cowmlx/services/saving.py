"""Saves contexts to files and arrays, and loads them from there."""

from __future__ import annotations

import json

import mlx.core as mx

from cowmlx import json_text
from cowmlx.cache import disk
from cowmlx.cache.footprint import footprint_of
from cowmlx.cache.layer_state import Mismatch, leaves
from cowmlx.cache.sequence import Sequence, Snapshot
from cowmlx.errors import BadFormat, BadState, ContextFull, OutOfMemory, Unsupported
from cowmlx.generation.pace import pace_of
from cowmlx.models import fingerprint
from cowmlx.models.embedded import require_table
from cowmlx.models.image_tokens import saved_images, with_saved_images
from cowmlx.models.images import ImagePosition, ImageStore
from cowmlx.services.admission import LEAST_CHUNK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.cache.disk_reader import Reader
    from cowmlx.cache.layer_state import Template
    from cowmlx.cache.layers import KVQuantization
    from cowmlx.generation.context import Context
    from cowmlx.memory import RequireRoom
    from cowmlx.models.model import Model

    Parts = tuple[dict[str, str], dict[str, mx.array]]

_TOKENS = "tokens"
_LAYERS = "layers."


def save(context: Context, path: str, require_room: RequireRoom) -> Generator[None, None, None]:
    """Return the steps that write what a context holds now.

    Args:
        context: to save.
        path: of the file.
        require_room: raises if there is no memory for some bytes.

    Raises:
        BadState: the layers hold a token that the host has not taken, and cannot drop it.
    """
    return _write(_held(context, require_room), context, path)


def _write(
    parts: Generator[None, None, Parts], context: Context, path: str
) -> Generator[None, None, None]:
    metadata, arrays = yield from parts
    yield from disk.write(path, metadata, arrays)


def save_array(context: Context, require_room: RequireRoom) -> Generator[None, None, mx.array]:
    """Return the steps that return what a context holds now, as bytes of a file.

    Args:
        context: to save.
        require_room: raises if there is no memory for some bytes.

    Raises:
        BadState: the layers hold a token that the host has not taken, and cannot drop it.
    """
    return _gather(_held(context, require_room), require_room)


def _gather(
    parts: Generator[None, None, Parts], require_room: RequireRoom
) -> Generator[None, None, mx.array]:
    metadata, arrays = yield from parts
    require_room(sum(array.nbytes for array in arrays.values()), "the saved context")
    return (yield from disk.to_memory(metadata, arrays))


def _held(context: Context, require_room: RequireRoom) -> Generator[None, None, Parts]:
    """Return the steps that return the metadata and arrays of what a context holds now.

    Raises:
        BadState: the layers hold a token that the host has not taken, and cannot drop it.
    """
    if any(token < 0 and not isinstance(token, ImagePosition) for token in context.tokens()):
        raise Unsupported(
            "the context holds rows of embeddings, which a file has no place for; save it before "
            "context_begin_embeddings, or trim them",
            argument="context",
        )
    if context.model.split is not None:  # ranks have the layers: the tokens are saved alone
        return _parts(context, Snapshot(context.tokens(), []))
    if not context.sequence.has_layers:
        if min(context.tokens(), default=0) < 0:
            raise BadState(
                "the state of the context's images was dropped, as the model slept or memory was "
                "short; begin with its tokens first"
            )
        return _filled(context, require_room)
    return _parts(context, context.snapshot())


def _filled(context: Context, require_room: RequireRoom) -> Generator[None, None, Parts]:
    """Process the tokens again, whose state was dropped as the model fell asleep.

    Raises:
        OutOfMemory: there is too little memory; nothing has changed.
    """
    model, tokens = context.model, context.tokens()
    yield from model.read_steps()
    largest = _chunk(context, require_room)
    sequence = Sequence(model.network, context.sequence.make_layers)
    while len(sequence.tokens) < len(tokens):
        held = len(sequence.tokens)
        chunk = tokens[held : held + min(largest, pace_of(model).size(held))]
        sequence.forward(mx.array(chunk, mx.int32))
        sequence.append(chunk)
        mx.eval(sequence.state)
        yield
    filled = sequence.snapshot()
    assert filled is not None
    context.sequence.restore(filled)
    return (yield from _parts(context, filled))


def _chunk(context: Context, require_room: RequireRoom) -> int:
    """Return the largest chunk of a context's tokens for which there is memory.

    Raises:
        OutOfMemory: there is too little even for the smallest.
    """
    count, chunk = len(context.tokens()), pace_of(context.model).largest
    footprint = footprint_of(context.model, context.params.kv)
    while footprint is not None:
        try:
            require_room(footprint.needed(count, min(count, chunk)), "the tokens of the context")
            break
        except OutOfMemory:
            if chunk <= LEAST_CHUNK:
                raise
            chunk //= 2
    return chunk


def _parts(context: Context, snapshot: Snapshot) -> Generator[None, None, Parts]:
    """Return the metadata and the arrays of a snapshot.

    Raises:
        Unsupported: a load could not make sense of the model's caches.
    """
    key = yield from key_of(context.model, context.params.kv)
    template = context.sequence.template() if snapshot.layers else None
    return parts_of(snapshot, key, template, context.model.architecture)


def parts_of(
    snapshot: Snapshot, key: dict[str, str], template: Template | None, architecture: str
) -> Parts:
    """Return the metadata and the arrays of a file with a snapshot.

    Args:
        snapshot: to save.
        key: what must be the same where it is loaded.
        template: of the layers; None without layers.
        architecture: of the model.

    Raises:
        Unsupported: a load could not make sense of the model's caches.
    """
    found = leaves(snapshot.layers)
    if template is not None:
        try:
            template.check(found, len(snapshot.tokens))
        except Mismatch as mismatch:
            raise Unsupported(
                f"the cache of a {architecture} model cannot be saved: {mismatch}",
                value=architecture,
            ) from None
    arrays = {where: leaf for where, leaf in found.items() if isinstance(leaf, mx.array)}
    scalars = {where: leaf for where, leaf in found.items() if where not in arrays}
    metadata = {
        **key,
        "tokens": str(len(snapshot.tokens)),
        "layers": json.dumps(template.kinds if template is not None else []),
        "scalars": json.dumps(scalars),
    }
    if images := saved_images(snapshot.tokens):
        metadata["images"] = json.dumps(images)
    tensors = {_TOKENS: mx.array([max(token, -1) for token in snapshot.tokens], mx.int32)}
    tensors |= {_LAYERS + where: array for where, array in arrays.items()}
    return metadata, tensors


def load(
    context: Context, opened: Callable[[], Reader], require_room: RequireRoom
) -> Generator[None, None, list[int] | None]:
    """Make a context hold what a file says; its last step alone changes it.

    Args:
        context: to load.
        opened: opens the file.
        require_room: raises if there is no memory for some bytes.

    Returns:
        the tokens, if they have to be processed for that.

    Raises:
        NotFound, InputOutput: the file is missing or unreadable.
        BadFormat: it is damaged, or was saved with something else.
        ContextFull: it holds too many tokens.
        OutOfMemory: there is too little memory for it.
    """
    model = context.model
    on_ranks = model.split is not None
    reader = opened()
    try:
        key = yield from key_of(model, context.params.kv)
        most = context.params.max_tokens
        template = None if on_ranks else context.sequence.template
        size = model.vocabulary_size
        snapshot = yield from read(reader, key, template, size, most, require_room, model)
    finally:
        reader.close()
    if snapshot.tokens and on_ranks:
        return snapshot.tokens
    context.restore(snapshot)
    return None


def read(
    reader: Reader,
    key: dict[str, str],
    template_of: Callable[[], Template] | None,
    vocabulary_size: int,
    most: int,
    require_room: RequireRoom,
    model: Model | None = None,
) -> Generator[None, None, Snapshot]:
    """Read a file's snapshot.

    Args:
        reader: of the file.
        key: that it must have.
        template_of: returns the template of the layers; None: it has none.
        vocabulary_size: of the model.
        most: tokens that are accepted.
        require_room: raises if there is no memory for some bytes.
        model: whose images the file may name; None: it may name none.

    Raises:
        InputOutput: the file is unreadable.
        BadFormat: it is damaged, or was saved with something else.
        ContextFull: it holds too many tokens.
        OutOfMemory: there is too little memory for it.
    """
    _check_key(reader, key)
    described = _described(reader)
    length = _length(reader, most)
    template = template_of() if length and template_of is not None else None
    try:
        _check_layers(reader, template, described, length)
    except Mismatch as mismatch:
        raise reader.bad(str(mismatch)) from None
    yield
    converted = 0 if template is None else template.bytes_converted(described)
    require_room(reader.nbytes + converted, "the saved context")
    arrays = yield from reader.read()
    tokens: list[int] = arrays.pop(_TOKENS).tolist()  # type: ignore[assignment]
    plain, saved = tokens, reader.metadata.get("images")
    if saved is not None and model is not None:
        plain = [token for token in tokens if token != -1]
        tokens = yield from _with_images(reader, tokens, model)
    if plain and not 0 <= min(plain) <= max(plain) < vocabulary_size:
        raise reader.bad(f"it has tokens outside the vocabulary of {vocabulary_size}")
    filled = {name.removeprefix(_LAYERS): array for name, array in arrays.items()}
    return Snapshot(tokens, template.fill({**described, **filled}) if template is not None else [])


def _with_images(
    reader: Reader, tokens: list[int], model: Model
) -> Generator[None, None, list[int]]:
    """Return a file's tokens with the images that it names."""
    yield from model.read_steps()
    made = None
    if isinstance(model.images, ImageStore):
        saved = _parsed(reader, "images", list)
        made = with_saved_images(tokens, saved, model.images, require_table(model))
    if made is None:
        raise reader.bad("it has images that this model does not see so")
    return made


def key_of(model: Model, kv: KVQuantization) -> Generator[None, None, dict[str, str]]:
    """Return what must be the same where a file is saved and where it is loaded."""
    own = yield from fingerprint.compute(model)
    return {
        "model": own.model,
        "tokenizer": own.tokenizer,
        "adapter": own.adapter,
        "kv_bits": str(kv.bits),
        "kv_group_size": str(kv.group_size),
    }


def _check_key(reader: Reader, own: dict[str, str]) -> None:
    differences = []
    for name, value in own.items():
        saved = reader.metadata.get(name, "")
        if saved == value:
            continue
        if name.startswith("kv_"):
            differences.append(f"{name} {saved}, not {value}")
        elif name == "model" and fingerprint.is_folder(saved) != fingerprint.is_folder(value):
            machines = "several machines" if fingerprint.is_folder(saved) else "one machine"
            differences.append(f"a model on {machines}")
        elif name == "adapter" and not (saved and value):
            differences.append("an adapter" if saved else "no adapter")
        else:
            differences.append(f"another {name}")
    if differences:
        raise BadFormat(
            f"{reader.path} was saved with {' and '.join(differences)}",
            reason="saved_context_mismatch",
            file=reader.path,
        )


def _described(reader: Reader) -> dict[str, Any]:
    """Return the leaves of the layers: scalars, and what is known of arrays."""
    scalars = _parsed(reader, "scalars", dict)
    infos = {name: info for name, info in reader.arrays.items() if name != _TOKENS}
    if not all(name.startswith(_LAYERS) for name in infos):
        raise reader.bad("it has arrays that are of no layer")
    described = {name.removeprefix(_LAYERS): info for name, info in infos.items()}
    if described.keys() & scalars.keys():
        raise reader.bad("it has arrays that are numbers too")
    return {**described, **scalars}


def _parsed(reader: Reader, name: str, kind: type) -> Any:
    """Return a text of the metadata that is JSON."""
    try:
        value = json_text.parse(reader.metadata.get(name, ""))
    except json_text.Malformed:
        value = None
    if not isinstance(value, kind):
        raise reader.bad(f"its metadata {name!r} cannot be read")
    return value


def _length(reader: Reader, most: int) -> int:
    """Return how many tokens a file holds."""
    info = reader.arrays.get(_TOKENS)
    if info is None or info.dtype != mx.int32 or len(info.shape) != 1:
        raise reader.bad("it has no array of tokens")
    (length,) = info.shape
    if reader.metadata.get("tokens") != str(length):
        raise reader.bad(f"it has {length} tokens and says something else")
    if length > most:
        raise ContextFull(
            f"{reader.path} holds {length} tokens, but this context holds {most}",
            file=reader.path,
            needed=length,
            available=most,
        )
    return length


def _check_layers(
    reader: Reader, template: Template | None, found: dict[str, Any], length: int
) -> None:
    """Raise Mismatch unless the leaves are those of this model's layers."""
    kinds = template.kinds if template is not None else []
    if _parsed(reader, "layers", list) != kinds:
        raise Mismatch("its layers are of other classes than this model's")
    if template is not None:
        template.check(found, length)
    elif found:
        raise Mismatch("it has layers, but no tokens")
