"""Rows of embeddings in place of tokens: the seam between a ledger of ids and a network.

A network is called with ids; while it looks them up, a stand-in of its table gives the rows.
"""

from __future__ import annotations

from contextlib import contextmanager

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx import failures
from cowmlx.accelerate.fused.stand_in import plainly
from cowmlx.errors import Unsupported
from cowmlx.modules import items_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cowmlx.models.model import Model

EMBEDDED = -1
"""What hosts have in the place of a row."""
_OUTSIDE = 1 << 32  # ids of rows are below minus this
_PROBE = (1, 2, 3)
_NEAR = 1e-3  # of the largest logit


class TokenTable:
    """The table that a network looks its tokens up in.

    Keeps the path to it: a model that sleeps gets other modules.

    Attributes:
        width: numbers of a row.
    """

    def __init__(self, network: Module, path: tuple[Any, ...], width: int) -> None:
        self._network = network
        self._path = path
        self.width = width

    @property
    def owner(self) -> Any:
        """The module that has it."""
        found: Any = self._network
        for key in self._path[:-1]:
            found = found[key]
        return found

    @property
    def module(self) -> Any:
        """The table."""
        return self.owner[self._path[-1]]

    @contextmanager
    def giving(self, rows: mx.array, chosen: mx.array) -> Iterator[None]:
        """While the network is called, let the table give rows (1, S, D) where chosen (S,)."""
        container, key = self.owner, self._path[-1]
        module = container[key]
        container[key] = _Mixed(module, rows, chosen[None, :, None])
        try:
            with plainly():  # fused layers read ids, not rows
                yield
        finally:
            container[key] = module


