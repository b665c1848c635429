"""Bad trainings, data and options: one clear error each, nothing changed, and all goes on."""

from __future__ import annotations

import copy
from ctypes import byref, sizeof
from math import isqrt

import numpy as np
import pytest
from support import signatures
from support.arrays import Arrays
from support.c_programs import values
from support.callbacks import StatusError
from support.signatures import ECANCELED, EHANDLE, EINVAL, ESTATE, TRAINING_STEP
from support.threads import at_once
from support.trainings import WIDE, data, network


def refused(call, *arguments, **more):
    with pytest.raises(StatusError) as error:
        call(*arguments, **more)
    return error.value


@pytest.fixture
def training(trainings):
    handle = trainings.create(network(), seed=1)
    yield handle
    trainings.free(handle)


def changed(**parts):
    program = copy.deepcopy(network())
    program |= parts
    return program


def without_init():
    program = copy.deepcopy(network())
    del program["parameters"][1]["init"]
    return program


UNUSED = {"name": "unused", "dtype": "float32", "shape": [2], "init": "zeros"}
CREATED = {
    "no loss": (changed(outputs=["correct"]), {}, "missing", "'loss'"),
    "a loss that is no scalar": (network("none"), {}, "conflict", "shape ()"),
    "a parameter that it does not depend on": (
        changed(parameters=[*network()["parameters"], UNUSED]),
        {},
        None,
        "unused",
    ),
    "no parameter": (
        {
            "inputs": [{"name": "x", "dtype": "float32", "shape": [2]}],
            "nodes": [{"name": "loss", "op": "sum", "inputs": ["x"]}],
            "outputs": ["loss"],
        },
        {},
        "missing",
        "nothing to train",
    ),
    "no init and no array": (without_init(), {}, "missing", "b1"),
    "an array of no parameter": (
        network(),
        {"initial": {"w3": np.zeros(2, np.float32)}},
        "unknown_option",
        "w3",
    ),
    "an array of another shape": (
        network(),
        {"initial": {"b1": np.zeros(9, np.float32)}},
        "shape_mismatch",
        "[9]",
    ),
    "an array of another dtype": (
        network(),
        {"initial": {"b1": np.zeros(8, np.float16)}},
        "dtype_mismatch",
        "float16",
    ),
    "a pattern that nothing fits": (network(), {"train": ["v*"]}, "out_of_range", "v*"),
    "an optimizer": (network(), {"optimizer": {"name": "adan"}}, "out_of_range", "adan"),
    "no json": (network(), {"optimizer": "{"}, "invalid_json", "optimizer"),
    "no utf-8": (network(), {"optimizer": b'{"name": "\xff"}'}, "invalid_utf8", "optimizer"),
    "clip_norm": (network(), {"clip_norm": -1.0}, "out_of_range", "clip_norm"),
    "clip_value": (network(), {"clip_value": float("nan")}, "out_of_range", "clip_value"),
}


@pytest.mark.parametrize("case", CREATED)
def test_a_training_that_cannot_be_is_refused(trainings, case):
    program, params, reason, said = CREATED[case]
    error = refused(trainings.create, program, **params)
    assert error.status == EINVAL and said in error.message
    assert reason is None or error.reason == reason


def test_an_array_that_is_not_open_is_refused(trainings):
    assert refused(trainings.create, network(), initial={"b1": 2**33}).status == EHANDLE


