"""A program's loss minimized over the C ABI: the same bits as plain mlx."""

from __future__ import annotations

import threading
from ctypes import byref, sizeof

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as plain
import numpy as np
import pytest
from support import dlpack, signatures
from support.programs import graph, node, value
from support.signatures import (
    FIT_DATA,
    FIT_EARLY,
    FIT_EPOCHS,
    FIT_STEPS,
    TRAINING_END,
    TRAINING_EVALUATION,
    TRAINING_STEP,
)
from support.trainings import HIDDEN, ROWS, WIDE, data, is_nothing, network

from cowmlx.training.initial import made
from cowmlx.training.objective import key_of

ADAM = {"name": "adam", "learning_rate": 0.05}
SEED = 7


def begin() -> dict[str, mx.array]:
    """The parameters as "init" and the seed say."""
    key = {name: key_of(SEED, "init", name) for name in ("w1", "w2")}
    return {
        "w1": made(("glorot_uniform", {"gain": 1.0}), (WIDE, HIDDEN), "float32", key["w1"]),
        "b1": mx.zeros((HIDDEN,)),
        "w2": made(("he_normal", {"mode": "fan_in", "gain": 1.0}), (8, 3), "float32", key["w2"]),
    }


def loss_of(parameters, x, y):
    hidden = mx.maximum(x @ parameters["w1"] + parameters["b1"], 0.0)
    return nn.losses.cross_entropy(hidden @ parameters["w2"], y, reduction="mean")


def by_hand(batches, optimizer, parameters=None, clip=None):
    """Plain mlx: its losses and parameters."""
    parameters = parameters or begin()
    losses = []
    for x, y in batches:
        loss, gradients = mx.value_and_grad(loss_of)(parameters, mx.array(x), mx.array(y))
        if clip:
            gradients, _ = plain.clip_grad_norm(gradients, clip)
        parameters = optimizer.apply_gradients(gradients, parameters)
        mx.eval(loss, parameters)
        losses.append(loss.item())
    return losses, {name: np.array(each).tobytes() for name, each in parameters.items()}


def batches(rows: int, epochs: int, order=None):
    x, y = data()
    for epoch in range(epochs):
        picked = np.arange(ROWS) if order is None else np.array(order(epoch))
        for at in range(0, ROWS, rows):
            yield x[picked[at : at + rows]], y[picked[at : at + rows]]


def test_steps_equal_plain_mlx(trainings):
    training = trainings.create(network(), optimizer=ADAM, seed=SEED)
    found = [trainings.step(training, list(batch)) for batch in batches(8, 2)]
    losses, parameters = by_hand(batches(8, 2), plain.Adam(0.05))
    assert [event.loss for event in found] == losses
    assert trainings.parameters(training) == parameters
    assert [event.step for event in found] == list(range(1, 7))
    assert {event.kind for event in found} == {TRAINING_STEP}
    assert {event.targets for event in found} == {8}
    assert all(event.learning_rate == pytest.approx(0.05) for event in found)
    assert all(event.gradient_norm > 0 and is_nothing(event.validation_loss) for event in found)
    trainings.free(training)


@pytest.mark.parametrize("micro_batch", [0, 3])
def test_float64_is_trained_in_float64(trainings, micro_batch):
    """A logistic regression: its gradient is sigmoid(x w) - y, averaged."""
    program = graph(
        [value("x", ["rows", 4], "float64"), value("y", ["rows", 1], "float64")],
        [
            node("z", "matmul", "x", "w"),
            node("loss", "binary_cross_entropy", "z", "y", reduction="mean"),
        ],
        ["loss"],
        parameters=[{**value("w", [4, 1], "float64"), "init": "glorot_uniform"}],
    )
    rate = 2.0**-4
    sgd = {"name": "sgd", "learning_rate": rate}
    training = trainings.create(program, optimizer=sgd, seed=SEED, micro_batch=micro_batch)
    rng = np.random.default_rng(0)
    w = np.frombuffer(trainings.parameters(training)["w"])[:, None]
    for _ in range(3):
        x, y = rng.normal(size=(8, 4)), rng.integers(0, 2, (8, 1)) * 1.0
        event = trainings.step(training, [x, y])
        z = x @ w
        assert event.loss == pytest.approx(np.mean(np.logaddexp(0, z) - z * y), rel=1e-14, abs=0)
        w = w - rate * x.T @ (1 / (1 + np.exp(-z)) - y) / 8
        found = np.frombuffer(trainings.parameters(training)["w"])[:, None]
        np.testing.assert_allclose(found, w, rtol=1e-13, atol=1e-15)
    trainings.free(training)


