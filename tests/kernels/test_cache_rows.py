"""Rows of a batch's keys and values, written where they lie."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.accelerate import kernels

KERNELS = kernels.module()
TYPES = mx.float32, mx.float16, mx.uint32


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu):
        yield


class Model:
    """What buffers must hold: the same changes in numpy.

    Args:
        seed: of the sizes and numbers.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.type = TYPES[seed % len(TYPES)]
        rows, heads, columns, width = (int(self.rng.integers(1, most)) for most in (5, 4, 9, 8))
        if seed % 4 == 0:
            rows = columns = 0
        self.buffers = [self.array(rows, heads, columns, width + more) for more in (0, 1, 60)]
        mx.eval(self.buffers)
        self.wanted = [np.array(buffer) for buffer in self.buffers]

    def array(self, *shape: int) -> mx.array:
        return mx.array(self.rng.integers(0, 1000, shape)).astype(self.type)

    def below(self, most: int) -> int:
        return int(self.rng.integers(0, most))

    def sized(self, rows: int, columns: int, used: int) -> list[np.ndarray]:
        made = []
        for old in self.wanted:
            if old.shape[0] == rows and old.shape[2] == columns:
                made.append(old.copy())
                continue
            made.append(np.zeros((rows, old.shape[1], columns, old.shape[3]), old.dtype))
            kept = min(rows, old.shape[0])
            made[-1][:kept, :, :used] = old[:kept, :, :used]
        return made

    def put(self) -> None:
        have, heads, columns, _ = self.wanted[0].shape
        row, used = self.below(have + 1), self.below(columns + 1)
        rows, columns = max(have, row + 1 + self.below(3)), columns + 4 * self.below(2)
        length = self.below(columns + 1)
        whole = [self.array(1, heads, length + 2, old.shape[3]) for old in self.wanted]
        parts = [each[:, :, :length] for each in whole]
        self.wanted, own = self.sized(rows, columns, used), self.buffers
        self.buffers = []  # nobody else has them
        self.buffers = KERNELS.put_row(own, parts, row, rows, columns, used)
        for wanted, part in zip(self.wanted, parts, strict=True):
            wanted[row] = 0
            wanted[row, :, :length] = np.array(part)[0]

    def size(self) -> None:
        have, _, columns, _ = self.wanted[0].shape
        rows, used = self.below(have + 3), self.below(columns + 1)
        columns += 3 * self.below(2)
        self.wanted = self.sized(rows, columns, used)
        self.buffers = KERNELS.put_row(self.buffers, [], -1, rows, columns, used)

    def take(self) -> None:
        have, _, columns, _ = self.wanted[0].shape
        if not have:
            return
        row, taken, used = self.below(have), self.below(columns + 2) - 1, self.below(columns + 1)
        self.buffers, parts = KERNELS.take_row(self.buffers, row, taken, have - 1, used)
        assert len(parts) == (0 if taken < 0 else len(self.wanted))
        for wanted, part in zip(self.wanted, parts, strict=False):
            assert np.array_equal(np.array(part)[0], wanted[row, :, :taken])
        for wanted in self.wanted:
            if row < have - 1:
                wanted[row, :, used:] = 0
                wanted[row, :, :used] = wanted[have - 1, :, :used]


@pytest.mark.parametrize("seed", range(60))
def test_changes_are_those_of_numpy(seed):
    model = Model(seed)
    for _ in range(12):
        (model.put, model.size, model.take)[model.below(3)]()
        if model.below(2):
            mx.eval(model.buffers)
    for buffer, wanted in zip(model.buffers, model.wanted, strict=True):
        assert buffer.shape == wanted.shape
        assert np.array_equal(np.array(buffer), wanted)


def test_arrays_that_others_have_keep_their_numbers():
    own = mx.ones((2, 1, 3, 4))
    mx.eval(own)
    part = mx.zeros((1, 1, 2, 4))
    (changed,) = KERNELS.put_row([own], [part], 1, 2, 3, 3)
    (moved,), (taken,) = KERNELS.take_row([changed], 0, 3, 1, 2)
    assert mx.sum(changed).item() == 12
    assert mx.sum(moved).item() == 0
    assert mx.sum(taken).item() == mx.sum(own).item() / 2 == 12


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, part: KERNELS.put_row([], [], -1, 2, 3, 3),
        lambda x, part: KERNELS.put_row([x], [part, part], 0, 2, 3, 3),
        lambda x, part: KERNELS.put_row([x], [part], 2, 2, 3, 3),
        lambda x, part: KERNELS.put_row([x], [part], -1, 2, 3, 3),
        lambda x, part: KERNELS.put_row([x], [part], 0, 2, 2, 2),
        lambda x, part: KERNELS.put_row([x], [part], 0, 2, 3, 4),
        lambda x, part: KERNELS.put_row([x], [part], 0, -1, 3, 3),
        lambda x, part: KERNELS.put_row([x], [part[..., :2]], 0, 2, 3, 3),
        lambda x, part: KERNELS.put_row([x], [part.astype(mx.float16)], 0, 2, 3, 3),
        lambda x, part: KERNELS.put_row([x], [mx.concatenate([part] * 4, 2)], 0, 2, 3, 3),
        lambda x, part: KERNELS.put_row([x, x[:1]], [part, part], 0, 2, 3, 3),
        lambda x, part: KERNELS.put_row([x[0]], [part], 0, 2, 3, 3),
        lambda x, part: KERNELS.take_row([], 0, 1, 1, 1),
        lambda x, part: KERNELS.take_row([x], 2, 1, 1, 1),
        lambda x, part: KERNELS.take_row([x], 0, 1, 2, 1),
        lambda x, part: KERNELS.take_row([x], 0, 4, 1, 1),
        lambda x, part: KERNELS.take_row([x], -1, 1, 1, 1),
        lambda x, part: KERNELS.take_row([x], 0, -2, 1, 1),
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(ValueError, match=r"buffer|row"):
        wrong(mx.ones((2, 1, 3, 4)), mx.ones((1, 1, 2, 4)))
