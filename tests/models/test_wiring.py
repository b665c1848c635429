"""Wirings: declared, checked, written and read as JSON, and run."""

from __future__ import annotations

import json
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest

from cowmlx import blas
from cowmlx.errors import BadFormat
from cowmlx.networks.blocks import BLOCKS
from cowmlx.networks.wiring import BlockSpec, WiredModel, Wiring, WiringError, model
from cowmlx.networks.wiring.declaration import MAX_BLOCKS
from cowmlx.resources import BRANCHES

D = 8


def vectors(*names):
    """A wiring of an embedding, blocks of D values to D values, and no edges."""
    wiring = Wiring().add_block("tokens", "embedding", num_embeddings=11, dims=D)
    for name in names:
        wiring.add_block(name, "identity", dims=D)
    return wiring


def refused(make, *words):
    """The message of the error that a call must end with; it has one line, and these words."""
    with pytest.raises(WiringError) as error:
        make()
    message = str(error.value)
    assert "\n" not in message and len(message) < 500
    for word in words:
        assert str(word) in message, message
    return message


def line():
    """A good wiring of three blocks, as JSON."""
    return vectors("a", "b").chain("tokens", "a", "b").to_json()


# -------------------------------------------------------------------------- Building


def test_blocks_and_edges_are_what_was_declared():
    wiring = vectors("a", "b")
    assert wiring.connect("tokens", "a") is wiring, "calls can be chained"
    wiring.connect("a", "b", -1)
    assert [spec.name for spec in wiring.blocks] == ["tokens", "a", "b"]
    assert wiring["a"] == BlockSpec("a", "identity", {"dims": D})
    assert wiring.edges == {("tokens", "a"): 1, ("a", "b"): -1}
    assert wiring.adjacency == [[0, 1, 0], [0, 0, -1], [0, 0, 0]]
    assert wiring.inputs() == {"tokens": [], "a": [("tokens", 1)], "b": [("a", -1)]}
    assert "a" in wiring and "c" not in wiring


def test_input_and_output_are_the_first_and_the_last_block_unless_said_otherwise():
    wiring = vectors("a", "b")
    assert (wiring.input, wiring.output) == ("tokens", "b")
    wiring.output = "a"
    wiring.input = "b"
    assert (wiring.input, wiring.output) == ("b", "a")


def test_what_is_returned_changes_nothing():
    wiring = vectors("a").chain("tokens", "a")
    wiring.edges.clear()
    wiring.blocks.clear()
    wiring.adjacency[0][1] = 0
    assert wiring == vectors("a").chain("tokens", "a")


@pytest.mark.parametrize("name", ["", "0", "1a", "a.b", "a b", "ä", "a\n", None, 3, [], "a/b"])
def test_names_that_are_none(name):
    refused(lambda: Wiring().add_block(name, "identity"), repr(name), "names have letters")


def test_a_name_that_is_taken():
    refused(lambda: vectors("a").add_block("a", "identity", dims=D), "two blocks", "named a")


def test_edges_of_unknown_blocks():
    refused(lambda: vectors("a").connect("a", "zebra"), "a → zebra", "'zebra'", "no block")
    refused(lambda: vectors("a").connect("yak", "a"), "yak → a", "'yak'")


@pytest.mark.parametrize("key", ["input", "output"])
def test_input_and_output_must_be_blocks(key):
    refused(lambda: setattr(vectors("a"), key, "zebra"), key, "'zebra'")


@pytest.mark.parametrize("polarity", [0, 2, -2, 0.5, True, "1", None, float("nan")])
def test_a_polarity_is_1_or_minus_1(polarity):
    wiring = vectors("a")
    refused(lambda: wiring.connect("tokens", "a", polarity), "tokens → a", polarity, "1 or -1")
    assert wiring.edges == {}


def test_an_edge_that_is_there_already():
    wiring = vectors("a").connect("tokens", "a")
    refused(lambda: wiring.connect("tokens", "a", -1), "tokens → a", "already")
    assert wiring.edges == {("tokens", "a"): 1}


