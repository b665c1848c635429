"""What a GPU keeps: wired while there is work, freed buffers for a while, limits until the stop.

This machine's CPU passes for a Mac's GPU, and says of itself what that says.
"""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
import pytest
from driver import KV
from support import in_process

from cowmlx import memory
from cowmlx.errors import OutOfMemory, OutOfRange
from cowmlx.generated.defaults import CONTEXT, GENERATION, RUNTIME
from cowmlx.scheduling import streams
from cowmlx.scheduling.streams import StreamPool
from cowmlx.services import device_memory

GIB = 1 << 30
MLX_CACHE = 7 * GIB  # mlx's own limit
M1 = {"architecture": "applegpu_g13g", "max_recommended_working_set_size": 11 * GIB}


class Mac:
    """mlx as on a Mac; notes the calls that set limits."""

    def __init__(self, about=M1):
        self.about = about
        self.gpu = mx.cpu  # the type of the runtime's device
        self.metal = SimpleNamespace(is_available=lambda: True)
        self.calls = []
        self.cached = 0  # bytes of freed buffers
        self._limits = {"cache": MLX_CACHE, "wired": 0, "memory": 16 * GIB}

    def __getattr__(self, name):
        return getattr(mx, name)

    def device_info(self, device):
        return self.about if device.type == self.gpu else {"architecture": "arm64"}

    def _set(self, name, value):
        before, self._limits[name] = self._limits[name], value
        self.calls.append((name, value))
        return before

    def set_wired_limit(self, value):
        return self._set("wired", value)

    def set_cache_limit(self, value):
        return self._set("cache", value)

    def set_memory_limit(self, value):
        return self._set("memory", value)

    def clear_cache(self):
        self.calls.append("clear")
        self.cached = 0

    def get_cache_memory(self):
        return self.cached

    def get_active_memory(self):
        return 0

    def since(self):
        """The calls since the last question."""
        calls, self.calls = self.calls, []
        return calls


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(device_memory, "perf_counter", clock)
    return clock


@pytest.fixture
def mac(monkeypatch):
    mac = Mac()
    monkeypatch.setattr(device_memory, "mx", mac)
    return mac


def generate(engine, folder):
    model = in_process.loaded(engine, folder)
    call = in_process.Call()
    context = engine.context_create(model, CONTEXT)
    engine.context_generate(call, context, [5, 6, 7], {**GENERATION, "max_tokens": 3})
    in_process.finish(engine)
    assert call.error is None


