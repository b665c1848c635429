"""What is remembered about a model is so of its weights as they are."""

from __future__ import annotations

import mlx.core as mx
import pytest
from support.loaded import drain, load

from cowmlx.accelerate.blocks import restore
from cowmlx.models import fingerprint
from cowmlx.remembered import Remembered


def test_changed_weights_have_another_version_and_fingerprint(llama):
    model = load(llama)
    version = model.weights_version
    before = drain(fingerprint.compute(model))[0]
    assert drain(fingerprint.compute(model)) == (before, [])
    restore(model.network.lm_head)  # parameters are written in mlx's own form
    model.network.update({"lm_head": {"weight": mx.zeros_like(model.network.lm_head.weight)}})
    model.weights_changed()
    after, steps = drain(fingerprint.compute(model))
    assert (model.weights_version != version, bool(steps)) == (True, True)
    assert after.model != before.model
    assert after.tokenizer == before.tokenizer


def test_weights_that_change_meanwhile_leave_nothing_behind(llama):
    model = load(llama)
    steps = fingerprint.compute(model)
    next(steps)
    model.weights_changed()
    drain(steps)
    assert drain(fingerprint.compute(model))[1]


def test_a_network_with_an_adapter_shares_no_findings(llama):
    model = load(llama)
    drain(fingerprint.compute(model))
    other = model.with_network(model.network)
    assert other.weights_version != model.weights_version
    assert drain(fingerprint.compute(other))[1]


def test_what_raises_is_tried_again():
    remembered, tries = Remembered(), []

    def find():
        tries.append(1)
        if len(tries) == 1:
            raise MemoryError
        return None

    with pytest.raises(MemoryError):
        remembered.once("it", find)
    assert (remembered.once("it", find), remembered.once("it", find), len(tries)) == (None, None, 2)