@pytest.mark.parametrize("use", ["fit", "evaluate", "step"])
def test_calls_are_answered_while_data_are_computed(trainings, lib, use):
    """Arrays of operations are lazy until somebody needs them."""
    arrays = trainings.arrays
    training = trainings.create(network())
    long = arrays.create(np.ones((1024, 1024)))
    for name, attributes in (
        *(("tan", {}),) * 24,
        ("slice", {"start": [0, 0], "stop": [ROWS, WIDE]}),
        ("astype", {"dtype": "float32"}),
    ):
        (following,) = arrays.apply(name, long, **attributes)
        arrays.free(long)
        long = following
    targets = arrays.create(data()[1])
    uses = {
        "fit": lambda: trainings.fit(training, inputs=[long, targets], epochs=1),
        "evaluate": lambda: trainings.evaluate(training, inputs=[long, targets]),
        "step": lambda: trainings.step(training, [long, targets]),
    }
    thread = threading.Thread(target=uses[use])
    thread.start()
    answered = 0
    while thread.is_alive():
        lib.info()
        answered += 1
    thread.join()
    assert answered >= 12
    for each in (long, targets):
        arrays.free(each)
    trainings.free(training)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_fit_on_arrays_equals_plain_mlx(trainings, shuffle):
    def order(epoch):
        return mx.random.permutation(ROWS, key=key_of(SEED, "shuffle", epoch))

    training = trainings.create(network(), optimizer=ADAM, seed=SEED)
    events = trainings.fit(training, inputs=data(), epochs=3, batch_size=10, shuffle=shuffle)
    plainly = batches(10, 3, order if shuffle else None)
    losses, parameters = by_hand(plainly, plain.Adam(0.05))
    steps = [event for event in events if event.kind == TRAINING_STEP]
    assert [event.loss for event in steps] == losses
    assert trainings.parameters(training) == parameters
    assert [event.targets for event in steps] == [10, 10, 4] * 3
    assert events[-1].kind == TRAINING_END and events[-1].finish == FIT_EPOCHS
    assert {event.steps for event in events} == {9}
    assert [event.epoch for event in steps] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert steps[-1].remaining == 0 < steps[0].remaining
    trainings.free(training)


def test_a_fit_on_batches_of_the_host_equals_plain_mlx(trainings):
    asked = []

    def bring(step):
        asked.append(step)
        x, y = data(6, seed=step)
        return None if step == 5 else [x, y]

    training = trainings.create(network(), optimizer=ADAM, seed=SEED)
    events = trainings.fit(training, next_batch=bring)
    losses, parameters = by_hand([data(6, seed=step) for step in range(5)], plain.Adam(0.05))
    assert asked == list(range(6))
    assert [event.loss for event in events if event.kind == TRAINING_STEP] == losses
    assert trainings.parameters(training) == parameters
    trainings.free(training)


def test_the_host_is_asked_one_batch_ahead(trainings):
    seen = []

    def bring(step):
        seen.append(("asked", step))
        return data(6, seed=step)

    def told(event):
        seen.append(("told", event.step))

    training = trainings.create(network(), optimizer=ADAM, seed=SEED)
    trainings.fit(training, told, bring, steps=3)
    assert seen == [
        ("asked", 0),
        ("asked", 1),
        ("told", 1),
        ("asked", 2),
        ("told", 2),
        ("told", 3),
        ("told", 3),  # the end
    ]
    trainings.free(training)


