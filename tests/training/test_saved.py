"""Trainings saved and loaded: interrupted equals uninterrupted to the bit; whole or not at all."""

from __future__ import annotations

import json
import os
import resource
import signal

import mlx.core as mx
import numpy as np
import pytest
from support.callbacks import StatusError
from support.signatures import FIT_EARLY, TRAINING_CHECKPOINT, TRAINING_STEP
from support.trainings import data, network

FILE = "training.safetensors"
# The state of each kind is other arrays; the joined rate depends on the step.
RATE = {
    "name": "warmup",
    "steps": 4,
    "then": {"name": "cosine_decay", "init": 0.05, "decay_steps": 30},
}
OPTIMIZERS = {
    "adam": {"name": "adam", "learning_rate": RATE, "bias_correction": True},
    "several": [
        {"name": "muon", "learning_rate": 0.02, "parameters": ["w1"]},
        {"name": "adafactor", "parameters": ["w2"]},
        {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9},
    ],
}
OPTIONS = {"seed": 5, "micro_batch": 4, "clip_norm": 1.0}


def given(**more):
    return {
        "inputs": data(),
        "validation": data(9, seed=4),
        "batch_size": 7,
        "evaluate_every": 3,
        "patience": 100,
        "steps": 22,
        **more,
    }


def losses(events):
    """What events tell, but for times and memory."""
    return [(event.kind, event.step, event.epoch, repr(event.loss)) for event in events]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("at", [1, 4, 9])
def test_a_run_that_was_interrupted_ends_with_the_same_bits(trainings, tmp_path, kind, at):
    options = {"optimizer": OPTIMIZERS[kind], **OPTIONS}
    whole = trainings.create(network(), **options)
    expected = losses(trainings.fit(whole, **given()))
    first = trainings.create(network(), **options)
    began = trainings.fit(first, **given(steps=at))
    trainings.save(first, tmp_path / "run")
    trainings.free(first)
    other = trainings.create(network(), **options)
    trainings.load(other, tmp_path / "run")
    assert trainings.info(other)["step"] == at
    went_on = trainings.fit(other, **given())
    steps = [each for each in losses(began) + losses(went_on) if each[0] == TRAINING_STEP]
    assert steps == [each for each in expected if each[0] == TRAINING_STEP]
    assert trainings.parameters(other) == trainings.parameters(whole)
    assert trainings.info(other) == trainings.info(whole)
    for training in (whole, other):
        trainings.free(training)


def test_a_fit_saves_as_often_as_asked(trainings, tmp_path):
    training = trainings.create(network(), **OPTIONS)
    seen = {}

    def told(event):
        if event.kind == TRAINING_CHECKPOINT:
            seen[event.step] = (tmp_path / "run" / FILE).read_bytes()

    trainings.fit(training, told, inputs=data(), steps=7, save_every=3, folder=tmp_path / "run")
    assert list(seen) == [3, 6, 7]
    assert len(set(seen.values())) == 3
    other = trainings.create(network(), **OPTIONS)
    trainings.load(other, tmp_path / "run")
    assert trainings.info(other)["step"] == 7
    assert trainings.parameters(other) == trainings.parameters(training)
    for each in (training, other):
        trainings.free(each)


def test_a_training_is_saved_while_a_fit_runs(trainings, tmp_path):
    """As it is after its last step; the fit continues unchanged."""
    plain = trainings.create(network(), **OPTIONS)
    trainings.fit(plain, **given())
    training = trainings.create(network(), **OPTIONS)

    def told(event):
        if event.kind == TRAINING_STEP and event.step == 8:
            trainings.save(training, tmp_path / "run")
            assert trainings.info(training)["running"] is True

    trainings.fit(training, told, **given())
    assert trainings.parameters(training) == trainings.parameters(plain)
    other = trainings.create(network(), **OPTIONS)
    trainings.load(other, tmp_path / "run")
    assert trainings.info(other)["step"] in (8, 9)  # the next step may have been made
    trainings.fit(other, **given())
    assert trainings.parameters(other) == trainings.parameters(plain)
    for each in (plain, training, other):
        trainings.free(each)


