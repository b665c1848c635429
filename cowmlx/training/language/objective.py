"""The objective of training a language model: the cross-entropy of the tokens to be learnt."""

from __future__ import annotations

import hashlib
import json

import mlx.core as mx

from cowmlx import resources
from cowmlx.accelerate import operations
from cowmlx.errors import InvalidArgument
from cowmlx.folders import weights
from cowmlx.models import fingerprint as fingerprints
from cowmlx.training.language import checkpointing, loss, trained_network
from cowmlx.training.language.dropout import Dropouts
from cowmlx.training.language.slots import Slots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from cowmlx.models.model import Model
    from cowmlx.training.language.loss import TokenBatch
    from cowmlx.training.language.options import LanguageOptions

_GROUP_BYTES = 128 << 20


class LanguageObjective:
    """What :class:`cowmlx.training.objective.Objective` asks for, of a loaded model.

    Args:
        model: its weights read. Contexts go on with it as it is.
        options: what is trained.
        fingerprint: of the model and its tokenizer.

    Attributes:
        model: the model.
        options: the options.
        network: the copy that is trained.

    Raises:
        Unsupported, InvalidArgument: see :func:`trained_network.make`.
    """

    def __init__(self, model: Model, options: LanguageOptions, fingerprint: str) -> None:
        self.model = model
        self.options = options
        self.network = trained_network.make(model, options)
        self._dropouts = Dropouts(self.network)
        self._values = trained_network.trainable(self.network)
        self._slots = Slots(self.network, list(self._values))
        self._fingerprint = _fingerprint(fingerprint, options, self._values)
        if options.checkpointing:
            for block in trained_network.blocks_of(self.network, model.architecture):
                checkpointing.put(block)

    @classmethod
    def steps(
        cls, model: Model, options: LanguageOptions
    ) -> Generator[None, None, LanguageObjective]:
        """Make one, its arrays evaluated, in bounded steps."""
        own = yield from fingerprints.compute(model)
        made = cls(model, options, f"{own.model} {own.tokenizer}")
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

    @property
    def random(self) -> bool:
        """Whether anything is random in training, which needs keys."""
        return self._dropouts.count > 0

    def parameters(self) -> dict[str, mx.array]:
        """Return what is trained by name, with the values of now."""
        return dict(self._values)

    def set_parameters(self, values: Mapping[str, mx.array]) -> None:
        """Give some or all parameters other values, of the same shapes and dtypes.

        Raises:
            InvalidArgument: there is no such parameter, or it is of another shape or dtype.
        """
        for name, value in values.items():
            own = self._values.get(name)
            if own is None:
                raise InvalidArgument(
                    f"{name!r} is no parameter that is trained", reason="missing", argument=name
                )
            if value.shape != own.shape or value.dtype != own.dtype:
                raise InvalidArgument(
                    f"{name} is {value.dtype} {tuple(value.shape)}, not {own.dtype} "
                    f"{tuple(own.shape)}",
                    reason="wrong_type",
                    argument=name,
                )
        self._values.update(values)
        self._slots.put(values)

    def gradients(
        self, batch: TokenBatch, key: mx.array | None
    ) -> tuple[mx.array, mx.array, dict[str, mx.array]]:
        """Return the sum of losses, the number of targets, and gradients of the sum; lazily.

        Args:
            batch: at least two columns.
            key: for dropout; None: nothing is dropped.
        """

        def total(values: dict[str, mx.array]) -> tuple[mx.array, mx.array]:
            self._slots.put(values)
            logits = loss.logits_of(self.network, batch)
            return loss.summed(loss.cross_entropy(logits, batch), batch)

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
        self.network.eval()
        try:
            logits = loss.logits_of(self.network, batch)
        finally:
            self.network.train()
        value, count = loss.summed(loss.cross_entropy(logits, batch), batch)
        return value, count, loss.right(logits, batch)

    def fingerprint(self) -> str:
        """Return a hash of the model, its tokenizer, what is trained of it, and how."""
        return self._fingerprint


def _fingerprint(model: str, options: LanguageOptions, values: dict[str, mx.array]) -> str:
    what = [
        model,
        options.adapter_config(0),
        {name: [str(value.dtype), *value.shape] for name, value in values.items()},
    ]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _evaluate(arrays: list[mx.array]) -> None:
    resources.require_memory(sum(array.nbytes for array in arrays) or 1, "the network to train")
    mx.eval(arrays)
