"""The update of small parameters, recorded once, is that of the optimizer in each step."""

from __future__ import annotations

import json

import mlx.core as mx
import pytest

from cowmlx.accelerate import kernels
from cowmlx.training.optimizers import OPTIMIZERS, Optimizer
from cowmlx.training.updating import Update, clipped

SHAPES = {"w": (4, 3), "b": (3,), "s": ()}
DTYPES = (mx.float32, mx.bfloat16, mx.float16)
RATES = {
    "a number": 0.1,
    "linear": {"name": "linear_schedule", "init": 0.1, "end": 0.01, "steps": 3},
    "cosine": {"name": "cosine_decay", "init": 0.1, "decay_steps": 4},
    "warmup": {"name": "warmup", "steps": 3, "then": 0.1},
}


def described(name: str, rate: object) -> str:
    more = {
        "sgd": {"momentum": 0.9},
        "adam": {"bias_correction": True},
        "adafactor": {"relative_step": False, "beta_1": 0.9},
    }.get(name, {})
    return json.dumps({"name": name, "learning_rate": rate, **more})


def drawn(step: int, dtype: mx.Dtype) -> dict[str, mx.array]:
    made = {
        name: mx.random.normal(shape, key=mx.random.key(at + 9 * step)).astype(dtype)
        for at, (name, shape) in enumerate(SHAPES.items())
    }
    mx.eval(made)
    return made


@pytest.mark.parametrize("clips", [(0.0, 0.0), (0.5, 0.7)], ids=["free", "clipped"])
@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_recorded_update_is_the_optimizer_s(name, rate, clips):
    for dtype in DTYPES:
        before = drawn(0, dtype)
        one, other = (Optimizer(described(name, rate), before) for _ in range(2))
        update = Update(one, *clips, before)
        found, wanted = dict(before), dict(before)
        for step in range(1, 5):
            found, norm = update(drawn(step, dtype), found)
            gradients, exact = clipped(drawn(step, dtype), *clips)
            wanted = other.updated(gradients, wanted)
            mx.eval(found, norm, one.state(), wanted, other.state())
            assert mx.allclose(norm, exact)
            state = other.state()
            assert list(one.state()) == list(state)
            pairs = [(found[key], wanted[key]) for key in SHAPES]
            pairs += [(array, state[key]) for key, array in one.state().items()]
            for a, b in pairs:
                assert a.dtype == b.dtype
                assert mx.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_parameters_may_have_the_name_of_a_count():
    before = {"layer.step": mx.ones((2,)), "step": mx.ones((3,))}
    one, other = (Optimizer(described("adam", 0.1), before) for _ in range(2))
    update = Update(one, 0.0, 0.0, before)
    found, wanted = before, before
    for _ in range(3):
        found, _ = update(dict(before), found)
        wanted = other.updated(before, wanted)
    assert {key: array.tolist() for key, array in found.items()} == {
        key: array.tolist() for key, array in wanted.items()
    }
    assert [array.tolist() for array in one.arrays()] == [
        array.tolist() for array in other.arrays()
    ]


@pytest.mark.skipif(
    not kernels.available(), reason="the kernels were not built: a C++ compiler is missing"
)
def test_an_update_of_what_is_computed_is_computed():
    parameters = drawn(0, mx.float32)
    optimizer = Optimizer(described("adamw", 0.1), parameters)
    mx.eval(optimizer.state())
    update = Update(optimizer, 0.0, 0.0, parameters)
    known = []
    for step in range(3):
        parameters, _ = update(drawn(step, mx.float32), parameters)
        known.append(update.is_computed)
        mx.eval(parameters, optimizer.state())
    assert known == [False, True, True]  # the first one is recorded
    update({name: array * 2 for name, array in drawn(3, mx.float32).items()}, parameters)
    assert not update.is_computed
