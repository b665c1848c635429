"""Steps of Adam and AdamW on every instruction set at hand: the bits of mlx's own operations."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx import optimizers as plain
from support.kernel_module import needed

from cowmlx.training import optimizers as adam

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
KINDS = {
    "adam": lambda of: of.Adam(0.01),
    "infinite": lambda of: of.Adam(1e39),
    "corrected": lambda of: of.Adam(0.01, betas=[0.8, 0.95], eps=1e-3, bias_correction=True),
    "decaying": lambda of: of.AdamW(0.01, weight_decay=0.1),
    "both": lambda of: of.AdamW(0.01, weight_decay=0.1, bias_correction=True),
}
# How a gradient lies in memory: numpy's axes.
LYING = {
    "rows": lambda g: mx.array(g),
    "columns": lambda g: mx.array(np.ascontiguousarray(g.T)).T,
    "apart": lambda g: mx.array(np.repeat(g, 2, axis=-1))[..., ::2],
}
SHAPES = [(1,), (33,), (1, 1), (17, 300), (40, 5), (3, 2, 2, 4), (130, 129)]


def bits(array: mx.array) -> list[int]:
    return np.array(array).view(np.uint32).ravel().tolist()


def both(kind, parameters):
    """An optimizer of ours and mlx's, with its state."""
    made = [kind(of) for of in (adam, plain)]
    for optimizer in made:
        optimizer.init({"parameters": parameters})
    return made


def stepped(optimizer, gradients, parameters):
    after = optimizer.apply_gradients({"parameters": gradients}, {"parameters": parameters})
    return after["parameters"]


def assert_alike(optimizers, parameters):
    """The same bits of all parameters and their moments."""
    states = [optimizer.state["parameters"] for optimizer in optimizers]
    assert parameters[0].keys() == parameters[1].keys()
    for name in parameters[0]:
        found, wanted = (
            [bits(now[name]), bits(state[name]["m"]), bits(state[name]["v"])]
            for now, state in zip(parameters, states, strict=True)
        )
        assert found == wanted, name


def draw_steps(kind, shapes, lying):
    """Three steps of both over parameters by name, compared after each."""
    draws = np.random.default_rng(1)
    start = {name: mx.array(draws.normal(size=shape), mx.float32) for name, shape in shapes.items()}
    optimizers, held = both(kind, start), [start, start]
    for power in (0, -20, 12):
        given = {
            name: LYING[lying]((draws.normal(size=shape) * 10.0**power).astype(np.float32))
            for name, shape in shapes.items()
        }
        held = [stepped(each, given, now) for each, now in zip(optimizers, held, strict=True)]
        assert_alike(optimizers, held)


@pytest.mark.parametrize("lying", LYING)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_have_the_bits_of_mlx(shape, kind, lying):
    draw_steps(KINDS[kind], {"w": shape}, lying)


@pytest.mark.parametrize("most", [1, 20_000, 1 << 22], ids="{} numbers at once".format)
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_together_have_the_bits_of_mlx(kind, most, monkeypatch):
    monkeypatch.setattr(adam, "_AT_ONCE", most)
    shapes = {str(shape): shape for shape in [*SHAPES, (200, 300), (3, 0)]}
    for lying in LYING:
        draw_steps(KINDS[kind], shapes, lying)


@pytest.mark.parametrize("lying", LYING)
def test_parameters_and_moments_lie_in_any_way(lying):
    draws = np.random.default_rng(2)
    given = [abs(draws.normal(size=(30, 20))).astype(np.float32) for _ in range(4)]
    factors = [mx.array(number) for number in (0.1, 1.0, 0.9)]

    def step(lies):
        arrays = [[lies(each)] for each in given]
        made = MODULE.adam(*arrays, factors, betas=(0.9, 0.99), eps=1e-8)
        return [bits(part[0]) for part in made]

    assert step(LYING[lying]) == step(LYING["rows"])


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 0.0, 1e-45])
def test_numbers_that_are_none_stay_in_their_place(number):
    start = {"w": mx.ones((1, 3))}
    found, wanted = (
        stepped(each, {"w": mx.array([[1.0, number, 2.0]])}, start)["w"]
        for each in both(lambda of: of.Adam(0.01), start)
    )
    assert np.array_equal(np.array(found), np.array(wanted), equal_nan=True)


@pytest.fixture
def calls(monkeypatch):
    """The number of parameters of each operation."""
    made = []
    own = MODULE.adam
    monkeypatch.setattr(
        MODULE, "adam", lambda *given, **more: made.append(len(given[0])) or own(*given, **more)
    )
    return made


def test_the_kernel_computes_them_at_once(calls):
    for kind in KINDS.values():
        start = {name: mx.ones((2, 2)) for name in "abc"}
        stepped(both(kind, start)[0], start, start)
    assert calls == [3] * len(KINDS)


def test_many_parameters_are_several_operations(calls):
    shapes = {str(number): (1,) for number in range(300)}
    draw_steps(KINDS["both"], shapes, "rows")
    assert calls == [64, 64, 64, 64, 44] * 3


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_other_types_are_left_to_mlx(dtype):
    given = {"w": mx.ones((2, 3), dtype), "v": mx.ones((3,))}
    found, wanted = (stepped(each, given, given) for each in both(lambda of: of.Adam(0.01), given))
    assert found["w"].dtype == dtype
    assert found["w"].tolist() == wanted["w"].tolist()
    assert found["v"].tolist() == wanted["v"].tolist()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"gradients": [mx.ones((3,))]}, "gradient must be float32, of the parameter's shape"),
        ({"firsts": [mx.ones((2,), mx.float16)]}, "first moment must be float32"),
        ({"seconds": [mx.ones((1, 2))]}, "second moment must be float32"),
        ({"seconds": []}, "must be as many"),
        ({"parameters": []}, "there must be 1 to 64 parameters"),
        ({"parameters": [mx.ones((2,))] * 65}, "there must be 1 to 64 parameters"),
        ({"factors": [mx.array(1.0)] * 2}, "there must be three factors"),
        ({"factors": [mx.ones((1,))] * 3}, r"a factor must be float32 of shape \(\)"),
    ],
)
def test_what_does_not_fit_is_refused(changed, why):
    names = ("parameters", "gradients", "firsts", "seconds")
    given = {name: [mx.ones((2,))] for name in names}
    given |= {"factors": [mx.array(1.0)] * 3} | changed
    with pytest.raises(ValueError, match=why):
        MODULE.adam(**given, betas=(0.9, 0.999), eps=1e-8)
