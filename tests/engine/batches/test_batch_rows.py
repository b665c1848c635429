"""The layer caches of several sequences as one batch, against a cache for each alone."""

from __future__ import annotations

import copy
import random

import mlx.core as mx
import pytest
from driver import (
    CACHES,
    HYBRID,
    KV,
    QUANTIZED,
    QUANTIZED_HYBRID,
    RECURRENT,
    RWKV,
    SLIDING,
    prompt,
)
from mlx.utils import tree_flatten
from support import in_process, tiny_models

from cowmlx.accelerate import kernels
from cowmlx.cache.batch import Batch
from cowmlx.cache.key_values import BLOCK
from cowmlx.cache.layers import KVQuantization, why_not_quantized
from cowmlx.errors import Unsupported
from cowmlx.generation import batched

ALONE = {} if kernels.available() else {"gemma2": "other results"}  # its own mask
BATCHED = [(kind, bits) for kind, bits in CACHES if kind.partition("-")[0] not in ALONE]


@pytest.fixture(scope="module")
def model(folder):
    """A model, by the name of its folder."""
    loaded = {}

    def model(name):
        if name not in loaded:
            handle = in_process.loaded(engine, folder(name), prefix_cache_bytes=0)
            loaded[name] = engine.models.get(handle)
        return loaded[name]

    with in_process.started() as engine:
        yield model


def kv_of(model, bits=0, group_size=0):
    return KVQuantization(model, bits, group_size)


def batch_of(model, bits=0):
    layers = kv_of(model, bits).maker(model)()
    return Batch(layers, mx.default_stream(mx.default_device()))


def step(model, layers, token):
    """The logits (V,) behind one more token of a sequence alone."""
    return model.network(mx.array([[token]]), cache=layers)[0, -1]


class Member:
    """A sequence that comes and goes, and the same one alone."""

    def __init__(self, model, tokens, bits=0):
        self.model = model
        self.length = len(tokens)
        self.alone = kv_of(model, bits).maker(model)()
        model.network(mx.array([tokens]), cache=self.alone)
        self.layers = copy.deepcopy(self.alone)
        self.row = None

    def join(self, batch):
        self.row = batch.join(self.layers, self.length)
        self.layers = None

    def leave(self, batch):
        kept = batch.take(self.row)
        self.layers = batch.give_up(self.row)
        self.row = None
        for own, copied in zip(self.layers, kept, strict=True):
            pairs = zip(tree_flatten(own.state), tree_flatten(copied.state), strict=True)
            for (_, one), (_, other) in pairs:
                assert one is other or mx.array_equal(
                    mx.array(one), mx.array(other), equal_nan=True
                )

    def check(self, logits, token):
        """Compare logits (V,) behind a token with those alone."""
        expected = step(self.model, self.alone, token)
        self.length += 1
        assert mx.allclose(logits, expected, rtol=1e-3, atol=1e-3)


def step_together(batch, members, tokens):
    """One step of some rows of a batch."""
    ids = [0] * len(batch.rows.all)
    for member, token in zip(members, tokens, strict=True):
        ids[member.row.index] = token
    batch.begin_step([member.row for member in members])
    logits = members[0].model.network(mx.array(ids)[:, None], cache=batch.layers)[:, -1]
    batch.end_step()
    rows = [logits[member.row.index] for member in members]
    for member, row, token in zip(members, rows, tokens, strict=True):
        member.check(row, token)


@pytest.mark.parametrize(("kind", "bits"), [*BATCHED, ("recurrent_gemma", 0), ("gpt_oss", 0)])
def test_rows_that_come_go_and_pause_are_what_they_are_alone(model, kind, bits):
    draw = random.Random(kind)
    own = model(kind)
    batch, members = batch_of(own, bits), []
    for _ in range(60):
        batched = [member for member in members if member.row is not None]
        out = [member for member in members if member.row is None]
        act = draw.random()
        if act < 0.2 and len(members) < 9:
            length = draw.choice([1, 2, 7, 8, 9, 30, BLOCK - 2, BLOCK])
            members.append(Member(own, prompt(length, draw.randrange(99)), bits))
            members[-1].join(batch)
        elif act < 0.3 and batched:
            draw.choice(batched).leave(batch)
        elif act < 0.4 and out:
            draw.choice(out).join(batch)
        elif act < 0.5 and out:
            member, token = draw.choice(out), draw.randrange(10, 250)
            member.check(step(own, member.layers, token), token)
        elif batched:
            some = draw.sample(batched, draw.randint(1, len(batched)))
            step_together(batch, some, [draw.randrange(10, 250) for _ in some])
    for member in members:
        if member.row is not None:
            member.leave(batch)
        member.check(step(own, member.layers, 20), 20)
    assert batch.arrays == [] or all(array.size == 0 for array in batch.arrays)


@pytest.mark.parametrize(("kind", "bits"), [(KV, 0), (SLIDING, 0), (QUANTIZED, 8)])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_rows_without_tokens_leave_too(model, kind, bits, first):
    """Those that fail before their first tokens, in whatever order they have joined."""
    own = model(kind)
    new = kv_of(own, bits).maker(own)
    batch = batch_of(own, bits)
    rows = [batch.join(new(), 0) for _ in range(3)]
    for layer in batch.give_up(rows[1]):
        for _, array in tree_flatten(layer.state):
            assert array is None or not isinstance(array, mx.array) or array.size == 0
    batch.leave(rows[1])
    assert batch.rows.all == [rows[0], rows[2]]
    batch.leave(rows[0])
    batch.leave(rows[2])
    assert not batch.rows.all
    members = [Member(own, prompt(20, seed), bits) for seed in range(2)]
    for place in range(3):
        if place == first:
            empty = batch.join(new(), 0)
        if place < 2:
            members[place].join(batch)
    batch.leave(empty)
    step_together(batch, members, [11, 12])
    members[0].leave(batch)
    step_together(batch, members[1:], [13])
    members[1].leave(batch)
    for member in members:
        member.check(step(own, member.layers, 20), 20)


