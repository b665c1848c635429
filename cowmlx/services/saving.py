"""Long work on contexts, which let no call in meanwhile: they are saved, loaded, given a prompt."""

from __future__ import annotations

import json

import mlx.core as mx

from cowmlx import json_text
from cowmlx.cache import disk
from cowmlx.cache.disk_reader import Reader
from cowmlx.cache.layer_state import Mismatch, leaves
from cowmlx.cache.sequence import Snapshot
from cowmlx.errors import BadFormat, Canceled, ContextFull, Unsupported
from cowmlx.generation.waiters import BeginWaiter
from cowmlx.models import fingerprint
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.cache.layer_state import Template
    from cowmlx.call import Call
    from cowmlx.generation.context import Context

_TOKENS = "tokens"
_LAYERS = "layers."


class Transfer(SteppedCall):
    """Runs a save or a load; its context lets no call in meanwhile.

    Args:
        call: ends with the transfer.
        context: that is saved or loaded.
        steps: does the work; when closed early it leaves everything as it was. Returns tokens
            that the context is to process yet, if any.
    """

    def __init__(
        self,
        call: Call,
        context: Context,
        steps: Generator[None, None, list[int] | None],
    ) -> None:
        super().__init__(call, steps, context.stream(), context)
        self._context = context
        self.priority = context.priority
        context.occupy()

    def _broken_off(self) -> Canceled | None:
        if self._context.cancel_epoch() == self._call.cancel_epoch:
            return None
        return Canceled("the context was cancelled; nothing was changed")

    def _release(self) -> None:
        self._context.release()

    def _succeed(self, result: Any) -> None:
        if result and not self._context.trim(result, self._call.cancel_epoch):
            self._context.wait(BeginWaiter(self._call))
        else:
            self._call.succeed()


class PromptTokenizing(Transfer):
    """Tokenizes the prompt of a chat; its context lets no call in meanwhile.

    Args:
        call: continues with the chat.
        context: that the chat is on.
        steps: return the prompt's tokens.
        begin: starts the generation; what it raises ends the call.
    """

    def __init__(
        self,
        call: Call,
        context: Context,
        steps: Generator[None, None, Any],
        begin: Callable[[Any], None],
    ) -> None:
        super().__init__(call, context, steps)
        self._begin = begin

    def _succeed(self, result: Any) -> None:
        self._begin(result)


def save(context: Context, path: str) -> Generator[None, None, None]:
    """Return the steps that write what a context holds now.

    Raises:
        BadState: the layers hold a token that the host has not taken, and cannot drop it.
    """
    on_ranks = context.model.split is not None  # they have the layers: the tokens are saved alone
    held = Snapshot(context.tokens(), []) if on_ranks else context.snapshot()
    return _save(context, held, path)


def _save(context: Context, snapshot: Snapshot, path: str) -> Generator[None, None, None]:
    """Write a snapshot.

    Raises:
        NotFound, InputOutput: the file cannot be written.
        Unsupported: a load could not make sense of the model's caches.
    """
    key = yield from _key(context)
    found = leaves(snapshot.layers)
    kinds: list[Any] = []
    if snapshot.layers:
        template = context.sequence.template()
        kinds = template.kinds
        try:
            template.check(found, len(snapshot.tokens))
        except Mismatch as mismatch:
            raise Unsupported(
                f"the cache of a {context.model.architecture} model cannot be saved: {mismatch}",
                value=context.model.architecture,
            ) from None
    arrays = {where: leaf for where, leaf in found.items() if isinstance(leaf, mx.array)}
    scalars = {where: leaf for where, leaf in found.items() if where not in arrays}
    metadata = {
        **key,
        "tokens": str(len(snapshot.tokens)),
        "layers": json.dumps(kinds),
        "scalars": json.dumps(scalars),
    }
    tensors = {_TOKENS: mx.array(snapshot.tokens, mx.int32)}
    tensors |= {_LAYERS + where: array for where, array in arrays.items()}
    yield from disk.write(path, metadata, tensors)


def load(context: Context, path: str) -> Generator[None, None, list[int] | None]:
    """Make a context hold what a file says; its last step alone changes it.

    Returns:
        the tokens, if they have to be processed for that.

    Raises:
        NotFound, InputOutput: the file is missing or unreadable.
        BadFormat: it is damaged, or was saved with something else.
        ContextFull: it holds too many tokens.
    """
    reader = Reader(path)
    try:
        key = yield from _key(context)
        _check_key(reader, key)
        described = _described(reader)
        length = _length(reader, context)
        on_ranks = context.model.split is not None
        template = context.sequence.template() if length and not on_ranks else None
        try:
            _check_layers(reader, template, described, length)
        except Mismatch as mismatch:
            raise reader.bad(str(mismatch)) from None
        yield
        arrays = yield from reader.read()
    finally:
        reader.close()
    tokens: list[int] = arrays.pop(_TOKENS).tolist()  # type: ignore[assignment]
    size = context.model.vocabulary_size
    if tokens and not 0 <= min(tokens) <= max(tokens) < size:
        raise reader.bad(f"it has tokens outside the vocabulary of {size}")
    if tokens and on_ranks:
        return tokens
    filled = {name.removeprefix(_LAYERS): array for name, array in arrays.items()}
    layers = template.fill({**described, **filled}) if template is not None else []
    context.restore(Snapshot(tokens, layers))
    return None


def _key(context: Context) -> Generator[None, None, dict[str, str]]:
    """Return what must be the same where a file is saved and where it is loaded."""
    own = yield from fingerprint.compute(context.model)
    kv = context.params.kv
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


def _length(reader: Reader, context: Context) -> int:
    """Return how many tokens a file holds."""
    info = reader.arrays.get(_TOKENS)
    if info is None or info.dtype != mx.int32 or len(info.shape) != 1:
        raise reader.bad("it has no array of tokens")
    (length,) = info.shape
    if reader.metadata.get("tokens") != str(length):
        raise reader.bad(f"it has {length} tokens and says something else")
    if length > context.params.max_tokens:
        raise ContextFull(
            f"{reader.path} holds {length} tokens, but this context holds "
            f"{context.params.max_tokens}",
            file=reader.path,
            needed=length,
            available=context.params.max_tokens,
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