FITS = {
    "no data": ({"steps": 1}, "missing", "no data"),
    "no end": ({"inputs": data()}, "missing", "steps and epochs"),
    "one array": ({"inputs": data()[:1], "steps": 1}, "missing", "must have 2"),
    "three arrays": ({"inputs": [*data(), data()[0]], "steps": 1}, "out_of_range", "must have 2"),
    "no rows": (
        {"inputs": [data()[0][:0], data()[1][:0]], "steps": 1},
        "shape_mismatch",
        "must have 1 row or more",
    ),
    "other rows": ({"inputs": [data()[0], data()[1][:5]], "steps": 1}, "shape_mismatch", "5 rows"),
    "a number": (
        {"inputs": [np.array(1, np.float32), data()[1]], "steps": 1},
        "shape_mismatch",
        "must have 1 row or more",
    ),
    "another dtype": (
        {"inputs": [data()[0], data()[1].astype(np.int64)], "steps": 1},
        "wrong_type",
        "int64",
    ),
    "another width": ({"inputs": [data()[0][:, :3], data()[1]], "steps": 1}, "conflict", "3"),
    "event_every": ({"inputs": data(), "steps": 1, "event_every": 0}, "out_of_range", "1 or more"),
    "patience": ({"inputs": data(), "steps": 1, "patience": 1}, "conflict", "validation"),
    "evaluate_every": (
        {"inputs": data(), "steps": 1, "evaluate_every": 1},
        "conflict",
        "validation",
    ),
    "min_delta": (
        {"inputs": data(), "validation": data(), "steps": 1, "min_delta": -1.0},
        "out_of_range",
        "min_delta",
    ),
    "save_every": ({"inputs": data(), "steps": 1, "save_every": 1}, "conflict", "folder"),
    "folder": ({"inputs": data(), "steps": 1, "folder": "/tmp"}, "conflict", "save_every"),
    "validation": (
        {"inputs": data(), "validation": data()[:1], "steps": 1},
        "missing",
        "validation",
    ),
    "a class out of range": (
        {"inputs": [data()[0], data()[1] + 9], "steps": 1},
        "out_of_range",
        "cross_entropy",
    ),
}


@pytest.mark.parametrize("case", FITS)
def test_a_fit_that_cannot_be_is_refused(trainings, training, case):
    params, reason, said = FITS[case]
    before = trainings.parameters(training)
    error = refused(trainings.fit, training, **params)
    assert (error.status, error.reason) == (EINVAL, reason) and said in error.message
    assert trainings.parameters(training) == before
    assert trainings.info(training)["step"] == 0
    trainings.step(training, data())


def test_inputs_and_a_function_exclude_each_other(trainings, training):
    error = refused(trainings.fit, training, None, lambda step: data(), inputs=data(), steps=1)
    assert (error.status, error.reason) == (EINVAL, "conflict")


def test_an_evaluation_refuses_what_it_would_ignore(trainings, training):
    for params in ({"steps": 1}, {"patience": 1}, {"folder": "/tmp"}, {"validation": data()}):
        error = refused(trainings.evaluate, training, inputs=data(), **params)
        assert (error.status, error.reason) == (EINVAL, "unknown_option")
        assert next(iter(params)) in error.message


def test_nan_in_data_stops_or_is_left_out(trainings):
    x, y = data()
    x[3, 2] = np.nan
    stopping = trainings.create(network(), seed=1)
    before = trainings.parameters(stopping)
    error = refused(trainings.fit, stopping, inputs=[x, y], steps=9, batch_size=8, shuffle=False)
    assert (error.status, error.reason) == (EINVAL, "not_finite")
    assert "step 0" in error.message and "nan" in error.message
    assert trainings.parameters(stopping) == before
    skipping = trainings.create(network(), seed=1, skip_non_finite=True)
    events = trainings.fit(skipping, inputs=[x, y], epochs=2, batch_size=8, shuffle=False)
    assert [event.skipped for event in events] == [1, 1, 1, 2, 2, 2, 2]
    assert trainings.info(skipping)["skipped"] == 2
    assert np.isfinite(trainings.parameter(skipping, "w1")).all()
    for each in (stopping, skipping):
        trainings.free(each)