def test_room_is_made_once_for_rows_that_are_expected(model):
    own = model(KV)
    batch = batch_of(own, 0)
    batch.rows.expected = 5
    Member(own, prompt(20, 1), 0).join(batch)
    assert {array.shape[0] for array in batch.arrays} == {5}


@pytest.mark.parametrize(("kind", "bits"), CACHES)
def test_a_batch_that_empties_gives_memory_back(model, kind, bits):
    own = model(kind)
    batch = batch_of(own, bits)
    members = [Member(own, prompt(20, seed), bits) for seed in range(16)]
    for member in members:
        member.join(batch)
    full = sum(form.nbytes for form in batch.layers)
    for member in members[2:]:
        member.leave(batch)
    assert 0 < sum(form.nbytes for form in batch.layers) <= full / 3
    step_together(batch, members[:2], [11, 12])
    for member in members[:2]:
        member.leave(batch)
    assert batch.arrays == []
    members[0].join(batch)
    step_together(batch, members[:1], [13])


@pytest.mark.parametrize(
    ("kind", "bits"), [(KV, 0), (SLIDING, 0), (HYBRID, 0), (QUANTIZED, 8), (QUANTIZED_HYBRID, 4)]
)
def test_what_a_row_left_behind_reaches_nobody(model, kind, bits):
    """Not even numbers that are none."""
    own = model(kind)
    batch = batch_of(own, bits)
    mate = Member(own, prompt(30), bits)
    spoilt = Member(own, prompt(25, seed=1), bits)
    mate.join(batch)
    for layer in spoilt.layers:
        for part in getattr(layer, "caches", [layer]):
            if hasattr(part, "bits"):
                packed, *scales = part.values
                part.values = packed, *(scale * mx.nan for scale in scales)
            elif hasattr(part, "keys"):
                part.values = part.values * mx.nan
    spoilt.join(batch)
    spoilt.leave(batch)
    fresh = Member(own, prompt(5, seed=2), bits)
    fresh.join(batch)
    for token in range(40, 44):
        step_together(batch, [mate, fresh], [token, token + 1])


def test_layers_out_of_step_are_refused_and_change_nothing(model):
    own = model(KV)
    batch = batch_of(own)
    good, bad = Member(own, prompt(9)), Member(own, prompt(7))
    good.join(batch)
    bad.length = 8
    with pytest.raises(Unsupported, match="different numbers"):
        bad.join(batch)
    assert [row.length for row in batch.rows.all] == [9]
    step_together(batch, [good], [11])


@pytest.mark.parametrize(
    ("bits", "group_size", "why"),
    [(4, 64, "quantized otherwise"), (8, 32, "quantized otherwise"), (0, 0, "another kind")],
)
def test_rows_of_another_kind_are_refused_and_change_nothing(model, bits, group_size, why):
    own = model(QUANTIZED)
    batch = batch_of(own, 8)
    good = Member(own, prompt(9), 8)
    good.join(batch)
    layers = kv_of(own, bits, group_size).maker(own)()
    own.network(mx.array([prompt(7)]), cache=layers)
    with pytest.raises(Unsupported, match=why):
        batch.join(layers, 7)
    assert [row.length for row in batch.rows.all] == [9]
    step_together(batch, [good], [11])


@pytest.mark.parametrize("kind", [RECURRENT, RWKV])
def test_a_half_joined_state_is_dropped_again(model, kind):
    own = model(kind)
    batch = batch_of(own)
    good, bad = Member(own, prompt(9)), Member(own, prompt(7))
    good.join(batch)
    bad.layers[-1].cache[-1] = None
    with pytest.raises(Unsupported, match="not complete"):
        bad.join(batch)
    step_together(batch, [good], [11])
    assert all(array.shape[0] == 1 for array in batch.arrays)


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_which_networks_take_batches(model, family):
    own = model(family)
    reason = batched.why_not(own, kv_of(own))
    assert (reason is not None) == (family in ALONE)
    assert ALONE.get(family, "") in (reason or "")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_which_networks_take_batches_of_quantized_caches(model, family, bits):
    """Those that take batches, if their caches can be quantized at all."""
    own = model(f"{family}-wide")
    try:
        kv = kv_of(own, bits)
    except Unsupported:
        assert why_not_quantized(own)
        return
    reason = batched.why_not(own, kv)
    assert (reason is not None) == (family in ALONE)
    assert ALONE.get(family, "") in (reason or "")


def test_a_sequence_much_longer_than_the_others_has_no_place(model):
    """Every row takes up as much as the longest."""
    network = model(KV)
    batch = batch_of(network)
    assert batch.rows.has_place(100_000), "the first"
    for _ in range(7):
        member = Member(network, prompt(9))
        member.join(batch)
    assert batch.rows.has_place(20)
    assert not batch.rows.has_place(100_000)
