"""Work that does not fit into memory is refused before anything is taken for it."""

from __future__ import annotations

import json
import os
import sys
from ctypes import c_char
from pathlib import Path
from types import SimpleNamespace
from weakref import WeakSet

import numpy as np
import pytest
from driver import prompt
from support.callbacks import StatusError
from support.compiler import run
from support.paths import ROOT
from support.signatures import FINISH_LENGTH, OVERFLOW_ROLL
from support.threads import at_once
from support.trainings import Trainings

from cowmlx import memory, resources
from cowmlx.errors import OutOfMemory
from cowmlx.generation.context import Context
from cowmlx.services import admission

MODEL = "llama-long"


@pytest.fixture(autouse=True)
def always_read(monkeypatch):
    """What there is, whenever it is needed."""
    monkeypatch.setattr(admission, "FRESH", 0)


def estimate(lib, context, tokens, **params):
    lib.begin(context, tokens, **params)
    return lib.info(context)["estimate"]


def test_a_generation_that_does_not_fit(lib, tiny, open_context, device):
    context = open_context(tiny(MODEL))
    lib.begin(context, prompt(10), max_tokens=4)
    before = lib.tokens(context)
    device(1 << 20)
    with pytest.raises(StatusError) as refused:
        lib.begin(context, prompt(1000), max_tokens=4000)
    error = refused.value
    assert (error.name, error.reason) == ("ENOMEM", "no_memory")
    assert error.details["available"] == 1 << 20
    assert error.details["needed"] > 2**20
    assert "the fake device" in error.message
    assert lib.tokens(context) == before
    assert lib.generate(context, prompt(10), max_tokens=4).stats.generated_tokens == 4


def test_max_tokens_count(lib, tiny, open_context, device):
    contexts = [open_context(tiny(MODEL)) for _ in range(2)]
    small = estimate(lib, contexts[0], prompt(300), max_tokens=10)
    large = estimate(lib, contexts[1], prompt(300), max_tokens=3000)
    assert large > 3 * small
    context = open_context(tiny(MODEL))
    device(small + (1 << 20))
    with pytest.raises(StatusError, match="ENOMEM"):
        lib.begin(context, prompt(300), max_tokens=3000)
    lib.begin(context, prompt(300), max_tokens=10)


def test_a_window_bounds_what_is_expected(lib, tiny, open_context):
    rolling = open_context(tiny(MODEL), max_tokens=512, overflow=OVERFLOW_ROLL)
    stopping = open_context(tiny(MODEL))
    assert estimate(lib, rolling, prompt(300), max_tokens=2**40) < estimate(
        lib, stopping, prompt(300), max_tokens=2**40
    )


def test_what_others_were_promised_counts(lib, tiny, open_context, device):
    first, second = (open_context(tiny(MODEL)) for _ in range(2))
    needed = estimate(lib, first, prompt(300), max_tokens=3000)
    device(needed + 100_000)
    lib.begin(first, prompt(300, 1), max_tokens=3000)
    with pytest.raises(StatusError, match="ENOMEM"):
        lib.begin(second, prompt(300, 2), max_tokens=3000)
    lib.free(first)
    lib.begin(second, prompt(300, 2), max_tokens=3000)


def largest_chunk(lib, context):
    """Begin a generation behind 600 tokens; return how many were processed at once."""
    sizes = []
    before = 0

    def note(processed, total):
        nonlocal before
        sizes.append(processed - before)
        before = processed
        return True

    lib.begin(context, prompt(600), max_tokens=8, prompt_progress=note)
    return max(sizes)


def test_chunks_stay_where_smaller_ones_are_no_help(lib, tiny, open_context, monkeypatch):
    """As where the weights alone, which are not read yet, take what others have."""
    context = open_context(tiny(MODEL), solo=True)
    needed = estimate(lib, context, prompt(600), max_tokens=8)
    lib.reset(context)
    monkeypatch.setattr(admission, "RESERVE", 0)
    room = memory.Room(2 * needed, "the fake device", is_limit=False, at_ease=1 << 10)
    monkeypatch.setattr(memory, "rooms", lambda device: [room])
    assert largest_chunk(lib, context) == 512
    lib.reset(context)
    room = room._replace(available=needed - 200_000)
    assert largest_chunk(lib, context) < 512


