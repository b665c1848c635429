"""Optimizers, schedules and their options: bit for bit those of mlx on the same gradients."""

from __future__ import annotations

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as plain
import numpy as np
import pytest

from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.training.optimizers import DEFAULT, OPTIMIZERS, Optimizer, matches
from cowmlx.training.schedules import rate_of
from cowmlx.training.updating import clipped

STEPS = 7
MODEL = {
    "w": (6, 4),
    "deep.kernel": (3, 2, 2, 4),
    "b": (4,),
    "step": (1,),  # beside the optimizer's own "step"
}

# JSON, and the same in plain mlx.
CASES = {
    "sgd": ({"name": "sgd", "learning_rate": 0.1}, lambda: plain.SGD(0.1)),
    "sgd-all": (
        {
            "name": "sgd",
            "learning_rate": 0.1,
            "momentum": 0.9,
            "weight_decay": 0.01,
            "nesterov": True,
        },
        lambda: plain.SGD(0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    ),
    "sgd-dampening": (
        {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "dampening": 0.2},
        lambda: plain.SGD(0.1, momentum=0.9, dampening=0.2),
    ),
    "rmsprop": ({"name": "rmsprop", "learning_rate": 0.01}, lambda: plain.RMSprop(0.01)),
    "adagrad": (
        {"name": "adagrad", "learning_rate": 0.01, "eps": 1e-6},
        lambda: plain.Adagrad(0.01, eps=1e-6),
    ),
    "adadelta": (
        {"name": "adadelta", "learning_rate": 1, "rho": 0.8},
        lambda: plain.AdaDelta(1.0, rho=0.8),
    ),
    "adam": ({"name": "adam", "learning_rate": 0.01}, lambda: plain.Adam(0.01)),
    "adam-corrected": (
        {"name": "adam", "learning_rate": 0.01, "betas": [0.8, 0.95], "bias_correction": True},
        lambda: plain.Adam(0.01, betas=[0.8, 0.95], bias_correction=True),
    ),
    "adamw": (
        {"name": "adamw", "learning_rate": 0.01, "weight_decay": 0.1},
        lambda: plain.AdamW(0.01, weight_decay=0.1),
    ),
    "adamax": ({"name": "adamax", "learning_rate": 0.01}, lambda: plain.Adamax(0.01)),
    "lion": (
        {"name": "lion", "learning_rate": 0.001, "weight_decay": 0.1},
        lambda: plain.Lion(0.001, weight_decay=0.1),
    ),
    "adafactor": ({"name": "adafactor"}, lambda: plain.Adafactor()),
    "adafactor-rate": (
        {"name": "adafactor", "learning_rate": 0.01, "relative_step": False, "beta_1": 0.9},
        lambda: plain.Adafactor(0.01, relative_step=False, beta_1=0.9),
    ),
    "muon": ({"name": "muon", "learning_rate": 0.02}, lambda: plain.Muon(0.02)),
}

SCHEDULES = {
    "linear": (
        {"name": "linear_schedule", "init": 0, "end": 0.1, "steps": 5},
        lambda: plain.linear_schedule(0, 0.1, 5),
    ),
    "cosine": (
        {"name": "cosine_decay", "init": 0.1, "decay_steps": 6, "end": 0.01},
        lambda: plain.cosine_decay(0.1, 6, 0.01),
    ),
    "step": (
        {"name": "step_decay", "init": 0.1, "decay_rate": 0.5, "step_size": 2},
        lambda: plain.step_decay(0.1, 0.5, 2),
    ),
    "exponential": (
        {"name": "exponential_decay", "init": 0.1, "decay_rate": 0.9},
        lambda: plain.exponential_decay(0.1, 0.9),
    ),
    "joined": (
        {
            "name": "join_schedules",
            "schedules": [
                {"name": "linear_schedule", "init": 0, "end": 0.1, "steps": 3},
                {"name": "cosine_decay", "init": 0.1, "decay_steps": 4},
            ],
            "boundaries": [3],
        },
        lambda: plain.join_schedules(
            [plain.linear_schedule(0, 0.1, 3), plain.cosine_decay(0.1, 4)], [3]
        ),
    ),
    "warmup": (
        {
            "name": "warmup",
            "steps": 3,
            "then": {"name": "cosine_decay", "init": 0.1, "decay_steps": 4},
        },
        lambda: plain.join_schedules(
            [
                plain.linear_schedule(0, plain.cosine_decay(0.1, 4)(mx.array(0)).item(), 3),
                plain.cosine_decay(0.1, 4),
            ],
            [3],
        ),
    ),
}


def parameters() -> dict[str, mx.array]:
    draws = np.random.default_rng(3)
    return {name: mx.array(draws.normal(size=shape), mx.float32) for name, shape in MODEL.items()}


def gradients(step: int) -> dict[str, mx.array]:
    draws = np.random.default_rng(100 + step)
    return {name: mx.array(draws.normal(size=shape), mx.float32) for name, shape in MODEL.items()}


def same(one: mx.array, other: mx.array) -> bool:
    return np.array_equal(np.array(one).view(np.uint32), np.array(other).view(np.uint32))


def run(options: object, steps: range, now=None, optimizer=None):
    now = now or parameters()
    optimizer = optimizer or Optimizer(json.dumps(options), now)
    for step in steps:
        now = optimizer.updated(gradients(step), now)
    return now, optimizer


def run_plain(optimizer, steps: int = STEPS) -> dict[str, mx.array]:
    """As plain mlx does it: a module, whose tree the optimizer updates."""
    module = nn.Module()
    # A module's own names: "w" for "w", and so on, since a tree's keys have no dots.
    names = {name: f"p{at}" for at, name in enumerate(MODEL)}
    for name, array in parameters().items():
        module[names[name]] = array
    for step in range(steps):
        optimizer.update(module, {names[name]: g for name, g in gradients(step).items()})
    return {name: module[own] for name, own in names.items()}


@pytest.mark.parametrize("case", CASES)
def test_optimizers_equal_mlx(case):
    options, make = CASES[case]
    found, _ = run(options, range(STEPS))
    expected = run_plain(make())
    assert all(same(found[name], expected[name]) for name in MODEL)
    assert not any(same(found[name], parameters()[name]) for name in MODEL)


def test_every_optimizer_of_mlx_is_compared():
    of_mlx = {
        name.lower()
        for name, each in vars(plain.optimizers).items()
        if isinstance(each, type) and issubclass(each, plain.Optimizer)
    }
    assert set(OPTIMIZERS) == of_mlx - {"optimizer", "multioptimizer"}
    assert {options["name"] for options, _ in CASES.values()} == set(OPTIMIZERS)


@pytest.mark.parametrize("case", SCHEDULES)
def test_schedules_equal_mlx(case):
    options, make = SCHEDULES[case]
    found = rate_of(options, "learning_rate")
    for step in (mx.array(n, mx.uint64) for n in range(12)):
        assert same(mx.array(found(step)), mx.array(make()(step)))
    trained, optimizer = run({"name": "adam", "learning_rate": options}, range(STEPS))
    other = plain.Adam(make())
    expected = run_plain(other)
    assert all(same(trained[name], expected[name]) for name in MODEL)
    assert optimizer.learning_rate == other.learning_rate.item()


def test_several_optimizers_equal_mlx():
    options = [
        {"name": "muon", "learning_rate": 0.02, "parameters": ["w", "deep.*"]},
        {"name": "lion", "learning_rate": 0.001, "parameters": ["?"]},
        {"name": "sgd", "learning_rate": 0.1},
    ]
    found, _ = run(options, range(STEPS))
    expected = run_plain(
        plain.MultiOptimizer(
            [plain.Muon(0.02), plain.Lion(0.001), plain.SGD(0.1)],
            [lambda name, _: name in ("p0", "p1"), lambda name, _: name == "p2"],
        )
    )
    assert all(same(found[name], expected[name]) for name in MODEL)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("w[1]", ["w[1]"]),
        ("w[*]", ["w[1]", "w[12]"]),
        ("w[?]", ["w[1]"]),
        ("[w]*", []),
        ("w[!1]", []),
        ("w]", ["w]"]),
    ],
)
def test_brackets_in_patterns_are_characters_of_names(pattern, expected):
    names = ["w1", "w[1]", "w[12]", "w]", "w"]
    assert [name for name in names if matches(name, [pattern])] == expected