def test_what_is_set_from_start_to_stop(mac, clock, folder):
    with in_process.started() as engine:
        assert mac.since() == [("cache", 11 * GIB // 16)]
        assert engine.due is None
        generate(engine, folder(KV))
        assert mac.since() == [("wired", 11 * GIB)]
        assert engine.due == device_memory.IDLE
        clock.now += device_memory.IDLE / 2
        engine.step()
        assert mac.since() == []
        clock.now += device_memory.IDLE
        assert engine.due == 0
        engine.step()
        assert mac.since() == ["clear", ("wired", 0)]
        assert engine.due is None
        engine.step()
        assert mac.since() == []
        generate(engine, folder(KV))
        assert mac.since() == [("wired", 11 * GIB)]
        memory = engine.runtime_info()["memory"]
        assert (memory["wired_limit"], memory["cache_limit"]) == (11 * GIB, 11 * GIB // 16)
    assert mac.since() == ["clear", ("wired", 0), ("cache", MLX_CACHE)]


def test_work_that_comes_in_time_keeps_what_is_wired(mac, clock, folder):
    with in_process.started() as engine:
        generate(engine, folder(KV))
        mac.since()
        for _ in range(3):
            clock.now += 0.9 * device_memory.IDLE
            generate(engine, folder(KV))
        assert mac.since() == []


def test_buffers_of_operations_alone_are_given_back(mac, clock):
    """Operations and short runs are no steps of the scheduler."""
    with in_process.started() as engine:
        mac.since()
        for mac.cached in (100, 200):
            clock.now += 0.9 * device_memory.IDLE
            engine.step()
            assert engine.due == device_memory.IDLE
        assert mac.since() == []
        clock.now += device_memory.IDLE
        engine.step()
        assert mac.since() == ["clear"]
        assert engine.due is None
        engine.step()
        assert engine.due is None
    assert mac.since() == [("cache", MLX_CACHE)]


def made(mac, **params):
    own = device_memory.DeviceMemory(mx.Device(mx.cpu), {**RUNTIME, **params})
    own.start()
    own.note(worked=True)
    return mac.since()


def test_options(mac):
    assert made(mac, wired_limit=0) == [("cache", 11 * GIB // 16)]
    assert made(mac, wired_limit=GIB, cache_limit=5)[-1] == ("wired", GIB)
    assert made(mac, wired_limit=0, cache_limit=5, memory_limit=GIB) == [
        ("cache", 5),
        ("memory", GIB),
    ]
    with pytest.raises(OutOfRange, match=rf"wired_limit is {12 * GIB}, must be -1, or 0 to"):
        made(mac, wired_limit=12 * GIB)
    assert mac.since() == []


@pytest.mark.parametrize(("recommended", "kept"), [(GIB, GIB // 4), (6 * GIB, 6 * GIB // 16)])
def test_default_cache(mac, recommended, kept):
    mac.about = {"max_recommended_working_set_size": recommended}
    assert made(mac)[0] == ("cache", kept)
    mac.about = {"max_recommended_working_set_size": 200 * GIB}
    assert made(mac)[0] == ("cache", 2 * GIB)


def test_a_cpu_keeps_mlx_s_own_limits(mac, clock, folder):
    mac.gpu, mac.metal.is_available = mx.gpu, lambda: False
    with in_process.started() as engine:
        generate(engine, folder(KV))
        assert engine.due is None
        clock.now += 10 * device_memory.IDLE
        engine.step()
        assert mac.since() == []
        assert engine.runtime_info()["memory"]["wired_limit"] == 0


@pytest.mark.parametrize("noun", ["programs", "trainings"])
def test_a_cpu_keeps_more_for_programs_and_trainings(mac, monkeypatch, noun):
    """A 16th of the free memory, unless mlx keeps more by itself or the host has a limit."""
    mac.gpu, mac.metal.is_available = mx.gpu, lambda: False
    most, room = device_memory.MOST_KEPT, [memory.Room(0, "", False, 0)]
    monkeypatch.setattr(memory, "rooms", lambda device: iter(room))
    own = mac.set_cache_limit(most // 8)
    for given, kept in ((100 * GIB, most), (8 * most, most // 2), (most, most // 8)):
        room[0] = memory.Room(0, "", False, given)
        with in_process.started() as engine:
            getattr(engine, noun)
            assert mac.set_cache_limit(kept) == kept
        assert mac.set_cache_limit(most // 8) == most // 8
    with in_process.started(cache_limit=5) as engine:
        getattr(engine, noun)
        assert mac.set_cache_limit(5) == 5
    mac.set_cache_limit(own)


def test_a_mac_s_cpu_wires_nothing_and_gives_buffers_back(mac, clock):
    """Metal's allocator serves it, which keeps more than the GPU's working set by itself."""
    mac.gpu = mx.gpu
    with in_process.started() as engine:
        assert mac.since() == [("cache", 11 * GIB // 16)]
        mac.cached = 100
        engine.step()
        clock.now += device_memory.IDLE
        engine.step()
        assert mac.since() == ["clear"]
    assert mac.since() == [("cache", MLX_CACHE)]
    assert made(mac, wired_limit=GIB) == [("cache", 11 * GIB // 16)]


def test_the_default_device_is_set_where_the_python_is_ours(monkeypatch):
    chosen = []
    monkeypatch.setattr(mx, "set_default_device", chosen.append)
    with in_process.started() as engine:
        assert chosen == []  # a host's Python
        engine.runtime.start(RUNTIME, "/opt/python")
        assert chosen == [engine.runtime.streams.device]


# ---------------------------------------------------------------------- Streams


class Gpu:
    """The device of a pool whose streams are made by a test."""

    type = mx.gpu


def pool(monkeypatch, new_stream) -> StreamPool:
    monkeypatch.setattr(mx, "new_stream", new_stream)
    monkeypatch.setattr(streams.resources, "start", lambda stream: None)
    return StreamPool(Gpu())


def test_streams_of_a_gpu_are_bounded(monkeypatch):
    lent = pool(monkeypatch, lambda device: object())
    taken = [lent.take() for _ in range(streams.MOST_STREAMS)]
    with pytest.raises(OutOfMemory, match=f"no more streams of the GPU: {streams.MOST_STREAMS}"):
        lent.take()
    lent.give_back(taken[0])
    assert lent.take() is taken[0]


def test_a_mac_without_another_queue_is_short_of_memory(monkeypatch):
    def refuse(device):
        raise RuntimeError("[metal::Device] Failed to make new command queue.")

    with pytest.raises(OutOfMemory, match="Failed to make new command queue"):
        pool(monkeypatch, refuse).take()