def test_chunks_shrink_when_memory_is_short(lib, tiny, open_context, device):
    expected = lib.generate(open_context(tiny(MODEL)), prompt(600), max_tokens=8)
    context = open_context(tiny(MODEL), solo=True)
    whole = estimate(lib, context, prompt(600), max_tokens=8)
    lib.reset(context)
    device(whole - 200_000)
    assert largest_chunk(lib, context) < 512
    text = "".join(piece.text for piece in lib.drain(context))
    assert text == expected.text
    assert lib.stats(context).generated_tokens == 8
    assert lib.next(context).finish == FINISH_LENGTH


def test_kept_prompts_are_given_back_first(lib, tiny, open_context, device, monkeypatch):
    context = open_context(tiny(MODEL), share_prefix=True)
    lib.generate(context, prompt(100), max_tokens=2)
    rooms = iter([1 << 10])
    monkeypatch.setattr(admission, "RESERVE", 0)
    monkeypatch.setattr(
        memory,
        "rooms",
        lambda device: iter([memory.limit(next(rooms, 1 << 40), "the fake device")]),
    )
    other = open_context(tiny(MODEL), share_prefix=True)
    lib.begin(other, prompt(100), max_tokens=2)
    assert lib.info(other)["shared"] == 0


def admitting(monkeypatch, reclaim=lambda: None):
    """Return an Admission that checks work of any size, and its runtime."""
    monkeypatch.setattr(admission, "RESERVE", 0)
    runtime = SimpleNamespace(
        memory_is_limited=False, limits=lambda: [], streams=SimpleNamespace(device="a device")
    )
    idle = {"put_to_sleep": lambda context: False, "idle_bytes": lambda context: 0}
    return admission.Admission(runtime, reclaim=reclaim, **idle), runtime


def test_what_is_kept_is_given_back_only_before_a_refusal(monkeypatch):
    monkeypatch.setattr(memory, "rooms", lambda device: [memory.limit(100, "")])
    reclaimed = []
    host, _ = admitting(monkeypatch, lambda: reclaimed.append(1))
    assert host.at_once(8, 64, lambda count, chunk: 30 * count, "a batch") == (2, 64)
    assert reclaimed == []
    assert host.at_once(8, 64, lambda count, chunk: 2 * count * chunk, "a batch") == (1, 32)
    assert reclaimed == [1]
    with pytest.raises(OutOfMemory):
        host.at_once(8, 64, lambda count, chunk: 101 * count, "a batch")


def test_memory_that_was_free_is_not_read_again(monkeypatch):
    read = []
    monkeypatch.setattr(
        memory, "rooms", lambda device: read.append(device) or [memory.limit(100, "")]
    )
    host, runtime = admitting(monkeypatch)

    def reads(*sizes):
        before = len(read)
        for size in sizes:
            host.require(size, "a run")
        return len(read) - before

    assert reads(20, 20) == 2
    monkeypatch.setattr(admission, "FRESH", 1e9)
    assert reads(40, 20, 20) == 0  # with what was left of the last
    assert reads(60, 40) == 1
    with pytest.raises(OutOfMemory):
        host.require(101, "a run")
    assert reads(60, 60) == 2  # nothing is left
    runtime.memory_is_limited = True
    assert reads(1, 1) == 2


def test_a_load_that_does_not_fit(lib, folder, device):
    device(1 << 10)
    with pytest.raises(StatusError) as refused:
        lib.load(folder(MODEL))
    assert refused.value.name == "ENOMEM"
    assert refused.value.details["available"] == 1 << 10


def test_a_folder_tells_what_a_load_takes(lib, folder, tiny):
    path = os.fsencode(folder(MODEL))
    facts = json.loads(lib._fill(c_char, lib.c.cow_mlx_model_inspect, path, 0))
    assert facts["load_bytes"] >= facts["bytes"] > 0
    assert facts["peak_bytes_of_1000_tokens"] > facts["cache_bytes_per_1000_tokens"] > 0


def test_nothing_begun_has_no_estimate(lib, tiny, open_context):
    assert lib.info(open_context(tiny(MODEL)))["estimate"] is None


@pytest.fixture
def system(monkeypatch):
    """A system with so many bytes that are certain, and so many at ease; no limit is set."""

    def system(available, at_ease):
        room = memory.Room(available, "the system's memory", False, at_ease)
        monkeypatch.setattr(memory, "rooms", lambda device: iter([room]))
        monkeypatch.setattr(admission, "RESERVE", 0)

    return system


def test_without_a_limit_only_what_is_certain_counts(lib, tiny, open_context, system):
    """A generation that may become long has not become long yet."""
    first, second = (open_context(tiny(MODEL)) for _ in range(2))
    system(4 << 20, 1 << 40)
    lib.begin(first, prompt(300), max_tokens=7000)
    assert lib.info(first)["estimate"] > 8 << 20
    lib.begin(second, prompt(300, 1), max_tokens=7000)
    with pytest.raises(StatusError, match="ENOMEM"):
        lib.begin(open_context(tiny(MODEL)), prompt(4000, 2), max_tokens=10)


