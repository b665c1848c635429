"""Prompts are processed in chunks that a model's size and the time they take decide."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from driver import greedy, prompt
from support import tiny_models
from support.library import StatusError
from support.signatures import ECANCELED

from cowmlx.generation import pace
from cowmlx.generation.pace import BLAS, GPU, GROWTH, LIMIT, PREFILL_CHUNK, Pace, Speed

# 21 million parameters: half a thousand tokens take too long at any speed assumed of a CPU.
LARGER = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 5,
    "max_position_embeddings": 2048,
}
LONG = prompt(1400)


@pytest.fixture(scope="module")
def larger(lib, tmp_path_factory):
    folder = tiny_models.make(tmp_path_factory.mktemp("larger"), "llama", config=LARGER)
    model = lib.load(folder)
    yield model
    lib.free_model(model)


def steps(done):
    """The sizes of chunks, from the reported progress."""
    return [after - before for before, after in pairwise(done)]


# ------------------------------------------------------------------ Through the ABI


def test_a_larger_model_has_smaller_chunks(lib, larger, open_context):
    done = []
    lib.begin(open_context(larger), LONG, prompt_progress=lambda now, total: done.append(now))
    assert done[0] == 0
    assert done[-1] == len(LONG)
    assert steps(done)[0] < PREFILL_CHUNK


def test_a_small_model_has_the_largest_chunks(lib, folder, open_context):
    model = lib.load(folder("llama-long"))
    done = []
    lib.begin(open_context(model), LONG, prompt_progress=lambda now, total: done.append(now))
    assert steps(done)[0] == PREFILL_CHUNK
    lib.free_model(model)


@pytest.mark.parametrize("at", [1, 3])
def test_after_a_cancel_no_chunk_begins(lib, larger, open_context, at):
    """The one that computes when the cancel comes is all that is still processed."""
    context = open_context(larger)
    done = []

    def progress(now, total):
        done.append(now)
        if len(done) == at + 1:
            thread = threading.Thread(target=lib.cancel, args=(context,))
            thread.start()
            thread.join()

    with pytest.raises(StatusError) as canceled:
        lib.begin(context, LONG, prompt_progress=progress)
    assert canceled.value.status == ECANCELED
    held = lib.tokens(context)
    assert held == LONG[: len(held)]
    assert done[-1] <= len(held) <= done[-1] + GROWTH * max(steps(done))
    fresh = open_context(larger)
    assert greedy(lib, context, LONG) == greedy(lib, fresh, LONG)


# --------------------------------------------------------------------- The plan

M = 110_000_000


@pytest.mark.parametrize(
    ("parameters", "size"),
    [(1, 512), (9_000_000, 512), (15_000_000, 256), (M, 32), (10**12, 16)],
)
def test_the_plan_follows_from_the_model_alone(parameters, size):
    assert Pace(parameters, BLAS).size(0) == size
    assert Pace(parameters, BLAS).size(10**6) == size


def test_usual_times_leave_the_plan_as_it_is():
    plan = Pace(M, BLAS)
    for seconds in (0.1, 0.14, 0.2):
        plan.observe(32, 0, seconds)
        assert plan.size(0) == 32


def test_chunks_grow_while_reading_weights_takes_most_of_their_time():
    """As measured of 600 million parameters in bfloat16: 26 ms, and 1 ms for each token."""
    plan = Pace(600_000_000, BLAS)
    sizes = []
    for _ in range(5):
        size = plan.size(0)
        sizes.append(size)
        plan.observe(size, 0, 0.026 + size * 0.001)
    assert sizes == [16, 32, 64, 128, 128]


@pytest.mark.parametrize(
    ("reading", "token", "sizes"),
    [
        (
            0.06,
            0.0024,
            [16, 32, 32],
        ),  # float32, 600 million parameters: a token takes 0.7 of its time
        (0.005, 0.0058, [16, 32, 16, 16]),  # computing takes the time
    ],
)
def test_chunks_that_take_longer_stay_if_a_token_takes_less(reading, token, sizes):
    plan = Pace(600_000_000, BLAS)
    seen = []
    for _ in sizes:
        size = plan.size(0)
        seen.append(size)
        plan.observe(size, 0, reading + token * size)
    assert seen == sizes


def test_a_larger_chunk_is_tried_again_ever_more_rarely():
    """Another program slows the first two trials; larger chunks would be cheaper."""
    plan = Pace(600_000_000, BLAS)
    trials = []
    for at in range(500):
        size = plan.size(0)
        if size > 16 and len(trials) < 3:
            trials.append(at)
        plan.observe(size, 0, 0.2 if size > 16 and len(trials) < 3 else 0.06 + 0.0023 * size)
    assert trials == [1, 66, 195]  # 64 chunks between, then 128
    assert plan.size(0) == 32


def test_slow_chunks_become_smaller_until_they_are_quick_enough():
    plan = Pace(M, Speed(BLAS.rate, 1))
    sizes = []
    for _ in range(6):
        size = plan.size(0)
        sizes.append(size)
        plan.observe(size, 0, size * 0.02)
    assert sizes == [32, 8, 8, 8, 8, 8]


def test_quick_chunks_become_larger_by_steps():
    plan = Pace(M, BLAS)
    sizes = []
    for _ in range(4):
        size = plan.size(0)
        sizes.append(size)
        plan.observe(size, 0, size * 0.0001)
    assert sizes == [32, 128, 512, 512]


def test_chunks_that_get_no_quicker_stay():
    """Where reading the weights takes the time, smaller chunks would cost and not help."""
    plan = Pace(M, BLAS)
    sizes = []
    for _ in range(4):
        size = plan.size(0)
        sizes.append(size)
        plan.observe(size, 0, 0.3 + size * 0.0001)
    assert sizes == [32, 16, 32, 32]


@pytest.mark.parametrize("reading", [0, 0.02, 0.05, 0.1, 0.13])
@pytest.mark.parametrize("token", [0.0001, 0.001, 0.005, 0.02, 0.05])
@pytest.mark.parametrize("assumed", [BLAS, pace.GPU])
def test_a_cancel_waits_for_little_once_a_model_is_known(reading, token, assumed):
    """Chunks take the time of reading the weights, and of their tokens."""
    plan = Pace(10**9, assumed)
    for _ in range(40):
        size = plan.size(0)
        plan.observe(size, 0, reading + token * size)
    seconds = reading + token * plan.size(0)
    if seconds > LIMIT * assumed.patience:  # a chunk in time would take far longer for each token
        half = plan.size(0) // 2
        assert half < 1 or reading + token * half > 0.75 * seconds
    assert plan.size(0) == size


def test_each_stretch_of_a_context_has_a_size_of_its_own():
    plan = Pace(M, Speed(BLAS.rate, 1))
    behind = 3 * pace.STRETCH
    plan.observe(32, behind, 0.5)
    assert plan.size(behind) == 8
    assert plan.size(behind + 2 * pace.STRETCH) == 8
    assert plan.size(behind - 1) == 32


def test_nothing_is_learned_of_a_chunk_that_is_not_as_planned():
    plan = Pace(M, BLAS)
    plan.observe(7, 0, 5.0)
    plan.observe(7, 0, 0.0001)
    assert plan.size(0) == 32


# -------------------------------------------------------------------------- Macs

B = 10**9
M1, M4 = (4e12, 68e9), (16e12, 400e9)  # operations and bytes in a second


def seconds_of(size: int, parameters: int, mac: tuple[float, float]) -> float:
    """The time of a chunk with weights of 4.5 bits: the longer of computing and reading them."""
    operations, bandwidth = mac
    return 0.005 + max(2 * parameters * size / operations, parameters * 4.5 / 8 / bandwidth)


@pytest.mark.parametrize(
    ("parameters", "mac", "sizes"),
    [
        (1 * B, M1, {512}),
        (8 * B, M1, {256}),
        (3 * B, M4, {512}),
        (8 * B, M4, {256}),
        (14 * B, M1, {256, 128}),  # 1.8 seconds, and 0.9
        (70 * B, M4, {256, 128}),
    ],
)
def test_chunks_of_a_gpu(parameters, mac, sizes):
    plan = Pace(parameters, GPU)
    seen, position = [], 0
    while position < 8192:
        size = plan.size(position)
        seconds = seconds_of(size, parameters, mac)
        seen.append((size, seconds))
        plan.observe(size, position, seconds)
        position += size
    assert {size for size, _ in seen} == sizes
    last, seconds = seen[-1]
    assert seconds <= LIMIT * GPU.patience
    rate, mlx_lm = last / seconds, 2048 / seconds_of(2048, parameters, mac)
    assert rate > 0.95 * mlx_lm
