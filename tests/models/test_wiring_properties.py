"""Random wirings: graphs that are right, and JSON that is not."""

from __future__ import annotations

import json
from itertools import pairwise

import mlx.core as mx
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx.utils import tree_flatten, tree_unflatten
from support import broken_wirings

from cowmlx.errors import BadFormat
from cowmlx.networks.wiring import WiredModel, Wiring

D, VOCABULARY = 4, 7
IDS = mx.array([[1, 5, 3], [0, 2, 6]])


@st.composite
def graphs(draw):
    """A right wiring: every block is reached, and used; declared in any order."""
    count = draw(st.integers(1, 9))
    edges = {}
    for target in range(1, count):
        sources = draw(st.sets(st.integers(0, target - 1), min_size=1, max_size=3))
        edges |= {(source, target): draw(st.sampled_from([1, -1])) for source in sources}
    for block in range(count - 1):
        if not any(source == block for source, _ in edges):
            edges[block, draw(st.integers(block + 1, count - 1))] = draw(st.sampled_from([1, -1]))
    order = draw(st.permutations(range(count)))
    wiring = Wiring()
    for block in order:
        if block == 0:
            wiring.add_block("b0", "embedding", num_embeddings=VOCABULARY, dims=D)
        else:
            wiring.add_block(f"b{block}", "linear", input_dims=D, output_dims=D)
    for source, target in draw(st.permutations(sorted(edges))):
        wiring.connect(f"b{source}", f"b{target}", edges[source, target])
    wiring.input, wiring.output = "b0", f"b{count - 1}"
    return wiring


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_json_is_read_as_it_was_written(wiring):
    again = Wiring.from_json(json.loads(json.dumps(wiring.to_json())))
    assert again == wiring
    assert again.edges == wiring.edges
    assert (again.input, again.output) == (wiring.input, wiring.output)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_stages_are_a_topological_order_and_as_early_as_can_be(wiring):
    wiring.validate()
    stages = wiring.stages()
    place = {name: index for index, stage in enumerate(stages) for name in stage}
    assert sum(map(len, stages)) == len(place) == len(wiring.blocks)
    arriving = wiring.inputs()
    for name, index in place.items():
        assert index == max((place[source] + 1 for source, _ in arriving[name]), default=0)


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(0, 1000))
def test_what_comes_out_is_the_sum_over_all_paths(wiring, seed):
    """For linear blocks, by recursion from the output: no stages, no order."""
    network = WiredModel(wiring)
    drawn = [
        (name, mx.random.normal(array.shape, key=mx.random.key(seed + index)))
        for index, (name, array) in enumerate(tree_flatten(network.parameters()))
    ]
    network.update(tree_unflatten(drawn))
    weights = {name: np.asarray(array, np.float64) for name, array in drawn}

    def value(name):
        if name == wiring.input:
            return weights[f"blocks.{name}.table.weight"][np.asarray(IDS)]
        edges = wiring.edges
        total = sum(
            polarity * value(source)
            for (source, target), polarity in edges.items()
            if target == name
        )
        return total @ weights[f"blocks.{name}.linear.weight"].T

    expected = value(wiring.output)
    got = np.asarray(network(IDS))
    assert np.abs(got - expected).max() <= 1e-4 * (1 + np.abs(expected).max())


@settings(max_examples=40, deadline=None)
@given(graphs(), st.data())
def test_an_edge_backwards_makes_a_cycle(wiring, data):
    edges = sorted(wiring.edges)
    if not edges:
        return
    source, target = data.draw(st.sampled_from(edges))
    wiring.connect(target, source)
    try:
        wiring.stages()
    except BadFormat as error:
        around = str(error).rpartition(": ")[2].split(" → ")
        assert around[0] == around[-1]
        assert all(edge in wiring.edges for edge in pairwise(around))
    else:
        raise AssertionError("a cycle was sorted")


# --------------------------------------------------------------------- Broken JSON


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(broken_wirings.spoilt(VOCABULARY))
def test_spoilt_json_is_refused_with_a_short_message_or_makes_a_network_that_runs(value):
    """No network is made that then fails, and nothing but an error of ours is raised."""
    try:
        network = WiredModel(Wiring.from_json(value))
    except BadFormat as error:
        assert 10 < len(str(error)) < 600
        return
    logits = network(IDS)
    assert logits.shape[:2] == IDS.shape