def test_memory_that_others_would_lose_refuses_nothing(lib, tiny, open_context, system):
    expected = lib.generate(open_context(tiny(MODEL)), prompt(300), max_tokens=4).text
    context = open_context(tiny(MODEL), solo=True)
    system(1 << 40, 0)
    assert lib.generate(context, prompt(300), max_tokens=4).text == expected


@pytest.fixture
def tight(monkeypatch):
    """A device that has room once so many idle contexts of the test have given their caches back.

    The caches must be larger than what does not fit, or nothing sleeps.
    Contexts that other tests left open never sleep.
    """
    opened: WeakSet[Context] = WeakSet()
    made, can_sleep = Context.__init__, Context.can_sleep.fget

    def note(context, *args, **options):
        opened.add(context)
        made(context, *args, **options)

    monkeypatch.setattr(Context, "__init__", note)
    monkeypatch.setattr(
        Context, "can_sleep", property(lambda context: context in opened and can_sleep(context))
    )

    def tight(sleepers):
        slept = []
        own = Context.sleep

        def sleep(context):
            slept.append(context)
            own(context)

        monkeypatch.setattr(Context, "sleep", sleep)
        monkeypatch.setattr(admission, "RESERVE", 0)
        monkeypatch.setattr(
            memory,
            "rooms",
            lambda device: iter([memory.limit((1 << 40) * (len(slept) >= sleepers), "a device")]),
        )

    return tight


def test_idle_contexts_give_their_caches_back_before_a_refusal(lib, tiny, open_context, tight):
    """The least recently used ones first; what they held is processed again."""
    contexts = [open_context(tiny(MODEL)) for _ in range(3)]
    for seed, context in enumerate(contexts):
        lib.generate(context, prompt(400, seed), max_tokens=4)
    held = [lib.tokens(context) for context in contexts]
    expected = lib.generate(open_context(tiny(MODEL)), [*held[0], 20], max_tokens=8).text
    tight(2)
    lib.begin(open_context(tiny(MODEL)), prompt(100, 9), max_tokens=4)
    assert [lib.info(context)["bytes"] > 0 for context in contexts] == [False, False, True]
    assert [lib.tokens(context) for context in contexts] == held
    assert lib.info(contexts[0])["tokens"] == len(held[0])
    assert lib.generate(contexts[0], [*held[0], 20], max_tokens=8).text == expected
    info = lib.info(contexts[0])
    assert info["reused"] == 0
    assert "memory was short" in info["rebuilt"]
    assert lib.info(contexts[0])["bytes"] > 0


def test_a_sleeping_context_does_what_others_do(lib, tiny, open_context, tight, tmp_path):
    context = open_context(tiny(MODEL))
    lib.generate(context, prompt(400), max_tokens=4)
    held, logits = lib.tokens(context), lib.logits(context)
    expected = lib.generate(open_context(tiny(MODEL)), [*held, 20], max_tokens=8).text
    tight(1)
    busy = open_context(tiny(MODEL))
    lib.begin(busy, prompt(100, 9), max_tokens=4)
    assert lib.info(context)["bytes"] == 0
    assert lib.logits(context) == logits
    forked, loaded = lib.fork(context), open_context(tiny(MODEL))
    checkpoint = lib.checkpoint(context)
    lib.save(context, tmp_path / "saved")
    lib.restore(loaded, tmp_path / "saved")
    assert [lib.tokens(one) for one in (forked, loaded)] == [held, held]
    for one in (forked, loaded):
        assert lib.generate(one, [*held, 20], max_tokens=8).text == expected
    assert lib.trim_end(context, 10) == 10
    assert lib.tokens(context) == held[:-10]
    assert lib.info(context)["bytes"] > 0
    lib.rewind(context, checkpoint)
    assert lib.tokens(context) == held
    assert lib.generate(context, [*held, 20], max_tokens=8).text == expected
    lib.reset(context)
    assert lib.tokens(context) == []
    lib.free(forked)


def test_a_draft_model_counts(lib, tiny, open_context, device):
    params = {"max_tokens": 3000, "draft": tiny("llama-other"), "draft_tokens": 3}
    alone, drafted, third = (open_context(tiny(MODEL)) for _ in range(3))
    small = estimate(lib, alone, prompt(20), max_tokens=3000)
    assert estimate(lib, drafted, prompt(20), **params) > 1.2 * small
    for context in (alone, drafted):
        lib.reset(context)
    device(small)
    lib.begin(alone, prompt(20), max_tokens=3000)
    lib.reset(alone)
    with pytest.raises(StatusError, match="ENOMEM"):
        lib.begin(third, prompt(20), **params)


