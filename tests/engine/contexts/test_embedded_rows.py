"""Prompts with rows of embeddings: the model's own rows stand for their tokens."""

from __future__ import annotations

from ctypes import byref, c_int32, c_int64

import mlx.core as mx
import numpy as np
import pytest
from driver import HYBRID, KINDS, KV, RECURRENT, delivered, greedy, prompt
from support.arrays import Arrays
from support.callbacks import Callbacks
from support.library import StatusError
from support.scoring import prompt_logprobs
from support.signatures import EHANDLE, EINVAL, EUNSUPPORTED, OVERFLOW_ROLL

START = prompt(48)
COUNT = 12


@pytest.fixture
def arrays(lib):
    return Arrays(lib)


@pytest.fixture
def table(folder):
    """The rows of a model's table of embeddings, by the model's name."""

    def table(name):
        tensors = {}
        for path in folder(name).glob("*.safetensors"):
            tensors |= mx.load(str(path))
        (own,) = (value for key, value in tensors.items() if "embed" in key or "table" in key)
        return np.array(own.astype(mx.float32))

    return table


def begin(lib, context, tokens, array, **params):
    callbacks = Callbacks()
    given = (c_int32 * len(tokens))(*tokens), len(tokens), array
    effective = lib.params("generation", callbacks, **params)
    lib.check(lib.c.cow_mlx_context_begin_embeddings(context, *given, effective))


def placed(tokens, places):
    """Tokens with -1 in some places."""
    return [-1 if at in places else token for at, token in enumerate(tokens)]


def generated(lib, context, tokens, array, **params):
    begin(lib, context, tokens, array, max_tokens=COUNT, **params)
    return delivered(lib.drain(context))


EVERYWHERE = range(len(START))
BETWEEN = [3, 4, 5, 6, 30, len(START) - 1]


@pytest.mark.parametrize("places", [EVERYWHERE, BETWEEN, [0]], ids=["all", "between", "first"])
@pytest.mark.parametrize("kind", [*KINDS, "calf"])
def test_own_rows_give_the_tokens_that_their_tokens_give(
    lib, tiny, open_context, arrays, table, kind, places
):
    model = tiny(kind)
    expected = greedy(lib, open_context(model), START, COUNT)
    rows = table(kind)[[START[at] for at in places]]
    assert rows.shape[1] == lib.info(model)["embedding_width"]
    context = open_context(model)
    assert generated(lib, context, placed(START, places), arrays.create(rows)) == expected
    held = lib.tokens(context)[: len(START)]
    assert held == placed(START, places)


@pytest.mark.parametrize("kind", [KV, RECURRENT, "calf"])
def test_the_hosts_function_of_logits_gets_places_of_rows(
    lib, tiny, open_context, arrays, table, kind
):
    given = []
    rows = arrays.create(table(kind)[[START[at] for at in BETWEEN]])
    tokens, callbacks = placed(START, BETWEEN), Callbacks()

    def note(tokens, count, logits, vocabulary):
        given.append(tokens[:count])

    context = open_context(tiny(kind))
    params = lib.params("generation", callbacks, max_tokens=3, logits_fn=note)
    places = (c_int32 * len(tokens))(*tokens), len(tokens)
    lib.check(lib.c.cow_mlx_context_begin_embeddings(context, *places, rows, params))
    made = delivered(lib.drain(context))
    assert given == [[*tokens, *made[:count]] for count in range(3)]


@pytest.mark.parametrize("kind", [KV, RECURRENT, HYBRID])
def test_rows_are_known_by_their_bytes(lib, tiny, open_context, arrays, table, kind):
    """Equal rows are reused, also from other contexts; equal places with other rows are not."""
    model, rows = tiny(kind), table(kind)
    mine = arrays.create(rows[START[8:16]])
    tokens = placed(START, range(8, 16))
    context = open_context(model)
    expected = generated(lib, context, tokens, mine)
    again = arrays.create(rows[START[8:16]])
    longer = [*tokens, *expected, 5]
    assert generated(lib, context, longer, again) == greedy(
        lib, open_context(model), [*START, *expected, 5], COUNT
    )
    assert lib.info(context)["reused"] >= len(START)
    other = rows[START[8:16]]
    other[2] += 0.5
    changed = generated(lib, context, tokens, arrays.create(other))
    fresh = open_context(model, share_prefix=False)
    assert changed == generated(lib, fresh, tokens, arrays.create(other))
    assert lib.info(context)["reused"] <= 10
    assert lib.info(context)["first_difference"] == 10


