"""All kinds of work at once in a bounded control group, while memory and threads are refused.

Arguments: seconds, a seed, the library that refuses, a control group ("" for none), a folder for
files, calf's folder, those of other models. A call that is refused is made again until it succeeds,
and gives what it gives without refusals. Prints, as JSON, how often each kind of work was done, how
often something was refused, and the memory before and after.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soak
from soak import AtRisk, StatusError, Worker, lib
from support import groups
from support.arrays import Arrays
from support.c_programs import Programs
from support.programs import graph, node, value
from support.signatures import EHANDLE, ENOMEM, GRAMMAR_REGEX
from support.trainings import Trainings, data, network

THREADS = 5
TRIES = 500
MARGIN = 1.5  # of the memory that is needed
# One of so many requests is refused: small ones, large ones from so many bytes on, new threads.
SMALL, LARGE, NEW_THREADS, FROM = 60_000, 80, 8, 1 << 16
LEFT = 48 << 20  # bytes that the C library and Python may keep
LEFT_ARRAYS = 1 << 16  # bytes of small arrays that results of probes hold
GRAMMAR = "[a-z ]{4,12}"

arrays, programs, trainings = Arrays(lib), Programs(lib), Trainings(lib)
X = np.arange(40_000, dtype=np.float32).reshape(200, 200) / 40_000
PROGRAM = graph([value("x", [200, 200])], [node("y", "multiply", "x", "x")], ["y"])


class Tested(Worker):
    """A worker that makes refused calls again."""

    def __init__(self, *given: Any, models: list[str], expected: dict[str, Any]) -> None:
        super().__init__(*given)
        self.refused: Counter[str] = Counter()
        self._models = models
        self._expected = expected

    @property
    def kinds(self) -> list[Callable[[], None]]:
        """All kinds of work."""
        more = [self.grammar, self.program, self.lazy_arrays, self.training, self.embed, self.load]
        return [*super().kinds, *more]

    def do(self, kind: Callable[[], None]) -> None:
        """Do one kind of work, until nothing that it needs is refused."""
        for _ in range(TRIES):
            try:
                return kind()
            except StatusError as error:
                if error.status != ENOMEM:
                    raise
                self.refused[kind.__name__] += 1
        raise AssertionError(f"{kind.__name__} was refused {TRIES} times")

    def _release(self, free: Callable[[int], None], handle: int) -> None:
        for _ in range(TRIES):
            try:
                return free(handle)
            except StatusError as error:
                if error.status == EHANDLE:  # freed, though the call was refused
                    return None
                if error.status != ENOMEM:
                    raise
        raise AssertionError(f"{free} was refused {TRIES} times")

    def grammar(self) -> None:
        """A generation within a grammar."""
        with self._context(self._chats[0].model) as context:
            said = constrained(context)
        assert said == self._expected["grammar"], said

    def program(self) -> None:
        """A program, made and run."""
        made = programs.create(PROGRAM)
        try:
            (result,) = programs.run(made, [X])
            try:
                assert np.array_equal(arrays.read(result), X * X)
            finally:
                self._release(arrays.free, result)
        finally:
            self._release(programs.free, made)

    def lazy_arrays(self) -> None:
        """Arrays that share a graph: when one cannot be computed, no other is wrong."""
        handles = [arrays.create(X)]
        try:
            for _ in range(4):
                handles += arrays.apply("add", handles[-1], handles[0])
            expected = [X * np.float32(count) for count in range(1, 6)]
            order = list(range(5))
            self._draw.shuffle(order)
            for index in order:
                found = arrays.read(handles[index])
                assert np.allclose(found, expected[index], rtol=1e-6), index
        finally:
            for handle in handles:
                self._release(arrays.free, handle)

    def training(self) -> None:
        """A step of a training."""
        made = trainings.create(network())
        try:
            loss = trainings.step(made, data()).loss
        finally:
            self._release(trainings.free, made)
        assert loss == self._expected["loss"], loss

    def embed(self) -> None:
        """A text's vector."""
        model = self._chats[0].model
        assert lib.embed(model, [soak.TEXTS[0]]) == self._expected["vector"]

    def load(self) -> None:
        """A model that is loaded, used and freed."""
        path = self._draw.choice(self._models)
        model = lib.load(path)
        try:
            with self._context(model) as context:
                said = lib.generate(context, [20, 21, 22], max_tokens=4).text
        finally:
            self._release(lib.free_model, model)
        assert said == self._expected[path], said


