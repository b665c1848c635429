"""Batches that the host brings, while the step before is computed."""

from __future__ import annotations

from time import monotonic

import numpy as np
import pytest
from support.callbacks import StatusError
from support.programs import graph, node, value
from support.trainings import data, network

WIDE = 1024
SECONDS = 60  # a bound for machines that do much else


def wide_network():
    return graph(
        [value("x", ["rows", WIDE])],
        [node("h", "matmul", "x", "w"), node("q", "square", "h"), node("loss", "mean", "q")],
        ["loss"],
        parameters=[{**value("w", [WIDE, WIDE]), "init": "glorot_uniform"}],
    )


@pytest.mark.parametrize("micro_batch", [0, 2])
def test_a_step_is_computed_while_the_host_makes_the_next_batch(trainings, lib, micro_batch):
    """What it has computed is kept beside the old values until the host answers."""
    training = trainings.create(wide_network(), micro_batch=micro_batch)
    one_array = 4 * WIDE * WIDE  # bytes
    before = 0
    computed = []

    def active():
        return lib.info()["memory"]["active"]

    def bring(step):
        nonlocal before
        before = before or active()
        if step:
            end = monotonic() + SECONDS
            while (found := active() - before > one_array // 2) is False and monotonic() < end:
                pass
            computed.append(found)
        return [np.ones((4, WIDE), np.float32)]

    trainings.fit(training, next_batch=bring, steps=2)
    assert computed == [True]
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
