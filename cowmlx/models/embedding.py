"""Hidden states of a network before its head, and one row of numbers per text from them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx import failures
from cowmlx.errors import OutOfRange, Unsupported
from cowmlx.generated import constants
from cowmlx.modules import items_of
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import Any

    from cowmlx.models.model import Model

    # Returns how many texts of some lengths, the shortest first, may be processed side by side, and
    # how many columns of them in a turn.
    Admit = Callable[[list[int]], tuple[int, int]]

# Two texts of different length, to see whether they can be processed side by side.
_PROBE = ([1, 2, 3, 4, 5], [3, 2])
# Cosine of what has to point the same way, though types of few bits round it differently.
_ALIKE = 0.99
_POOLINGS = {
    constants.POOLING_MEAN: "MEAN",
    constants.POOLING_LAST: "LAST",
    constants.POOLING_CLS: "CLS",
    constants.POOLING_MAX: "MAX",
    constants.POOLING_WEIGHTED: "WEIGHTED",
}


class HiddenStates:
    """Runs a network up to its head: the last layer that maps to the vocabulary.

    The head is the layer that a traced forward pass calls last; zeros instead of its output must
    make all logits equal. Where logits are a bare product with the embedding's weight, the hidden
    states are the result of the module around the embedding, if that product gives the logits.
    Only the last check computes something.

    Listeners are in the network during a call only.

    Attributes:
        dims: values of one hidden state.

    Raises:
        Unsupported: no head was found.
    """

    def __init__(self, model: Model) -> None:
        # Not the model itself: what is kept for a model must not keep it alive.
        self._network = model.network
        self._make_cache = light_route.cache_module(model.package).make_prompt_cache
        self._vocabulary_size = model.vocabulary_size
        self._ids = mx.array([self._within([1, 2])])
        width = int(self._trace(()).shape[-1])
        head = self._head(width) or self._module_before_product(width)
        if head is None:
            raise Unsupported(
                f"the hidden states of a {model.architecture} model cannot be reached: no layer "
                "that makes its logits was head",
                value=model.architecture,
            )
        self._place, self.dims, self._dtype = head
        self._batches: bool | None = None

    def __call__(self, ids: mx.array, cache: list[Any]) -> mx.array:
        """Return the hidden states (B, T, :attr:`dims`) of tokens (B, T), lazily.

        Args:
            ids: tokens that follow those in the cache.
            cache: what :meth:`make_cache` returned, for these B sequences.
        """
        with _listening([self._place]) as calls:
            self._network(ids, cache=cache)
        return calls[-1].value

    def beside(self, ids: mx.array, cache: list[Any]) -> tuple[mx.array, mx.array]:
        """Return the logits (B, T, V) and the hidden states of tokens, of one pass."""
        with _listening([self._place]) as calls:
            logits: mx.array = self._network(ids, cache=cache)
        return logits, calls[-1].value

    def logits(self, hidden: mx.array) -> mx.array:
        """Return the logits (B, V), lazily, that the network makes of hidden states (B, D).

        It is run on any tokens, and these states take the place of theirs; only what it does with
        them is computed.
        """
        ids = mx.broadcast_to(self._ids[:, :1], (hidden.shape[0], 1))
        with _listening([self._place], instead=hidden[:, None].astype(self._dtype)):
            logits: mx.array = self._network(ids, cache=self.make_cache())
        return logits[:, -1]

    def make_cache(self) -> list[Any]:
        """Return a fresh cache, for any number of sequences."""
        cache: list[Any] = self._make_cache(self._network)
        return cache

    def batches(self) -> bool:
        """Whether texts give the same side by side, the shorter ones padded on the right.

        That is so where nothing looks to the right and no cache insists on one sequence.
        Computed once.
        """
        if self._batches is None:
            self._batches = self._try_batch()
        return self._batches

    def _try_batch(self) -> bool:
        texts = [self._within(text) for text in _PROBE]
        length = max(map(len, texts))
        ids = mx.array([text + [0] * (length - len(text)) for text in texts])
        try:
            together = self(ids, self.make_cache())
            for row, text in zip(together, texts, strict=True):
                alone = self(mx.array([text]), self.make_cache())[0]
                if not _alike(row[: len(text)], alone):
                    return False
        except Exception as exc:  # whatever an architecture that knows one sequence only may raise
            failures.reraise_shortage(exc)
            return False
        return True

    def _within(self, tokens: list[int]) -> list[int]:
        """Return tokens that a tiny vocabulary has too."""
        return [token % self._vocabulary_size for token in tokens]

    def _trace(self, places: tuple[_Place, ...], zero: bool = False) -> mx.array:
        with _listening(places, zero=zero):
            logits: mx.array = self._network(self._ids, cache=self.make_cache())
        return logits

    def _head(self, width: int) -> tuple[_Place, int, mx.Dtype] | None:
        places = [place for place in _places(self._network) if place.rows >= width]
        with _listening(places) as calls:
            self._network(self._ids, cache=self.make_cache())
        if not calls:
            return None
        last = calls[-1]
        once = sum(call.place is last.place for call in calls) == 1
        if not once or last.value.shape[:-1] != self._ids.shape:
            return None
        flat = self._trace((last.place,), zero=True)
        if not (flat == flat[..., :1]).all().item():
            return None
        return last.place, int(last.value.shape[-1]), last.value.dtype

    def _module_before_product(self, width: int) -> tuple[_Place, int, mx.Dtype] | None:
        """Find the module that returns h where the logits are h times the embedding's weight."""
        for place in _places(self._network):
            if not place.is_embedding or place.rows < width or place.owner is None:
                continue
            around = place.owner
            with _listening([around]) as calls:
                logits = self._network(self._ids, cache=self.make_cache())
            hidden = calls[0].value if len(calls) == 1 else None
            if not isinstance(hidden, mx.array) or hidden.shape[:-1] != self._ids.shape:
                continue
            product = place.module.as_linear(hidden)
            if product.shape == logits.shape and _alike(product, logits):
                return around, int(hidden.shape[-1]), hidden.dtype
        return None