def test_an_error_of_a_wiring_is_a_bad_format():
    assert issubclass(WiringError, BadFormat)


# -------------------------------------------------------------------------- Checking


def test_a_wiring_without_blocks():
    refused(Wiring().validate, "no blocks")


def test_a_cycle_is_told_block_by_block():
    wiring = vectors("a", "b", "c", "end").chain("tokens", "a", "b", "c", "end").connect("c", "a")
    message = refused(wiring.validate, "cycle")
    around = message.rpartition(": ")[2].split(" → ")
    assert around[0] == around[-1] and {*around} == {"a", "b", "c"}
    assert all((source, target) in wiring.edges for source, target in pairwise(around))


def test_a_block_that_feeds_itself():
    refused(vectors("a").chain("tokens", "a").connect("a", "a").validate, "cycle", "a → a")


def test_blocks_that_no_token_reaches():
    wiring = vectors("lost", "a").chain("tokens", "a").connect("lost", "a")
    refused(wiring.validate, "no token reaches lost", "tokens")


def test_blocks_whose_output_nobody_uses():
    wiring = vectors("idle", "a").chain("tokens", "a").connect("tokens", "idle")
    refused(wiring.validate, "idle", "output block a")


def test_many_lost_blocks_are_counted():
    message = refused(vectors(*(f"b{number}" for number in range(1000)), "a").validate)
    assert "and 995 more" in message or "and 996 more" in message


def test_nothing_may_be_connected_to_the_input():
    wiring = vectors("a", "b").chain("tokens", "a", "b")
    wiring.input = "a"
    refused(wiring.validate, "a takes the tokens", "tokens is connected")


def test_stages_are_as_early_as_can_be():
    wiring = vectors("left", "right", "deep", "sum")
    wiring.chain("tokens", "left", "sum").chain("tokens", "right", "deep", "sum")
    assert wiring.stages() == [["tokens"], ["left", "right"], ["deep"], ["sum"]]


# ------------------------------------------------------------------------------ JSON


def test_json_is_read_as_it_was_written():
    wiring = vectors("left", "right", "sum").chain("tokens", "left", "sum")
    wiring.connect("tokens", "right").connect("right", "sum", -1)
    value = wiring.to_json()
    again = Wiring.from_json(json.loads(json.dumps(value)))
    assert again == wiring and again.to_json() == value
    assert again.edges == wiring.edges


def test_there_is_a_bound_on_blocks():
    blocks = [{"name": f"b{number}", "type": "identity"} for number in range(MAX_BLOCKS + 1)]
    value = {"blocks": blocks, "adjacency": [[]] * len(blocks)}
    refused(lambda: Wiring.from_json(value), f"more than {MAX_BLOCKS} blocks")


def test_input_and_output_may_be_left_out():
    value = line()
    del value["input"], value["output"]
    assert Wiring.from_json(value) == Wiring.from_json(line())


def test_parameters_may_be_left_out():
    spec = BlockSpec.from_json({"name": "a", "type": "identity"})
    assert spec.parameters == {}


@pytest.mark.parametrize("value", [None, [], "wiring", 3, True])
def test_a_wiring_that_is_no_object(value):
    refused(lambda: Wiring.from_json(value), "wiring", "not an object")


@pytest.mark.parametrize("key", ["blocks", "adjacency"])
@pytest.mark.parametrize("value", [None, {}, "x", 5])
def test_lists_that_are_none(key, value):
    refused(lambda: Wiring.from_json({**line(), key: value}), key)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (None, ["not an object"]),
        ([], ["not an object"]),
        ({"type": "identity"}, ["'?'", "'name'"]),
        ({"name": "c"}, ["'c'", "'type'"]),
        ({"name": "c", "type": 7}, ["c", "type", "7"]),
        ({"name": "c", "type": "identity", "parameters": [1]}, ["c", "parameters", "[1]"]),
        ({"name": "c", "type": "identity", "params": {}}, ["'c'", "'params'", "parameters"]),
        ({"name": "a", "type": "identity"}, ["two blocks", "a"]),
        ({"name": ["a"] * 1000, "type": "identity"}, ["..."]),
    ],
)
def test_blocks_that_are_none(block, words):
    value = line()
    value["blocks"].append(block)
    refused(lambda: Wiring.from_json(value), *words)