def test_a_training_that_is_saved_within_a_step_is_as_before_it(trainings, tmp_path):
    """The host is asked for the next batch while a step is computed."""
    options = {"optimizer": OPTIMIZERS["adam"], "seed": 5}
    whole, first, other = (trainings.create(network(), **options) for _ in range(3))
    trainings.fit(whole, next_batch=lambda step: data(seed=step), steps=6)

    def bring(step):
        if step == 3:
            trainings.save(first, tmp_path / "run")
        return data(seed=step)

    trainings.fit(first, next_batch=bring, steps=6)
    arrays, metadata = mx.load(str(tmp_path / "run" / FILE), return_metadata=True)
    assert arrays["optimizer.0.step"].item() == json.loads(metadata["training"])["step"] == 2
    trainings.load(other, tmp_path / "run")
    trainings.fit(other, next_batch=lambda step: data(seed=step), steps=6)
    for training in (first, other):
        assert trainings.parameters(training) == trainings.parameters(whole)
    for training in (whole, first, other):
        trainings.free(training)


def test_other_validation_data_begin_a_new_best(trainings, tmp_path):
    """Also in a training that was loaded; with the same data it ends where it has ended."""
    options = {"optimizer": {"name": "sgd", "learning_rate": 40}, "seed": 3}
    first, other = trainings.create(network(), **options), trainings.create(network(), **options)
    limits = {"steps": 200, "evaluate_every": 1, "patience": 3}
    given = {"inputs": data(), "validation": data(12, seed=2)}
    ended = trainings.fit(first, **given, **limits)[-1]
    assert (ended.finish, ended.step < 20) == (FIT_EARLY, True)
    trainings.save(first, tmp_path / "run")
    trainings.load(other, tmp_path / "run")
    assert trainings.info(other)["best"] == trainings.info(first)["best"]
    assert trainings.fit(other, **given, **limits)[-1].step == ended.step
    for training in (first, other):
        events = trainings.fit(training, inputs=data(), validation=data(14, seed=8), **limits)
        found = {event.step: event.validation_loss for event in events[:-1]}
        found = {step: loss for step, loss in found.items() if loss == loss}
        best = min(found, key=found.__getitem__)
        assert min(found) == ended.step and max(found) == events[-1].step == best + 3
        assert trainings.info(training)["best"] == {"step": best, "loss": found[best]}
        trainings.free(training)


# ------------------------------------------------------------------ What goes wrong


@pytest.fixture
def saved(trainings, tmp_path):
    """A training after two steps, and the folder that it is saved in."""
    training = trainings.create(network(), **OPTIONS)
    trainings.fit(training, inputs=data(), steps=2)
    trainings.save(training, tmp_path / "run")
    yield training, tmp_path / "run"
    trainings.free(training)


def refused(call, *arguments):
    with pytest.raises(StatusError) as error:
        call(*arguments)
    return error.value


def test_a_missing_folder_is_told(trainings, saved, tmp_path):
    training, _ = saved
    for call in (trainings.save, trainings.load):
        error = refused(call, training, tmp_path / "not" / "there")
        assert (error.name, error.reason) == ("ENOENT", "file_not_found")
    assert refused(trainings.load, training, tmp_path).name == "ENOENT"
    error = refused(trainings.save, training, tmp_path / "run" / FILE)
    assert error.name == "ENOENT" or error.reason == "write_failed"


