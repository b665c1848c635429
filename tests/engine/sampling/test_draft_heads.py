"""A model's own head that predicts the token behind the next one: faster, with the same tokens."""

from __future__ import annotations

from ctypes import c_int32

import numpy as np
import pytest
from driver import FIRST_PLAIN, delivered, prompt
from support import heads, tiny_models
from support.arrays import Arrays
from support.callbacks import Callbacks
from support.library import StatusError
from support.signatures import EINVAL, EUNSUPPORTED, GRAMMAR_REGEX, OVERFLOW_ROLL
from support.threads import at_once

from cowmlx import memory
from cowmlx.models.converting import output, sources
from cowmlx.models.quantizing import Quantizing
from cowmlx.services import admission
from cowmlx.steps import finished

START = prompt(20)
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 7, "repetition_penalty": 1.2}
families = pytest.mark.parametrize("family", heads.ARCHITECTURES)


@pytest.fixture(scope="module")
def with_head(lib, tmp_path_factory):
    """A loaded model with a head, by its architecture; the files are written once."""
    loaded: dict[tuple, int] = {}

    def with_head(family: str, **options) -> int:
        key = (family, *options.items())
        if key not in loaded:
            folder = tmp_path_factory.mktemp("head") / family
            tiny_models.make(folder, family)
            loaded[key] = lib.load(heads.add(folder, family, **options))
        return loaded[key]

    yield with_head
    for model in loaded.values():
        lib.free_model(model)


def tokens_of(lib, context, count=24, start=START, **params):
    lib.begin(context, start, max_tokens=count, **params)
    return delivered(lib.drain(context))


@families
def test_the_tokens_are_those_without(lib, with_head, open_context, family):
    model = with_head(family)
    plain, drafts = open_context(model), open_context(model)
    for params in ({}, SEEDED):
        expected = tokens_of(lib, plain, **params)
        assert tokens_of(lib, drafts, draft_heads=1, **params) == expected
        assert lib.stats(drafts).drafted_tokens > 0
    assert tokens_of(lib, drafts, draft_heads=1, draft_tokens=5) == tokens_of(lib, plain)
    longer = START + tokens_of(lib, plain)
    assert tokens_of(lib, drafts, start=longer, draft_heads=1) == tokens_of(
        lib, plain, start=longer
    )


@pytest.mark.parametrize("draft_tokens", [1, 3])
@families
def test_a_head_that_is_right_is_believed(lib, with_head, open_context, family, draft_tokens):
    """It is where a token depends on the one before alone."""
    model = with_head(family, right=True)
    plain, drafts = open_context(model), open_context(model)
    made = tokens_of(lib, drafts, 20, draft_heads=1, draft_tokens=draft_tokens)
    assert made == tokens_of(lib, plain, 20)
    stats = lib.stats(drafts)
    assert stats.accepted_tokens == stats.drafted_tokens >= 8


@families
def test_a_window_that_rolls_is_drafted_for(lib, with_head, open_context, family):
    """Drafts come behind the tokens that stay, too, not only until the window first rolls."""
    model = with_head(family, right=True)
    window = {"max_tokens": 24, "overflow": OVERFLOW_ROLL, "keep_tokens": 2}
    plain, drafts = open_context(model, **window), open_context(model, **window)
    made = tokens_of(lib, drafts, 60, draft_heads=1, draft_tokens=2)
    assert made == tokens_of(lib, plain, 60)
    stats = lib.stats(drafts)
    assert stats.drafted_tokens >= 20
    assert stats.accepted_tokens >= 20


def test_norms_as_hugging_face_stores_them(lib, with_head, open_context):
    context = open_context(with_head("qwen3_5", right=True, stored_less_one=True))
    other = open_context(with_head("qwen3_5", right=True))
    made = tokens_of(lib, context, 16, draft_heads=1)
    assert made == tokens_of(lib, other, 16)
    stats = lib.stats(context)
    assert stats.accepted_tokens == stats.drafted_tokens > 0


def test_a_grammar_holds(lib, with_head, open_context):
    model = with_head("qwen3_5")
    params = {"grammar": "[a-f]{6}", "grammar_kind": GRAMMAR_REGEX, "max_tokens": 12}
    text = lib.generate(open_context(model), START, **params).text
    assert lib.generate(open_context(model), START, draft_heads=1, **params).text == text