def hidden_states_of(model: Model) -> HiddenStates:
    """Return what reaches a model's hidden states; its weights are read.

    Raises:
        Unsupported: nothing does.
    """
    states: HiddenStates = model.remembered.once("hidden states", lambda: HiddenStates(model))
    return states


class Pooling:
    """Gathers one vector per text from the hidden states of its chunks.

    Args:
        kind: one of ``POOLING_*``.
        lengths: tokens of each of B texts; what a row has behind them is padding.
        dims: D.
        skipped: tokens of each text in front that do not count, unless it has no more.
    """

    def __init__(self, kind: int, lengths: list[int], dims: int, skipped: int = 0) -> None:
        self._kind = kind
        self._lengths = mx.array(lengths)[:, None]
        begins = [skipped if skipped < length else 0 for length in lengths]
        self._begins = mx.array(begins)[:, None]
        self._done = 0
        self._empty = -mx.inf if kind == constants.POOLING_MAX else 0.0
        self.total = mx.full((len(lengths), dims), self._empty, mx.float32)

    @staticmethod
    def check(kind: int) -> None:
        """Raise unless there is such a pooling.

        Raises:
            InvalidArgument: there is none.
        """
        known_kinds = {**_POOLINGS, constants.POOLING_MODEL: "MODEL"}
        if kind not in known_kinds:
            known = ", ".join(f"{value} ({name})" for value, name in known_kinds.items())
            raise OutOfRange("pooling", kind, known)

    def add(self, hidden: mx.array) -> None:
        """Take the hidden states (B, T, D) of the next T tokens."""
        width = hidden.shape[1]
        positions = mx.arange(self._done, self._done + width)[None]
        if self._kind not in (constants.POOLING_LAST, constants.POOLING_CLS):
            chosen = (self._begins <= positions) & (positions < self._lengths)
        elif self._kind == constants.POOLING_LAST:
            chosen = positions == self._lengths - 1
        else:
            chosen = mx.broadcast_to(positions == 0, (len(self._lengths), width))
        # Chosen, not multiplied: padding may have become anything, even NaN.
        values = mx.where(chosen[..., None], hidden.astype(mx.float32), self._empty)
        if self._kind == constants.POOLING_MAX:
            self.total = mx.maximum(self.total, values.max(axis=1))
        elif self._kind == constants.POOLING_WEIGHTED:
            self.total = self.total + (values * (positions + 1)[..., None]).sum(axis=1)
        else:
            self.total = self.total + values.sum(axis=1)
        self._done += width

    def result(self) -> mx.array:
        """Return float32 (B, D)."""
        if self._kind == constants.POOLING_MEAN:
            return self.total / (self._lengths - self._begins)
        if self._kind == constants.POOLING_WEIGHTED:
            ends, begins = (own.astype(mx.float32) for own in (self._lengths, self._begins))
            return self.total / ((ends * (ends + 1) - begins * (begins + 1)) / 2)
        return self.total


