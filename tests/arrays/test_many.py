"""Many arrays, many threads, and a runtime that stops."""

from __future__ import annotations

import os
import resource
import sys
import threading
from ctypes import byref, c_int64
from pathlib import Path

import numpy as np
from support.arrays import tensor
from support.compiler import run
from support.paths import ROOT

MILLION = 1_000_000


def peak() -> int:
    """The most memory that the process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def test_a_million_arrays_leave_memory_flat_and_no_handle_comes_again(arrays):
    given = byref(tensor(np.arange(64, dtype=np.float32)))
    out = c_int64()
    create, free = arrays.c.cow_mlx_array_create, arrays.c.cow_mlx_array_free
    target = byref(out)
    for _ in range(10_000):
        create(given, target)
        free(out)
    before = peak()
    seen = set()
    for index in range(MILLION):
        assert create(given, target) == 0
        if index % 50 == 0:
            seen.add(out.value)
        assert free(out) == 0
    assert peak() - before < 16 << 20
    assert len(seen) == MILLION // 50
    assert all(2**32 <= handle < 2**53 for handle in seen)


def test_a_hundred_thousand_live_at_once(arrays):
    source = np.arange(4, dtype=np.int32)
    handles = []
    for index in range(100_000):
        source[0] = index
        handles.append(arrays.create(source))
    assert len(set(handles)) == 100_000
    assert arrays.lib.info()["handles"]["array"] >= 100_000
    for index in range(0, 100_000, 997):
        assert arrays.view(handles[index])[0] == index
    for handle in handles:
        arrays.free(handle)


def test_threads_create_read_and_free_at_once(arrays):
    failures = []

    def work(seed: int) -> None:
        array = np.full((50, 50), seed, np.int64)
        stale = 0
        for _ in range(200):
            handle = arrays.create(array.T)
            if arrays.type(handle) != ("int64", (50, 50)) or (arrays.read(handle) != seed).any():
                failures.append(seed)
            if stale and arrays.c.cow_mlx_array_free(stale) != -2:
                failures.append(stale)
            arrays.free(handle)
            stale = handle

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_arrays_beside_a_context_that_generates(arrays, lib, calf, tmp_path):
    prompt = lib.tokenize(calf, "Once upon a time")
    alone = lib.context(calf)
    expected = lib.generate(alone, prompt, max_tokens=48).text
    context = lib.context(calf)
    told = []
    thread = threading.Thread(
        target=lambda: told.append(lib.generate(context, prompt, max_tokens=48).text)
    )
    thread.start()
    array = np.arange(250_000, dtype=np.float64)
    rounds = 0
    while thread.is_alive() or rounds < 3:
        handle = arrays.create(array[::-1])
        arrays.save(tmp_path / "beside", [("a", handle)])
        (loaded,) = arrays.load(tmp_path / "beside", "a")
        assert (arrays.view(loaded) == array[::-1]).all()
        arrays.free(handle)
        arrays.free(loaded)
        rounds += 1
    thread.join()
    assert told == [expected]
    lib.free(alone)
    lib.free(context)


def test_a_stop_ends_waits_and_frees_arrays_but_not_their_tensors():
    host = Path(__file__).parent / "hosts/stopped.py"
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    done = run([sys.executable, host], env={**os.environ, **paths})
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def resident() -> int:
    """The memory that the process has now, in bytes."""
    told = run(["ps", "-o", "rss=", "-p", str(os.getpid())]).stdout
    return int(told) * 1024


def test_memory_of_large_arrays_is_used_again_and_given_back_by_a_trim(arrays, lib):
    array = np.ones(64 << 20, np.uint8)
    places = set()
    for _ in range(4):
        handle = arrays.create(array)
        places.add(arrays.view(handle).ctypes.data)
        arrays.free(handle)
    assert len(places) == 1
    before = resident()
    lib.trim_memory()
    assert before - resident() > 60 << 20