def test_unknown_keys_are_named():
    refused(lambda: Wiring.from_json({**line(), "edges": []}), "'edges'", "adjacency")


@pytest.mark.parametrize(
    ("adjacency", "words"),
    [
        ([], ["0 rows", "3 blocks"]),
        ([[0, 1, 0]] * 4, ["4 rows", "3 blocks"]),
        ([[0, 1, 0], [0, 1], [0, 0, 0]], ["2 columns", "3 blocks", "row of a"]),
        ([[0, 1, 0], [0, 0, 1], None], ["row of b", "None"]),
        ([[0, 1, 0], [0, 0, 1], "000"], ["row of b", "'000'"]),
        ([[0, 1, 0], [0, 0, 2], [0, 0, 0]], ["a → b", "polarity 2"]),
        ([[0, 1, 0], [0, 0, 0.5], [0, 0, 0]], ["a → b", "polarity 0.5"]),
        ([[0, 1, 0], [0, 0, True], [0, 0, 0]], ["a → b", "True"]),
        ([[0, 1, 0], [0, 0, False], [0, 0, 0]], ["a → b", "False"]),
        ([[0, 1, 0], [0, 0, None], [0, 0, 0]], ["a → b", "None"]),
        ([[0, 1, 0], [0, 0, "1"], [0, 0, 0]], ["a → b", "'1'"]),
        ([[0, 1, 0], [0, 0, [1]], [0, 0, 0]], ["a → b", "[1]"]),
    ],
)
def test_adjacency_that_does_not_fit(adjacency, words):
    refused(lambda: Wiring.from_json({**line(), "adjacency": adjacency}), *words)


@pytest.mark.parametrize("key", ["input", "output"])
@pytest.mark.parametrize("value", ["zebra", 3, True, ["a"], {"a": 1}, ""])
def test_input_and_output_that_are_no_blocks(key, value):
    refused(lambda: Wiring.from_json({**line(), key: value}), key, repr(value))


# --------------------------------------------------------------------------- Blocks


def made(type, **parameters):
    """What making a network with one such block behind an embedding gives."""
    wiring = vectors().add_block("it", type, **parameters).chain("tokens", "it")
    return WiredModel(wiring)


def test_an_unknown_type_is_told_with_the_known_ones():
    refused(lambda: made("magic"), "block it", "'magic'", *BLOCKS)


