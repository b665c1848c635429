"""Broken programs, texts and descriptors over the C ABI: a result, or one clear error."""

from __future__ import annotations

import json
from ctypes import byref, c_int64, c_size_t
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.arrays import NUMPY, tensor
from support.broken_programs import SEED, VALUES, broken
from support.callbacks import StatusError
from support.signatures import DTYPES

NAMES = {value: name for name, (value, _) in DTYPES.items()}
REFUSALS = {"EINVAL", "EUNSUPPORTED", "ENOMEM", "ECANCELED", "EHANDLE"}
FUZZ = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def refused(error: StatusError) -> None:
    """It says what is wrong, in words and in details."""
    assert error.name in REFUSALS, error
    assert 10 < len(str(error)) < 20_000
    assert error.reason
    assert isinstance(error.details, dict)


def tried(call, *arguments, **named):
    """What a call gives; None if it is refused."""
    try:
        return call(*arguments, **named)
    except StatusError as error:
        refused(error)
        return None


# ------------------------------------------------------------------ Programs


def carry_out(programs, arrays, text: str | bytes) -> None:
    """Make, ask, derive and run a program; what is endless is cancelled."""
    program = tried(programs.create, text)
    if program is None:
        return
    info = programs.info(program)
    tried(programs.info, program, **dict.fromkeys(info["dimensions"], 2))
    made = [program]
    for spec in (
        {"gradient": {"of": "s", "with_respect_to": ["x"], "value": True}},
        {"vectorize": {"x": 0}},
    ):
        made.append(tried(programs.derive, program, spec))
    declared = [*info["inputs"], *info["parameters"]]
    shapes = [[2 if isinstance(side, str) else side for side in each["shape"]] for each in declared]
    if sum(prod(shape) for shape in shapes) < 1 << 16 and len(declared) < 100:
        given = [
            np.zeros(shape, NUMPY[each["dtype"]])
            for each, shape in zip(declared, shapes, strict=True)
            if each["dtype"] != "bfloat16"
        ]
        results = tried(programs.run, program, given, len(info["outputs"]), submit=True)
        for result in results or ():
            try:
                arrays.wait(result, 100)
            except StatusError as error:
                if error.name == "ETIMEDOUT":
                    assert programs.cancel(program) == 0
                    tried(arrays.wait, result)
                else:
                    refused(error)
            arrays.free(result)
    for each in made:
        if each is not None:
            programs.free(each)


@given(broken())
@settings(FUZZ, max_examples=50)
def test_broken_programs(programs, arrays, text):
    carry_out(programs, arrays, text)


@given(st.binary(max_size=64) | VALUES.map(json.dumps).map(str.encode))
@example(b"\xef\xbb\xbf{}")
@example(b'{"outputs": ["\\ud800"]}')
@example(b"\0")
@settings(FUZZ, max_examples=40)
def test_texts_of_all_kinds(programs, arrays, text):
    carry_out(programs, arrays, text)


@given(VALUES | st.fixed_dictionaries({"bind": st.dictionaries(st.just("x"), st.integers())}))
@example({"bind": {"x": 2**63}})
@example({"bind": {"x": -(2**63) - 1}})
@settings(FUZZ, max_examples=40)
def test_derivations_of_all_kinds(programs, spec):
    program = programs.create(SEED)
    derived = tried(programs.derive, program, json.dumps(spec))
    if derived is not None:
        programs.free(derived)
    programs.free(program)


@given(
    st.sampled_from(["add", "take", "reshape", "sum", "concatenate", "no such", "\u00e9", ""]),
    st.lists(st.sampled_from([0, 1, 2, 3, -1, 2**62]), max_size=4),
    VALUES.map(json.dumps) | st.none() | st.text(max_size=20),
)
@settings(FUZZ, max_examples=60)
def test_operations_of_all_kinds(arrays, operation, inputs, attributes):
    real = [
        arrays.create(each)
        for each in (
            np.float32([1, 2, 3]),
            np.int32([[2, 70000], [-1, 0]]),
            np.full((), 5, np.float32),
        )
    ]
    given_handles = [real[at - 1] if 1 <= at <= 3 else at for at in inputs]
    before = arrays.lib.info()["handles"]["array"]
    outputs, length = (c_int64 * 4)(), c_size_t()
    text = None if attributes is None else attributes.replace("\0", "").encode("utf-8", "replace")

    def apply() -> int:
        status = arrays.c.cow_mlx_array_apply(
            operation.encode(),
            (c_int64 * max(len(inputs), 1))(*given_handles),
            len(inputs),
            text,
            outputs,
            4,
            byref(length),
        )
        arrays.lib.check(status)
        return length.value

    count = tried(apply) or 0
    assert arrays.lib.info()["handles"]["array"] == before + count
    for handle in [*outputs[:count], *real]:
        arrays.free(handle)


# --------------------------------------------------------------- Descriptors

BEFORE, SIZE, AFTER = 64, 96, 64  # bytes of an arena; the host's buffer is in its middle