@pytest.mark.parametrize("kind", [KV, RECURRENT])
def test_forks_checkpoints_and_trims_keep_rows(lib, tiny, open_context, arrays, table, kind):
    model, rows = tiny(kind), table(kind)
    tokens, array = placed(START, BETWEEN), arrays.create(table(kind)[[START[a] for a in BETWEEN]])
    context = open_context(model)
    begin(lib, context, tokens, array, max_tokens=0)
    arrays.free(array)
    del rows
    following = [9, 8, 7]
    expected = own(prompt_logprobs(lib, open_context(model), [*START, *following]))
    fork = lib.fork(context)
    for each in (context, fork):
        np.testing.assert_allclose(
            own(prompt_logprobs(lib, each, following)), expected[-3:], rtol=1e-3, atol=1e-3
        )
    lib.free(fork)
    checkpoint = lib.checkpoint(context)
    lib.trim_end(context, 10)
    lib.trim_front(context, 2)
    assert lib.tokens(context) == tokens[2:-10]
    shorter = own(prompt_logprobs(lib, open_context(model), [*START[2:-10], *following]))
    np.testing.assert_allclose(
        own(prompt_logprobs(lib, context, following)), shorter[-3:], rtol=1e-3, atol=1e-3
    )
    lib.rewind(context, checkpoint)
    assert lib.tokens(context) == tokens


def own(rows):
    return [row[0][1] for row in rows]


def test_penalties_batches_and_a_rolling_window(lib, tiny, open_context, arrays, table):
    """Penalties look at tokens alone; contexts with rows decode in a batch with others."""
    model = tiny(KV)
    tokens, array = placed(START, range(8)), arrays.create(table(KV)[START[:8]])
    options = {"repetition_penalty": 1.5, "repetition_window": 64, "dry_multiplier": 1.0}
    context, other = open_context(model), open_context(model)
    expected = generated(lib, context, tokens, array, **options)
    begin(lib, context, tokens, array, max_tokens=COUNT, **options)
    lib.begin(other, START, max_tokens=COUNT)
    found = []
    for _ in range(COUNT):
        found.append(lib.next(context).token)
        lib.next(other)
    assert found == expected
    rolling = open_context(model, max_tokens=52, overflow=OVERFLOW_ROLL, keep_tokens=4)
    begin(lib, rolling, tokens, array, max_tokens=20)
    assert len(delivered(lib.drain(rolling))) == 20
    assert lib.tokens(rolling)[:4] == [-1] * 4
    everything = arrays.create(table(KV)[START])
    assert len(generated(lib, rolling, [-1] * len(START), everything, **options)) == COUNT


def test_what_a_context_with_rows_cannot_do(lib, tiny, open_context, arrays, table, tmp_path):
    model, rows = tiny(KV), table(KV)
    context = open_context(model)
    array = arrays.create(rows[START[:2]])
    tokens = placed(START, [0, 1])
    for name, value in (("draft_tokens", 2), ("draft", model)):
        error = refused(EUNSUPPORTED, begin, lib, context, tokens, array, **{name: value})
        assert name in error.message
    begin(lib, context, tokens, array, max_tokens=0)
    error = refused(EUNSUPPORTED, lib.save, context, tmp_path / "file")
    assert "embeddings" in error.message
    assert not (tmp_path / "file").exists()
    out = c_int64()
    assert lib.c.cow_mlx_context_save_array(context, byref(out)) == EUNSUPPORTED


def refused(status, call, *arguments, **params):
    with pytest.raises(StatusError) as error:
        call(*arguments, **params)
    assert error.value.status == status
    return error.value


def test_bad_rows_are_refused_and_nothing_changes(lib, tiny, open_context, arrays, table):
    model, rows = tiny(KV), table(KV)[START[:3]]
    context = open_context(model)
    lib.begin(context, START, max_tokens=0)
    bad = rows.copy()
    bad[1, 2] = np.nan
    cases = [
        (placed(START, [0, 1]), rows, "2 places"),
        (placed(START, [0, 1, 2]), rows[:, :-1], "numbers"),
        (placed(START, [0, 1, 2]), rows.astype(np.int32), "int32"),
        (placed(START, [0, 1, 2]), rows[0], "must be"),
        (placed(START, [0, 1, 2]), bad, "finite"),
        ([-2, *placed(START, [0, 1, 2])], rows, "tokens[0]"),
    ]
    for tokens, values, said in cases:
        error = refused(EINVAL, begin, lib, context, tokens, arrays.create(values))
        assert said in error.message
    refused(EHANDLE, begin, lib, context, placed(START, [0]), 0)
    error = refused(EINVAL, lib.begin, context, [-1])
    assert "tokens[0]" in error.message
    assert lib.tokens(context) == START


def test_half_rows_and_rows_of_no_token(lib, tiny, open_context, arrays, table):
    context = open_context(tiny(KV))
    rows = table(KV)[START[:4]]
    halves = arrays.create(rows.astype(np.float16))
    first = generated(lib, context, placed(START, range(4)), halves)
    assert len(first) == COUNT
    random = np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    assert len(generated(lib, context, placed(START, range(4)), arrays.create(random))) == COUNT
    assert lib.info(context)["reused"] == 0


def test_a_network_with_two_tables_is_refused_by_name(lib, tiny, open_context, arrays):
    model = tiny("gemma3n")
    assert lib.info(model)["embedding_width"] is None
    rows = arrays.create(np.zeros((1, 8), np.float32))
    error = refused(EUNSUPPORTED, begin, lib, open_context(model), [-1, 2], rows)
    assert "gemma3n" in error.message