def test_a_step_that_was_left_out_is_not_in_the_mean_of_several(trainings):
    x, y = data()
    x[3, 2] = np.nan
    found = []
    for every in (1, 3):
        training = trainings.create(network(), seed=1, skip_non_finite=True)
        given = {"inputs": [x, y], "epochs": 1, "batch_size": 9, "shuffle": False}
        found.append(trainings.fit(training, **given, event_every=every)[:-1])
        trainings.free(training)
    alone, (together,) = found
    assert [event.targets for event in alone] == [9, 9, 6]
    assert together.targets == 15
    mean = (9 * alone[1].loss + 6 * alone[2].loss) / 15
    assert together.loss == pytest.approx(mean, rel=1e-6)
    assert together.perplexity == pytest.approx(np.exp(mean), rel=1e-6)


def test_a_step_that_cannot_be_changes_nothing(trainings, training):
    before = trainings.parameters(training)
    x, y = data()
    for inputs in ([x], [x, y, y], [x[:3], y], [y, x], [x, y + 9], [2**33, y]):
        with pytest.raises(StatusError):
            trainings.step(training, inputs)
    assert trainings.parameters(training) == before
    assert trainings.info(training)["step"] == 0


def test_batches_that_cannot_be_are_refused(trainings, training):
    """Handles that the host has given are closed all the same."""
    x, y = data()
    open_before = trainings.lib.info()["handles"]["array"]
    for batch in ([x], [x, y[:3]], [2**33, y], [y, x]):
        error = refused(trainings.fit, training, None, lambda step, it=batch: it, steps=1)
        assert error.status in (EINVAL, EHANDLE)
        assert trainings.lib.info()["handles"]["array"] == open_before
    assert trainings.info(training)["step"] == 0


def test_an_unknown_parameter_is_told(trainings, training):
    error = refused(trainings.parameter, training, "w9")
    assert error.status == EINVAL and "w1" in error.message


# ------------------------------------------------------------------ Ending early


def test_a_callback_that_returns_false_ends_the_fit(trainings, training):
    error = refused(trainings.fit, training, lambda event: event.step < 3, inputs=data(), steps=9)
    assert (error.status, error.reason) == (ECANCELED, "callback_refused")
    assert trainings.info(training)["step"] in (3, 4)
    assert trainings.info(training)["running"] is False
    trainings.fit(training, inputs=data(), steps=9)
    assert trainings.info(training)["step"] == 9


def test_a_cancel_keeps_the_state(trainings, training):
    """Within one micro-batch: the step that is under way is not made."""

    def told(event):
        if event.step == 3:
            assert trainings.cancel(training) == 0

    error = refused(trainings.fit, training, told, inputs=data(), steps=9, batch_size=8)
    assert (error.status, error.reason) == (ECANCELED, "canceled")
    assert trainings.info(training)["step"] == 3
    trainings.fit(training, inputs=data(), steps=9, batch_size=8)
    whole = trainings.create(network(), seed=1)
    trainings.fit(whole, inputs=data(), steps=9, batch_size=8)
    assert trainings.parameters(training) == trainings.parameters(whole)
    trainings.free(whole)


def test_a_cancel_before_a_call_does_not_concern_it(trainings, training):
    assert trainings.cancel(training) == 0
    trainings.fit(training, inputs=data(), steps=1)


def test_a_second_call_is_refused(trainings, training):
    seen = []

    def told(event):
        if event.kind == TRAINING_STEP:
            calls = [
                (trainings.step, [data()], {}),
                (trainings.fit, [], {"inputs": data(), "steps": 1}),
                (trainings.evaluate, [], {"inputs": data()}),
                (trainings.load, ["/tmp"], {}),
            ]
            for call, arguments, more in calls:
                error = refused(call, training, *arguments, **more)
                seen.append((error.status, error.reason))

    trainings.fit(training, told, inputs=data(), steps=1)
    assert seen == [(ESTATE, "training_busy")] * 4


def test_a_training_is_freed_while_a_fit_runs(trainings):
    training = trainings.create(network())
    error = refused(
        trainings.fit, training, lambda event: trainings.free(training), inputs=data(), steps=99
    )
    assert (error.status, error.reason) == (ECANCELED, "freed")
    assert refused(trainings.info, training).status == EHANDLE
    assert trainings.cancel(training) == EHANDLE