def test_clipping_equals_plain_mlx(trainings):
    training = trainings.create(
        network(), optimizer={"name": "sgd", "learning_rate": 0.5}, seed=SEED, clip_norm=0.05
    )
    for batch in batches(8, 1):
        trainings.step(training, list(batch))
    _, parameters = by_hand(batches(8, 1), plain.SGD(0.5), clip=np.float32(0.05).item())
    assert trainings.parameters(training) == parameters
    trainings.free(training)


def test_clipping_by_value_bounds_every_element(trainings):
    bound = 2.0**-8
    options = {"name": "sgd", "learning_rate": 1.0}
    training = trainings.create(network(), optimizer=options, seed=SEED, clip_value=bound)
    before = trainings.parameter(training, "w2")
    trainings.step(training, data())
    moved = np.abs(trainings.parameter(training, "w2") - before)
    assert moved.max() == pytest.approx(bound, rel=1e-4)
    trainings.free(training)


def test_micro_batches_are_the_batch(trainings):
    """A mean over all rows, with a last piece that is smaller, to rounding."""
    whole = trainings.create(network(), optimizer=ADAM, seed=SEED)
    parts = trainings.create(network(), optimizer=ADAM, seed=SEED, micro_batch=5)
    for batch in batches(12, 3):
        one, other = trainings.step(whole, list(batch)), trainings.step(parts, list(batch))
        assert other.targets == one.targets == 12
        assert other.loss == pytest.approx(one.loss, rel=1e-5)
        assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-4)
    for name in ("w1", "b1", "w2"):
        given = trainings.parameter(whole, name)
        assert trainings.parameter(parts, name) == pytest.approx(given, abs=1e-5)
    for training in (whole, parts):
        trainings.free(training)


def test_parameters_that_are_given_and_parameters_that_stay(trainings):
    given = np.full((WIDE, HIDDEN), 0.25, np.float32)
    training = trainings.create(network(), seed=SEED, initial={"w1": given}, train=["b*", "w2"])
    trained = {each["name"]: each["trained"] for each in trainings.info(training)["parameters"]}
    assert trained == {"w1": False, "b1": True, "w2": True}
    trainings.fit(training, inputs=data(), steps=2)
    assert trainings.parameter(training, "w1").tobytes() == given.tobytes()
    assert trainings.parameter(training, "b1").any()
    trainings.free(training)


def test_an_evaluation_tells_loss_and_accuracy(trainings):
    training = trainings.create(network(), optimizer=ADAM, seed=SEED, micro_batch=5)
    before = trainings.parameters(training)
    x, y = data()
    first = trainings.evaluate(training, inputs=[x, y], batch_size=10)
    parameters = begin()
    hidden = np.maximum(x @ np.array(parameters["w1"]), 0) @ np.array(parameters["w2"])
    assert first.kind == TRAINING_EVALUATION and first.targets == ROWS
    assert first.accuracy == pytest.approx((hidden.argmax(-1) == y).mean())
    whole = loss_of(parameters, mx.array(x), mx.array(y)).item()
    assert first.validation_loss == pytest.approx(whole, rel=1e-5)
    assert first.perplexity == pytest.approx(np.exp(first.validation_loss))
    assert trainings.parameters(training) == before
    given = iter([[x[:20], y[:20]], [x[20:], y[20:]]])
    again = trainings.evaluate(training, lambda step: next(given, None))
    assert again.validation_loss == pytest.approx(whole, rel=1e-5)
    trainings.free(training)


def test_a_fit_evaluates_and_learns(trainings):
    training = trainings.create(network(), optimizer={"name": "sgd", "learning_rate": 0.3}, seed=7)
    given = {"inputs": data(90), "validation": data(60, seed=2)}
    events = trainings.fit(training, **given, steps=20, batch_size=30)
    found = [event for event in events if event.kind == TRAINING_EVALUATION]
    assert [event.step for event in found] == [*range(3, 20, 3), 20]
    assert found[-1].accuracy > found[0].accuracy
    assert {event.targets for event in found} == {60}
    assert found[-1].validation_loss < found[0].validation_loss
    assert events[-1].finish == FIT_STEPS
    assert events[-1].validation_loss == found[-1].validation_loss
    trainings.free(training)