def test_beside_others(lib, with_head, open_context):
    """Contexts with a head step alone, those without as a batch."""
    model = with_head("qwen3_5")
    contexts = [open_context(model) for _ in range(4)]
    prompts = [prompt(9 + place, seed=place) for place in range(4)]
    expected = [tokens_of(lib, open_context(model), start=tokens) for tokens in prompts]
    given = {}

    def work(place):
        params = {"draft_heads": place % 2}
        given[place] = tokens_of(lib, contexts[place], start=prompts[place], **params)

    at_once(4, work)
    assert [given[place] for place in range(4)] == expected


def test_after_a_sleep_and_in_a_fork(lib, with_head, open_context):
    model = with_head("qwen3_5")
    context = open_context(model)
    expected = tokens_of(lib, context)
    lib.check(lib.c.cow_mlx_model_sleep(model))
    assert tokens_of(lib, context, draft_heads=1) == expected
    fork = lib.fork(context)
    longer = [*lib.tokens(fork), FIRST_PLAIN]
    assert tokens_of(lib, fork, start=longer, draft_heads=1) == tokens_of(
        lib, context, start=longer
    )
    lib.free(fork)


def test_models_without_one_refuse(lib, tiny, open_context):
    for family, why in (("llama", "no heads that draft"), ("qwen3_next", "no weights of a head")):
        with pytest.raises(StatusError, match=why) as error:
            lib.begin(open_context(tiny(family)), START, draft_heads=1)
        assert error.value.status == EUNSUPPORTED


def test_rows_of_embeddings_exclude_it(lib, with_head, open_context):
    context = open_context(with_head("mimo"))
    rows = Arrays(lib).create(np.zeros((1, 128), np.float32))
    tokens = (c_int32 * 3)(5, -1, 6)
    params = lib.params("generation", Callbacks(), draft_heads=1)
    begun = lib.c.cow_mlx_context_begin_embeddings(context, tokens, 3, rows, params)
    assert begun == EUNSUPPORTED
    assert "draft_heads" in lib.message()
    assert len(tokens_of(lib, context, draft_heads=1)) == 24


def test_a_draft_comes_from_one_place(lib, with_head, open_context):
    model = with_head("qwen3_5")
    with pytest.raises(StatusError, match="draft and draft_heads") as error:
        lib.begin(open_context(model), START, draft_heads=1, draft=model)
    assert error.value.status == EINVAL


@pytest.mark.parametrize(("family", "bits"), [("qwen3_5", 4), ("deepseek_v3", 0), ("mimo", 0)])
def test_a_converted_folder_has_the_head(lib, tmp_path, family, bits):
    """It gives the same drafts, stored as Hugging Face does or not, and converted twice."""
    folder, once, twice = (tmp_path / name for name in ("folder", "once", "twice"))
    folder.mkdir()
    tiny_models.make(folder, family)
    heads.add(folder, family, right=True, stored_less_one=family == "qwen3_5")
    how = Quantizing(bits, 32, "affine") if bits else None
    finished(output.write(sources.read(str(folder), how, None), str(once), {}))
    finished(output.write(sources.read(str(once), None, None), str(twice), {}))
    for path in (once, twice):
        model = lib.load(path)
        context = lib.context(model)
        try:
            made = tokens_of(lib, context, 16, draft_heads=1)
            stats = lib.stats(context)
            assert stats.accepted_tokens == stats.drafted_tokens > 0
            assert tokens_of(lib, context, 16) == made
        finally:
            lib.free(context)
            lib.free_model(model)


def test_its_memory_is_counted(lib, tmp_path, monkeypatch):
    """A generation needs its weights, until they are read, and a cache of a layer."""
    left = memory.limit(1, "the fake device")
    folder = tiny_models.make(tmp_path / "model", "qwen3_5")
    model = lib.load(heads.add(folder, "qwen3_5"))
    context = lib.context(model)

    def needed(**params):
        with monkeypatch.context() as changed, pytest.raises(StatusError) as refused:
            changed.setattr(memory, "rooms", lambda device: iter([left]))
            changed.setattr(admission, "RESERVE", 0)
            changed.setattr(admission, "FRESH", 0)
            lib.begin(context, START, max_tokens=200, **params)
        return refused.value.details["needed"]

    tokens_of(lib, context)
    plain, unread = needed(), needed(draft_heads=1)
    tokens_of(lib, context, draft_heads=1)
    assert plain < needed(draft_heads=1) < unread
    lib.check(lib.c.cow_mlx_model_sleep(model))
    assert needed(draft_heads=1) >= unread, "its weights are freed in a sleep, too"
    lib.free(context)
    lib.free_model(model)