@pytest.mark.parametrize("case", CASES)
def test_a_state_goes_on_elsewhere(case):
    options, _ = CASES[case]
    whole, _ = run(options, range(STEPS))
    half, first = run(options, range(3))
    state = {name: mx.array(np.array(array)) for name, array in first.state().items()}
    other = Optimizer(json.dumps(options), half)
    other.set_state(state)
    resumed, _ = run(options, range(3, STEPS), half, other)
    assert all(same(resumed[name], whole[name]) for name in MODEL)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_float16_are_those_of_float32(name):
    """Its eps would be 0, and squares of small gradients too: parameters became nan."""
    rate = {} if name == "adafactor" else {"learning_rate": 0.01}
    gradient = np.array([[0.0, 1e-5, 1.0], [3e-4, 300.0, 1e-3]], np.float16)
    steps = []
    for dtype in (mx.float16, mx.float32):
        now = {"w": mx.full(gradient.shape, 2.0, dtype)}
        optimizer = Optimizer(json.dumps({"name": name, **rate}), now)
        now = optimizer.updated({"w": mx.array(gradient).astype(dtype)}, now)
        assert now["w"].dtype == dtype
        steps.append(np.array(now["w"].astype(mx.float32)))
    np.testing.assert_allclose(*steps, rtol=1e-3)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_the_norm_of_gradients_of_16_bits_has_the_digits_of_float32(dtype):
    gradients = {f"g{at}": mx.full((3,), 300.0 + 4 * at, dtype) for at in range(50)}
    values = np.concatenate([np.array(each.astype(mx.float32)) for each in gradients.values()])
    found, norm = clipped(gradients, 0.0, 1.0)
    assert norm.dtype == mx.float32
    np.testing.assert_allclose(norm.item(), np.linalg.norm(values), rtol=1e-6)
    assert all(each.dtype == dtype for each in found.values())