def test_other_data_begin_at_their_beginning(trainings):
    """Of as many rows, as arrays or from the host; a fit with the same data continues."""
    training = trainings.create(network(), optimizer=ADAM, seed=SEED)
    for seed, step in ((1, 6), (2, 12), (2, 12), (1, 18)):
        events = trainings.fit(training, inputs=data(seed=seed), epochs=2, batch_size=8)
        assert (events[-1].step, events[-1].finish) == (step, FIT_EPOCHS)
    for step in (20, 22):
        given = iter([data(), data()])
        events = trainings.fit(training, None, lambda at, it=given: next(it, None), epochs=1)
        assert (events[-1].step, events[-1].finish) == (step, FIT_DATA)
    trainings.free(training)


def test_other_data_count_their_own_evaluations(trainings):
    """A fit that ended early does not end the next one, on other data, at its start."""
    training = trainings.create(network(), optimizer={"name": "sgd", "learning_rate": 40}, seed=3)
    given = {"validation": data(12, seed=2), "steps": 200, "evaluate_every": 1, "patience": 3}
    ended = trainings.fit(training, inputs=data(), **given)[-1]
    assert ended.finish == FIT_EARLY
    again = trainings.fit(training, inputs=data(seed=9), **given)[-1]
    assert again.step >= ended.step + 3
    trainings.free(training)


def test_an_early_stop_keeps_the_best(trainings):
    """With a rate that is far too high the first evaluations are the best."""
    training = trainings.create(network(), optimizer={"name": "sgd", "learning_rate": 40}, seed=3)
    kept = {}

    def told(event):
        if event.kind == TRAINING_EVALUATION:
            kept[event.step] = (event.validation_loss, trainings.parameters(training))

    events = trainings.fit(
        training,
        told,
        inputs=data(),
        validation=data(12, seed=2),
        steps=200,
        evaluate_every=1,
        patience=3,
    )
    best = min(kept, key=lambda step: kept[step][0])
    assert events[-1].finish == 4 and events[-1].step == best + 3
    assert trainings.parameters(training) == kept[best][1]
    assert trainings.info(training)["best"] == {"step": best, "loss": kept[best][0]}
    trainings.free(training)


def test_events_come_as_often_as_asked(trainings):
    training = trainings.create(network(), optimizer=ADAM, seed=SEED)
    often = trainings.fit(training, inputs=data(), steps=6, batch_size=8, event_every=3)
    steps = [event for event in often if event.kind == TRAINING_STEP]
    assert [(event.step, event.targets) for event in steps] == [(3, 24), (6, 24)]
    other = trainings.create(network(), optimizer=ADAM, seed=SEED)
    each = trainings.fit(other, inputs=data(), steps=6, batch_size=8)[:-1]
    means = [np.mean([event.loss for event in each[at : at + 3]]) for at in (0, 3)]
    assert [event.loss for event in steps] == pytest.approx(means, rel=1e-6)
    trainings.free(other)
    trainings.free(training)


def test_a_key_is_the_trainings_own(trainings):
    """Noise of an input "key" differs from step to step and is the same in the same run."""
    program = network()
    program["inputs"].append({"name": "key", "dtype": "uint32", "shape": [2]})
    nodes = program["nodes"]
    nodes.insert(
        2,
        {
            "name": "noise",
            "op": "random_normal",
            "inputs": ["key"],
            "attributes": {"shape": [HIDDEN]},
        },
    )
    nodes.insert(3, {"name": "noisy", "op": "add", "inputs": ["a", "noise"]})
    nodes[4]["inputs"][0] = "noisy"
    ends = []
    for seed in (1, 1, 2):
        training = trainings.create(
            program, optimizer={"name": "sgd", "learning_rate": 0}, seed=seed
        )
        assert trainings.info(training)["inputs"] == ["x", "y"]
        losses = [trainings.step(training, data()).loss for _ in range(3)]
        assert len(set(losses)) == 3
        ends.append(losses)
        assert (
            trainings.evaluate(training, inputs=data()).validation_loss
            == trainings.evaluate(training, inputs=data()).validation_loss
        )
        trainings.free(training)
    assert ends[0] == ends[1] != ends[2]


