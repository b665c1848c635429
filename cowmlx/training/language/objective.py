"""The objective of training a language model: the cross-entropy of target tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx import resources
from cowmlx.accelerate import operations, trained
from cowmlx.errors import InvalidArgument
from cowmlx.folders import weights
from cowmlx.memory import RequireRoom
from cowmlx.models import fingerprint as fingerprints
from cowmlx.models.model import Model
from cowmlx.models.widths import widths_of
from cowmlx.training.language import layers, trained_network
from cowmlx.training.language.options import LanguageOptions
from cowmlx.training.language.token_inputs import TokenBatch

_GROUP_BYTES = 128 << 20
_FLOAT = 4  # bytes of a number
# Numbers that a layer keeps of a token for its gradients, as multiples of the network's widths.
_OF_WIDTH, _OF_MLP, _OF_ROUTED = 10, 4, 3
# Scores of all heads, beside those that are kept, of the layer whose gradients are computed; or
# once more all other numbers of that layer, whichever are more.
_OF_SCORES = 4
_OF_LOGITS = 3


class LanguageObjective:
    """The :class:`cowmlx.training.objective.Objective` of a loaded model, which stays as it is.

    Args:
        model: the model.
        options: which layers are trained, and how.
        fingerprint: the model's and the tokenizer's.
        require_room: raises where so many bytes may not be taken for a named purpose.

    Raises:
        Unsupported, InvalidArgument: see :func:`trained_network.make`.
    """

    def __init__(
        self,
        model: Model,
        options: LanguageOptions,
        fingerprint: str,
        require_room: RequireRoom,
    ) -> None:
        self._require_room = require_room
        self.model = model
        self.options = options
        self.network = trained_network.make(model, options)
        self._dropouts = layers.Dropouts(self.network)
        self._values = trained_network.trainable(self.network)
        self._slots = layers.Slots(self.network, list(self._values))
        self._fingerprint = _fingerprint(fingerprint, options, self._values)
        if options.checkpointing:
            for block in trained_network.blocks_of(self.network, model.architecture):
                layers.checkpoint(block)

    @classmethod
    def steps(
        cls,
        model: Model,
        options: LanguageOptions,
        require_room: RequireRoom = lambda size, what: None,
    ) -> Generator[None, None, LanguageObjective]:
        """Make one, its arrays evaluated, in bounded steps."""
        own = yield from fingerprints.compute(model)
        made = cls(model, options, f"{own.model} {own.tokenizer}", require_room)
        require_room(_bytes_beside(made.network, model.network), "the network to train")
        waiting: list[mx.array] = []
        size = 0
        arrays = weights.flatten(made.network.parameters()).values()
        for array in arrays:
            waiting.append(array)
            size += array.nbytes
            if size >= _GROUP_BYTES:
                _evaluate(waiting)
                waiting, size = [], 0
                yield
        _evaluate(waiting)
        return made

    def parameters(self) -> dict[str, mx.array]:
        """Return the current values of the trained parameters by name."""
        return dict(self._values)

    def set_parameters(self, values: Mapping[str, mx.array]) -> None:
        """Give some or all parameters other values, of the same shapes and dtypes.

        Raises:
            InvalidArgument: there is no such parameter, or it is of another shape or dtype.
        """
        for name, value in values.items():
            own = self._values.get(name)
            if own is None:
                text = f"{name!r} is no parameter that is trained"
                raise InvalidArgument(text, reason="missing", argument=name)
            if value.shape != own.shape or value.dtype != own.dtype:
                text = f"{name} is {value.dtype} {value.shape}, not {own.dtype} {own.shape}"
                raise InvalidArgument(text, reason="wrong_type", argument=name)
        self._values.update(values)
        self._slots.put(values)

    def gradients(
        self, batch: TokenBatch, key: mx.array | None
    ) -> tuple[mx.array, mx.array, dict[str, mx.array]]:
        """Return the sum of losses, the number of targets, and gradients of the sum; lazily."""
        self._require_room(self._bytes(batch, is_step=True), "a micro-batch")

        def total(values: dict[str, mx.array]) -> tuple[mx.array, mx.array]:
            self._slots.put(values)
            logits = _logits(self.network, batch)
            return _summed(_cross_entropy(logits, batch), batch)

        self.network.train()
        self._dropouts.begin(key)
        try:
            with operations.plainly():
                (value, count), gradients = mx.value_and_grad(total)(dict(self._values))
        finally:
            self._slots.put(self._values)
            self._dropouts.begin(None)
        return value, count, gradients

    def evaluate(self, batch: TokenBatch) -> tuple[mx.array, mx.array, mx.array]:
        """Return the sum of losses, the number of targets, and how many are the best token."""
        self._require_room(self._bytes(batch, is_step=False), "a micro-batch")
        self.network.eval()
        try:
            logits = _logits(self.network, batch)
        finally:
            self.network.train()
        value, count = _summed(_cross_entropy(logits, batch), batch)
        return value, count, _correct(logits, batch)

    def _bytes(self, batch: TokenBatch, *, is_step: bool) -> int:
        """Return the bytes that a micro-batch takes: of activations and gradients."""
        widths = widths_of(self.model)
        rows, length = batch.tokens.shape[0], batch.tokens.shape[1] - 1
        scores = widths.heads * length
        kept = scores if trained.keeps_scores(length) else 0
        # The width of a dense MLP is often that of all experts of a token, with shared ones.
        mlp = max(widths.mlp, widths.experts * widths.expert)
        layer = (_OF_WIDTH + _OF_ROUTED * widths.experts) * widths.width + _OF_MLP * mlp + kept
        held, gradients = layer, 0
        if is_step:
            count = self.options.num_layers
            count = widths.layers if count == -1 else min(count, widths.layers)
            held = count * layer + max(_OF_SCORES * scores, layer - kept)
            if self.options.checkpointing:  # of one layer at a time, computed a second time
                held = count * widths.width + 2 * layer + _OF_SCORES * scores
            gradients = sum(value.nbytes for value in self._values.values())
        return _FLOAT * rows * length * (_OF_LOGITS * widths.vocabulary + held) + gradients

    def fingerprint(self) -> str:
        """Return a hash of the model, its tokenizer, the trained parameters and the options."""
        return self._fingerprint


def _fingerprint(model: str, options: LanguageOptions, values: dict[str, mx.array]) -> str:
    what = [
        model,
        options.adapter_config(0),
        {name: [str(value.dtype), *value.shape] for name, value in values.items()},
    ]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _bytes_beside(net: Module, base: Module) -> int:
    """Return the bytes of the arrays that a network does not share with another one."""
    shared = {id(array) for array in weights.flatten(base.parameters()).values()}
    own = {id(array): array for array in weights.flatten(net.parameters()).values()}
    return sum(array.nbytes for identity, array in own.items() if identity not in shared)


def _evaluate(arrays: list[mx.array]) -> None:
    resources.require_memory(sum(array.nbytes for array in arrays) or 1, "the network to train")
    mx.eval(arrays)


def _logits(network: Module, batch: TokenBatch) -> mx.array:
    """Return float32 (B, T - 1, V): the logits of every token but the first."""
    logits: mx.array = network(batch.tokens[:, :-1])
    return logits.astype(mx.float32)


def _cross_entropy(logits: mx.array, batch: TokenBatch) -> mx.array:
    """Return (B, T - 1) float32: minus the log-probability of each token but the first."""
    if trained.takes(logits):
        return trained.cross_entropy(logits, batch.tokens[:, 1:])
    wanted = batch.tokens[:, 1:, None]
    chosen = mx.take_along_axis(logits, wanted, axis=-1).squeeze(-1)
    return mx.logsumexp(logits, axis=-1) - chosen


def _summed(losses: mx.array, batch: TokenBatch) -> tuple[mx.array, mx.array]:
    """Return the sum of the losses of targets, float32, and how many there are, both ()."""
    mask = batch.targets[:, 1:]
    # Not by a product: NaN after a row's end must not reach the sum.
    return mx.where(mask, losses, 0).sum(), mask.sum()


def _correct(logits: mx.array, batch: TokenBatch) -> mx.array:
    """Return how many targets are the most probable token, ()."""
    hit = mx.argmax(logits, axis=-1) == batch.tokens[:, 1:]
    return mx.logical_and(hit, batch.targets[:, 1:]).sum()