@dataclass
class Descriptor:
    """A tensor in a buffer; what is asked for may lie anywhere."""

    dtype: int
    offset: int
    shape: list[int]
    strides: list[int] | None
    size: int = SIZE

    def places(self) -> list[int] | None:
        """Where elements are, row-major, in bytes of the buffer; None if one is outside of it."""
        item = DTYPES[NAMES[self.dtype]][1]
        if not all(self.shape):
            return []
        steps = self.strides
        if steps is None:
            steps = [prod(self.shape[at + 1 :]) for at in range(len(self.shape))]
        ends = [(0, (side - 1) * step) for side, step in zip(self.shape, steps, strict=True)]
        least = self.offset + item * sum(min(end) for end in ends)
        most = self.offset + item * sum(max(end) for end in ends) + item
        if least < 0 or most > self.size:
            return None
        return [
            self.offset + item * sum(at * step for at, step in zip(index, steps, strict=True))
            for index in product(*map(range, self.shape))
        ]

    def tensor(self, arena: np.ndarray):
        """The C struct, in an arena."""
        rank = len(self.shape)
        shape = (c_int64 * max(rank, 1))(*self.shape)
        strides = None if self.strides is None else (c_int64 * max(rank, 1))(*self.strides)
        return tensor(
            arena,
            self.dtype,
            data=arena.ctypes.data + BEFORE,
            bytes=self.size,
            offset=self.offset,
            rank=rank,
            shape=shape,
            strides=strides,
        )


@st.composite
def descriptors(draw) -> Descriptor:
    """Most of them nearly right, some far off."""
    rank = draw(st.integers(0, 4))
    extreme = st.sampled_from([2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63), -1])
    sides = st.integers(0, 4) | (extreme if draw(st.integers(0, 9)) == 0 else st.nothing())
    steps = st.integers(-6, 6) | (extreme if draw(st.integers(0, 9)) == 0 else st.nothing())
    shape = draw(st.lists(sides, min_size=rank, max_size=rank))
    strides = draw(st.none() | st.lists(steps, min_size=rank, max_size=rank))
    offset = draw(st.integers(0, SIZE + 8) | st.sampled_from([2**63, 2**64 - 1]))
    return Descriptor(draw(st.sampled_from(list(NAMES))), offset, shape, strides)


def is_a_type(shape: list[int]) -> bool:
    """Whether all sizes may be."""
    return all(0 <= side < 2**31 for side in shape)


@given(descriptors(), st.integers(0, 2**32 - 1))
@example(Descriptor(12, 0, [2**31 - 1] * 3, [0, 0, 0]), 0)
@example(Descriptor(13, 88, [2], [2**60]), 0)
@example(Descriptor(13, 8, [3], [-(2**63)]), 0)
@example(Descriptor(2, 2**64 - 1, [1], None), 0)
@settings(FUZZ, max_examples=200)
def test_what_a_descriptor_reads(arrays, described, seed):
    """Exactly the elements that it names; one outside of its buffer is refused."""
    arena = np.random.default_rng(seed).integers(0, 256, BEFORE + SIZE + AFTER, np.uint8)
    if NAMES[described.dtype] == "bool":
        arena &= 1
    out = c_int64(-1)
    call = arrays.c.cow_mlx_array_create

    def create() -> int:
        arrays.lib.check(call(byref(described.tensor(arena)), byref(out)))
        return out.value

    handle = tried(create)
    huge = prod(side for side in described.shape if side > 0) > 10_000
    places = described.places() if is_a_type(described.shape) and not huge else None
    if places is None or handle is None:
        assert out.value == -1 or huge
        assert (places is None) == (handle is None) or huge
    else:
        item = DTYPES[NAMES[described.dtype]][1]
        buffer = arena[BEFORE : BEFORE + SIZE].tobytes()
        expected = b"".join(buffer[at : at + item] for at in places)
        assert arrays.read(handle).tobytes() == expected
    if handle is not None:
        arrays.free(handle)


@given(descriptors())
@example(Descriptor(12, 0, [2, 2], [1, 1]))
@example(Descriptor(8, 92, [2], [-23]))
@settings(FUZZ, max_examples=200)
def test_what_a_descriptor_writes(arrays, described):
    """Exactly the elements that it names, or nothing."""
    if not is_a_type(described.shape) or prod(described.shape) > 10_000:
        return
    if any(side > 10_000 for side in described.shape):  # numpy has no such array without elements
        return
    item = DTYPES[NAMES[described.dtype]][1]
    count = prod(described.shape)
    source = np.arange(1, count * item + 1, dtype=np.uint8)
    if NAMES[described.dtype] == "bool":
        source &= 1
    whole = source.view(NUMPY[NAMES[described.dtype]]).reshape(described.shape)
    handle = arrays.create(whole, NAMES[described.dtype])
    arena = np.full(BEFORE + SIZE + AFTER, 0xA5, np.uint8)
    expected = arena.copy()

    def read() -> bool:
        arrays.lib.check(arrays.c.cow_mlx_array_read(handle, byref(described.tensor(arena))))
        return True

    if tried(read):
        places = described.places()
        assert places is not None
        for at, begin in enumerate(places):
            expected[BEFORE + begin : BEFORE + begin + item] = source[at * item :][:item]
    assert (arena == expected).all()
    arrays.free(handle)


@pytest.mark.parametrize("rank", [-1, 9, 2**31 - 1, -(2**31)])
def test_ranks_that_are_none(arrays, rank):
    out = c_int64(-1)
    made = tensor(np.zeros(4, np.float32), rank=rank)
    with pytest.raises(StatusError) as error:
        arrays.lib.check(arrays.c.cow_mlx_array_create(byref(made), byref(out)))
    refused(error.value)
    assert out.value == -1
