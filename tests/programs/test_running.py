"""Runs: what is checked before, what is kept between them, what others get of the time."""

from __future__ import annotations

import mlx.core as mx
import pytest
from support.programs import bits, derive, graph, node, parse, value

from cowmlx.accelerate import kernels
from cowmlx.programs import bounds
from cowmlx.programs.failure import ProgramError
from cowmlx.programs.running import compiling, plan

PAIR = graph(
    [value("x", ["n", 3]), value("y", ["n"]), value("i", [], "int32")],
    [
        node("s", "sum", "x", axis=1),
        node("z", "add", "s", "y"),
        node("t", "take", "z", "i"),
    ],
    ["z", "t"],
)


def inputs(n: int = 4, i: int = 0) -> list[mx.array]:
    found = [mx.ones((n, 3)), mx.zeros(n), mx.array(i)]
    mx.eval(found)
    return found


def test_shapes_of_results_are_known_before_anything_is_computed():
    run = parse(PAIR).run(inputs(7))
    assert [str(spec) for spec in run.specs] == ["float32(7)", "float32()"]


@pytest.mark.parametrize(
    ("given", "reason", "message"),
    [
        (inputs()[:2], "missing", "the run has 2 inputs, must have 3: 'x', 'y', 'i'"),
        ([*inputs(), mx.zeros(1)], "out_of_range", "the run has 4 inputs, must have 3"),
        ([mx.ones((4, 3), mx.int32), *inputs()[1:]], "wrong_type", "input 'x' is int32, must be f"),
        ([mx.ones(3), *inputs()[1:]], "conflict", r"input 'x' has the shape \(3\).*2 dimensions"),
        ([mx.ones((4, 2)), *inputs()[1:]], "conflict", r"declared is \(n, 3\)"),
        (
            [mx.ones((4, 3)), mx.zeros(5), mx.array(0)],
            "conflict",
            r"input 'y' has the shape \(5\), declared is \(n\): n is 4 already \(input 'x'\)",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_named(given, reason, message):
    with pytest.raises(ProgramError, match=message) as caught:
        parse(PAIR).run(given)
    assert caught.value.reason == reason


def test_rules_are_asked_again_for_the_dimensions_of_a_run():
    program = parse(graph([value("x", ["n"])], [node("y", "max", "x")], ["y"]))
    assert program.run([mx.array([1.0, 3.0])]).finish()[0].item() == 3
    with pytest.raises(ProgramError, match=r"node 'y' \(max\): max cannot take \(0\)"):
        program.run([mx.zeros(0)])


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_slice_of_fewer_elements_than_declared_is_refused(vectorized):
    """The last three of n elements are two where n is 2."""
    last = node("y", "slice", "x", start=[-3], stop=[2**31 - 1])
    program = parse(graph([value("x", ["n"])], [last, node("z", "negative", "y")], ["z"]))
    more = [2] if vectorized else []
    if vectorized:
        program = derive(program, vectorize={"x": 0})
    assert program.run([mx.zeros((*more, 5))]).finish()[0].shape == (*more, 3)
    message = r"node 'y' \(slice\): its result has the shape \(2\) for n = 2, must have.* \(3\)"
    with pytest.raises(ProgramError, match=message):
        program.run([mx.zeros((*more, 2))])
    assert program.run([mx.zeros((*more, 3))]).finish()[0].shape == (*more, 3)
    if not vectorized:
        with pytest.raises(ProgramError, match=message):
            program.info({"n": 2})


def test_a_slice_inside_may_have_fewer_elements_than_declared():
    last = node("y", "slice", "x", start=[-3], stop=[2**31 - 1])
    program = parse(graph([value("x", ["n"])], [last, node("z", "sum", "y")], ["z"]))
    slopes = derive(program, gradient={"of": "z", "with_respect_to": ["x"]})
    for length, wanted in ((2, [1, 1]), (4, [0, 1, 1, 1])):
        assert program.run([mx.ones(length)]).finish()[0].item() == min(length, 3)
        assert slopes.run([mx.ones(length)]).finish()[0].tolist() == wanted


LEAST = -(2**31)


@pytest.mark.parametrize(
    ("start", "stop", "shape"),
    [
        (LEAST, 2**31 - 1, "n"),
        (LEAST + 1, -1, "n-1"),
        (0, LEAST, "0"),
        (1, LEAST, "0"),
        (LEAST, LEAST, "0"),
    ],
)
def test_slices_from_the_least_place_begin_at_the_first_element(start, stop, shape):
    part = node("y", "slice", "x", start=[start], stop=[stop])
    program = parse(graph([value("x", ["n"])], [part], ["y"]))
    assert str(program.outputs[0].spec.shape[0]) == shape
    elements = list(range(5))
    found = program.run([mx.array(elements).astype(mx.float32)]).finish()[0]
    assert found.tolist() == elements[start:stop]


@pytest.mark.parametrize("stride", [2**31 - 1, -(2**31 - 1), LEAST, 5, 6, -5, -6])
@pytest.mark.parametrize("start", [0, 2, 4, -1])
def test_strides_beyond_an_axis_take_one_element(start, stride):
    stop = 2**31 - 1 if stride > 0 else LEAST
    part = node("y", "slice", "x", start=[start], stop=[stop], strides=[stride])
    program = parse(graph([value("x", [5])], [part], ["y"]))
    elements = list(range(5))
    found = program.run([mx.array(elements).astype(mx.float32)]).finish()[0]
    assert found.tolist() == elements[start : stop if stride > 0 else None : stride]


def test_an_index_out_of_range_is_an_error_that_names_it():
    program = parse(PAIR)
    with pytest.raises(ProgramError, match=r"node 't' \(take\).*70000 at position 0") as caught:
        program.run(inputs(4, 70000)).finish()
    assert caught.value.details["value"] == 70000
    assert program.run(inputs(4, 3)).finish()[1].item() == 3


def test_traces_are_kept_for_a_bounded_number_of_dimensions():
    program = parse(PAIR)
    for n in range(1, 3 * bounds.MAX_TRACES):
        assert program.run(inputs(n)).finish()[0].tolist() == [3.0] * n
    assert program.info()["traces"] == bounds.MAX_TRACES
    assert program.run(inputs(1)).finish()[0].tolist() == [3.0]


def test_a_program_is_traced_once(monkeypatch):
    from cowmlx.programs.running.tracing import Tracer

    traced = []
    results = Tracer.nodes
    monkeypatch.setattr(Tracer, "nodes", lambda *given: traced.append(1) or results(*given))
    program = parse(PAIR)
    for _ in range(5):
        program.run(inputs()).finish()
    assert len(traced) == (1 if kernels.available() else 5)


def test_inputs_given_up_are_computed_in_place():
    big = graph([value("x", ["n"])], [node("s", "sin", "x"), node("y", "square", "s")], ["y"])
    program = parse(big)
    program.run([mx.zeros(1 << 20)]).finish()

    def growth(keeps: bool) -> int:
        given = [mx.random.normal((1 << 20,))]
        mx.eval(given)
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        run = program.run(given)
        if not keeps:
            given.clear()
        run.finish()
        return mx.get_peak_memory() - before

    assert growth(keeps=False) < 1 << 20
    assert growth(keeps=True) >= 4 << 20


def test_the_operation_that_makes_numbers_that_are_not_finite_is_named():
    program = parse(
        graph(
            [value("x", [2])],
            [node("l", "log", "x"), node("e", "exp", "l"), node("m", "add", "e", "mask")],
            ["m"],
            constants=[{"name": "mask", "dtype": "float32", "value": ["-inf", 0]}],
        )
    )
    good, bad = mx.array([1.0, 2.0]), mx.array([1.0, 0.0])
    for given in (good, bad):
        assert program.run([given]).finish()[0].shape == (2,)
    program.run([good], check_finite=True).finish()  # the mask was infinite before
    with pytest.raises(ProgramError, match=r"node 'l' \(log\): log makes a number that is not"):
        program.run([bad], check_finite=True).finish()
    rows = derive(program, vectorize={"x": 0})
    with pytest.raises(ProgramError, match=r"node 'l' \(log\)"):
        rows.run([mx.stack([good, bad])], check_finite=True).finish()


def test_a_finite_result_hides_no_index_that_is_out_of_range():
    program = parse(
        graph(
            [value("x", [3]), value("i", [2], "int32")],
            [node("t", "take", "x", "i", axis=0)],
            ["t"],
        )
    )
    given = [mx.array([1.0, 2.0, 3.0]), mx.array([0, 7])]
    with pytest.raises(ProgramError, match=r"indices has 7 at position 1, must be -3 to 2"):
        program.run(given, check_finite=True).finish()


def long_chain(count: int) -> dict[str, object]:
    names = ["x", *(f"v{at}" for at in range(count))]
    nodes = [node(names[at + 1], ("sin", "cos")[at % 2], names[at]) for at in range(count)]
    return graph([value("x", [5])], nodes, [names[-1], names[count // 2]])


def test_long_programs_are_cut_and_give_the_same(monkeypatch):
    x = mx.random.normal((5,))
    whole = parse(long_chain(300)).run([x]).finish()
    monkeypatch.setattr(plan, "MAX_UNIT_NODES", 16)
    monkeypatch.setattr("cowmlx.programs.running.rounds.TURN", 0.0)
    run = parse(long_chain(300)).run([x])
    steps = run.steps()
    turns = 0
    try:
        while True:
            next(steps)
            turns += 1
    except StopIteration as stop:
        found = stop.value
    assert turns == 20  # 19 units, and the results
    assert [bits(each) for each in found] == [bits(each) for each in whole]


def test_results_may_be_inputs_and_constants():
    program = parse(
        graph(
            [value("x", [2])],
            [],
            ["c", "x"],
            constants=[{"name": "c", "dtype": "int8", "value": [1, 2, 3]}],
        )
    )
    found = program.run([mx.array([5.0, 6.0])]).finish()
    assert [each.tolist() for each in found] == [[1, 2, 3], [5, 6]]


def test_zero_sized_and_0d_arrays():
    program = parse(PAIR | {"outputs": ["z"]})
    found = program.run([mx.zeros((0, 3)), mx.zeros(0), mx.array(0)]).finish()
    assert found[0].shape == (0,)


def test_random_numbers_come_from_their_keys_alone():
    program = parse(
        graph(
            [value("key", [2], "uint32"), value("x", ["n"])],
            [
                node("keys", "random_split", "key"),
                node(["a", "b"], "unbind", "keys"),
                node("u", "random_normal", "a", shape=["n"]),
                node("v", "random_uniform", "b", shape=["n", 2]),
            ],
            ["u", "v"],
        )
    )
    key = mx.random.key(7)
    first = program.run([key, mx.zeros(5)]).finish()
    mx.random.seed(99)
    again = program.run([key, mx.ones(5)]).finish()
    assert [bits(each) for each in first] == [bits(each) for each in again]
    other = program.run([mx.random.key(8), mx.zeros(5)]).finish()
    assert bits(other[0]) != bits(first[0])
    a, b = mx.random.split(key)
    assert bits(first[0]) == bits(mx.random.normal((5,), key=a))
    assert bits(first[1]) == bits(mx.random.uniform(shape=(5, 2), key=b))


def test_a_program_runs_on_another_stream_too():
    program = parse(PAIR)
    wanted = program.run(inputs()).finish()
    with mx.stream(mx.new_stream(mx.cpu)):
        found = program.run(inputs()).finish()
    assert [bits(each) for each in found] == [bits(each) for each in wanted]


def test_without_kernels_results_are_the_same(monkeypatch):
    wanted = parse(PAIR).run(inputs()).finish()
    monkeypatch.setattr(kernels, "available", lambda: False)
    program = parse(PAIR)
    for _ in range(2):
        found = program.run(inputs()).finish()
        assert [bits(each) for each in found] == [bits(each) for each in wanted]
    with pytest.raises(ProgramError, match="70000"):
        program.run(inputs(4, 70000)).finish()


def test_an_axis_with_a_name_is_not_squeezed():
    """Also in a run in which its length is 1."""
    program = parse(graph([value("x", ["n", 1, 3])], [node("y", "squeeze", "x")], ["y"]))
    for n in (1, 2):
        assert program.run([mx.ones((n, 1, 3))]).finish()[0].shape == (n, 3)
    rows = derive(program, vectorize={"x": 0})
    assert rows.run([mx.ones((4, 1, 1, 3))]).finish()[0].shape == (4, 1, 3)


def test_info_tells_shapes_memory_and_multiplications():
    program = parse(
        graph(
            [value("x", ["n", 4])],
            [node("z", "matmul", "x", "w"), node("t", "sum", "z")],
            ["t"],
            parameters=[{**value("w", [4, 8]), "init": "glorot_uniform"}],
        )
    )
    info = program.info({"n": 10})
    assert info["parameters"] == [
        {
            "name": "w",
            "dtype": "float32",
            "shape": [4, 8],
            "init": {"name": "glorot_uniform", "gain": 1.0},
            "has_value": False,
        }
    ]
    assert info["dimensions"] == ["n"]
    assert info["nodes"][0]["outputs"] == [{"name": "z", "dtype": "float32", "shape": ["n", 8]}]
    run = info["run"]
    assert (run["input_bytes"], run["output_bytes"]) == (4 * (40 + 32), 4)
    assert run["intermediate_bytes"] == 4 * (80 + 1)
    assert run["multiplications"] >= 10 * 4 * 8
    assert info["longest_turn"] is None
    for given, message in (
        ({}, "dimension 'n' has no value"),
        ({"m": 1, "n": 2}, "there is no dimension 'm', must be one of n"),
        ({"n": -1}, "dimension 'n' is -1"),
    ):
        with pytest.raises(ProgramError, match=message):
            program.info(given)


@pytest.mark.parametrize("rows", [0, 4])
def test_a_gpu_compiles_nothing_with_values_without_elements(monkeypatch, rows):
    """A kernel that mlx compiles for CUDA divides by the number of elements: the process ends."""
    traced: list[object] = []

    class WithGpu:
        """mlx as on a GPU; notes what is compiled."""

        cpu = mx.cpu

        def default_device(self):
            return mx.Device(mx.gpu)

        def compile(self, function):
            traced.append(function)
            return function

    monkeypatch.setattr(compiling, "mx", WithGpu())
    made = parse(
        graph(
            [value("x", ["n", 3])],
            [node("y", "exp", "x"), node("s", "count_nonzero", "y", axis=0)],
            ["s"],
        )
    )
    run = made.run([mx.zeros((rows, 3))])
    (found,) = run.finish()
    assert found.tolist() == [rows] * 3
    assert bool(traced) == bool(rows)