@pytest.mark.parametrize(
    ("type", "parameters", "words"),
    [
        ("identity", {}, ["lacks", "'dims'"]),
        ("identity", {"dims": D, "size": 1}, ["'size'", "dims"]),
        ("identity", {"dims": 0}, ["dims", "0", "integer from 1"]),
        ("identity", {"dims": -1}, ["dims", "-1"]),
        ("identity", {"dims": 2**31}, ["dims", 2**31]),
        ("identity", {"dims": True}, ["dims", "True"]),
        ("identity", {"dims": 8.0}, ["dims", "8.0"]),
        ("identity", {"dims": "8"}, ["dims", "'8'"]),
        ("identity", {"dims": None}, ["dims", "None"]),
        ("rms_norm", {"dims": D, "eps": 0}, ["eps", "0", "positive"]),
        ("rms_norm", {"dims": D, "eps": float("nan")}, ["eps", "nan"]),
        ("rms_norm", {"dims": D, "eps": float("inf")}, ["eps", "inf"]),
        ("rms_norm", {"dims": D, "eps": "1"}, ["eps", "'1'"]),
        ("rms_norm", {"dims": D, "float32": 1}, ["float32", "1", "true or false"]),
        ("mlp", {"dims": D, "hidden_dims": 4, "activation": "gulp"}, ["'gulp'", "gelu"]),
        ("mlp", {"dims": D, "hidden_dims": 4, "activation": 4}, ["activation", "4", "string"]),
        ("attention", {"dims": D, "num_heads": 3}, ["dims 8", "num_heads 3"]),
        ("attention", {"dims": D, "num_heads": 4, "num_kv_heads": 3}, ["4", "num_kv_heads 3"]),
        ("attention", {"dims": D, "num_heads": 4, "rope_scaling": 2}, ["rope_scaling", "object"]),
        ("attention", {"dims": D, "num_heads": 4, "window": 0}, ["window", "0"]),
        ("attention", {"dims": D, "num_heads": 4, "head_dim": 63}, ["63", "even"]),
        ("attention", {"dims": D, "num_heads": 4, "rope_scaling": {"rope_type": "x"}}, ["type x"]),
        (
            "attention",
            {"dims": D, "num_heads": 4, "rope_scaling": {"rope_type": "linear", "factor": "x"}},
            [],
        ),
        (
            "attention",
            {"dims": D, "num_heads": 4, "rope_scaling": {"factor": 2}},
            ["rope_scaling", "rope_type"],
        ),
        (
            "attention",
            {"dims": D, "num_heads": 4, "rope_scaling": {"rope_type": "dynamic", "factor": 2}},
            [],
        ),
        ("slstm", {"dims": D, "num_heads": 3, "hidden_dims": 4}, ["dims 8", "num_heads 3"]),
        ("slstm", {"dims": D, "num_heads": 2, "hidden_dims": 4, "conv_kernel": 1}, ["conv_kernel"]),
        (
            "slstm",
            {"dims": D, "num_heads": 2, "hidden_dims": 4, "conv_kernel": 2**30},
            ["conv_kernel"],
        ),
        (
            "mlstm",
            {"dims": D, "num_heads": 2, "qk_dims": 3, "v_dims": 4, "hidden_dims": 4},
            ["qk_dims 3", "num_heads 2"],
        ),
        (
            "mlstm",
            {"dims": D, "num_heads": 2, "qk_dims": 4, "v_dims": 3, "hidden_dims": 4},
            ["v_dims 3", "num_heads 2"],
        ),
        ("lm_head", {"dims": D, "num_embeddings": 5, "embedding": "zebra"}, ["'zebra'"]),
        ("lm_head", {"dims": D, "num_embeddings": 5, "embedding": "it"}, ["'it'", "no embedding"]),
        ("lm_head", {"dims": D, "num_embeddings": 5, "soft_cap": -1}, ["soft_cap", "-1"]),
    ],
)
def test_parameters_that_cannot_be(type, parameters, words):
    refused(lambda: made(type, **parameters), f"it ({type})", *words)


def test_a_tied_head_has_no_bias_of_its_own():
    refused(
        lambda: made("lm_head", dims=D, num_embeddings=11, embedding="tokens", bias=True),
        "it (lm_head)",
        "bias",
    )


def test_widths_that_do_not_fit_name_both_blocks():
    wiring = vectors("a").add_block("b", "identity", dims=D + 1).chain("tokens", "a", "b")
    refused(lambda: WiredModel(wiring), "a gives vectors of 8", "b takes 9")


def test_only_the_input_takes_tokens():
    wiring = vectors("a").add_block("again", "embedding", num_embeddings=3, dims=D)
    refused(lambda: WiredModel(wiring.chain("tokens", "a", "again")), "again takes tokens", "a is")


def test_the_input_must_take_tokens():
    wiring = Wiring().add_block("a", "identity", dims=D).add_block("b", "identity", dims=D)
    refused(lambda: WiredModel(wiring.chain("a", "b")), "input block a", "not tokens")


