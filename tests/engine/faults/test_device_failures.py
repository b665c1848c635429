"""mlx's failures of devices, at each place where mlx is called: a status, and the next call works.

No device fails here, so mlx's exceptions are raised in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from driver import KV, prompt
from support import in_process
from support.arrays import Arrays
from support.c_programs import Programs
from support.callbacks import StatusError
from support.device_texts import BUGS, FAILURES, LOST, SHORTAGES
from support.programs import graph, node, value
from support.threads import at_once
from support.trainings import Trainings, data, network

from cowmlx import failures
from cowmlx.cache.sequence import Sequence
from cowmlx.errors import CowMlxError, details_of
from cowmlx.generated import status as statuses
from cowmlx.generated.defaults import RUNTIME
from cowmlx.generation.prompt import Prompt
from cowmlx.generation.sampling.samples import Sample
from cowmlx.models import embedding
from cowmlx.models import network as networks
from cowmlx.programs.running.compiling import Unit
from cowmlx.scheduling.lane import Lane
from cowmlx.scheduling.streams import StreamPool
from cowmlx.services import saving
from cowmlx.services.computing import Computation
from cowmlx.training.training import Training

SHORTAGE, GONE = SHORTAGES[6], LOST[0]
TOKENS = 6


@pytest.mark.parametrize(("text", "status", "reason"), FAILURES, ids=lambda text: text[:40])
def test_a_text_has_a_status_and_a_reason(text, status, reason):
    for kind in (RuntimeError, ValueError):
        try:
            raise KeyError("a wrapper") from kind(text)
        except KeyError as error:
            found = failures.translate(error)
        assert isinstance(found, CowMlxError)
        assert (statuses.NAMES[found.status], found.reason) == (status, reason)
        assert text.strip() in str(found)


@pytest.mark.parametrize("text", BUGS, ids=lambda text: text[:40])
def test_other_texts_are_bugs(text):
    assert not isinstance(failures.translate(RuntimeError(text)), CowMlxError)


def test_sizes_are_details():
    found = failures.translate(RuntimeError(SHORTAGES[0]))
    assert details_of(found) == {"needed": 42949672960, "limit": 28991029248}


@contextmanager
def raising(owner: Any, name: str, text: str, at: int = 1) -> Iterator[list[int]]:
    """A function raises at one of its calls; how often it was called."""
    own, calls = getattr(owner, name), []

    def fail(*arguments: Any, **more: Any) -> Any:
        calls.append(len(calls) + 1)
        if len(calls) == at:
            raise RuntimeError(text)
        return own(*arguments, **more)

    setattr(owner, name, fail)
    try:
        yield calls
    finally:
        setattr(owner, name, own)


@contextmanager
def failing_computations(text: str) -> Iterator[list[int]]:
    """The next arrays that a unit lets mlx compute fail, late."""
    own, calls = Computation.advance, []

    def advance(self: Computation, waits: bool = False) -> bool:
        if calls or not self._arrays:
            return own(self, waits)
        calls.append(1)
        self._arrays.clear()
        self._evaluation = None
        self.error = RuntimeError(text)
        return True

    Computation.advance = advance  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        Computation.advance = own  # type: ignore[method-assign]


Place = tuple[Any, str, int]
OF_GENERATIONS: dict[str, Place] = {
    "a prompt begins": (Sequence, "forward", 1),
    "a chunk is waited for": (Prompt, "finish_chunk", 1),
    "a token is computed": (Sequence, "decode", 2),
    "a token is read": (Sample, "value", 3),
}


def fails(status: str, reason: str, call: Callable[[], object]) -> StatusError:
    with pytest.raises(StatusError) as failed:
        call()
    assert (failed.value.name, failed.value.reason) == (status, reason)
    return failed.value


@pytest.mark.parametrize("place", OF_GENERATIONS)
def test_a_generation(lib, tiny, open_context, place):
    model = tiny(KV)
    expected = lib.generate(open_context(model), prompt(40), max_tokens=TOKENS).text
    context = open_context(model)
    for text, status, reason in FAILURES:
        owner, name, at = OF_GENERATIONS[place]
        with raising(owner, name, text, at) as calls:
            fails(status, reason, lambda: lib.generate(context, prompt(40), max_tokens=TOKENS))
        assert len(calls) >= at
        assert lib.info(context)["error"]["reason"] == reason
        assert lib.generate(context, prompt(40), max_tokens=TOKENS).text == expected


@pytest.mark.parametrize("place", ["a step begins", "a token is read"])
@pytest.mark.parametrize(("text", "status", "reason"), [FAILURES[6], FAILURES[14]])
def test_all_that_were_computed_with_it(lib, tiny, open_context, place, text, status, reason):
    """A failed step is reported once; what the others would read was never computed."""
    model = tiny(KV)
    alone = open_context(model, solo=True)
    contexts = [open_context(model) for _ in range(3)]
    prompts = [prompt(5, seed) for seed in range(3)]
    count = 200
    expected = [lib.generate(open_context(model), each, max_tokens=count).text for each in prompts]
    ended: dict[int, str] = {}

    def generate(index: int) -> None:
        context = alone if index == 3 else contexts[index]
        try:
            text = lib.generate(context, prompts[index % 3], max_tokens=count).text
            assert text == expected[index % 3]
            ended[index] = "OK"
        except StatusError as error:
            ended[index] = error.name

    stepped: list[int] = []
    own_forward, own_value = Lane._forward, Sample.value

    def forward(lane, batch, fed):
        stepped.append(len(fed))
        if len(stepped) == 20 and place == "a step begins":
            raise RuntimeError(text)
        return own_forward(lane, batch, fed)

    broken: list[int] = []

    def read(sample):
        if len(stepped) >= 20 and not broken and len(sample.rows.arrays[0]) == 3:
            broken.append(1)
            raise RuntimeError(text)
        return own_value(sample)

    Lane._forward = forward
    if place == "a token is read":
        Sample.value = read
    try:
        at_once(4, generate)
    finally:
        Lane._forward, Sample.value = own_forward, own_value
    assert max(stepped) == 3
    assert ended == {0: status, 1: status, 2: status, 3: "OK"}
    for context, each, same in zip(contexts, prompts, expected, strict=True):
        assert lib.generate(context, each, max_tokens=count).text == same


def test_a_load(lib, folder):
    for text, status, reason in FAILURES:
        with raising(networks, "prove", text):
            failed = fails(status, reason, lambda: lib.load(folder(KV)))
        assert "Apple's GPU" not in failed.message
    lib.free_model(lib.load(folder(KV)))


def test_a_network_that_only_metal_runs(lib, folder):
    with raising(networks, "prove", "[metal_kernel] No Metal back-end."):
        failed = fails("EUNSUPPORTED", "device_missing", lambda: lib.load(folder(KV)))
    assert "Apple's GPU" in failed.message


def test_a_save_and_a_load_of_a_context(lib, tiny, open_context, tmp_path):
    context = open_context(tiny(KV))
    lib.begin(context, prompt(20), max_tokens=0)
    for text, status, reason in FAILURES:
        with raising(saving, "leaves", text):
            fails(status, reason, lambda: lib.save(context, tmp_path / "saved"))
        assert not any(tmp_path.iterdir())
    lib.save(context, tmp_path / "saved")
    with raising(saving, "leaves", SHORTAGE) as calls:
        lib.restore(context, tmp_path / "saved")
    assert lib.tokens(context) == prompt(20) or calls


def test_embeddings(lib, tiny):
    model = tiny(KV)
    expected = lib.embed(model, ["a text"])
    for text, status, reason in FAILURES:
        with raising(embedding.HiddenStates, "__call__", text):
            fails(status, reason, lambda: lib.embed(model, ["a text"], capacity=4096))
        assert lib.embed(model, ["a text"]) == expected


def test_a_run_and_an_array(lib, monkeypatch):
    programs, arrays = Programs(lib), Arrays(lib)
    # As on a GPU: a processor's short runs need no graph, and do not ask for mx.eval.
    monkeypatch.setattr(Unit, "at_once", lambda unit, arrays: None)
    nodes = [node("s", "sort", "x", axis=-1), node("y", "multiply", "s", "s")]
    program = programs.create(graph([value("x", [4])], nodes, ["y"]))
    x = np.arange(4, dtype=np.float32)
    for text, status, reason in FAILURES:
        with raising(mx, "eval", text):
            fails(status, reason, lambda: programs.run(program, [x]))
        (y,) = programs.run(program, [x])
        assert arrays.read(y).tolist() == [0, 1, 4, 9]
        arrays.free(y)
        given = arrays.create(x)
        (doubled,) = arrays.apply("add", given, given)
        with failing_computations(text) as calls:
            fails(status, reason, partial(arrays.wait, doubled))
        assert calls
        assert arrays.read(doubled).tolist() == [0, 2, 4, 6]
        arrays.free(given)
        arrays.free(doubled)
    programs.free(program)


def test_arrays_in_files(lib, tmp_path):
    path = tmp_path / "a.safetensors"
    arrays = Arrays(lib)
    given = arrays.create(np.ones(4, np.int32))  # floats would be added at once
    (doubled,) = arrays.apply("add", given, given)
    with failing_computations(SHORTAGE) as calls:
        fails(
            "ENOMEM", "no_memory", lambda: arrays.save(tmp_path / "a.safetensors", [("a", doubled)])
        )
    assert calls and not any(tmp_path.iterdir())
    arrays.save(path, [("a", doubled)])
    for handle in (given, doubled):
        arrays.free(handle)


def test_a_step_of_a_training(lib):
    trainings = Trainings(lib)
    made = trainings.create(network())
    for text, status, reason in FAILURES:
        before = trainings.parameters(made)
        with raising(Training, "_update", text):
            fails(status, reason, lambda: trainings.step(made, data()))
        assert trainings.parameters(made) == before
    first = trainings.step(made, data()).step
    assert first == 1
    trainings.free(made)


def test_prompts_that_are_kept_are_given_back(lib, tiny, open_context):
    """A kept prompt may be of the computation that failed."""
    model = tiny(KV)
    context = open_context(model, share_prefix=True)
    lib.generate(context, prompt(80), max_tokens=2)
    other = open_context(model, share_prefix=True)
    lib.begin(other, prompt(80), max_tokens=0)
    assert lib.info(other)["shared"] > 0
    with raising(Sequence, "decode", SHORTAGE):
        fails("ENOMEM", "no_memory", lambda: lib.generate(other, prompt(80), max_tokens=8))
    third = open_context(model, share_prefix=True)
    lib.begin(third, prompt(80), max_tokens=0)
    assert lib.info(third)["shared"] == 0
    assert lib.info(context)["tokens"] == 81


def test_a_stream_has_no_error_of_its_last_owner(tmp_path):
    """Of two computations that fail, mlx reports the second to the next that uses the stream."""
    pool = StreamPool(mx.Device(mx.cpu))
    stream = pool.take()
    with mx.stream(stream):
        broken = [mx.load(truncated(tmp_path / name)) + 1 for name in ("a.npy", "b.npy")]
        for array in broken:
            with suppress(RuntimeError):  # the first may have failed already
                mx.async_eval(array)
    pool.give_back(stream)
    assert pool.take() == stream
    with mx.stream(stream):
        assert (mx.ones(3) * 2).tolist() == [2, 2, 2]


def truncated(path: Any) -> str:
    np.save(path, np.zeros(4096, np.float32))
    path.write_bytes(path.read_bytes()[:300])
    return str(path)


def test_a_stop_and_a_start_after_a_lost_device():
    """The streams of the lost device are not used again: a stream is one of its queues."""
    with in_process.started() as engine:
        before = engine.runtime.streams
        failures.translate(RuntimeError(GONE))
        engine.step()
        engine.stop()
        engine.start(RUNTIME, "")
        assert engine.runtime.streams is not before
        after = engine.runtime.streams
        engine.stop()
        engine.start(RUNTIME, "")
        assert engine.runtime.streams is after
