"""Steps that fail while they compute: mlx reports it once, and no host gets their tokens."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from driver import KV, prompt
from support import in_process
from support.device_texts import SHORTAGES
from support.in_process import Call, finish

from cowmlx import device_failures, failures
from cowmlx.cache import sequence
from cowmlx.cache.batch import Batch
from cowmlx.errors import CowMlxError, Shortage
from cowmlx.generated.constants import FINISH_STOP
from cowmlx.generated.defaults import CONTEXT, GENERATION
from cowmlx.generation.drafting import PromptLookup
from cowmlx.generation.generation import Generation
from cowmlx.generation.host_logits import HostLogits
from cowmlx.generation.sampling.samples import RowLogits
from cowmlx.scheduling import lane

REPORT = "[read] Unable to read from file."
TOKENS = 14
FAILS = 5  # the step of a network that fails


@pytest.fixture(scope="module")
def engine():
    with in_process.started() as engine:
        yield engine


@pytest.fixture(scope="module")
def model(engine, folder):
    return in_process.loaded(engine, folder(KV), prefix_cache_bytes=0)


@pytest.fixture(scope="module")
def expected(engine, model):
    """The tokens behind the prompts of three hosts."""
    hosts = [Host(engine, model, number).begin() for number in range(3)]
    for host in hosts:
        read(engine, [host])
    return [host.tokens for host in hosts]


@pytest.fixture
def hosts(engine, model):
    """Opens hosts, and closes them at the end."""
    made: list[Host] = []

    def hosts(count: int, **params: Any) -> list[Host]:
        made.extend(Host(engine, model, number, **params).begin() for number in range(count))
        return made

    yield hosts
    for host in made:
        engine.context_free(host.context)
    finish(engine)


class Reader(Call):
    """A host that wants a token."""

    ended = False

    def succeed(self, value: Any = None) -> bool:
        self.result, self.ended = value, True
        return True

    def done(self, value: Any) -> None:
        self.ended = True

    def fail(self, error: BaseException) -> None:
        self.error, self.ended = error, True


class Host:
    """Reads tokens of a context, one at a time."""

    def __init__(self, engine: Any, model: int, number: int, **params: Any) -> None:
        self.engine, self.number, self.params = engine, number, params
        self.context = engine.context_create(model, {**CONTEXT, **params.pop("of_context", {})})
        self.tokens: list[int] = []
        self.error: BaseException | None = None
        self.done = False

    def begin(self) -> Host:
        fields = {**GENERATION, "max_tokens": TOKENS, **self.params}
        call = Reader()
        self.engine.context_begin(call, self.context, prompt(8, self.number), fields)
        wait(self.engine, [call])
        if call.error is not None:
            raise call.error
        return self

    def next(self) -> Reader:
        call = Reader()
        self.engine.context_next(call, self.context)
        return call

    def take(self, call: Reader) -> None:
        if call.error is not None:
            self.error, self.done = call.error, True
        elif call.result is None:
            self.done = True
        else:
            self.tokens.append(call.result[1].token)


def wait(engine: Any, calls: list[Reader]) -> None:
    while not all(call.ended for call in calls):
        assert engine.step(), "a call waits, but nobody has anything to do"


def read(engine: Any, hosts: list[Host], rounds: int = 2 * TOKENS) -> None:
    """Let hosts take a token each in turn."""
    for _ in range(rounds):
        reading = [host for host in hosts if not host.done]
        calls = [host.next() for host in reading]
        wait(engine, calls)
        for host, call in zip(reading, calls, strict=True):
            host.take(call)


class LateFailure:
    """Lets a step of a network fail when the dispatch thread has long gone on.

    The tokens of the step are others then, unless the failure is reported.
    """

    def __init__(self, path: Any) -> None:
        np.save(path, np.zeros(64, np.float32))
        path.write_bytes(path.read_bytes()[:-8])
        self._path = str(path)
        self._slow = mx.full((500, 500), 2e-3)
        mx.eval(self._slow)
        self.steps = count(1)
        self.failed = False

    def array(self) -> mx.array:
        """An array (1,) that fails."""
        slow = self._slow
        for _ in range(6):
            slow = mx.tanh(slow @ slow)
        return slow[0, :1] * 0 + mx.load(self._path)[:1]

    def of(self, works: Callable[..., mx.array]) -> Callable[..., mx.array]:
        def logits_behind(network: Any, ids: mx.array, *rest: Any) -> mx.array:
            if next(self.steps) == FAILS:
                self.failed = True
                ids = mx.where(self.array() == 7, ids, (ids + 1) % 250)
            return works(network, ids, *rest)

        return logits_behind


@pytest.fixture
def late_failure(monkeypatch, tmp_path):
    """The fifth step of lanes, or of contexts alone, fails; as one of a device without memory."""
    failure, own = LateFailure(tmp_path / "cut.npy"), device_failures.of_text

    def of_text(text: str) -> CowMlxError | None:
        return Shortage(text) if text == REPORT else own(text)

    def late_failure() -> LateFailure:
        for module in (lane, sequence):
            broken = failure.of(module.logits_behind)
            monkeypatch.setattr(module, "logits_behind", broken)
        monkeypatch.setattr(device_failures, "of_text", of_text)
        return failure

    return late_failure


def logits(host: Host) -> None:
    host.engine.context_logits(host.context)


def checkpoint(host: Host) -> None:
    host.engine.context_checkpoint(host.context)


def fork(host: Host) -> None:
    host.engine.context_fork(host.context)


def score(host: Host) -> None:
    call = Reader()
    host.engine.context_prompt_logprobs(call, host.context, prompt(4), 0)
    wait(host.engine, [call])
    if call.error is not None:
        raise call.error


def begin_again(host: Host) -> None:
    host.tokens, host.done = [], True
    host.begin()


def trim(host: Host) -> None:
    host.done = True
    call = Reader()
    host.engine.context_trim_end(call, host.context, 2)
    wait(host.engine, [call])
    if call.error is not None:
        raise call.error


@pytest.mark.parametrize("use", [logits, checkpoint, fork, score, begin_again, trim])
@pytest.mark.parametrize("solo", [False, True])
def test_a_call_that_meets_the_failure_ends_all_that_were_computed_with_it(
    engine, hosts, expected, late_failure, use, solo
):
    made = hosts(1 if solo else 3, of_context={"solo": solo})
    failure = late_failure()
    while not failure.failed:
        read(engine, made, 1)
    try:
        use(made[0])
    except Exception as error:
        assert failures.spoils(error)
    read(engine, made)
    for host, tokens in zip(made, expected, strict=False):
        assert host.tokens == tokens[: len(host.tokens)]
        met = host is made[0] and use in (begin_again, trim)
        assert met or failures.spoils(host.error)


def failing_once(monkeypatch: Any, owner: Any, name: str, at: int = 1) -> list[int]:
    """Let a call of a function fail; gives the calls from then on."""
    works, calls, after = getattr(owner, name), count(1), []

    def function(*arguments: Any, **named: Any) -> Any:
        number = next(calls)
        if number >= at:
            after.append(number)
        if number == at:
            raise RuntimeError(SHORTAGES[0])
        return works(*arguments, **named)

    monkeypatch.setattr(owner, name, function)
    return after


REPORTED: dict[str, tuple[Any, str, Any]] = {
    "logits are read": (RowLogits, "array", logits),
    "a row is copied": (Batch, "take", checkpoint),
    "a row is copied for a fork": (Batch, "take", fork),
    "a row is copied to be scored": (Batch, "take", score),
    "a row leaves as a prompt begins": (sequence.Sequence, "trim_to", begin_again),
    "a row leaves as known tokens are counted": (
        sequence.Sequence,
        "reusable",
        lambda host: host.engine.contexts.get(host.context).known_tokens(prompt(8)),
    ),
}


@pytest.mark.parametrize("place", REPORTED)
def test_the_first_to_hear_of_a_failure_tells_the_batch(hosts, engine, monkeypatch, place):
    owner, name, use = REPORTED[place]
    made = hosts(3)
    read(engine, made, 4)
    with monkeypatch.context() as patch:
        assert not (called := failing_once(patch, owner, name))
        with pytest.raises(RuntimeError):
            use(made[0])
        assert called
    held = [engine.context_tokens(host.context) for host in made]
    read(engine, made[1:])
    assert all(failures.spoils(host.error) for host in made[1:])
    assert held == [[]] * 3


def test_a_generation_that_ends_tells_those_that_go_on(hosts, engine, monkeypatch):
    """Its row has left the batch when it waits for the last step."""
    made = hosts(3)
    made[0].params["max_tokens"] = 5
    made[0].begin()
    failing_once(monkeypatch, Generation, "settle")
    read(engine, made)
    assert [failures.spoils(host.error) for host in made[1:]] == [True, True]


class Changing(Reader):
    """A host whose function leaves logits as they are."""

    logits_function = SimpleNamespace(
        question=lambda tokens, count: SimpleNamespace(values=[0.0] * count, answer=None)
    )

    def ask_logits(self, question: Any) -> None:
        question.answer = True


def test_logits_for_a_host_that_were_not_computed_tell_the_batch(hosts, engine, monkeypatch):
    """Their row has left the batch by then, with its layers alone computed."""
    made = hosts(3)
    for host in made[1:]:
        engine.context_reset(host.context)
    calls = [Changing() for _ in made[1:]]
    fields = {**GENERATION, "max_tokens": TOKENS}
    for host, call in zip(made[1:], calls, strict=True):
        engine.context_begin(call, host.context, prompt(8, host.number), fields)
    wait(engine, calls)
    assert [call.error for call in calls] == [None, None]
    assert [engine.contexts.get(host.context).shares_steps for host in made] == [True] * 3
    failing_once(monkeypatch, HostLogits, "ask")
    read(engine, made)
    assert all(failures.spoils(host.error) for host in made)


def test_a_row_that_ends_as_a_failure_is_reported_has_no_layers(hosts, engine, monkeypatch):
    """The first of a step's rows ends, and the second one hears of the next step's failure."""
    made = hosts(3)
    read(engine, made, 3)
    own, ended = Generation.read, []

    def reads(generation: Any, step: Any) -> None:
        if ended:
            raise RuntimeError(SHORTAGES[0])
        own(generation, step)
        generation._end(FINISH_STOP)
        ended.append(generation)

    monkeypatch.setattr(Generation, "read", reads)
    read(engine, made)
    assert len(ended) == 1
    assert all(failures.spoils(host.error) for host in made)
    assert [engine.context_tokens(host.context) for host in made] == [[]] * 3


def test_no_draft_is_read_behind_a_failure(hosts, engine, monkeypatch):
    def draft(drafter: Any, tokens: list[int], most: int, number: int, ahead: Any) -> list[int]:
        return [token for token in [20, 21][:most] if ahead.take(token)]

    monkeypatch.setattr(PromptLookup, "draft", draft)
    made = hosts(3, draft_tokens=2)
    checked = failing_once(monkeypatch, Generation, "check_draft", 4)
    read(engine, made)
    assert checked == [4]
    assert all(failures.spoils(host.error) for host in made)


def test_a_failure_on_a_lanes_stream_is_no_later_users(hosts, engine, tmp_path):
    """The last of its contexts has succeeded, so nobody has met it."""
    (host,) = hosts(1)
    lanes = engine.runtime.lanes
    stream = lanes._of[engine.contexts.get(host.context)].stream
    with mx.stream(stream):
        mx.async_eval(LateFailure(tmp_path / "cut.npy").array())
    read(engine, [host])
    assert host.error is None
    finish(engine)
    streams = engine.runtime.streams
    taken = [streams.take() for pooled in streams._all if pooled.is_free]
    assert stream in taken
    for each in taken:
        with mx.stream(each):
            assert (mx.ones(3) * 2).tolist() == [2, 2, 2]
        streams.give_back(each)
