"""The block with a scalar memory against float64, its forms against each other, and padding."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx.utils import tree_flatten, tree_unflatten
from support import plain_wiring, recurrences

from cowmlx.networks import light_route
from cowmlx.networks.blocks.slstm import empty_state, slstm
from cowmlx.networks.wiring import WiredModel, Wiring

D, HEADS, VOCABULARY = 16, 4, 13
IDS = [1, 5, 3, 8, 2, 0, 2, 10, 12, 7, 7, 4]
ArraysCache = light_route.import_module("models.cache").ArraysCache
kernels = pytest.mark.parametrize("kernel", [None, 2, 4])


def random_gates(seed, batch, length, heads, dims, size):
    draw = np.random.default_rng(seed)
    gates = {g: draw.normal(size=(batch, length, heads, dims)) * size for g in "ifzo"}
    recurrent = {g: draw.normal(size=(heads, dims, dims)) * size**0.5 for g in "ifzo"}
    return gates, recurrent


def ours(gates, recurrent, state=None, mask=None):
    """The recurrence of cowmlx for the same inputs."""
    batch, _, heads, dims = gates["i"].shape
    stacked = mx.array(np.stack([gates[g] for g in "ifzo"], axis=3).astype(np.float32))
    matrices = np.concatenate([recurrent[g] for g in "ifzo"], axis=1).astype(np.float32)
    return slstm(stacked, mx.array(matrices), state or empty_state(batch, heads, dims), mask)


# -------------------------------------------------------------------- The recurrence


def test_the_stabiliser_changes_nothing():
    """Equations 15 to 17 against 8 to 14: the two references of this test are one."""
    gates, recurrent = random_gates(1, 2, 30, 2, 4, 1.0)
    stabilised = recurrences.slstm(gates, recurrent, 30)
    assert np.allclose(stabilised, recurrences.slstm_directly(gates, recurrent, 30), atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 3),
    length=st.integers(1, 40),
    heads=st.integers(1, 3),
    dims=st.integers(1, 5),
    size=st.floats(0.01, 1.5),
)
def test_hidden_states_are_those_of_the_equations(seed, batch, length, heads, dims, size):
    gates, recurrent = random_gates(seed, batch, length, heads, dims, size)
    expected = recurrences.slstm_directly(gates, recurrent, length)
    got, state = ours(gates, recurrent)
    # What is fed back lets a difference of rounding grow.
    assert np.abs(np.asarray(got) - expected).max() <= 1e-3
    assert mx.array_equal(state[2], got[:, -1])


@pytest.mark.parametrize("offset", [-500.0, -50.0, 50.0, 500.0])
@pytest.mark.parametrize("gate", ["i", "f", "z", "o"])
def test_gates_of_any_size_overflow_nothing(gate, offset):
    gates, recurrent = random_gates(3, 1, 20, 2, 3, 0.5)
    gates[gate] = gates[gate] + offset
    got, state = ours(gates, recurrent)
    assert all(mx.isfinite(part).all().item() for part in (got, *state))
    assert np.abs(np.asarray(got) - recurrences.slstm(gates, recurrent, 20)).max() <= 1e-4


def test_a_state_carries_over():
    gates, recurrent = random_gates(5, 2, 20, 2, 3, 1.0)
    whole, after = ours(gates, recurrent)
    start, state = ours({g: x[:, :7] for g, x in gates.items()}, recurrent)
    end, state = ours({g: x[:, 7:] for g, x in gates.items()}, recurrent, state)
    assert mx.allclose(mx.concatenate([start, end], axis=1), whole, atol=1e-6)
    for part, expected in zip(state, after, strict=True):
        assert mx.allclose(part, expected, atol=1e-5)


def test_heads_feed_back_to_themselves_alone():
    gates, recurrent = random_gates(7, 1, 10, 2, 3, 1.0)
    whole, _ = ours(gates, recurrent)
    gates = {g: x.copy() for g, x in gates.items()}
    gates["z"][:, :, 1] += 1
    changed, _ = ours(gates, recurrent)
    assert mx.array_equal(changed[:, :, 0], whole[:, :, 0])
    assert not mx.allclose(changed[:, :, 1], whole[:, :, 1])


def test_masked_positions_leave_the_state_as_it_is():
    gates, recurrent = random_gates(9, 2, 6, 2, 3, 1.0)
    mask = mx.array([[False, True, True, False, True, False], [True] * 6])
    _, state = ours(gates, recurrent, mask=mask)
    kept = {g: x[:1, [1, 2, 4]] for g, x in gates.items()}
    _, alone = ours(kept, recurrent)
    for part, expected in zip(state, alone, strict=True):
        assert mx.allclose(part[:1], expected, atol=1e-6)


# ------------------------------------------------------------------------- The block


def network(kernel):
    """A network of an embedding and an sLSTM block, and its weights."""
    wiring = Wiring().add_block("tokens", "embedding", num_embeddings=VOCABULARY, dims=D)
    wiring.add_block(
        "it", "slstm", dims=D, num_heads=HEADS, hidden_dims=10, conv_kernel=kernel, norm_eps=1e-3
    )
    model = WiredModel(wiring.connect("tokens", "it"))
    weights = {
        name: mx.random.normal(array.shape, key=mx.random.key(index)) * 0.5
        for index, (name, array) in enumerate(tree_flatten(model.parameters()))
    }
    model.update(tree_unflatten(list(weights.items())))
    return model, {name: np.asarray(array, np.float64) for name, array in weights.items()}


def reference(weights, ids, kernel):
    """What the block gives for tokens (B, S), in float64."""
    it = plain_wiring.Weights(weights, "blocks.it.")
    settings = {"num_heads": HEADS, "hidden_dims": 10, "conv_kernel": kernel, "norm_eps": 1e-3}
    table = weights["blocks.tokens.table.weight"]
    return np.stack(
        [plain_wiring.slstm(it, table[np.asarray(row)], dims=D, **settings) for row in ids]
    )


@kernels
def test_the_block_is_what_the_paper_says(kernel):
    model, weights = network(kernel)
    ids = [IDS, IDS[::-1]]
    assert np.abs(np.asarray(model(mx.array(ids))) - reference(weights, ids, kernel)).max() <= 1e-4


@kernels
@pytest.mark.parametrize("sizes", [[1] * 12, [2, 10], [1, 2, 3, 6], [11, 1]])
def test_pieces_of_any_size_give_the_same(kernel, sizes):
    """The convolution remembers too, also where a piece is shorter than it reaches."""
    model, _ = network(kernel)
    ids = mx.array([IDS, IDS[::-1]])
    once, pieces = model.make_cache(), model.make_cache()
    whole = model(ids, once)
    ends = np.cumsum(sizes)
    parts = [model(ids[:, end - size : end], pieces) for size, end in zip(sizes, ends, strict=True)]
    assert mx.allclose(mx.concatenate(parts, axis=1), whole, atol=1e-4)
    for one, other in zip(once[0].cache, pieces[0].cache, strict=True):
        assert mx.allclose(one, other, atol=1e-4)


@kernels
def test_padding_on_the_left_changes_nothing(kernel):
    model, _ = network(kernel)
    rows = [IDS[:9], IDS[3:6], IDS[:1]]
    padding = [9 - len(row) for row in rows]
    layer = ArraysCache(len(model.make_cache()[0].cache), left_padding=padding)
    padded = mx.array([[11] * pad + row for pad, row in zip(padding, rows, strict=True)])
    together = [model(padded, [layer]), model(mx.array([[4], [4], [4]]), [layer])]
    for index, row in enumerate(rows):
        alone = model.make_cache()
        assert mx.allclose(
            together[0][index : index + 1, padding[index] :],
            model(mx.array([row]), alone),
            atol=1e-5,
        )
        after = model(mx.array([[4]]), alone)
        assert mx.allclose(together[1][index : index + 1], after, atol=1e-5)
        for part, single in zip(layer.cache, alone[0].cache, strict=True):
            assert mx.allclose(part[index : index + 1], single, atol=1e-5)


@kernels
@pytest.mark.parametrize("first", [0, 2])
def test_padding_on_the_right_leaves_states_alone(kernel, first):
    """Also behind earlier tokens, and where a row has fewer than the convolution reaches."""
    model, _ = network(kernel)
    layer = model.make_cache()[0]
    alone = [model.make_cache()[0] for _ in range(3)]
    if first:
        model(mx.array([IDS[:first]] * 3), [layer])
        for own in alone:
            model(mx.array([IDS[:first]]), [own])
    lengths = [7, 1, 3]
    layer.prepare(lengths=lengths)
    model(mx.array([IDS[2:9]] * 3), [layer])
    layer.finalize()
    for index, (length, own) in enumerate(zip(lengths, alone, strict=True)):
        model(mx.array([IDS[2 : 2 + length]]), [own])
        for part, single in zip(layer.extract(index).cache, own.cache, strict=True):
            assert mx.allclose(part, single, atol=1e-5)