def test_a_head_is_as_wide_as_the_embedding_that_it_is_tied_to():
    wiring = vectors().add_block("wide", "linear", input_dims=D, output_dims=6)
    wiring.add_block("head", "lm_head", dims=6, num_embeddings=11, embedding="tokens")
    refused(lambda: WiredModel(wiring.chain("tokens", "wide", "head")), "head", "tokens", "6", "8")


def test_a_head_is_as_high_as_the_embedding_that_it_is_tied_to():
    wiring = vectors().add_block("head", "lm_head", dims=D, num_embeddings=5, embedding="tokens")
    refused(lambda: WiredModel(wiring.chain("tokens", "head")), "head", "tokens", "5", "11")


# -------------------------------------------------------------------------- Running

IDS = mx.array([[1, 5, 3], [0, 2, 10]])


def randomly(network, seed=0):
    """Give a network's parameters random values; return them as float64, by name."""
    from mlx.utils import tree_flatten, tree_unflatten

    found = tree_flatten(network.parameters())
    random = [
        (name, mx.random.normal(array.shape, key=mx.random.key(seed + index)) * 0.5)
        for index, (name, array) in enumerate(found)
    ]
    network.update(tree_unflatten(random))
    return {name: np.asarray(array, np.float64) for name, array in random}


def near(got, expected):
    return got.shape == expected.shape and np.allclose(np.asarray(got), expected, atol=1e-5)


def linears(*names):
    wiring = Wiring().add_block("tokens", "embedding", num_embeddings=11, dims=D)
    for name in names:
        wiring.add_block(name, "linear", input_dims=D, output_dims=D, bias=True)
    return wiring


def linear(weights, name, x):
    return x @ weights[f"blocks.{name}.linear.weight"].T + weights[f"blocks.{name}.linear.bias"]


def test_a_branch_with_negative_polarity_is_subtracted():
    wiring = linears("left", "right", "sum").chain("tokens", "left", "sum")
    wiring.connect("tokens", "right").connect("right", "sum", -1)
    network = WiredModel(wiring)
    w = randomly(network)
    x = w["blocks.tokens.table.weight"][np.asarray(IDS)]
    expected = linear(w, "sum", linear(w, "left", x) - linear(w, "right", x))
    assert near(network(IDS), expected)


def test_a_single_negative_edge_is_subtracted_from_nothing():
    network = WiredModel(linears("only").connect("tokens", "only", -1))
    w = randomly(network)
    x = w["blocks.tokens.table.weight"][np.asarray(IDS)]
    assert near(network(IDS), linear(w, "only", -x))


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, 1), (1, -1, -1), (-1, -1, -1)])
def test_three_inputs_are_summed_with_their_polarities(signs):
    wiring = linears("a", "b", "c", "sum")
    for name, sign in zip("abc", signs, strict=True):
        wiring.connect("tokens", name).connect(name, "sum", sign)
    network = WiredModel(wiring)
    w = randomly(network)
    x = w["blocks.tokens.table.weight"][np.asarray(IDS)]
    total = sum(sign * linear(w, name, x) for name, sign in zip("abc", signs, strict=True))
    assert near(network(IDS), linear(w, "sum", total))


def test_a_diamond_with_branches_of_different_depth():
    wiring = linears("deep", "deeper", "flat", "sum", "end")
    wiring.chain("tokens", "deep", "deeper", "sum", "end").chain("tokens", "flat")
    wiring.connect("flat", "sum", -1).connect("tokens", "sum")
    network = WiredModel(wiring)
    w = randomly(network)
    x = w["blocks.tokens.table.weight"][np.asarray(IDS)]
    total = linear(w, "deeper", linear(w, "deep", x)) - linear(w, "flat", x) + x
    assert near(network(IDS), linear(w, "end", linear(w, "sum", total)))


