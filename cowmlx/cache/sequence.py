"""The ledger of one context: its tokens, and the layer caches that hold them."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import mlx.core as mx

from cowmlx.accelerate.fused.decode import logits_behind
from cowmlx.accelerate.positions import shifted
from cowmlx.cache.blocks import both_ways
from cowmlx.cache.layer_state import Template
from cowmlx.cache.points import Mark, can_mark, go_back, point_of
from cowmlx.cache.trimming import can_trim_all, shorten, trim
from cowmlx.errors import Lost
from cowmlx.models.embedded import looked_up
from cowmlx.models.image_positions import placing, shift_of
from cowmlx.models.images import ImagePosition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.cache.batch import Batch, Row
    from cowmlx.cache.points import Point
    from cowmlx.machines.group import Entry
    from cowmlx.models.embedding import HiddenStates


MAX_BEHIND = 16  # tokens that the layers may lack
MOST_HEARD = 8  # passes whose hidden states are kept


def share(layers: list[Any]) -> list[Any]:
    """Return separate layer caches over the same arrays.

    mlx arrays are values: a deep copy shares the buffer until one side writes (copy on write).
    """
    return copy.deepcopy(layers)


class Snapshot:
    """Tokens, and layer caches that hold exactly these. Never changed after it was made.

    Attributes:
        tokens: the tokens held.
        layers: the layer caches; users take :func:`share` of them; none where they were dropped.
        shift: of positions behind the tokens; None: not computed.
    """

    __slots__ = ("layers", "shift", "tokens")

    def __init__(self, tokens: list[int], layers: list[Any], shift: int | None = None) -> None:
        self.tokens = tokens
        self.layers = layers
        self.shift = shift

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, shared ones included."""
        return sum(layer.nbytes for layer in self.layers)


def common_prefix(a: list[int], b: list[int]) -> int:
    """Return how many leading tokens two sequences share."""
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    return next(i for i in range(length) if a[i] != b[i])