class _Mixed:
    """Stands in for a table: the same attributes, rows in some places."""

    def __init__(self, module: Any, rows: mx.array, chosen: mx.array) -> None:
        self._module = module
        self._rows = rows
        self._chosen = chosen

    def __call__(self, ids: mx.array) -> mx.array:
        own = self._module(ids)
        return mx.where(self._chosen, self._rows.astype(own.dtype), own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class Rows:
    """Rows that a host has given, each with an id.

    Args:
        table: of the network that takes them.
        values: (N, D), evaluated.
    """

    def __init__(self, table: TokenTable, values: mx.array) -> None:
        self.table = table
        self.values = values

    def ids(self) -> list[EmbeddedRow]:
        """Return the id of each row, which follows from its bytes alone."""
        kind = str(self.values.dtype).encode()
        data = bytes(memoryview(self.values.view(mx.uint8)))  # type: ignore[arg-type]
        count = self.values.shape[0]
        size = len(data) // max(count, 1)
        parts = (data[at * size : (at + 1) * size] for at in range(count))
        return [EmbeddedRow.of(self, at, kind + part) for at, part in enumerate(parts)]


class EmbeddedRow(int):
    """The id of a position that has a row in place of a token: negative, outside every vocabulary.

    Equal rows have equal ids, so that common beginnings, forks and trims work on ids as they are.
    The row lives as long as a ledger has its id.
    """

    rows: Rows
    index: int
    token = -1
    """The token that is looked up at the position; -1: it has a row."""

    @classmethod
    def of(cls, rows: Rows, index: int, data: bytes) -> EmbeddedRow:
        """Return the id of a row.

        Args:
            rows: that it is one of.
            index: its index there.
            data: its bytes.
        """
        from hashlib import blake2b  # late: a start needs none of it

        made = cls(-_OUTSIDE - int.from_bytes(blake2b(data, digest_size=16).digest()))
        made.rows, made.index = rows, index
        return made


@contextmanager
def looked_up(tokens: list[int]) -> Iterator[mx.array]:
    """Give ids (S,) for a network, whose table gives rows in place of those in ``tokens``."""
    places = [token for token in tokens if isinstance(token, EmbeddedRow)]
    found = [token.token if isinstance(token, EmbeddedRow) else token for token in tokens]
    ids = mx.array([max(token, 0) for token in found], mx.int32)
    if not places:
        yield ids
        return
    table = places[0].rows.table
    kind = places[0].rows.values.dtype
    parts: list[mx.array] = []
    at = 0
    while at < len(tokens):
        end = at + 1
        while end < len(tokens) and _follows(tokens[end], tokens[end - 1]):
            end += 1
        token = tokens[at]
        if isinstance(token, EmbeddedRow):
            parts.append(token.rows.values[token.index : token.index + end - at])
        else:
            parts.append(mx.zeros((end - at, table.width), kind))
        at = end
    rows = mx.concatenate(parts)[None]
    with table.giving(rows, mx.array([token < 0 for token in found])):
        yield ids


def _follows(token: int, before: int) -> bool:
    """Whether two tokens have no row, or rows that lie one behind the other."""
    if not isinstance(token, EmbeddedRow) or not isinstance(before, EmbeddedRow):
        return token >= 0 and before >= 0
    return token.rows is before.rows and token.index == before.index + 1


def token_table(model: Model) -> TokenTable | None:
    """Return where a model's network looks its tokens up; None: not in one place."""
    table: TokenTable | None = model.remembered.once("token table", lambda: _found(model))
    return table


def require_table(model: Model) -> TokenTable:
    """Return where a model's network looks its tokens up, and nothing else reads them.

    Its weights are read.

    Raises:
        Unsupported: there is no such place.
    """
    table = token_table(model)
    if table is not None and model.remembered.once("table alone", lambda: _is_alone(model, table)):
        return table
    raise Unsupported(
        f"a {model.architecture} model takes no embeddings: its network does not look its tokens "
        "up in one table alone",
        value=model.architecture,
    )


def _found(model: Model) -> TokenTable | None:
    """Follow ids through the network, without evaluating anything, to the module that reads them.

    The only one, whose result has a row for each.
    """
    if model.split is not None:
        return None
    ids = mx.array([_probe(model)], mx.int32)
    calls: list[tuple[tuple[Any, ...], Any]] = []
    places = [place for place in _leaves(model.network, ()) if place[0]]
    try:
        for path, container, module in places:
            container[path[-1]] = _Heard(module, path, (ids.shape, ids.dtype), calls)
        with plainly():
            model.network(ids, cache=model.make_cache())
    except Exception as error:  # of a network that checks what its parts are
        failures.reraise_shortage(error)
        return None
    finally:
        for path, container, module in places:
            container[path[-1]] = module
    if len(calls) != 1:
        return None
    path, result = calls[0]
    if not isinstance(result, mx.array) or result.ndim != 3:
        return None
    return TokenTable(model.network, path, int(result.shape[-1]))


class _Heard:
    """Stands in for a module, and notes calls with ids."""

    def __init__(self, module: Any, path: tuple[Any, ...], ids: Any, calls: list[Any]) -> None:
        self._module = module
        self._path = path
        self._ids = ids
        self._calls = calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._module(*args, **kwargs)
        first = args[0] if args else None
        if isinstance(first, mx.array) and (first.shape, first.dtype) == self._ids:
            self._calls.append((self._path, result))
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _leaves(container: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yield the path, container and module of each module that has no other, or is a table."""
    for key, value in items_of(container):
        inside = (*path, key)
        if isinstance(value, Module) and (hasattr(value, "as_linear") or not value.children()):
            yield inside, container, value
        else:
            yield from _leaves(value, inside)


def _is_alone(model: Model, table: TokenTable) -> bool:
    """Whether rows give the logits of their tokens, whatever the ids are."""
    probe = _probe(model)
    ids = mx.array([probe], mx.int32)
    with plainly():
        expected = model.network(ids, cache=model.make_cache())
        rows = table.module(ids)
    with table.giving(rows, mx.array([True] * len(probe))):
        found = model.network(mx.zeros_like(ids), cache=model.make_cache())
    expected, found = expected.astype(mx.float32), found.astype(mx.float32)
    off = mx.abs(expected - found).max() / mx.maximum(mx.abs(expected).max(), 1e-30)
    return bool((off < _NEAR).item())


def _probe(model: Model) -> list[int]:
    return [token % model.vocabulary_size for token in _PROBE]