def test_what_a_training_uses_may_be_freed(trainings):
    """Arrays and program: it has what it needs."""
    arrays = Arrays(trainings.lib)
    handles = [arrays.create(each) for each in data()]
    training = trainings.create(network(), seed=1)

    def told(event):
        if event.step == 1:
            for handle in handles:
                arrays.free(handle)

    trainings.fit(training, told, inputs=handles, steps=5, batch_size=8)
    whole = trainings.create(network(), seed=1)
    trainings.fit(whole, inputs=data(), steps=5, batch_size=8)
    assert trainings.parameters(training) == trainings.parameters(whole)
    for each in (training, whole):
        trainings.free(each)


def test_an_event_of_no_size_is_named_as_the_parameter_is(trainings, training):
    event = byref(signatures.cow_mlx_training_event())
    params = signatures.cow_mlx_fit_params()
    trainings.c.cow_mlx_fit_params_init(byref(params), sizeof(params))
    given = values([np.zeros((2, WIDE), np.float32), np.zeros(2, np.int32)])
    for call, *arguments in (
        (trainings.c.cow_mlx_training_step, given, 2),
        (trainings.c.cow_mlx_training_evaluate, byref(params)),
    ):
        status = call(training, *arguments, event)
        error = refused(trainings.lib.check, status)
        assert (error.status, error.details["argument"]) == (EINVAL, "event.struct_size")


def test_many_trainings_at_once_are_each_alone(trainings):
    alone = trainings.create(network(), seed=1)
    trainings.fit(alone, inputs=data(), steps=12, batch_size=8)
    handles = [trainings.create(network(), seed=1) for _ in range(4)]
    at_once(4, lambda index: trainings.fit(handles[index], inputs=data(), steps=12, batch_size=8))
    for handle in handles:
        assert trainings.parameters(handle) == trainings.parameters(alone)
        trainings.free(handle)
    trainings.free(alone)


def test_events_of_another_size_are_written_as_far_as_they_go(trainings, training):
    event = signatures.cow_mlx_training_event()
    event.struct_size = signatures.cow_mlx_training_event.loss.offset
    params = signatures.cow_mlx_fit_params()
    trainings.c.cow_mlx_fit_params_init(byref(params), sizeof(params))
    event.loss = 5.0
    x = np.zeros((2, WIDE), np.float32)
    given = values([x, np.zeros(2, np.int32)])
    assert trainings.c.cow_mlx_training_step(training, given, 2, byref(event)) == 0
    assert (event.kind, event.step, event.loss) == (TRAINING_STEP, 1, 5.0)


def test_a_micro_batch_that_needs_too_much_changes_nothing(trainings):
    """It is refused before memory is taken; in parts the same batch has room."""
    rows = isqrt(trainings.lib.info()["memory"]["limit"] // 4) + 1
    program = {
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["rows", 1]}],
        "parameters": [{"name": "w", "dtype": "float32", "shape": [1], "init": "ones"}],
        "nodes": [
            {"name": "wx", "op": "multiply", "inputs": ["x", "w"]},
            {"name": "t", "op": "transpose", "inputs": ["wx"]},
            {"name": "all", "op": "matmul", "inputs": ["wx", "t"]},
            {"name": "loss", "op": "mean", "inputs": ["all"]},
        ],
        "outputs": ["loss"],
    }
    x = np.ones((rows, 1), np.float32)
    whole = trainings.create(program)
    before = trainings.parameters(whole)
    for call in (trainings.fit, trainings.evaluate):
        more = {"steps": 1} if call == trainings.fit else {}
        error = refused(call, whole, inputs=[x], **more)
        assert (error.name, error.reason) == ("ENOMEM", "no_memory")
        assert "memory_limit" in error.message and error.details["needed"] >= 4 * rows**2
    assert trainings.parameters(whole) == before
    assert trainings.info(whole)["step"] == 0
    assert trainings.step(whole, [x[:8]]).loss == 1
    trainings.free(whole)