def test_a_full_disk_loses_nothing(trainings, saved):
    """What a limit on a file's size stops in the middle."""
    training, folder = saved
    before = (folder / FILE).read_bytes()
    trainings.fit(training, inputs=data(), steps=3)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))
    try:
        error = refused(trainings.save, training, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (error.name, error.reason) == ("EIO", "write_failed")
    assert (folder / FILE).read_bytes() == before
    assert os.listdir(folder) == [FILE]
    assert trainings.info(training)["step"] == 3
    trainings.save(training, folder)
    assert (folder / FILE).read_bytes() != before


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9, 0.999])
def test_a_damaged_file_is_refused(trainings, saved, where):
    training, folder = saved
    before = trainings.parameters(training)
    good = bytearray((folder / FILE).read_bytes())
    for damaged in (good[: int(len(good) * where)], bytearray(good)):
        if len(damaged) == len(good):
            damaged[int(len(good) * where)] ^= 0x20
        (folder / FILE).write_bytes(damaged)
        error = refused(trainings.load, training, folder)
        assert error.name == "EFORMAT"
        assert trainings.parameters(training) == before
        assert trainings.info(training)["step"] == 2


OTHERS = {
    "program": (network("sum"), OPTIONS),
    "seed": (network(), {**OPTIONS, "seed": 6}),
    "optimizer": (network(), {**OPTIONS, "optimizer": {"name": "lion", "learning_rate": 0.1}}),
    "clip_norm": (network(), {**OPTIONS, "clip_norm": 2.0}),
    "micro_batch": (network(), {**OPTIONS, "micro_batch": 0}),
    "parameters": (network(), {**OPTIONS, "train": ["w*"]}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_run_of_another_training_is_refused(trainings, saved, what):
    _, folder = saved
    program, options = OTHERS[what]
    other = trainings.create(program, **options)
    before = trainings.parameters(other)
    error = refused(trainings.load, other, folder)
    assert (error.name, error.reason) == ("EFORMAT", "saved_training_mismatch")
    assert what in error.message
    assert trainings.parameters(other) == before
    trainings.step(other, data())
    trainings.free(other)


def test_other_values_of_what_stays_are_refused(trainings, tmp_path):
    """They are not saved, so a run that has others would end with other bits."""
    options = {**OPTIONS, "train": ["b*"]}
    first = trainings.create(network(), **options)
    trainings.save(first, tmp_path / "run")
    same = trainings.create(network(), **options)
    trainings.load(same, tmp_path / "run")
    other = trainings.create(network(), **options, initial={"w2": np.ones((8, 3), np.float32)})
    error = refused(trainings.load, other, tmp_path / "run")
    assert (error.name, error.reason) == ("EFORMAT", "saved_training_mismatch")
    for training in (first, same, other):
        trainings.free(training)


def test_wide_and_narrow_parameters_are_saved(trainings, tmp_path):
    """float64 and bfloat16, in micro-batches, whose sums are kept in float32."""
    for dtype in ("float64", "bfloat16", "float16"):
        program = {
            "inputs": [{"name": "x", "dtype": dtype, "shape": ["rows", 4]}],
            "parameters": [{"name": "w", "dtype": dtype, "shape": [4], "init": "normal"}],
            "nodes": [
                {"name": "z", "op": "matmul", "inputs": ["x", "w"]},
                {"name": "s", "op": "square", "inputs": ["z"]},
                {"name": "loss", "op": "mean", "inputs": ["s"]},
            ],
            "outputs": ["loss"],
        }
        made = np.linspace(-1, 1, 24).reshape(6, 4)
        x = made.astype("float32").view("uint32") >> 16 if dtype == "bfloat16" else made
        rows = trainings.arrays.create(x.astype("uint16" if dtype == "bfloat16" else dtype), dtype)
        options = {"optimizer": OPTIMIZERS["adam"], "micro_batch": 4, "seed": 2}
        first = trainings.create(program, **options)
        trainings.fit(first, inputs=[rows], steps=3)
        trainings.save(first, tmp_path / dtype)
        other = trainings.create(program, **options)
        trainings.load(other, tmp_path / dtype)
        for training in (first, other):
            trainings.fit(training, inputs=[rows], steps=6)
        assert trainings.parameters(first) == trainings.parameters(other)
        for training in (first, other):
            trainings.free(training)
        trainings.arrays.free(rows)
