"""Programs beside each other, beside contexts that generate, and against those who end things."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import numpy as np
import pytest
from support.callbacks import StatusError
from support.programs import endless, graph, node, value
from support.signatures import ECANCELED

THREADS, ROUNDS = 8, 25
SQUARE = graph([value("x", ["n"])], [node("y", "multiply", "x", "x")], ["y"])


ONE = np.ones((), np.float32)


def test_many_threads_run_while_contexts_generate(programs, arrays, lib, calf):
    """Every thread has its own results, and every context its own text."""
    program = programs.create(SQUARE)
    prompt = lib.tokenize(calf, "Once upon a time")
    alone = lib.context(calf)
    expected = lib.generate(alone, prompt, max_tokens=24).text
    lib.free(alone)
    failures: list[str] = []
    barrier = threading.Barrier(THREADS + 2)

    def compute(number: int) -> None:
        barrier.wait()
        for turn in range(ROUNDS):
            x = np.arange(number + turn % 3, dtype=np.float32)
            out = np.zeros_like(x)
            if turn % 2:
                programs.run(program, [x], [out])
            else:
                (handle,) = programs.run(program, [x], submit=True)
                arrays.wait(handle)
                out = arrays.read(handle)
                arrays.free(handle)
            if not np.array_equal(out, x * x):
                failures.append(f"{x} gives {out}")

    def generate() -> None:
        context = lib.context(calf)
        barrier.wait()
        for _ in range(2):
            text = lib.generate(context, prompt, max_tokens=24).text
            if text != expected:
                failures.append(text)
            lib.reset(context)
        lib.free(context)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(THREADS)]
    threads += [threading.Thread(target=generate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    programs.free(program)


def in_the_background(run) -> tuple[threading.Thread, list[StatusError]]:
    """Start a run that fails some time."""
    failures: list[StatusError] = []

    def work() -> None:
        with pytest.raises(StatusError) as error:
            run()
        failures.append(error.value)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, failures


def wait_until_it_runs(programs, program) -> None:
    """A run with a reported turn has begun."""
    while programs.info(program)["longest_turn"] is None:
        pass


def test_contexts_generate_beside_an_endless_run(programs, lib, calf):
    program = programs.create(endless())
    thread, failures = in_the_background(lambda: programs.run(program, [ONE]))
    wait_until_it_runs(programs, program)
    context = lib.context(calf)
    assert lib.generate(context, [1, 2, 3], max_tokens=8).stats.generated_tokens > 0
    lib.free(context)
    assert thread.is_alive()
    assert programs.cancel(program) == 0
    thread.join()
    assert failures[0].status == ECANCELED
    # A cancel concerns the runs of its time alone.
    ended = programs.create(SQUARE)
    assert programs.cancel(ended) == 0
    out = np.zeros(1, np.float32)
    programs.run(ended, [np.ones(1, np.float32)], [out])
    assert out == 1
    programs.free(ended)
    programs.free(program)


def served_meanwhile(lib, work) -> int:
    """How many calls the engine has answered while another thread's took its turns."""
    begun = threading.Event()

    def carry_out() -> None:
        begun.set()
        work()

    thread = threading.Thread(target=carry_out)
    thread.start()
    begun.wait()
    count = 0
    while thread.is_alive():
        lib.info()
        count += 1
    thread.join()
    return count


def test_others_are_served_while_a_large_program_is_made(programs, lib):
    """Read, checked, derived, described, and traced for its first run."""
    nodes = [node(f"v{at + 1}", "sin", f"v{at}") for at in range(8_000)]
    large = graph([value("v0", ["n"])], [*nodes, node("s", "sum", "v8000")], ["s"])
    made: list[int] = []
    assert served_meanwhile(lib, lambda: made.append(programs.create(large))) > 4
    gradient = {"of": "s", "with_respect_to": ["v0"]}
    assert served_meanwhile(lib, lambda: made.append(programs.derive(made[0], gradient=gradient)))
    assert served_meanwhile(lib, lambda: programs.info(made[0], n=2)) > 4
    out = np.zeros((), np.float32)
    assert served_meanwhile(lib, lambda: programs.run(made[0], [np.ones(2, np.float32)], [out])) > 4
    assert np.isfinite(out)
    for program in made:
        programs.free(program)


