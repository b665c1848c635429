"""What a training minimises, and where its data come from: the seam to programs and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import mlx.core as mx

MicroBatch = Any
"""What is computed at once: whatever a data source gives and its objective takes."""


class Batch(Protocol):
    """The data of one step of the optimizer."""

    @property
    def micro_batches(self) -> Sequence[MicroBatch]:
        """One or more, each computed in a turn; the loss is the mean over the targets of all."""


class Objective(Protocol):
    """A function of parameters and data that training makes small.

    Everything happens on the dispatch thread and on mlx's default stream of the moment. What is
    returned is lazy: the caller evaluates it.
    """

    def parameters(self) -> dict[str, mx.array]:
        """Return what is trained by name, with the values of now."""

    def set_parameters(self, values: Mapping[str, mx.array]) -> None:
        """Give some or all parameters other values, of the same shapes and dtypes."""

    def gradients(
        self, batch: MicroBatch, key: mx.array | None
    ) -> tuple[mx.array, mx.array, dict[str, mx.array]]:
        """Return the loss and its gradients.

        An objective with a true attribute ``gives_means`` returns the mean over targets in place
        of the sum, and gradients of the mean.

        Args:
            batch: the data.
            key: for what is random, such as dropout; None if nothing is.

        Returns:
            The sum of losses over targets, of shape (); the number of targets, of shape
            (); the gradient of the sum for every parameter by name.
        """

    def evaluate(self, batch: MicroBatch) -> tuple[mx.array, mx.array, mx.array]:
        """Return the loss without gradients, as in use: nothing is random.

        Returns:
            The sum of losses over targets, of shape (); the number of targets; the number
            of targets that are predicted right, -1 if that is not told.
        """

    def fingerprint(self) -> str:
        """Return what has to be the same where a run that was saved goes on."""


class DataSource(Protocol):
    """Gives batches, in an order that (seed, epoch, index) alone decide.

    Its place is the next batch to be given: {"epoch": …, "index": …}, both from 0, and whatever
    else it needs, all as JSON has it.
    """

    def batch(self, step: int) -> Batch | None:
        """Return the next batch and move on.

        Args:
            step: the step of the optimizer that it is for, from 0.

        Returns:
            None at the end of each epoch; the next call begins the next epoch.
        """

    def steps(self) -> int | None:
        """Return how many batches an epoch has; None if nobody can know."""

    def state(self) -> dict[str, Any]:
        """Return the place."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place that :meth:`state` has told.

        Raises:
            CowMlxError: there is no such place in these data.
        """
