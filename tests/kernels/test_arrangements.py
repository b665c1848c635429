"""Declared arrangements of decoder layers: those that the search finds, and only a shortcut."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest
from support import tiny_architectures, tiny_models
from support.loaded import load

from cowmlx.accelerate import kernels
from cowmlx.accelerate.fused import arrangements, proof
from cowmlx.accelerate.fused import network as fused
from cowmlx.errors import Unsupported
from cowmlx.networks import light_route

pytestmark = pytest.mark.skipif(not kernels.available(), reason="there are no kernels here")


@pytest.fixture(autouse=True)
def cpu() -> Iterator[None]:
    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(device)


def proved(network, make_cache, monkeypatch, *, search: bool) -> list:
    """Fuse a network's layers; each layer's class and arrangement."""
    found = []
    prove = proof.Layer.prove

    def note(self, hint):
        if search:
            monkeypatch.setattr(proof, "declared", lambda *_: ())
        layer = prove(self, None if search else hint)
        found.append((arrangements.name_of(self._block), layer.arrangement))
        return layer

    with monkeypatch.context() as patched:
        patched.setattr(proof.Layer, "prove", note)
        fused.undo(network)
        fused.fuse(network, make_cache)
    monkeypatch.undo()
    return found


@pytest.mark.parametrize(
    "family",
    [
        *tiny_models.FAMILIES,
        *(pytest.param(name, marks=pytest.mark.long) for name in tiny_architectures.CONFIGS),
    ],
)
def test_declared_arrangements_are_those_that_the_search_finds(family, tmp_path, monkeypatch):
    try:
        model = load(tiny_models.make(tmp_path, family))
    except Unsupported as why:
        assert "Apple" in str(why)
        return
    found = proved(model.network, model.make_cache, monkeypatch, search=True)
    for name, arrangement in found:
        slots, activation = arrangements.DECLARED[name]
        assert arrangement.slots == slots, name
        assert arrangement.activation in ("", activation), name
    assert proved(model.network, model.make_cache, monkeypatch, search=False) == found


def test_every_declared_class_is_mlx_lms():
    for name in arrangements.DECLARED:
        module, _, kind = name.partition(".")
        assert hasattr(light_route.import_module(f"models.{module}"), kind), name


def test_a_known_layer_is_tried_once(tmp_path, monkeypatch):
    model = load(tiny_models.make(tmp_path, "olmo2"))
    tries = []
    error = proof.Layer._error
    monkeypatch.setattr(
        proof.Layer, "_error", lambda self, layer: tries.append(self) or error(self, layer)
    )
    fused.undo(model.network)
    report = fused.fuse(model.network, model.make_cache)
    assert report.whole
    assert report.layers > len(tries) == 1  # all are of one kind


def scaled(self, *args):
    return self.base(*args) * self.factor


@pytest.mark.parametrize(
    "values, proofs, left",
    [
        ([1.0, 1.0, 1.0], 1, 0),
        ([1.0, 2.0, 1.0], 2, 1),
        ([2.0, 1.0, 1.0], 2, 1),
        ([mx.array([1.0]), mx.array([1.0]), mx.array([1.0])], 1, 0),
        ([mx.array([1.0]), mx.array([2.0]), mx.array([1.0])], 2, 1),
        ([mx.ones(64), mx.ones(64), 2 * mx.ones(64)], 2, 1),
    ],
    ids=str,
)
def test_what_layers_compute_with_tells_them_apart(values, proofs, left, tmp_path, monkeypatch):
    """The code names these numbers and arrays, and kernels are not given them."""
    model = load(tiny_models.make(tmp_path, "olmo2"))
    fused.undo(model.network)
    blocks = model.network.model.layers
    plain = type(blocks[0]).__mro__[1]
    code = {"__call__": scaled, "base": plain.__call__, "__module__": plain.__module__}
    kind = type("Scaled", (plain,), code)
    for number, (block, value) in enumerate(zip(blocks, values, strict=True)):
        block.__class__ = kind
        block.factor = value
        block.number = number  # that no code names
    found = []
    prove = proof.Layer.prove

    def note(self, hint):
        found.append(self)
        return prove(self, hint)

    monkeypatch.setattr(proof.Layer, "prove", note)
    report = fused.fuse(model.network, model.make_cache)
    assert len(found) == proofs
    assert report.fused == report.layers - left == 3 - left


@pytest.mark.parametrize(
    "wrong",
    [
        (("before", "inner_before"), "silu"),
        (("after", "inner_after"), "relu"),
        (("before", "after", "inner_before", "inner_after"), "silu"),
        ((), ""),
    ],
    ids=["norms", "activation", "number", "nothing"],
)
def test_a_wrong_declaration_leads_to_the_search(wrong, tmp_path, monkeypatch):
    model = load(tiny_models.make(tmp_path, "olmo2"))
    expected = proved(model.network, model.make_cache, monkeypatch, search=True)
    monkeypatch.setitem(arrangements.DECLARED, expected[0][0], wrong)
    fused.undo(model.network)
    report = fused.fuse(model.network, model.make_cache)
    assert report.whole
    assert report.reasons == {}


def test_a_network_is_tried_with_little_memory(tmp_path):
    sizes = {"num_hidden_layers": 12, "num_key_value_heads": 4, "head_dim": 64}
    model = load(tiny_models.make(tmp_path, "qwen3", config=sizes))
    fused.undo(model.network)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    report = fused.fuse(model.network, model.make_cache)
    assert report.whole
    # Keys and values of 256 tokens, for which an empty cache takes memory.
    assert mx.get_peak_memory() - before < 12 * 2 * 4 * 256 * 64 * 4
