"""Batches that the host brings, while the step before is computed."""

from __future__ import annotations

from time import monotonic

import numpy as np
import pytest
from support.callbacks import StatusError
from support.programs import graph, node, value
from support.trainings import data, network

WIDE = 1024
ONE_ARRAY = 4 * WIDE * WIDE  # bytes
SECONDS = 60  # a bound for machines that do much else


def wide_network():
    return graph(
        [value("x", ["rows", WIDE])],
        [
            node("h", "matmul", "x", "w"),
            node("i", "matmul", "h", "v"),
            node("j", "matmul", "i", "u"),
            node("q", "square", "j"),
            node("loss", "mean", "q"),
        ],
        ["loss"],
        parameters=[{**value(name, [WIDE, WIDE]), "init": "glorot_uniform"} for name in "wvu"],
    )


def batch():
    return [np.ones((4, WIDE), np.float32)]


def active(lib):
    return lib.info()["memory"]["active"]


def is_computed(lib, before):
    """Whether a step is computed, whose results are kept beside the old values until it ends."""
    end = monotonic() + SECONDS
    while monotonic() < end:
        if active(lib) - before > ONE_ARRAY // 2:
            return True
    return False


def is_given_back(lib, before):
    """Whether the memory of what was computed is free, once a thread of mlx's has noticed."""
    end = monotonic() + SECONDS
    while monotonic() < end:
        if active(lib) - before < ONE_ARRAY // 2:
            return True
    return False


@pytest.mark.parametrize("micro_batch", [0, 2])
def test_a_step_is_computed_while_the_host_makes_the_next_batch(trainings, lib, micro_batch):
    training = trainings.create(wide_network(), micro_batch=micro_batch)
    before = []
    computed = []

    def bring(step):
        if step:
            computed.append(is_computed(lib, before[0]))
        else:
            before.append(active(lib))
        return batch()

    trainings.fit(training, next_batch=bring, steps=2)
    assert computed == [True]
    trainings.free(training)


def test_a_cancel_while_the_host_makes_a_batch_leaves_nothing(trainings, lib):
    """Nor the batch, which it brings although the call has ended."""
    training = trainings.create(wide_network(), micro_batch=2)
    before = []
    handles = lib.info()["handles"]["array"]

    def bring(step):
        if step:
            assert is_computed(lib, before[0])
            assert trainings.cancel(training) == 0
        else:
            before.append(active(lib))
        return batch()

    with pytest.raises(StatusError) as error:
        trainings.fit(training, next_batch=bring, steps=3)
    assert error.value.name == "ECANCELED"
    assert trainings.info(training)["step"] == 0
    assert lib.info()["handles"]["array"] == handles
    assert is_given_back(lib, before[0])
    trainings.fit(training, next_batch=lambda step: batch(), steps=3)
    assert trainings.info(training)["step"] == 3
    trainings.free(training)


def test_a_step_that_fails_while_the_host_makes_a_batch_ends_the_fit(trainings):
    """The batch is freed, and the next fit asks for it again."""
    training = trainings.create(network(), micro_batch=6)
    handles = trainings.lib.info()["handles"]["array"]
    asked = []

    def bring(step):
        asked.append(step)
        x, y = data(6, seed=step)
        return [x, y + 9 * (len(asked) == 2)]

    with pytest.raises(StatusError) as error:
        trainings.fit(training, next_batch=bring, steps=3)
    assert error.value.name == "EINVAL"
    assert trainings.info(training)["step"] == 1
    assert asked == [0, 1, 2]
    assert trainings.lib.info()["handles"]["array"] == handles
    trainings.fit(training, next_batch=bring, steps=3)
    assert asked == [0, 1, 2, 1, 2]
    assert trainings.info(training)["step"] == 3
    trainings.free(training)