def test_the_order_of_declaration_does_not_matter_for_the_numbers():
    forward, backward = linears("a", "b"), linears("b", "a")
    models = [WiredModel(wiring.chain("tokens", "a", "b")) for wiring in (forward,)]
    backward.chain("tokens", "a", "b").output = "b"
    models.append(WiredModel(backward))
    randomly(models[0])
    models[1].update(models[0].parameters())
    assert mx.array_equal(models[0](IDS), models[1](IDS))


def test_the_output_block_alone_decides_what_comes_out():
    wiring = linears("a", "b").chain("tokens", "b", "a")
    wiring.output = "a"
    network = WiredModel(wiring)
    w = randomly(network)
    x = w["blocks.tokens.table.weight"][np.asarray(IDS)]
    assert near(network(IDS), linear(w, "a", linear(w, "b", x)))


def test_one_block_is_a_network():
    network = WiredModel(vectors())
    w = randomly(network)
    assert near(network(IDS), w["blocks.tokens.table.weight"][np.asarray(IDS)])
    assert network.layers == [] and network.make_cache() == []


def test_layers_with_a_state_come_in_the_order_of_declaration():
    """The caches are the ones that saved contexts hold, in whatever order the blocks run."""
    wiring = vectors()
    wiring.add_block("second", "attention", dims=D, num_heads=2)
    wiring.add_block("between", "identity", dims=D)
    wiring.add_block("first", "slstm", dims=D, num_heads=2, hidden_dims=4)
    wiring.chain("tokens", "first", "between", "second").output = "second"
    network = WiredModel(wiring)
    assert [type(layer).__name__ for layer in network.make_cache()] == ["KVCache", "ArraysCache"]
    assert network.layers == [network.blocks["second"], network.blocks["first"]]
    randomly(network)
    layers = network.make_cache()
    whole = network(IDS, network.make_cache())
    parts = [network(IDS[:, place : place + 1], layers) for place in range(3)]
    assert mx.allclose(mx.concatenate(parts, axis=1), whole, atol=1e-4)


def test_parameters_are_named_after_their_blocks():
    from mlx.utils import tree_flatten

    network = WiredModel(linears("a").connect("tokens", "a"))
    names = {name for name, _ in tree_flatten(network.parameters())}
    assert names == {"blocks.tokens.table.weight", "blocks.a.linear.weight", "blocks.a.linear.bias"}


def test_branches_on_streams_of_their_own_give_the_same_numbers(monkeypatch):
    wiring = linears("sum")
    for number in range(5):
        name = f"branch_{number}"
        wiring.add_block(name, "slstm", dims=D, num_heads=2, hidden_dims=4)
        wiring.connect("tokens", name).connect(name, "sum", (-1) ** number)
    wiring.output = "sum"
    network = WiredModel(wiring)
    randomly(network)
    together = network.make_cache()
    expected = [network(IDS, together) for _ in range(3)]
    mx.eval(expected)
    monkeypatch.setattr(model, "_WORTH_A_STREAM", 1)
    monkeypatch.setattr(blas, "processors", lambda: 2)
    apart = network.make_cache()
    for one, other in zip(expected, [network(IDS, apart) for _ in range(3)], strict=True):
        assert mx.array_equal(one, other)
    for one, other in zip(together, apart, strict=True):
        assert all(mx.array_equal(a, b) for a, b in zip(one.cache, other.cache, strict=True))


def test_a_wide_stage_has_no_more_streams_than_there_are_processors(monkeypatch):
    wide = 40
    wiring = linears("sum")
    for number in range(wide):
        wiring.add_block(f"branch_{number}", "linear", input_dims=D, output_dims=D)
        wiring.connect("tokens", f"branch_{number}").connect(f"branch_{number}", "sum")
    wiring.output = "sum"
    network = WiredModel(wiring)
    expected = network(IDS)
    monkeypatch.setattr(model, "_WORTH_A_STREAM", 1)
    monkeypatch.setattr(blas, "processors", lambda: 3)
    assert len({id(BRANCHES.stream(index)) for index in range(wide)}) == 2
    assert mx.array_equal(network(IDS), expected)