def test_targets_are_told_by_the_program(trainings):
    """Rows with a class of -1 are no targets: the mean is over the others of all micro-batches."""
    program = network("none")
    program["nodes"][4]["name"] = "each"
    program["nodes"][4]["inputs"][1] = "known"
    program["nodes"].insert(4, {"name": "known", "op": "maximum", "inputs": ["y", "none"]})
    program["constants"].append({"name": "none", "dtype": "int32", "value": 0})
    program["nodes"] += [
        {"name": "is", "op": "greater_equal", "inputs": ["y", "none"]},
        {"name": "weight", "op": "astype", "inputs": ["is"], "attributes": {"dtype": "float32"}},
        {"name": "weighed", "op": "multiply", "inputs": ["each", "weight"]},
        {"name": "sum", "op": "sum", "inputs": ["weighed"]},
        {"name": "targets", "op": "sum", "inputs": ["weight"]},
        {"name": "least", "op": "maximum", "inputs": ["targets", "one"]},
        {"name": "loss", "op": "divide", "inputs": ["sum", "least"]},
    ]
    program["constants"].append({"name": "one", "dtype": "float32", "value": 1.0})
    program["outputs"] = ["targets", "loss"]
    x, y = data()
    masked = y.copy()
    masked[5:17] = -1
    clean = trainings.create(network(), optimizer=ADAM, seed=SEED)
    parts = trainings.create(program, optimizer=ADAM, seed=SEED, micro_batch=6)
    one = trainings.step(clean, [x[masked >= 0], y[masked >= 0]])
    other = trainings.step(parts, [x, masked])
    assert other.targets == one.targets == 12
    assert other.loss == pytest.approx(one.loss, rel=1e-5)
    for name in ("w1", "b1", "w2"):
        given = trainings.parameter(clean, name)
        assert trainings.parameter(parts, name) == pytest.approx(given, abs=1e-5)
    for training in (clean, parts):
        trainings.free(training)


def weighted() -> dict:
    """A mean of squares with the weight of each row; its sum is the targets."""
    return graph(
        [value("x", ["rows", 2]), value("weight", ["rows"])],
        [
            node("h", "matmul", "x", "w"),
            node("q", "square", "h"),
            node("m", "multiply", "q", "weight"),
            node("s", "sum", "m"),
            node("targets", "sum", "weight"),
            node("loss", "divide", "s", "targets"),
        ],
        ["loss", "targets"],
        parameters=[{**value("w", [2]), "init": "ones"}],
    )


@pytest.mark.parametrize("masked", [slice(2), slice(2, 4)])
def test_micro_batches_without_targets_add_nothing(trainings, masked):
    """Their mean is 0 / 0."""
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    weight = np.ones(6, np.float32)
    weight[masked] = 0
    found = []
    for size in (0, 2):
        training = trainings.create(
            weighted(), optimizer={"name": "sgd", "learning_rate": 0.001}, micro_batch=size
        )
        evaluated = trainings.evaluate(training, inputs=[x, weight], batch_size=size)
        step = trainings.step(training, [x, weight])
        assert step.targets == evaluated.targets == 4
        moved = trainings.parameter(training, "w").tolist()
        found.append([evaluated.validation_loss, step.loss, step.gradient_norm, *moved])
        trainings.free(training)
    assert found[1] == pytest.approx(found[0], rel=1e-6)


