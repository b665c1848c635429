"""Quantized caches (``kv_bits``) of models that see: as with those of text."""

from __future__ import annotations

import numpy as np
import pytest
from driver import delivered
from seeing import begun

COUNT = 8


@pytest.mark.parametrize(("bits", "near"), [(8, 0.999), (4, 0.95)])
def test_logits_behind_images_are_near(lib, seer, open_context, prompt, bits, near):
    assert lib.info(seer)["cache"]["quantise"] == "in_place"
    plain = begun(lib, open_context(seer, share_prefix=False), prompt)
    context = open_context(seer, share_prefix=False, kv_bits=bits)
    found = begun(lib, context, prompt)
    assert np.corrcoef(plain, found)[0, 1] > near
    assert not np.array_equal(plain, found)
    assert lib.info(context)["kv_bits"] == bits


def test_rows_and_forks_are_as_alone(lib, seer, open_context, prompt):
    """A prompt with images, one of text and a fork, side by side."""
    prompts = [prompt, [5, 6, 7, 8], [*prompt, 9]]
    expected = []
    for tokens in prompts:
        alone = open_context(seer, share_prefix=False, kv_bits=8)
        lib.begin(alone, tokens, max_tokens=COUNT)
        expected.append(delivered(lib.drain(alone)))
    first = open_context(seer, share_prefix=False, kv_bits=8)
    lib.begin(first, prompt, max_tokens=0)
    fork = lib.fork(first)
    contexts = [first, open_context(seer, share_prefix=False, kv_bits=8), fork]
    for context, tokens in zip(contexts, prompts, strict=True):
        lib.begin(context, tokens, max_tokens=COUNT)
    found = [[] for _ in prompts]
    for _ in range(COUNT):
        for context, tokens in zip(contexts, found, strict=True):
            tokens.append(lib.next(context).token)
    lib.free(fork)
    assert [own[: len(want)] for own, want in zip(found, expected, strict=True)] == expected


def test_a_saved_context_keeps_its_bits(lib, seer, open_context, prompt, tmp_path):
    context = open_context(seer, share_prefix=False, kv_bits=8)
    lib.begin(context, prompt, max_tokens=0)
    lib.save(context, tmp_path / "file")
    loaded = open_context(seer, kv_bits=8)
    lib.restore(loaded, tmp_path / "file")
    expected = begun(lib, context, [*prompt, 9])
    np.testing.assert_allclose(begun(lib, loaded, [*prompt, 9]), expected, rtol=1e-4, atol=1e-4)