def normalized(rows: mx.array) -> mx.array:
    """Return rows (B, D) of length 1; zeros stay zeros."""
    # Squares of large values would overflow.
    largest = mx.abs(rows).max(axis=-1, keepdims=True)
    rows = rows / mx.where(largest == 0, 1.0, largest)
    length = mx.sqrt(mx.square(rows).sum(axis=-1, keepdims=True))
    return rows / mx.where(length == 0, 1.0, length)


class _Place:
    """Where a layer is: how a listener gets in front of it, and out again.

    Attributes:
        module: the layer.
        rows: outputs of its weight.
        owner: the place of the module that it belongs to; None for the network itself.
        is_embedding: its weight serves as head through ``as_linear``.
    """

    def __init__(self, container: Any, key: Any, module: Any, owner: _Place | None) -> None:
        self._container = container
        self._key = key
        self.module = module
        self.owner = owner
        self.rows = _rows(module)
        self.is_embedding = hasattr(module, "as_linear")

    def enter(self, listen: Callable[..., Any]) -> None:
        if self.is_embedding:
            vars(self.module)["as_linear"] = listen  # before the method of its class
        else:
            self._container[self._key] = _Listener(self.module, listen)

    def leave(self) -> None:
        if self.is_embedding:
            vars(self.module).pop("as_linear", None)
        else:
            self._container[self._key] = self.module