def test_others_are_served_while_a_long_text_is_refused(programs, lib):
    refused = []

    def create() -> None:
        with pytest.raises(StatusError) as error:
            programs.create('{"outputs": [' + "1, " * 4_000_000 + "1]}")
        refused.append(error.value.reason)

    assert served_meanwhile(lib, create) > 4
    assert refused == ["limit_exceeded"]


def test_a_freed_program_runs_on(programs, arrays):
    """Its handle is gone, and so are its inputs'; its results come."""
    state = [value("i", [], "int32"), value("x", [1000])]
    program = programs.create(
        graph(
            state,
            [node(["j", "y"], "while", "i", "x", condition="go", body="step", max_iterations=300)],
            ["y"],
            functions=[
                graph(
                    state,
                    [node("p", "less", "i", "most")],
                    ["p"],
                    name="go",
                    constants=[{"name": "most", "dtype": "int32", "value": 200}],
                ),
                graph(
                    state,
                    [node("k", "add", "i", "one"), node("z", "add", "x", "x1")],
                    ["k", "z"],
                    name="step",
                    constants=[
                        {"name": "one", "dtype": "int32", "value": 1},
                        {"name": "x1", "dtype": "float32", "value": 1},
                    ],
                ),
            ],
        )
    )
    x = arrays.create(np.zeros(1000, np.float32))
    (result,) = programs.run(program, [np.zeros((), np.int32), x], submit=True)
    programs.free(program)
    arrays.free(x)
    assert (arrays.read(result) == 200).all()
    arrays.free(result)


def test_a_cancel_before_the_free_counts(programs, arrays):
    program = programs.create(endless())
    (result,) = programs.run(program, [ONE], submit=True)
    assert programs.cancel(program) == 0
    programs.free(program)
    with pytest.raises(StatusError) as error:
        arrays.wait(result)
    assert error.value.status == ECANCELED
    arrays.free(result)


def test_a_cancelled_run_passes_that_on(programs, arrays):
    """Also to runs of other programs that wait for it."""
    first, second = programs.create(endless()), programs.create(graph([value("x", [])], [], ["x"]))
    (one,) = programs.run(first, [ONE], submit=True)
    thread, failures = in_the_background(lambda: programs.run(second, [one]))
    programs.cancel(first)
    thread.join()
    assert failures[0].status == ECANCELED
    arrays.free(one)
    programs.free(first)
    programs.free(second)


def test_programs_leave_no_memory_behind(programs, lib):
    """A hundred are made, derived, run for many dimensions, and freed."""

    def some(count: int) -> None:
        for number in range(count):
            program = programs.create(
                graph(
                    [value("x", ["n"])],
                    [node("y", "sin", "x"), node("s", "sum", "y")],
                    ["s", "y"],
                )
            )
            gradient = programs.derive(program, gradient={"of": "s", "with_respect_to": ["x"]})
            x = np.ones(20_000 + number % 5, np.float32)
            out = np.zeros_like(x)
            programs.run(gradient, [x], [out])
            programs.free(program)
            programs.free(gradient)

    def used() -> tuple[int, int]:
        """Bytes of arrays, and of the process where the system tells."""
        statm = Path("/proc/self/statm")
        pages = int(statm.read_text().split()[1]) if statm.exists() else 0
        return lib.info()["memory"]["active"], pages * resource.getpagesize()

    some(50)
    lib.trim_memory()
    before = used()
    some(100)
    lib.trim_memory()
    after = used()
    assert after[0] - before[0] < 4096
    assert after[1] - before[1] < 4 << 20
