"""A step whose gradients or new parameters are not as declared changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import mlx.core as mx
import pytest

from cowmlx.errors import CowMlxError
from cowmlx.training.training import Settings, Training

WRONG = {
    "shape": lambda array: mx.zeros((1, 3), array.dtype),  # mlx would broadcast it
    "scalar": lambda array: mx.zeros((), array.dtype),
    "dtype": lambda array: array.astype(mx.float16),
}


class Squares:
    """The sum of a parameter's squares; what is made of its gradient may be wrong.

    Args:
        change: of the gradient.
    """

    def __init__(self, change=None) -> None:
        self.change = change
        self._values = {"w": mx.ones((2, 3)), "b": mx.ones(3)}

    def parameters(self) -> dict[str, mx.array]:
        return dict(self._values)

    def set_parameters(self, values: Mapping[str, mx.array]) -> None:
        self._values |= values

    def gradients(self, batch, key):
        found = {name: 2 * value for name, value in self._values.items()}
        if self.change is not None:
            found["w"] = self.change(found["w"])
        return mx.array(9.0), mx.array(1), found


def advance(training: Training) -> None:
    for _ in training.advance(SimpleNamespace(micro_batches=[[]])):
        pass


@pytest.mark.parametrize("what", WRONG)
def test_gradients_are_as_declared(what):
    training = Training(Squares(), Settings('{"name": "sgd", "learning_rate": 0.1}'))
    advance(training)
    before = training.objective.parameters()
    training.objective.change = WRONG[what]
    with pytest.raises(CowMlxError, match=r"the gradient of 'w' is .* must be .*float32 of \[2, 3"):
        advance(training)
    assert training.step == 1
    assert training.objective.parameters() == before


@pytest.mark.parametrize("what", WRONG)
def test_new_parameters_are_as_declared(what, monkeypatch):
    training = Training(Squares(), Settings('{"name": "adam", "learning_rate": 0.1}'))
    before, state = training.objective.parameters(), training.optimizer.state()
    updated = training.optimizer.updated
    monkeypatch.setattr(
        training.optimizer,
        "updated",
        lambda *given: {**updated(*given), "w": WRONG[what](before["w"])},
    )
    with pytest.raises(CowMlxError, match=r"new value of 'w' is .* must be .*float32 of \[2, 3"):
        advance(training)
    assert training.step == 0
    assert training.objective.parameters() == before
    now = training.optimizer.state()
    assert all(mx.array_equal(now[name], each) for name, each in state.items())