def test_a_state_is_copied_and_restored():
    options = {"name": "adam", "learning_rate": 0.01, "bias_correction": True}
    whole, _ = run(options, range(STEPS))
    half, optimizer = run(options, range(3))
    copied = optimizer.copy_of_state()
    run(options, range(3, 5), half, optimizer)
    optimizer.restore(copied)
    again, _ = run(options, range(3, STEPS), half, optimizer)
    assert all(same(again[name], whole[name]) for name in MODEL)


def test_a_foreign_state_is_refused():
    _, optimizer = run({"name": "adam", "learning_rate": 0.01}, range(2))
    _, other = run({"name": "adafactor"}, range(2))
    for state in (other.state(), {}, {**optimizer.state(), "9.step": mx.array(1)}):
        with pytest.raises(BadFormat, match="optimizer's state"):
            optimizer.set_state(state)


BAD = {
    "no json": ("{", "invalid_json", "optimizer"),
    "no object": ("3", "wrong_type", "optimizer"),
    "no name": ({}, "wrong_type", "optimizer"),
    "empty": ([], "wrong_type", "optimizer"),
    "name": ({"name": "adamm", "learning_rate": 1}, "out_of_range", "optimizer.name"),
    "no rate": ({"name": "adam"}, "missing", "optimizer.learning_rate"),
    "rate": ({"name": "adam", "learning_rate": -1}, "out_of_range", "optimizer.learning_rate"),
    "rate text": ({"name": "adam", "learning_rate": "1"}, "wrong_type", "optimizer.learning_rate"),
    "huge": ('{"name": "adam", "learning_rate": 1e999}', "out_of_range", "optimizer.learning_rate"),
    "option": (
        {"name": "adam", "learning_rate": 1, "momentum": 0.9},
        "unknown_option",
        "optimizer.momentum",
    ),
    "betas": (
        {"name": "adam", "learning_rate": 1, "betas": [0.9, 1]},
        "out_of_range",
        "optimizer.betas[1]",
    ),
    "one beta": (
        {"name": "adam", "learning_rate": 1, "betas": [0.9]},
        "wrong_type",
        "optimizer.betas",
    ),
    "flag": (
        {"name": "adam", "learning_rate": 1, "bias_correction": 1},
        "wrong_type",
        "optimizer.bias_correction",
    ),
    "nesterov": (
        {"name": "sgd", "learning_rate": 1, "nesterov": True},
        "out_of_range",
        "optimizer.momentum",
    ),
    "own rate": ({"name": "adafactor", "learning_rate": 1}, "conflict", "optimizer.learning_rate"),
    "fraction": (
        {"name": "muon", "learning_rate": 1, "ns_steps": 1.5},
        "out_of_range",
        "optimizer.ns_steps",
    ),
    "nobody's": (
        [{"name": "adam", "learning_rate": 1, "parameters": ["w"]}],
        "missing",
        "optimizer",
    ),
    "nothing left": (
        [{"name": "adam", "learning_rate": 1}, {"name": "sgd", "learning_rate": 1}],
        "missing",
        "optimizer[1].parameters",
    ),
    "patterns": (
        {"name": "adam", "learning_rate": 1, "parameters": "w"},
        "wrong_type",
        "optimizer.parameters",
    ),
    "schedule": (
        {"name": "adam", "learning_rate": {"name": "cosine"}},
        "out_of_range",
        "optimizer.learning_rate.name",
    ),
    "steps": (
        {"name": "adam", "learning_rate": {**SCHEDULES["linear"][0], "steps": 0}},
        "out_of_range",
        "optimizer.learning_rate.steps",
    ),
    "no init": (
        {"name": "adam", "learning_rate": {"name": "exponential_decay", "decay_rate": 0.9}},
        "missing",
        "optimizer.learning_rate.init",
    ),
    "boundaries": (
        {"name": "adam", "learning_rate": {**SCHEDULES["joined"][0], "boundaries": [3, 4]}},
        "wrong_type",
        "optimizer.learning_rate.boundaries",
    ),
    "no then": (
        {"name": "adam", "learning_rate": {"name": "warmup", "steps": 3}},
        "wrong_type",
        "optimizer.learning_rate.then",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_refused(case):
    options, reason, argument = BAD[case]
    text = options if isinstance(options, str) else json.dumps(options)
    with pytest.raises(InvalidArgument) as refused:
        Optimizer(text, parameters())
    assert (refused.value.reason, refused.value.details["argument"]) == (reason, argument)


def test_schedules_in_each_other_are_bounded():
    value: object = 0.1
    for _ in range(20):
        value = {"name": "join_schedules", "schedules": [value], "boundaries": []}
    with pytest.raises(InvalidArgument, match="at most 8"):
        rate_of(value, "learning_rate")


def test_the_default_is_that_of_mlx():
    found, _ = run(json.loads(DEFAULT), range(STEPS))
    expected = run_plain(plain.Adam(1e-3))
    assert all(same(found[name], expected[name]) for name in MODEL)


def stepped(name, rate, gradients):
    """Steps of float64 numbers by formulas, of some optimizers."""
    w = np.linspace(-1, 1, 6)
    m, v = np.zeros(6), np.zeros(6)
    for g in gradients:
        if name == "sgd":
            m = 0.9 * m + g
            w = w - rate * m
        elif name == "rmsprop":
            v = 0.99 * v + (1 - 0.99) * g * g
            w = w - rate * g / (np.sqrt(v) + 1e-8)
        elif name == "adagrad":
            v = v + g * g
            w = w - rate * g / (np.sqrt(v) + 1e-8)
        else:
            m, v = 0.9 * m + (1 - 0.9) * g, 0.999 * v + (1 - 0.999) * g * g
            w = w * (1 - rate * 0.01 * (name == "adamw"))
            w = w - rate * m / (np.sqrt(v) + 1e-8)
    return w


@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adagrad", "adam", "adamw"])
@pytest.mark.parametrize(("rate", "error"), [(2.0**-10, 1e-14), (0.001, 1e-7)])
def test_parameters_of_float64_are_stepped_in_it(name, rate, error):
    """The rate itself is a float32."""
    gradients = np.random.default_rng(3).normal(size=(5, 6))
    values = {"w": mx.array(np.linspace(-1, 1, 6), mx.float64)}
    more = {"momentum": 0.9} if name == "sgd" else {}
    optimizer = Optimizer(json.dumps({"name": name, "learning_rate": rate, **more}), values)
    for gradient in gradients:
        values = optimizer.updated({"w": mx.array(gradient, mx.float64)}, values)
    assert values["w"].dtype == mx.float64
    moved = np.array(values["w"]) - np.linspace(-1, 1, 6)
    wanted = stepped(name, rate, gradients) - np.linspace(-1, 1, 6)
    np.testing.assert_allclose(moved, wanted, rtol=error * 10, atol=error * rate)
