"""The best parameters of a fit: when they are kept, put in place, saved and loaded."""

from __future__ import annotations

import json

import mlx.core as mx
import pytest
from support.callbacks import StatusError
from support.signatures import FIT_EARLY, FIT_STEPS, TRAINING_STEP
from support.trainings import data, is_nothing, network

from cowmlx.cache import disk
from cowmlx.services.training_files import FILE, FORMAT
from cowmlx.steps import finished

UNSTEADY = {"optimizer": {"name": "sgd", "learning_rate": 1.5, "momentum": 0.9}, "seed": 3}
TOO_FAST = {"optimizer": {"name": "sgd", "learning_rate": 40}, "seed": 3}


def given(**more):
    return {"inputs": data(), "validation": data(12, seed=2), "evaluate_every": 1, **more}


def arrays_of(folder):
    return mx.load(str(folder / FILE), return_metadata=True)


def losses(events):
    return [event.loss for event in events if event.kind == TRAINING_STEP]


def test_a_fit_that_does_not_end_early_keeps_its_last_parameters(trainings, tmp_path):
    """They belong to the optimizer's state, so that a later fit can continue."""
    whole, first, other = (trainings.create(network(), **UNSTEADY) for _ in range(3))
    options = given(batch_size=8, evaluate_every=2, patience=50)
    expected = losses(trainings.fit(whole, **options, steps=30))
    ended = trainings.fit(first, **options, steps=20)[-1]
    assert ended.finish == FIT_STEPS
    assert trainings.info(first)["best"]["step"] < 20
    trainings.save(first, tmp_path / "run")
    trainings.load(other, tmp_path / "run")
    for training in (first, other):
        assert losses(trainings.fit(training, **options, steps=30)) == expected[20:]
        assert trainings.parameters(training) == trainings.parameters(whole)
    for training in (whole, first, other):
        trainings.free(training)


def test_the_end_of_an_early_stop_describes_the_best(trainings):
    training = trainings.create(network(), **TOO_FAST)
    options = given(steps=200, patience=3)
    for events in (trainings.fit(training, **options), trainings.fit(training, **options)):
        end = events[-1]
        assert end.finish == FIT_EARLY
        assert end.validation_loss == trainings.info(training)["best"]["loss"]
        measured = trainings.evaluate(training, inputs=given()["validation"])
        assert measured.validation_loss == end.validation_loss
        assert is_nothing(end.accuracy) or end.accuracy == measured.accuracy
    trainings.free(training)


def test_a_fit_without_patience_keeps_no_second_copy(trainings, tmp_path):
    """Its best is only reported; a fit with patience looks for one whose parameters it has."""
    training, other = (trainings.create(network(), **TOO_FAST) for _ in range(2))
    events = trainings.fit(training, **given(steps=9))
    found = {event.step: event.validation_loss for event in events[:-1]}
    found = {step: loss for step, loss in found.items() if not is_nothing(loss)}
    best = min(found, key=found.__getitem__)
    assert best < 9
    assert trainings.info(training)["best"] == {"step": best, "loss": found[best]}
    trainings.save(training, tmp_path / "run")
    arrays, _ = arrays_of(tmp_path / "run")
    assert not [name for name in arrays if name.startswith("best.")]
    trainings.load(other, tmp_path / "run")
    assert trainings.info(other) == trainings.info(training)
    for each in (training, other):
        trainings.fit(each, **given(steps=11, patience=20))
        assert trainings.info(each)["best"]["step"] >= 9
    trainings.save(other, tmp_path / "run")
    arrays, _ = arrays_of(tmp_path / "run")
    assert [name for name in arrays if name.startswith("best.")]
    assert trainings.parameters(other) == trainings.parameters(training)
    for each in (training, other):
        trainings.free(each)


@pytest.mark.parametrize(
    "loss",
    [pytest.param("1" * 400, id="long"), "1e999", "true", "12"],
)
def test_a_loss_that_no_training_has_is_refused(trainings, tmp_path, loss):
    """Before anything is changed."""
    training = trainings.create(network(), **UNSTEADY)
    trainings.fit(training, **given(steps=2, patience=9))
    trainings.save(training, tmp_path)
    arrays, metadata = arrays_of(tmp_path)
    known = json.loads(metadata["training"])["best"]["loss"]
    text = metadata["training"].replace(json.dumps(known), loss)
    del arrays[disk.CHECKSUM]
    finished(disk.write(str(tmp_path / FILE), {**metadata, "training": text}, arrays, FORMAT))
    trainings.fit(training, **given(steps=4, patience=9))
    before, info = trainings.parameters(training), trainings.info(training)
    with pytest.raises(StatusError) as error:
        trainings.load(training, tmp_path)
    assert error.value.name == "EFORMAT"
    assert "its state cannot be read" in error.value.message
    assert trainings.parameters(training) == before
    assert trainings.info(training) == info
    trainings.free(training)
