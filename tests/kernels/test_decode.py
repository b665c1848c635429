"""A token a row, from tokens to logits at once: bit for bit what the network gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_models
from support.in_process import started
from support.loaded import load

from cowmlx.accelerate import kernels
from cowmlx.accelerate.fused import network as fused
from cowmlx.accelerate.fused.caches import form_of
from cowmlx.accelerate.fused.decode import logits_behind
from cowmlx.cache.batch import Batch
from cowmlx.cache.sequence import share
from cowmlx.generated.constants import ACTIVATIONS_DEFAULT, ACTIVATIONS_EXACT
from cowmlx.models.model import Model

pytestmark = pytest.mark.skipif(not kernels.available(), reason="there are no kernels here")

PROMPT = [3, 5, 7, 2, 9, 11]
FOUR_BITS = {"group_size": 32, "bits": 4}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, on_cpu: None) -> Callable[..., Model]:
    """Models, each made once."""
    models: dict[str, Model] = {}

    def get(
        family: str,
        quantize: dict[str, Any] | None = None,
        rounded: bool = False,
        dtype: str = "float32",
    ) -> Model:
        key = f"{family} {quantize} {rounded} {dtype}"
        if key not in models:
            place = tmp_path_factory.mktemp("models") / str(len(models))
            path = tiny_models.make(place, family, quantize=quantize, dtype=dtype)
            activations = ACTIVATIONS_DEFAULT if rounded else ACTIVATIONS_EXACT
            models[key] = load(path, activations=activations)
        return models[key]

    return get


def begun(model: Model, prompt: list[int]) -> list[Any]:
    caches: list[Any] = model.make_cache()
    mx.eval(model.network(mx.array([prompt]), cache=caches))
    return caches


def one(token: int) -> mx.array:
    return mx.array([token], mx.uint32)


def at_once(model: Model) -> Any:
    return vars(model.network).get("_decode")


@pytest.mark.parametrize(
    "form",
    [
        (None, False),
        (FOUR_BITS, False),
        (FOUR_BITS, True),
        (None, True, "bfloat16"),
        (None, True, "float16"),
    ],
    ids=["float32", "4 bits", "4 bits, int8", "bfloat16, rounded", "float16"],
)
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2"])
def test_tokens_to_logits(made, family, form):
    model = made(family, *form)
    own, plain = begun(model, PROMPT), begun(model, PROMPT)
    for step in range(6):
        logits = at_once(model).logits(one(step), own)
        expected = model.network(mx.array([[step]]), cache=plain)[:, -1, :]
        assert mx.array_equal(logits, expected).item()
    for a, b in zip(own, plain, strict=True):
        assert a.offset == b.offset
        assert mx.array_equal(a.keys, b.keys).item()
        assert mx.array_equal(a.values, b.values).item()


def test_a_cache_without_room_takes_the_other_way_and_goes_on(made):
    model = made("llama")
    prompt = [token % 50 for token in range(255)]
    own, plain = begun(model, prompt), begun(model, prompt)
    for step in range(4):
        logits = logits_behind(model.network, one(step), own)
        expected = model.network(mx.array([[step]]), cache=plain)[:, -1, :]
        assert mx.array_equal(logits, expected).item()
    assert own[0].keys.shape[2] == 512
    short = begun(model, PROMPT)
    assert short[0].keys.shape[2] == 128  # no whole block
    empty = model.make_cache()
    assert at_once(model).logits(one(3), empty) is None
    assert empty[0].keys is None
    assert empty[0].offset == 0


def test_rows_of_a_batch(made):
    model = made("qwen3", FOUR_BITS, True)
    prompts = [PROMPT, PROMPT[2:4], PROMPT[1:5]]
    batches = []
    for _ in range(2):
        batch = Batch(model.make_cache(), mx.default_stream(mx.default_device()))
        for prompt in prompts:
            batch.join(share(begun(model, prompt)), len(prompt))
        batches.append(batch)
    for step in range(5):
        ids = mx.array([step, step + 7, step + 3], mx.uint32)
        ways = []
        for index, batch in enumerate(batches):
            batch.begin_step(batch.rows.all[: 2 + step % 2])  # one row stays where it is
            if index:
                ways.append(model.network(ids[:, None], cache=batch.layers)[:, -1, :])
            else:
                ways.append(at_once(model).logits(ids, batch.layers))
            batch.end_step()
        assert mx.array_equal(*ways).item()
    for a, b in zip(batches[0].arrays, batches[1].arrays, strict=True):
        assert mx.array_equal(a, b).item()


def test_queued_steps_copy_no_cache_and_leave_what_others_hold(made):
    model = made("llama")
    caches = begun(model, PROMPT)
    kept = share(caches)
    before = [mx.array(cache.keys) for cache in kept]
    mx.eval(before)
    mx.eval(logits_behind(model.network, one(1), caches))  # copies, since others hold them
    places = [np.asarray(cache.keys).ctypes.data for cache in caches]
    for token in (4, 5, 6):
        logits = logits_behind(model.network, one(token), caches)
        mx.async_eval(logits)
    mx.eval(logits)
    assert [np.asarray(cache.keys).ctypes.data for cache in caches] == places
    for cache, keys in zip(kept, before, strict=True):
        assert mx.array_equal(cache.keys, keys).item()
        assert cache.offset == len(PROMPT)


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "mamba"])
def test_networks_that_do_more_are_called(made, family):
    model = made(family)
    assert at_once(model) is None
    logits = logits_behind(model.network, one(3), begun(model, PROMPT))
    expected = model.network(mx.array([[3]]), cache=begun(model, PROMPT))[:, -1, :]
    assert mx.array_equal(logits, expected).item()


@pytest.mark.parametrize("family", ["gemma", "gemma2"])  # an input scale, and a head that caps
def test_tokens_whose_embeddings_are_zeros_prove_nothing(tmp_path, family):
    path = tiny_models.make(tmp_path / "model", family)
    weights: Any = mx.load(str(path / "model.safetensors"))
    weights["model.embed_tokens.weight"][:3] = 0
    mx.save_safetensors(str(path / "model.safetensors"), weights, metadata={"format": "mlx"})
    model, plain = load(path), load(path)
    fused.undo(plain.network)
    assert model.info()["kernels"]["whole"]
    own, expected = (
        logits_behind(each.network, one(30), begun(each, [20, 30, 40])) for each in (model, plain)
    )
    assert mx.allclose(own, expected, rtol=1e-4, atol=1e-4).item()


def test_angles_are_no_longer_than_asked_for_and_can_be_forgotten(made):
    model = made("llama")
    (angles,) = at_once(model)._run._tables  # which models of the same kind share
    angles.forget()
    own, plain = begun(model, PROMPT), begun(model, [7] * 400)
    length = angles.tables[0].shape[0]
    assert 400 <= length <= 400 + 400 // 8 + 64
    before = logits_behind(model.network, one(5), share(own))
    with started() as engine:
        engine.memory_trim()
    assert angles.tables == []
    assert mx.array_equal(logits_behind(model.network, one(5), own), before).item()
    assert angles.tables[0].shape[0] < length
    mx.eval(logits_behind(model.network, one(5), plain))
    assert angles.tables[0].shape[0] > 400


def test_what_does_not_fit_is_refused(made):
    model = made("llama")
    caches = begun(model, PROMPT)
    run, form = at_once(model)._run, form_of(caches[0])
    assert run.decode(mx.array([[1]]), caches, form) is None
    assert run.decode(one(1), caches[:1], form) is None
    assert run.decode(mx.array([1, 2]), caches, form) is None
    for dtype in (mx.int64, mx.float32):
        with pytest.raises(ValueError, match="integers of 32 bits"):
            run.decode(mx.array([1], dtype), caches, form)
    caches[0].keys = caches[0].keys[:, :, :, :4]
    with pytest.raises(ValueError, match="not those of the layer"):
        run.decode(one(1), caches, form)


def test_a_network_that_changed_is_called_again(tmp_path):
    model = load(tiny_models.make(tmp_path / "model", "llama"))
    assert at_once(model) is not None
    fused.undo(model.network)
    assert at_once(model) is None
    fused.fuse(model.network, model.make_cache)
    assert at_once(model) is not None
    model.network.train()
    mx.eval(logits_behind(model.network, one(3), begun(model, PROMPT)))
