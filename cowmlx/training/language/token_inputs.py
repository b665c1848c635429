"""Batches of tokens, also of a host's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from cowmlx.models.model import Model
from cowmlx.training.array_data import Inputs, Pieces, Rows, unfit

NAMES = ("tokens", "targets")


@dataclass(slots=True)
class TokenBatch:
    """Rows of tokens, padded on the right, and which of them are trained on.

    Attributes:
        tokens: (B, T) int32.
        targets: (B, T) bool: whether the loss counts the prediction of a token from those before
            it; never true for the first of a row.
    """

    tokens: mx.array
    targets: mx.array


class TokenPieces(Pieces):
    """Batches of tokens and targets, in pieces."""

    def __getitem__(self, index: Any) -> Any:
        """Return a piece."""
        return TokenBatch(*super().__getitem__(index))


class TokenInputs(Inputs):
    """Tokens of a model, int32 (rows, columns), and targets, bool of the same shape."""

    def __init__(self, model: Model) -> None:
        super().__init__(NAMES)
        self._most = model.context_length
        self._vocabulary = model.vocabulary_size

    def check(self, arrays: Sequence[mx.array], what: str = "inputs") -> None:
        """Compute arrays and check them.

        Raises:
            InvalidArgument: dtypes or shapes do not fit, or a token is not in the vocabulary.
        """
        super().check(arrays, what)
        tokens, targets = arrays
        for at, (array, dtype) in enumerate(((tokens, mx.int32), (targets, mx.bool_))):
            if array.dtype != dtype:
                names = [str(type_).removeprefix("mlx.core.") for type_ in (array.dtype, dtype)]
                raise unfit("dtype_mismatch", what, at, NAMES[at], *names)
        shape = list(tokens.shape)
        if len(shape) != 2 or not 2 <= shape[1] <= self._most:
            raise unfit("shape_mismatch", what, 0, NAMES[0], shape, f"(rows, 2 to {self._most})")
        if list(targets.shape) != shape:
            raise unfit("shape_mismatch", what, 1, NAMES[1], list(targets.shape), shape)
        for most in (tokens.min(), tokens.max()):
            token: Any = most.item()
            if not 0 <= token < self._vocabulary:
                accepted = f"0 to {self._vocabulary - 1}"
                raise unfit("out_of_range", what, 0, NAMES[0], f"a token {token}", accepted)

    def batch(self, arrays: Sequence[mx.array], micro_batch: int) -> Rows:
        """Return a batch of all rows, ``micro_batch`` of which are computed at once; 0: all."""
        return Rows(TokenPieces(arrays, micro_batch))