def constrained(context: int) -> str:
    """What calf says within the grammar."""
    params = {"grammar": GRAMMAR, "grammar_kind": GRAMMAR_REGEX, "max_tokens": 12}
    tokens = lib.tokenize(lib_model[0], soak.TEXTS[0], flags=1)
    return lib.generate(context, tokens, **params).text


lib_model: list[int] = []


def without_refusals(model: int, models: list[str]) -> dict[str, Any]:
    """What the further kinds of work give."""
    expected: dict[str, Any] = {}
    context = lib.context(model)
    expected["grammar"] = constrained(context)
    lib.free(context)
    made = trainings.create(network())
    expected["loss"] = trainings.step(made, data()).loss
    trainings.free(made)
    expected["vector"] = lib.embed(model, [soak.TEXTS[0]])
    for path in models:
        loaded = lib.load(path)
        context = lib.context(loaded)
        expected[path] = lib.generate(context, [20, 21, 22], max_tokens=4).text
        lib.free(context)
        lib.free_model(loaded)
    return expected


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def at_rest() -> tuple[int, int]:
    """Bytes that mlx has, and that the process has, when nothing runs.

    The library has joined this Python, whose garbage it does not collect.
    """
    gc.collect()
    for _ in range(TRIES):
        try:
            lib.trim_memory()
            return lib.info()["memory"]["active"], resident()
        except StatusError as error:
            soak.allow(error, ENOMEM)
    raise AssertionError("no call is accepted any more")


def work_for(
    seconds: float, workers: list[Tested], at_risk: AtRisk, spare: Callable[[], object]
) -> list[str]:
    """Let all threads work until the time is over; returns what went wrong."""
    failures: list[str] = []
    over = threading.Event()
    end = time.monotonic() + seconds

    def work(worker: Tested) -> None:
        spare()
        try:
            worker.run_all()
            while time.monotonic() < end and not failures:
                worker.run_all()
        except BaseException:
            failures.append(traceback.format_exc())

    def meddle() -> None:
        spare()
        while not over.is_set():
            at_risk.cancel_one()
            try:
                lib.trim_memory()
            except StatusError as error:
                if error.status != ENOMEM:
                    failures.append(traceback.format_exc())
                    return
            time.sleep(0.01)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    meddler = threading.Thread(target=meddle)
    for thread in (*threads, meddler):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    meddler.join()
    return failures


def main(
    seconds: float, seed: int, refusing: str, group: Path | None, folder: Path, paths: list[str]
) -> None:
    """Work without refusals, then with them; compare the memory."""
    switch = ctypes.CDLL(refusing)
    switch.refuse_arm.argtypes = [ctypes.c_uint64] * 4 + [ctypes.c_size_t]
    switch.refuse_count.restype = ctypes.c_long
    switch.refuse_spare()
    if group is not None:
        groups.enter(group)
    lib.start()
    tasks, chats = soak.prepare(seed, paths[0], paths[1:])
    lib_model.append(chats[0].model)
    expected = without_refusals(chats[0].model, paths)
    at_risk = AtRisk(random.Random(seed + 1))

    def workers() -> list[Tested]:
        made = [(number, seed, folder, tasks, chats, at_risk) for number in range(THREADS)]
        return [Tested(*given, models=paths, expected=expected) for given in made]

    failures = work_for(0, workers(), at_risk, switch.refuse_spare)
    before, limit = at_rest(), 0
    if group is not None:
        limit = int(groups.peak(group) * MARGIN)
        groups.bound(group, limit)
    switch.refuse_arm(seed, SMALL, LARGE, NEW_THREADS, FROM)
    tested = workers()
    failures += work_for(seconds, tested, at_risk, switch.refuse_spare)
    switch.refuse_disarm()
    after = at_rest()
    handles = lib.info()["handles"]
    left = {noun: count for noun, count in handles.items() if count and noun != "model"}
    if left or handles["model"] != len(paths):
        failures.append(f"handles are left: {handles}")
    if after[0] > before[0] + LEFT_ARRAYS or after[1] > before[1] + LEFT:
        failures.append(f"memory was {before} and is {after}")
    if failures:
        sys.exit("\n".join(failures))
    lib.stop()
    report = {
        "done": sum((worker.done for worker in tested), Counter()),
        "refused": sum((worker.refused for worker in tested), Counter()),
        "refusals": switch.refuse_count(),
        "limit": limit,
        "before": before,
        "after": after,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    length, chosen, library, its_group, where, *models = sys.argv[1:]
    bounded = Path(its_group) if its_group else None
    main(float(length), int(chosen), library, bounded, Path(where), models)