def test_weights_of_targets_are_fractions(trainings):
    training = trainings.create(weighted())
    given = [np.ones((5, 2), np.float32), np.full(5, 0.7, np.float32)]
    assert trainings.evaluate(training, inputs=given).validation_loss == pytest.approx(4.0)
    small = [given[0], np.full(5, 0.1, np.float32)]
    assert trainings.evaluate(training, inputs=small).validation_loss == pytest.approx(4.0)
    assert trainings.step(training, small).loss == pytest.approx(4.0)
    trainings.free(training)


@pytest.fixture
def uploaded(trainings):
    """Opens arrays whose memory others share, so that they are copied in turns."""
    mine, views = [], []

    def uploaded(array, *, given_away=False):
        handle = trainings.arrays.create(array)
        views.append(np.from_dlpack(dlpack.Capsule(trainings.arrays.to_dlpack(handle))))
        mine.extend([] if given_away else [handle])
        return handle

    yield uploaded
    for handle in mine:
        trainings.arrays.free(handle)


LARGE = 1100  # a matrix of float32 of which one turn does not copy all


def test_arrays_that_are_still_to_be_copied_are_waited_for(trainings, uploaded):
    program = graph(
        [value("x", ["rows", LARGE]), value("y", ["rows"])],
        [
            node("h", "matmul", "x", "w"),
            node("m", "mean", "h", axis=-1),
            node("loss", "mse_loss", "m", "y"),
        ],
        ["loss"],
        parameters=[{**value("w", [LARGE, LARGE]), "init": "glorot_uniform"}],
    )
    w = np.full((LARGE, LARGE), 1e-3, np.float32)
    rows = [np.ones((LARGE, LARGE), np.float32), np.ones(LARGE, np.float32)]
    found = []
    for opened in (lambda array, **_: array, uploaded):
        training = trainings.create(program, optimizer=ADAM, initial={"w": opened(w)})
        losses = [trainings.evaluate(training, inputs=[opened(rows[0]), rows[1]]).validation_loss]
        losses.append(trainings.step(training, [opened(rows[0]), rows[1]]).loss)
        given = {"inputs": [opened(rows[0]), rows[1]], "steps": 2}
        losses.append(trainings.fit(training, **given, validation=given["inputs"])[0].loss)
        batch = [opened(rows[0], given_away=True), rows[1]]
        events = trainings.fit(training, None, lambda step, it=batch: it, steps=3)
        found.append([*losses, events[0].loss])
        trainings.free(training)
    assert found[0] == found[1]


def test_functions_get_their_user_data(trainings):
    training = trainings.create(network(), optimizer=ADAM, seed=SEED)
    seen = []
    arrays = trainings.arrays

    def bring(step, out, count, user_data):
        seen.append(("batch", step, count, user_data))
        for at, each in enumerate(data(6)):
            out[at] = arrays.create(each)
        return step < 1

    def told(event, user_data):
        seen.append(("event", event.contents.step, event.contents.kind, user_data))
        return True

    params = signatures.cow_mlx_fit_params()
    trainings.c.cow_mlx_fit_params_init(byref(params), sizeof(params))
    params.next_batch = signatures.cow_mlx_batch_fn(bring)
    params.user_data = 77
    params.steps = 1
    hear = signatures.cow_mlx_training_fn(told)
    trainings.lib.check(trainings.c.cow_mlx_training_fit(training, byref(params), hear, 88))
    assert seen == [
        ("batch", 0, 2, 77),
        ("event", 1, TRAINING_STEP, 88),
        ("event", 1, TRAINING_END, 88),
    ]
    trainings.free(training)


def test_a_little_better_is_not_better(trainings):
    """With a min_delta that no evaluation reaches the first stays the best."""
    training = trainings.create(network(), optimizer={"name": "sgd", "learning_rate": 0.01})
    given = {"inputs": data(), "validation": data(12, seed=2), "evaluate_every": 1}
    trainings.fit(training, **given, steps=9, patience=3, min_delta=5.0)
    assert trainings.info(training)["step"] == 4
    assert trainings.info(training)["best"]["step"] == 1
    trainings.free(training)