def test_contexts_generate_alone_where_a_batch_does_not_fit(lib, tiny, open_context, monkeypatch):
    prompts = [prompt(40, seed) for seed in range(2)]
    contexts = [open_context(tiny(MODEL)) for _ in prompts]

    def texts():
        said = {}

        def generate(index):
            said[index] = lib.generate(contexts[index], prompts[index], max_tokens=60).text

        at_once(2, generate)
        return said

    expected = texts()
    assert any(lib.info(context)["batched"] for context in contexts)
    monkeypatch.setattr(admission, "RESERVE", 0)
    monkeypatch.setattr(
        memory, "rooms", lambda device: iter([memory.Room(1 << 40, "a system", False, 0)])
    )
    for context in contexts:
        lib.reset(context)
    assert texts() == expected
    assert not any(lib.info(context)["batched"] for context in contexts)


def test_a_training_of_a_model_counts(lib, tiny, device):
    trainings = Trainings(lib)
    made = trainings.create_for_model(tiny("llama"))
    tokens = np.array([prompt(30, row) for row in range(4)], np.int32)
    targets = np.ones(tokens.shape, bool)
    trainings.step(made, [tokens, targets])
    before = trainings.parameters(made)
    device(1 << 10)
    with pytest.raises(StatusError) as refused:
        trainings.step(made, [tokens, targets])
    assert (refused.value.name, refused.value.details["available"]) == ("ENOMEM", 1 << 10)
    assert "a micro-batch" in refused.value.message
    device(1 << 40)
    assert trainings.parameters(made) == before
    trainings.free(made)


GROUP = {
    "unified": (
        "0::/a/b",
        "",
        ("memory.max", "memory.current", "memory.swap.max"),
        ("inactive_file", "active_file"),
    ),
    "version 1": (
        "4:memory:/a/b",
        "memory/",
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.memsw.limit_in_bytes"),
        ("total_inactive_file", "total_active_file"),
    ),
}


@pytest.mark.parametrize("kind", GROUP)
def test_the_limits_of_control_groups_and_of_the_system(tmp_path, monkeypatch, kind):
    line, root, (limit, usage, swap), files = GROUP[kind]
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(f"7:pids:/\n{line}\n")
    (proc / "meminfo").write_text(
        "MemTotal: 20 kB\nMemAvailable: 5 kB\nSwapFree: 2 kB\nAnonPages: 3 kB\nShmem: 4 kB\n"
    )
    inner = groups / f"{root}a/b"
    inner.mkdir(parents=True)
    (inner / limit).write_text("max\n" if kind == "unified" else "9223372036854771712\n")
    (inner.parent / limit).write_text("1000\n")
    (inner.parent / usage).write_text("700\n")
    (inner.parent / swap).write_text("16\n")
    (inner.parent / "memory.stat").write_text(f"{files[0]} 50\n{files[1]} 25\nother 9\n")
    monkeypatch.setattr(memory, "PROC", str(proc))
    monkeypatch.setattr(memory, "GROUPS", str(groups))
    (system,) = memory._of_system()
    assert (system.available, system.at_ease, system.is_limit) == (15 << 10, 7 << 10, False)
    assert list(memory._of_groups()) == [memory.limit(391, "the limit of the control group")]


@pytest.mark.parametrize(("most", "easy"), [(900, 300), (900, 1000)])
def test_the_memory_of_a_mac(tmp_path, monkeypatch, most, easy):
    """There is no /proc, and C asks the kernel."""
    monkeypatch.setattr(memory, "PROC", str(tmp_path))
    monkeypatch.setattr(resources, "_system_memory", lambda: (most, easy))
    (system,) = memory._of_system()
    assert (system.available, system.at_ease, system.is_limit) == (900, min(most, easy), False)


HOST = Path(__file__).parents[1] / "hosts/bounded.py"


def bounded(folder, how):
    """What the host gets within a real limit."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = run([sys.executable, HOST, folder("llama-deep"), how], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_a_real_limit_of_the_address_space(folder):
    assert bounded(folder, "RLIMIT_AS") == ["OK", "ENOMEM", "RLIMIT_AS", "OK"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_a_real_control_group(folder, control_group):
    result = bounded(folder, str(control_group))
    assert result == ["OK", "ENOMEM", "the limit of the control group", "OK"]
