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


@pytest.mark.parametrize("lying", LYING)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_have_the_bits_of_mlx(shape, kind, lying):
    draws = np.random.default_rng(1)
    optimizers = [KINDS[kind](of) for of in (adam, plain)]
    start = mx.array(draws.normal(size=shape), mx.float32)
    held = [{"w": start}, {"w": start}]
    for power in (0, -20, 12):
        gradient = (draws.normal(size=shape) * 10.0**power).astype(np.float32)
        given = {"w": LYING[lying](gradient)}
        held = [
            each.apply_gradients(given, now) for each, now in zip(optimizers, held, strict=True)
        ]
        found, wanted = (
            [now["w"], each.state["w"]["m"], each.state["w"]["v"]]
            for each, now in zip(optimizers, held, strict=True)
        )
        assert list(map(bits, found)) == list(map(bits, wanted))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 0.0, 1e-45])
def test_numbers_that_are_none_stay_in_their_place(number):
    gradient = mx.array([[1.0, number, 2.0]])
    found, wanted = (
        of.Adam(0.01).apply_gradients({"w": gradient}, {"w": mx.ones((1, 3))})["w"]
        for of in (adam, plain)
    )
    assert np.array_equal(np.array(found), np.array(wanted), equal_nan=True)


def test_the_kernel_computes_them(monkeypatch):
    calls = []
    own = MODULE.adam
    monkeypatch.setattr(
        MODULE, "adam", lambda *given, **more: calls.append(1) or own(*given, **more)
    )
    for kind in KINDS.values():
        kind(adam).apply_gradients({"w": mx.ones((2, 2))}, {"w": mx.ones((2, 2))})
    assert len(calls) == len(KINDS)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_other_types_are_left_to_mlx(dtype):
    given = {"w": mx.ones((2, 3), dtype)}
    found, wanted = (of.Adam(0.01).apply_gradients(given, given)["w"] for of in (adam, plain))
    assert found.dtype == dtype
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"gradient": mx.ones((3,))}, "gradient must be float32, of the parameter's shape"),
        ({"first": mx.ones((2,), mx.float16)}, "first moment must be float32"),
        ({"second": mx.ones((1, 2))}, "second moment must be float32"),
        ({"factors": mx.ones((2,))}, "factors must be float32"),
    ],
)
def test_what_does_not_fit_is_refused(changed, why):
    given = dict.fromkeys(["parameter", "gradient", "first", "second"], mx.ones((2,)))
    given |= {"factors": mx.ones((3,))} | changed
    with pytest.raises(ValueError, match=why):
        MODULE.adam(**given, betas=(0.9, 0.999), eps=1e-8)