class Sequence:
    """Tokens and layer caches in step: every layer holds exactly ``tokens``.

    A token that is still computing is in the layers before :meth:`append` notes it in ``tokens``.
    Layers that cannot drop tokens lack the last ones after a draft was rejected, up to the next
    pass, which processes those, too, or until they are used otherwise.
    An operation that fails half-way empties the sequence, so that layers stay in step; where the
    machines with the layers are lost, it keeps its tokens.

    Args:
        network: called with tokens (1, S) and layers, gives logits (1, S, V).
        make_layers: returns empty layer caches of its kind.
        inner: the network that turns by positions, where ``network`` only calls that.
    """

    def __init__(
        self,
        network: Module,
        make_layers: Callable[[], list[Any]],
        inner: Module | None = None,
    ) -> None:
        self._network = network
        self._inner = network if inner is None else inner
        self.make_layers = make_layers
        self.tokens: list[int] = []
        self._own: list[Any] = []
        self.has_layers = True  # false: it holds the tokens alone
        self.batch: Batch | None = None  # that has the layers now
        self.row: Row | None = None  # of it
        self.has_left = False  # a batch, whose last step may not be computed yet
        self._template: Template | None = None
        self._mark: Mark | None = None  # to drop tokens behind it
        self._behind: list[int] = []  # the last tokens, which the layers lack
        self._listener: HiddenStates | None = None
        self._heard: list[tuple[int, mx.array]] = []  # of the last passes, with their first token
        self._shift: int | None = 0  # of positions behind the tokens; None: not computed

    def listen(self, states: HiddenStates | None) -> None:
        """Keep the hidden states of the last passes from now on; None: keep none."""
        self._listener, self._heard = states, []

    def heard(self, begin: int, end: int) -> tuple[int, mx.array | None]:
        """Return the hidden states (1, S, D) of the tokens from ``begin`` to ``end``.

        Where those of the first ones are not there, of the rest; and which is its first.
        """
        parts: list[mx.array] = []
        for first, states in reversed(self._heard):
            if begin < end and first < end <= first + states.shape[1]:
                start = max(first, begin)
                parts.insert(0, states[:, start - first : end - first])
                end = start
        return end, mx.concatenate(parts, axis=1) if parts else None

    def reset(self) -> None:
        """Forget every token."""
        self.tokens = []
        self._shift = 0
        self._own = []
        self.has_layers = True
        self._forget_mark()
        self._give_up_row()

    def _give_up(self, error: BaseException) -> None:
        """Forget what an operation that has failed leaves unknown."""
        if isinstance(error, Lost):
            self.forget_last(0)
        else:
            self.reset()

    def drop_layers(self) -> None:
        """Hold the tokens alone: they are processed again before anything follows them."""
        self.has_layers = not self.tokens  # set first: the next lines may find no memory
        self._own = []
        self._forget_mark()
        self._give_up_row()

    def _forget_mark(self) -> None:
        self._mark, self._behind = None, []

    @property
    def _layers(self) -> list[Any]:
        """The layers, out of the batch, with all tokens."""
        if self._behind:
            self._pass(mx.array(self._behind, mx.int32), self._own, len(self._behind))
            self._behind = []
        if self.batch is not None and self.row is not None:
            if self.row in self.batch.rows.all:
                self._own = self.batch.give_up(self.row)
            # What a failure here says of the batch counts for its other rows, too.
            mx.async_eval([layer.state for layer in self._own])
            self.batch = self.row = None
            self.has_left = True
        return self._own

    def _give_up_row(self) -> None:
        batch, row = self.batch, self.row
        self.batch = self.row = None
        self.has_left = False
        if batch is not None and row is not None:
            batch.leave(row)

    def join(self, batch: Batch) -> None:
        """Move the layers into a batch, until they are used otherwise than by its steps.

        Raises:
            Unsupported: they do not fit there; nothing has changed.
        """
        self.row = batch.join(self._layers or self.make_layers(), len(self.tokens))
        self.batch = batch
        if self.shift:
            batch.shift(self.row, self.shift)
        self._own = []
        self._forget_mark()

    def leave_batch(self) -> None:
        """Take the layers out of the batch, if they are in one."""
        if self.row is not None:
            self._own = self._layers

    def keep_prefix(self, prompt: list[int]) -> str | None:
        """Keep the beginning that the prompt and the tokens held share, at most all but its last.

        The last token of a prompt is always processed, for its logits.

        Returns:
            None, or why tokens that are common could not be kept.
        """
        if not self.has_layers:
            self.reset()
            return "the state of the tokens was dropped, as the model slept or memory was short"
        common = min(common_prefix(self.tokens, prompt), len(prompt) - 1)
        if self.trim_to(common):
            return None
        reason = (
            f"the first {common} of {len(self.tokens)} tokens are common, but this "
            "model's cache cannot drop the others"
        )
        self.reset()
        return reason

    def reusable(self, prompt: list[int]) -> int:
        """Return how many tokens :meth:`keep_prefix` would keep."""
        if not self.has_layers:
            return 0
        common = min(common_prefix(self.tokens, prompt), len(prompt) - 1)
        return common if common == len(self.tokens) or can_trim_all(self._layers) else 0

    def trim_to_prefix(self, kept: list[int]) -> bool:
        """Hold ``kept`` alone if it begins the tokens held; false, and nothing changed, if not."""
        return self.tokens[: len(kept)] == kept and self.trim_to(len(kept))

    def trim_to(self, length: int) -> bool:
        """Drop the tokens behind the first ``length``; false, and nothing changed, if it cannot."""
        excess = len(self.tokens) - length
        if excess <= 0:
            return True
        if length == 0:
            self.reset()
            return True
        if not self.has_layers:
            self._cut(length)
            return True
        if self.batch is not None and self.row is not None and self.batch.drop(self.row, excess):
            self._cut(length)
            return True
        if self._mark is not None and self._mark.count <= length:
            self._put_back(self._mark, length)
            return True
        if not can_trim_all(self._layers):
            return False
        try:
            in_step = trim(self._layers, excess)
        except BaseException as error:
            self._give_up(error)
            raise
        if not in_step:
            self.reset()
            return True
        self._cut(length)
        self._mark = None
        return True

    def _cut(self, length: int) -> None:
        """Hold the first ``length`` tokens alone."""
        del self.tokens[length:]
        if self._shift == 0:
            return
        self._shift = None
        if self.batch is not None and self.row is not None:
            self.batch.shift(self.row, self.shift)

    @property
    def shift(self) -> int:
        """What is added to the place of a token of text behind those held to get its position."""
        if self._shift is None:
            self._shift = shift_of(self.tokens)
        return self._shift

    def mark(self, more: int) -> bool:
        """Make sure that ``more`` further tokens can be dropped; false if they never could.

        Where the layers cannot drop them, their states are kept until the next mark.
        """
        if self.can_take_back(more) and not self._behind:
            self._mark = None
            return True
        if len(self._behind) > MAX_BEHIND:
            self._own = self._layers
        layers = self._own if self._behind else self._layers
        if not can_mark(layers):
            return False
        more += len(self._behind)
        self._mark = Mark(layers, len(self.tokens) - len(self._behind), more)
        return True

    def _put_back(self, mark: Mark, length: int) -> None:
        """Hold the first ``length`` tokens, of which the layers hold those of a mark."""
        try:
            mark.put_back(self._own, len(self.tokens) - len(self._behind) - mark.count)
        except BaseException:
            self.reset()
            raise
        self._behind = self.tokens[mark.count : length]
        self._cut(length)

    def can_take_back(self, more: int) -> bool:
        """Whether ``more`` further tokens could be taken back."""
        if self.batch is not None and self.row is not None:
            return self.batch.can_take_back(self.row, more)
        return can_trim_all(self._own, more)

    def snapshot(self, length: int | None = None) -> Snapshot | None:
        """Return the first ``length`` tokens held, or all; None if the layers cannot be cut so."""
        tokens = self.tokens if length is None else self.tokens[:length]
        shift = 0 if self._shift == 0 else None
        if not tokens or not self.has_layers:
            return Snapshot(list(tokens), [], shift)
        excess = len(self.tokens) - len(tokens)
        layers = self._copied_layers()
        if excess and not (can_trim_all(layers) and trim(layers, excess)):
            if self._mark is None or self._mark.count > len(tokens):
                return None
            self._mark.put_back(layers, len(self.tokens) - self._mark.count)
            if rest := tokens[self._mark.count :]:
                with self._shifted():
                    self._network(mx.array([rest], mx.int32), cache=layers)
        return Snapshot(list(tokens), layers, shift)

    def _copied_layers(self) -> list[Any]:
        """Return copies of the layers, which stay where they are."""
        if self.batch is not None and self.row is not None:
            return self.batch.take(self.row)
        return share(self._layers)

    def restore(self, snapshot: Snapshot) -> None:
        """Hold a snapshot's tokens; it can be restored again."""
        self._give_up_row()
        self._forget_mark()
        self._own = share(snapshot.layers)
        self.tokens = list(snapshot.tokens)
        self._shift = snapshot.shift
        self.has_layers = bool(self._own) or not self.tokens

    def point(self) -> Point | Snapshot:
        """Return the state with which layers can be brought back to the tokens held now.

        A snapshot where no layer can be cut, and the state alone is all of it.
        """
        return point_of(self.tokens, self._layers) or Snapshot(
            list(self.tokens), self._copied_layers(), self._shift
        )

    def go_back(self, point: Point) -> None:
        """Hold a point's tokens, with which those held begin, and nothing else."""
        try:
            in_step = go_back(self._layers, len(self.tokens), point)
        except BaseException as error:
            self._give_up(error)
            raise
        if not in_step:
            self.reset()
            return
        self._cut(len(point.tokens))
        self._mark = None

    def template(self) -> Template:
        """Return the template of these layers' states."""
        if self._template is None:
            self._template = Template(self._network, self.make_layers)
        return self._template

    def forward(self, ids: mx.array) -> mx.array:
        """Run the network over tokens that follow those held.

        Args:
            ids: (S,) token ids.
        Returns:
            logits (1, S, V), lazily.
        """
        behind, self._behind = self._behind, []
        if behind:
            ids = mx.concatenate([mx.array(behind, mx.int32), ids])
        layers = self._layers or self._new_layers()
        return self._pass(ids, layers, len(behind))[:, len(behind) :]

    def process(self, tokens: list[int]) -> mx.array:
        """Run the network over tokens, and rows of embeddings, that follow those held.

        Positions of an image that attend to each other both ways are the only tokens then.

        Returns:
            logits (1, S, V), lazily.
        """
        if min(tokens) >= 0:
            return self.forward(mx.array(tokens, mx.int32))
        layers = self._layers or self._new_layers()
        first = tokens[0]
        is_block = isinstance(first, ImagePosition) and first.image.both_ways
        attending = both_ways(layers) if is_block else nullcontext()
        placed = any(isinstance(token, ImagePosition) and token.image.grid for token in tokens)
        where = placing(self._inner, self.tokens, tokens) if placed else self._shifted()
        with looked_up(tokens) as ids, attending, where:
            logits = self._run(ids, layers)
        self._shift = None
        return logits

    def _pass(self, ids: mx.array, layers: list[Any], behind: int = 0) -> mx.array:
        """Run the network over the last ``behind`` tokens held, and those that follow."""
        with self._shifted():
            return self._run(ids, layers, behind)

    def _shifted(self) -> AbstractContextManager[None]:
        """Call the network in the block with positions that follow those of the tokens held."""
        return shifted(self._inner, [self.shift]) if self.shift else nullcontext()

    def _run(self, ids: mx.array, layers: list[Any], behind: int = 0) -> mx.array:
        try:
            if self._listener is None:
                return self._network(ids[None], cache=layers)
            logits, states = self._listener.beside(ids[None], layers)
            self._heard = [*self._heard[1 - MOST_HEARD :], (len(self.tokens) - behind, states)]
            return logits
        except BaseException:
            self.reset()
            raise

    def decode(self, token: mx.array) -> mx.array:
        """Run the network over one token that follows those held.

        Args:
            token: (1,).
        Returns:
            logits (1, V), lazily.
        """
        if self._behind or self._listener is not None:
            return self.forward(token.astype(mx.int32))[:, -1]
        self._mark = None
        layers = self._layers or self._new_layers()
        try:
            shifts = [self.shift] if self._shift != 0 else None
            return logits_behind(self._network, token, layers, shifts)
        except BaseException:
            self.reset()
            raise

    def _new_layers(self) -> list[Any]:
        self._own = self.make_layers()
        return self._own

    def append(self, tokens: list[int]) -> None:
        """Note the tokens that the last forward pass has processed."""
        self.tokens.extend(tokens)
        mark = self._mark
        if mark is not None and len(self.tokens) - len(self._behind) - mark.count > mark.more:
            self._mark = None

    def remote_forward(self, tokens: list[int], rows: int) -> Entry:
        """Let ranks process tokens that follow those held; the network must be a remote one.

        Args:
            tokens: to process.
            rows: how many of the last ones' logits to return.
        """
        network: Any = self._network
        entry: Entry = network.forward(self._layers or self._new_layers(), tokens, rows)
        return entry

    def note_bytes(self, count: int) -> None:
        """Note how many bytes ranks hold for it."""
        for layer in self._own:
            layer.nbytes = count
        row: Any = self.row
        if row is not None:
            row.nbytes = count

    def forget_last(self, count: int) -> None:
        """Hold fewer tokens, of layers that are lost and cannot be used again."""
        self._cut(len(self.tokens) - count)
        self._own = []
        self._forget_mark()
        self._give_up_row()

    @property
    def state(self) -> list[Any]:
        """The arrays of every layer, to be evaluated."""
        return [layer.state for layer in self._layers]

    def settle(self) -> None:
        """Leave the batch, finish pending computations, and free buffers for future tokens."""
        layers = self._layers
        for layer in layers:
            shorten(layer)
        mx.eval(self.state)

    @property
    def nbytes(self) -> int:
        """Bytes that the layers hold."""
        if self.batch is not None and self.row is not None:
            return self.batch.nbytes_of(self.row)
        return sum(layer.nbytes for layer in self._own)
