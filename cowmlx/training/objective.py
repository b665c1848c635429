"""The seam of training to programs and models: objectives, data, keys of random numbers."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import mlx.core as mx

MicroBatch = Any
"""The data computed at once, as a data source gives them and its objective takes them."""


Gradients = tuple[mx.array, mx.array, dict[str, mx.array]]
"""Loss, targets, and gradients by the names of parameters: see :meth:`Objective.gradients`."""


class Batch(Protocol):
    """The data of one step of the optimizer."""

    @property
    def micro_batches(self) -> Sequence[MicroBatch]:
        """One or more, each computed in a turn; the loss is the mean over the targets of all."""


class Objective(Protocol):
    """A function of parameters and data that training minimizes.

    It runs on the dispatch thread and on mlx's current default stream. Its results are lazy: the
    caller evaluates them.
    """

    def parameters(self) -> dict[str, mx.array]:
        """Return the current values of the trained parameters by name."""

    def set_parameters(self, values: Mapping[str, mx.array]) -> None:
        """Give some or all parameters other values, of the same shapes and dtypes."""

    def gradients(self, batch: MicroBatch, key: mx.array | None) -> Gradients:
        """Return the loss and its gradients.

        An objective with a true attribute ``gives_means`` returns the mean over targets in place
        of the sum, and gradients of the mean. One with a false attribute ``takes_keys`` has no
        random numbers.

        Args:
            batch: the data.
            key: of random numbers, such as for dropout; None if there are none.

        Returns:
            The sum of losses over targets, of shape (); the number of targets, of shape
            (); the gradient of the sum for every parameter by name.
        """

    def evaluate(self, batch: MicroBatch) -> tuple[mx.array, mx.array, mx.array]:
        """Return the loss without gradients and randomness.

        Returns:
            The sum of losses over targets, of shape (); the number of targets; the number
            of targets that are predicted right, -1 if unknown.
        """

    def fingerprint(self) -> str:
        """Return a text that must be the same where a saved run continues."""


class DataSource(Protocol):
    """Gives batches, in an order that (seed, epoch, index) alone decide.

    Its place is the next batch to give: {"epoch": …, "index": …}, both from 0, and "data", a hash
    of the data, or None if they are unknown.
    """

    def prepare(self, step: int) -> Generator[Any, None, None]:
        """Do long work for the next batch, which :meth:`batch` then returns; yields between parts.

        Yields also what the work waits for, such as arrays.
        """

    def batch(self, step: int) -> Batch | None:
        """Return the next batch and move on.

        Args:
            step: of the optimizer, from 0.

        Returns:
            None at the end of each epoch; the next call begins the next epoch.
        """

    def steps(self) -> int | None:
        """Return how many batches an epoch has; None if unknown."""

    def state(self) -> dict[str, Any]:
        """Return the place."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place of :meth:`state`.

        Raises:
            CowMlxError: there is no such place in these data.
        """


def weighted(mean: mx.array, targets: mx.array) -> mx.array:
    """Return the sum over targets of which an array is the mean, lazily; 0 if there are none.

    The mean over no targets is often NaN, as is its product with 0.
    """
    return mx.where(targets == 0, 0, mean * targets.astype(mean.dtype))


def key_of(seed: int, *place: str | int) -> mx.array:
    """Return a random key, uint32 (2,), that the seed and the place alone decide.

    A place is a purpose and where, such as "shuffle" and an epoch. mlx's global state is not used.
    """
    digest = blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    words = [int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")]
    return mx.array(words, mx.uint32)