class _Listener:
    """Stands in for a layer: the same attributes, another call."""

    def __init__(self, module: Any, listen: Callable[..., Any]) -> None:
        self._module = module
        self._listen = listen

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._listen(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Call(NamedTuple):
    """One call of a layer: a head's argument, any other module's result."""

    place: _Place
    value: mx.array


@contextmanager
def _listening(
    places: Any, zero: bool = False, instead: mx.array | None = None
) -> Iterator[list[_Call]]:
    """Note the calls of layers.

    With ``zero``, their results are replaced by zeros; ``instead`` takes the place of a head's
    argument, or of any other module's result.
    """
    calls: list[_Call] = []

    def listener(place: _Place) -> Callable[..., Any]:
        original = place.module.as_linear if place.is_embedding else place.module

        def listen(x: Any, *args: Any, **kwargs: Any) -> Any:
            if instead is not None:
                return original(instead, *args, **kwargs) if place.rows else instead
            result = original(x, *args, **kwargs)
            calls.append(_Call(place, x if place.rows else result))
            return mx.zeros_like(result) if zero else result

        return listen

    entered = []
    try:
        for place in places:
            entered.append(place)
            place.enter(listener(place))
        yield calls
    finally:
        for place in entered:
            place.leave()


def _places(network: Any) -> Iterator[_Place]:
    """Yield the place of every module; of an adapter's layer as a whole."""

    def walk(container: Any, owner: _Place | None) -> Iterator[_Place]:
        for key, value in items_of(container):
            if isinstance(value, Module):
                place = _Place(container, key, value, owner)
                yield place
                if "lora_a" not in value:
                    yield from walk(value, place)
            else:
                yield from walk(value, owner)

    return walk(network, None)


def _rows(module: Any) -> int:
    """Return the outputs of a linear layer or the entries of an embedding; 0 for others."""
    if "lora_a" in module:
        inner = module.get("linear", module.get("embedding"))
        return _rows(inner) if inner is not None else 0
    rows = getattr(module, "rows", None)  # of a weight in blocks
    if isinstance(rows, int):
        return rows
    weight = module.get("weight")
    return int(weight.shape[0]) if isinstance(weight, mx.array) and weight.ndim == 2 else 0


def _alike(a: mx.array, b: mx.array) -> bool:
    """Whether vectors (..., D) point the same way, each pair of them."""
    a, b = a.astype(mx.float32), b.astype(mx.float32)
    dots = (a * b).sum(axis=-1)
    lengths = mx.linalg.norm(a, axis=-1) * mx.linalg.norm(b, axis=-1)
    return bool((dots >= _ALIKE * lengths).all().item())


# Columns of a batch that are processed in one turn, as of a prompt; fewer where memory is short.
CHUNK = 512
MAX_BATCH_TOKENS = 1 << 20


def rows_of(
    hidden: HiddenStates,
    tokens: Sequence[Sequence[int]],
    pooling: int,
    batch_tokens: int,
    finish: Callable[[Pooling], mx.array],
    admit: Admit,
    skipped: int = 0,
) -> Generator[None, None, mx.array]:
    """Yield between pieces of work; return float32 (N, D), evaluated, in the texts' order.

    Args:
        hidden: reaches the hidden states.
        tokens: of each text.
        pooling: one of ``POOLING_*``.
        batch_tokens: as :func:`batches` has it.
        finish: makes rows (B, D) of what was pooled, lazily.
        admit: says for which part of a batch there is memory.
        skipped: tokens of each text in front that do not count, unless it has no more.
    """
    together = len(tokens) > 1 and hidden.batches()
    order: list[int] = []
    rows: list[mx.array] = []
    lengths = [len(ids) for ids in tokens]
    for batch, chunk in batches(lengths, batch_tokens if together else 0, admit):
        yield
        own = [tokens[index] for index in batch]
        rows.append((yield from _pooled(hidden, own, chunk, pooling, finish, skipped)))
        order += batch
    back = sorted(range(len(order)), key=order.__getitem__)
    ordered = mx.contiguous(mx.concatenate(rows)[mx.array(back)])
    mx.eval(ordered)
    del rows
    mx.clear_cache()
    return ordered


def _pooled(
    hidden: HiddenStates,
    batch: list[Sequence[int]],
    chunk: int,
    kind: int,
    finish: Callable[[Pooling], mx.array],
    skipped: int,
) -> Generator[None, None, mx.array]:
    """Process one batch, a chunk between two yields; return its rows, evaluated."""
    lengths = [len(ids) for ids in batch]
    length = max(lengths)
    padded = mx.array([[*ids, *[0] * (length - len(ids))] for ids in batch], mx.int32)
    cache = hidden.make_cache()
    pooling = Pooling(kind, lengths, hidden.dims, skipped)
    for start in range(0, length, chunk):
        pooling.add(hidden(padded[:, start : start + chunk], cache))
        last = start + chunk >= length
        pending: list[Any] = [finish(pooling) if last else pooling.total]
        if not last:
            pending.append([layer.state for layer in cache])
        # Others start their steps while this is computed.
        mx.async_eval(pending)
        yield
        mx.eval(pending)
    result: mx.array = pending[0]
    return result


def batches(lengths: list[int], batch_tokens: int, admit: Admit) -> Iterator[tuple[list[int], int]]:
    """Split texts into batches of similar length.

    Args:
        lengths: tokens of each text.
        batch_tokens: the most that a batch has with its padding; a text with more is alone.
        admit: says for which part of a batch there is memory.

    Yields:
        indices of texts, the shortest first, and how many columns are processed in a turn.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > batch_tokens:
            yield from _admitted(batch, lengths, admit)
            batch = []
        batch.append(index)
    yield from _admitted(batch, lengths, admit)


def _admitted(
    batch: list[int], lengths: list[int], admit: Admit
) -> Iterator[tuple[list[int], int]]:
    """Yield the parts of a batch for which there is memory."""
    while batch:
        count, chunk = admit([lengths[index] for index in batch])
        yield batch[:count], chunk
        batch = batch[count:]
