"""A language model trained on tokens that the host brings: in steps, whole, and batch by batch."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import tiny_models
from support.callbacks import StatusError
from support.signatures import EINVAL, FIT_DATA

OPTIONS = {"optimizer": {"name": "adam", "learning_rate": 0.01}, "fine_tune": {"rank": 4}}
TEXTS = ["The quick brown fox jumps.", "Over two lazy dogs.", "A pail by the door.", "It rains."]


@pytest.fixture(scope="module")
def model(lib, tmp_path_factory):
    handle = lib.load(tiny_models.make(tmp_path_factory.mktemp("rows"), "llama"))
    yield handle
    lib.free_model(handle)


@pytest.fixture
def training(trainings, model):
    handle = trainings.create_for_model(model, **OPTIONS)
    yield handle
    trainings.free(handle)


@pytest.fixture(scope="module")
def rows(lib, model):
    """The texts as tokens, as lines have them: with an end, and filled up with any token."""
    found = [lib.tokenize(model, text) for text in TEXTS]
    end = lib.info(model)["eos_token"]["id"]
    found = [tokens if tokens[-1] == end else [*tokens, end] for tokens in found]
    tokens = np.full((len(found), max(map(len, found))), 7, np.int32)
    targets = np.zeros(tokens.shape, bool)
    for at, each in enumerate(found):
        tokens[at, : len(each)] = each
        targets[at, 1 : len(each)] = True
    return tokens, targets


def losses(events) -> list[float]:
    return [event.loss for event in events if event.loss == event.loss]


def test_arrays_are_what_lines_are(trainings, model, rows):
    lines = "\n".join(json.dumps({"text": text}) for text in TEXTS).encode()
    found = []
    for given in ({"lines": lines}, {"inputs": rows}):
        training = trainings.create_for_model(model, **OPTIONS)
        events = trainings.fit(training, **given, steps=3, batch_size=4, shuffle=False)
        found.append([(event.loss, event.targets) for event in events])
        trainings.free(training)
    assert np.allclose(found[0], found[1], rtol=1e-5, equal_nan=True)


def test_batches_of_the_host_are_steps_and_whole_arrays(trainings, model, rows):
    batches = [[array[at : at + 2] for array in rows] for at in (0, 2)]
    found = []
    for way in ("whole", "asked", "steps"):
        training = trainings.create_for_model(model, **OPTIONS)
        if way == "whole":
            events = trainings.fit(training, inputs=rows, batch_size=2, epochs=1, shuffle=False)
        elif way == "asked":
            bring = iter(batches)
            events = trainings.fit(training, None, lambda _, bring=bring: next(bring, None))
            assert events[-1].finish == FIT_DATA
        else:
            events = [trainings.step(training, batch) for batch in batches]
        found.append((losses(events), trainings.parameters(training)))
        trainings.free(training)
    assert found[0] == found[1] == found[2]


def test_micro_batches_and_masks(trainings, model, rows):
    """The mean is over the targets of all rows, and what is no target changes nothing."""
    tokens, targets = rows
    whole = trainings.create_for_model(model, **OPTIONS)
    parts = trainings.create_for_model(model, **OPTIONS, micro_batch=1)
    other = np.where(np.cumsum(targets[:, ::-1], 1)[:, ::-1] > 0, tokens, 9).astype(np.int32)
    other[:, 0] = tokens[:, 0]
    first, second = trainings.step(whole, rows), trainings.step(parts, (other, targets))
    assert first.targets == second.targets == targets.sum()
    assert first.loss == pytest.approx(second.loss, rel=1e-5)
    for training in (whole, parts):
        trainings.free(training)


def test_an_evaluation_on_arrays(trainings, training, rows):
    whole = trainings.evaluate(training, inputs=rows)
    assert whole.targets == rows[1].sum()
    assert whole.validation_loss == pytest.approx(trainings.step(training, rows).loss, rel=1e-5)
    events = trainings.fit(training, inputs=rows, validation=rows, steps=2)
    assert events[-1].validation_loss < whole.validation_loss
    assert trainings.info(training)["inputs"] == ["tokens", "targets"]


def cases(rows):
    tokens, targets = rows
    wide = np.zeros((1, 1 << 16), np.int32)
    return {
        "missing": ([tokens], "must have 2"),
        "of another type": ([tokens.astype(np.int64), targets], "int64"),
        "targets of another type": ([tokens, targets.astype(np.int32)], "bool"),
        "of one axis": ([tokens[0], targets[0]], "rows, 2 to"),
        "one column": ([tokens[:, :1], targets[:, :1]], "rows, 2 to"),
        "beyond the window": ([wide, wide.astype(bool)], "rows, 2 to"),
        "of other shapes": ([tokens, targets[:, 1:]], "targets"),
        "an unknown token": ([tokens + 100000, targets], "token"),
        "a negative token": ([tokens - 1000, targets], "token"),
        "no target": ([tokens, np.zeros_like(targets)], "no target"),
        "a target without anything before it": (
            [tokens, np.arange(tokens.shape[1]) + 0 * tokens == 0],
            "no target",
        ),
        "no rows": ([tokens[:0], targets[:0]], "row"),
    }


def test_what_does_not_fit_is_refused_and_changes_nothing(trainings, training, rows):
    before = trainings.parameters(training)
    for name, (batch, said) in cases(rows).items():
        ways = [
            lambda batch=batch: trainings.step(training, batch),
            lambda batch=batch: trainings.fit(training, inputs=batch, steps=1),
            lambda batch=batch: trainings.evaluate(training, inputs=batch),
        ]
        if len(batch) == 2:
            ways.append(lambda batch=batch: trainings.fit(training, None, lambda _: batch))
        for way in ways:
            with pytest.raises(StatusError) as error:
                way()
            assert error.value.status == EINVAL, name
            assert said in error.value.message, name
    assert trainings.parameters(training) == before
    assert trainings.step(training, rows).step == 1
