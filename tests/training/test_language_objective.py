"""The trained parts of a language model: layers, keys, dropout, checkpointing, seeds; bad input."""

from __future__ import annotations

import pathlib
from typing import Any

import mlx.core as mx
import pytest
from support import tiny_models
from support.loaded import drain, load
from support.tiny_adapters import make as make_adapter

from cowmlx.errors import CowMlxError, InvalidArgument, OutOfMemory, Unsupported
from cowmlx.training.language.layers import checkpoint
from cowmlx.training.language.objective import LanguageObjective
from cowmlx.training.language.options import LanguageOptions
from cowmlx.training.language.token_inputs import TokenBatch

FOUR_BITS = {"group_size": 32, "bits": 4}


def objective(model: Any, **options: Any) -> LanguageObjective:
    made: LanguageObjective = drain(LanguageObjective.steps(model, LanguageOptions(options)))[0]
    return made


def stirred(run: LanguageObjective) -> LanguageObjective:
    """Let an adapter do something: it begins with matrices of zeros."""
    run.set_parameters(
        {
            name: mx.random.normal(value.shape, scale=0.05, key=mx.random.key(index))
            for index, (name, value) in enumerate(run.parameters().items())
            if name.endswith("lora_b")
        }
    )
    return run


def batch(rows: int = 2, length: int = 12, first: int = 1) -> TokenBatch:
    tokens = mx.random.randint(20, 100, (rows, length), key=mx.random.key(1))
    return TokenBatch(tokens, mx.broadcast_to(mx.arange(length) >= first, (rows, length)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tiny_models.make(tmp_path_factory.mktemp("objective"), "llama")


@pytest.fixture(scope="module")
def model(folder: pathlib.Path) -> Any:
    return load(folder)


def layers(run: LanguageObjective) -> set[str]:
    return {name.rpartition(".lora_")[0] for name in run.parameters()}


def test_layers_and_keys_are_those_asked_for(model: Any) -> None:
    assert len(layers(objective(model))) == 3 * 7
    last = layers(objective(model, num_layers=1))
    assert len(last) == 7
    assert all(name.startswith("model.layers.2.") for name in last)
    assert layers(objective(model, keys=["self_attn.q_proj", "lm_head"], num_layers=2)) == {
        "model.layers.1.self_attn.q_proj",
        "model.layers.2.self_attn.q_proj",
        "lm_head",
    }
    named = objective(model, keys=["model.layers.0.mlp.up_proj"])
    assert layers(named) == {"model.layers.0.mlp.up_proj"}
    full = objective(model, type="full").parameters()
    assert {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"} < full.keys()
    some = objective(model, type="full", num_layers=2).parameters()
    assert {name.split(".")[2] for name in some} == {"1", "2"}
    assert all("m" in name.rpartition(".")[2] or "lora" in name
               for name in objective(model, type="dora").parameters())  # fmt: skip


def test_room_is_asked_for_before_a_network_is_made(folder: pathlib.Path) -> None:
    """For the adapter, and for weights that are held in another form; others are shared."""
    model = load(folder)

    def require_room(size: int, what: str) -> None:
        assert what == "the network to train"
        asked.append(size)
        raise OutOfMemory("no room")

    asked: list[int] = []
    for options in ({"rank": 2}, {"rank": 6}):
        with pytest.raises(OutOfMemory, match="no room"):
            drain(LanguageObjective.steps(model, LanguageOptions(options), require_room))
    small, large = (
        sum(value.nbytes for value in objective(model, rank=rank).parameters().values())
        for rank in (2, 6)
    )
    assert asked[0] >= small
    assert asked[1] - asked[0] == large - small


def test_a_rank_gives_its_shapes(model: Any) -> None:
    values = objective(model, rank=3, keys=["mlp.up_proj"], num_layers=1).parameters()
    assert {name.rpartition(".")[2]: value.shape for name, value in values.items()} == {
        "lora_a": (64, 3),
        "lora_b": (3, 96),
    }


def test_adapters_begin_as_the_seed_says(model: Any) -> None:
    mx.random.seed(1)
    first = objective(model, seed=3).parameters()
    mx.random.seed(2)
    again, other = objective(model, seed=3).parameters(), objective(model, seed=4).parameters()
    for name, value in first.items():
        assert mx.array_equal(value, again[name]).item()
        if name.endswith("lora_a"):
            assert not mx.array_equal(value, other[name]).item()
            assert 0.5 < mx.abs(value).max().item() * value.shape[0] ** 0.5 <= 1
        else:
            assert not value.any().item()


def test_an_adapter_begins_without_effect(model: Any) -> None:
    run = objective(model)
    tokens = batch().tokens
    run.network.eval()
    assert mx.allclose(
        run.network(tokens), model.network(tokens, cache=model.make_cache()), atol=1e-4
    ).item()


def test_dropout_is_of_the_key_alone(model: Any) -> None:
    run = stirred(objective(model, dropout=0.5))
    assert run._dropouts.count
    data = batch()

    def found(key: int | None) -> tuple[float, mx.array]:
        given = None if key is None else mx.random.key(key)
        value, _, gradients = run.gradients(data, given)
        return value.item(), gradients["model.layers.0.self_attn.q_proj.lora_b"]

    mx.random.seed(1)
    (loss, gradient), state = found(7), mx.random.state[0]
    mx.random.seed(2)
    again, other, none = found(7), found(8), found(None)
    assert again[0] == loss
    assert mx.array_equal(again[1], gradient).item()
    assert other[0] != loss
    assert none[0] == pytest.approx(run.evaluate(data)[0].item(), rel=1e-5)
    assert none[0] != loss
    mx.random.seed(1)
    assert mx.array_equal(mx.random.state[0], state).item()  # nothing was drawn of mlx's own
    # Checkpointing computes the same masks again.
    twice = stirred(objective(model, dropout=0.5, grad_checkpoint=True))
    value, _, gradients = twice.gradients(data, mx.random.key(7))
    assert value.item() == loss
    assert mx.array_equal(gradients["model.layers.0.self_attn.q_proj.lora_b"], gradient).item()
    assert not objective(model)._dropouts.count


@pytest.mark.parametrize("family", ["gemma3_text", "qwen3_moe", "rwkv7", "mad-hybrid", "xlstm"])
def test_checkpointing_gives_the_same_gradients(family: str, tmp_path: pathlib.Path) -> None:
    model = load(tiny_models.make(tmp_path, family))
    for kind in ("lora", "full"):
        plain = stirred(objective(model, type=kind))
        again = stirred(objective(model, type=kind, grad_checkpoint=True))
        value, _, expected = plain.gradients(batch(), None)
        other, _, found = again.gradients(batch(), None)
        assert value.item() == other.item()
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            error = 1e-6 * max(1.0, mx.abs(gradient).max().item())
            assert mx.allclose(found[name], gradient, rtol=1e-5, atol=error).item(), name


def test_checkpointing_computes_blocks_again_and_changes_no_class(model: Any) -> None:
    run = objective(model, grad_checkpoint=True)
    kind = type(run.network.layers[0])
    plain = kind.__mro__[1]
    calls = 0
    forward = plain.__call__

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return forward(*arguments, **named)

    plain.__call__ = counted  # type: ignore[method-assign]
    try:
        run.gradients(batch(), None)
        assert calls == 6
        run.evaluate(batch())
        assert calls == 9
    finally:
        plain.__call__ = forward  # type: ignore[method-assign]
    assert not any(
        getattr(type(module), "_is_checkpointed", False)
        for _, module in model.network.named_modules()
    )
    checkpoint(run.network.layers[0])
    assert type(run.network.layers[0]) is kind


def test_checkpointing_takes_less_memory(tmp_path: pathlib.Path) -> None:
    model = load(tiny_models.make(tmp_path, "llama", config={"num_hidden_layers": 8}))

    def peak(**options: Any) -> int:
        run = objective(model, **options)
        data = batch(4, 200)
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        mx.eval(run.gradients(data, None))
        return mx.get_peak_memory() - before

    assert peak(grad_checkpoint=True) < 0.7 * peak()


def test_a_batch_of_rows_is_their_sum(model: Any) -> None:
    run = stirred(objective(model))
    whole = batch(3)
    value, count, gradients = run.gradients(whole, None)
    parts = [
        run.gradients(TokenBatch(whole.tokens[i : i + 1], whole.targets[i : i + 1]), None)
        for i in range(3)
    ]
    assert value.dtype == mx.float32
    assert value.shape == count.shape == ()
    assert value.item() == pytest.approx(sum(part[0].item() for part in parts), rel=1e-5)
    assert count.item() == sum(part[1].item() for part in parts) == 33
    for name, gradient in gradients.items():
        assert mx.allclose(gradient, sum(p[2][name] for p in parts), rtol=1e-3, atol=1e-3).item()


def test_what_fills_up_changes_nothing(model: Any) -> None:
    run = stirred(objective(model))
    plain = batch(2, 12)
    nothing = mx.zeros((2, 5), mx.int32)
    filled = TokenBatch(
        mx.concatenate([plain.tokens, nothing], axis=1),
        mx.concatenate([plain.targets, nothing == 1], axis=1),
    )
    assert run.evaluate(filled)[1].item() == run.evaluate(plain)[1].item()
    assert run.gradients(filled, None)[0].item() == pytest.approx(
        run.gradients(plain, None)[0].item(), rel=1e-6
    )


def test_the_loss_is_that_of_float64(model: Any) -> None:
    import numpy as np

    run = stirred(objective(model))
    data = batch(first=4)
    run.network.eval()
    logits = np.array(run.network(data.tokens[:, :-1])).astype(np.float64)
    top = logits.max(-1, keepdims=True)
    losses = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    wanted = np.array(data.tokens)[:, 1:]
    losses -= np.take_along_axis(logits, wanted[..., None], -1)[..., 0]
    mask = np.array(data.targets)[:, 1:]
    value, count, right = run.evaluate(data)
    assert value.item() == pytest.approx((losses * mask).sum(), rel=1e-6)
    assert count.item() == mask.sum()
    assert right.item() == ((logits.argmax(-1) == wanted) & mask).sum()


def test_a_batch_without_a_target_is_counted_as_none(model: Any) -> None:
    data = batch(first=99)
    value, count, gradients = objective(model).gradients(data, None)
    assert (value.item(), count.item()) == (0, 0)
    assert not any(gradient.any().item() for gradient in gradients.values())


def test_training_changes_nothing_of_a_serving_model_of_another_form(
    tmp_path: pathlib.Path,
) -> None:
    """Also while it is trained, also packed, also what is kept in blocks or fused."""
    model = load(tiny_models.make(tmp_path, "llama", quantize=FOUR_BITS))
    tokens = batch().tokens

    def served() -> mx.array:
        found: mx.array = model.network(tokens, cache=model.make_cache())
        mx.eval(found)
        return found

    kinds = [(name, type(module)) for name, module in model.network.named_modules()]
    before, info = served(), model.info()
    run = stirred(objective(model, grad_checkpoint=True))
    waiting = run.gradients(batch(), None)
    assert mx.array_equal(served(), before).item()
    mx.eval(waiting)
    run.set_parameters({name: value + 1 for name, value in run.parameters().items()})
    assert mx.array_equal(served(), before).item()
    assert [(name, type(module)) for name, module in model.network.named_modules()] == kinds
    assert model.info() == info


def test_fingerprints_tell_models_and_options_apart(model: Any, tmp_path: pathlib.Path) -> None:
    own = objective(model).fingerprint()
    assert objective(model, seed=3).fingerprint() == own
    assert objective(model, grad_checkpoint=True).fingerprint() == own
    other = load(tiny_models.make(tmp_path, "llama", seed=1))
    prints = {
        own,
        objective(other).fingerprint(),
        objective(model, rank=4).fingerprint(),
        objective(model, scale=4).fingerprint(),
        objective(model, num_layers=2).fingerprint(),
        objective(model, type="dora").fingerprint(),
        objective(model, type="full").fingerprint(),
    }
    assert len(prints) == 7


def test_parameters_are_checked(model: Any) -> None:
    run = objective(model)
    name = "model.layers.0.self_attn.q_proj.lora_a"
    before = run.parameters()[name]
    for values, message in (
        ({"model.norm.weight": mx.zeros(64)}, "no parameter that is trained"),
        ({name: before[:, :3]}, r"is .*float32 \(64, 3\), not .*\(64, 8\)"),
        ({name: before.astype(mx.float16)}, "float16"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            run.set_parameters(values)
    assert run.parameters()[name] is before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": ["self_attn.q_prog"]}, "'self_attn.q_prog'.* a llama block has .*q_proj"),
        ({"keys": ["self_attn.q_proj", "nowhere"]}, "'nowhere'"),
        ({"keys": ["input_layernorm"]}, "keys names a layer of type"),
        ({"num_layers": 4}, "num_layers is 4, must be 1 to 3"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"rank": 0}, "rank is 0, must be 1 to"),
        ({"scale": 0}, "scale is 0"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"dropout": 1}, "dropout is 1"),
        ({"type": "qlora"}, 'type is \'qlora\', must be one of "lora", "dora", "full"'),
        ({"type": "full", "rank": 4}, "options.rank is an option of adapters"),
        ({"alpha": 16}, "options.alpha is no option here; they are type, rank, scale"),
        ({"keys": "q_proj"}, "must be null, or a list"),
        ({"keys": [3]}, r"keys\[0\] is 3, must be a name"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_are_checked(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        objective(model, **options)
    assert caught.value.details["argument"]


def test_what_cannot_be_trained_is_refused(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    packed = load(tiny_models.make(tmp_path / "packed", "llama", quantize=FOUR_BITS))
    with pytest.raises(Unsupported, match=r"weights are quantized, .* train an adapter"):
        objective(packed, type="full")
    odd = load(tiny_models.make(tmp_path / "odd", "llama", quantize={"group_size": 32, "bits": 6}))
    with pytest.raises(Unsupported, match="weights of 6 bits have no DoRA"):
        objective(odd, type="dora")
    experts = load(tiny_models.make(tmp_path / "experts", "qwen3_moe"))
    with pytest.raises(Unsupported, match="no DoRA for expert layers"):
        objective(experts, type="dora")
    place = make_adapter(tmp_path / "adapter", folder, ["q_proj"])
    with pytest.raises(Unsupported, match="loaded with an adapter_path"):
        objective(load(folder, adapter=place))


def test_a_lazy_model_is_read(folder: pathlib.Path, model: Any) -> None:
    value = stirred(objective(load(folder, lazy=True))).evaluate(batch())[0].item()
    assert value == stirred(objective(model)).evaluate(batch())[0].item()


def test_a_network_without_blocks_is_refused(model: Any) -> None:
    from cowmlx.training.language.trained_network import blocks_of

    for without in (object(), type("Net", (), {"layers": None})()):
        with pytest.raises(CowMlxError, match="no list of layers"):
            blocks_of(without, "odd")


WIDE = {"hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 8}
EXPERTS = {"moe_intermediate_size": 48, "num_experts": 16, "num_experts_per_tok": 8}


@pytest.mark.parametrize(("family", "experts"), [("llama", {}), ("qwen3_moe", EXPERTS)])
@pytest.mark.parametrize("length", [65, 257])
@pytest.mark.parametrize(
    "options", [{}, {"grad_checkpoint": True}, {"num_layers": 1}, {"type": "full"}], ids=repr
)
def test_the_estimate_of_a_step_is_near_its_peak(
    tmp_path: pathlib.Path,
    options: dict[str, Any],
    length: int,
    family: str,
    experts: dict[str, int],
) -> None:
    config = {**WIDE, **experts, "num_hidden_layers": 4}
    model = load(tiny_models.make(tmp_path, family, config=config))
    run = objective(model, **options)
    given = batch(length=length)
    mx.eval(given.tokens, given.targets)
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(run.gradients(given, None))
    peak = mx.get_peak_memory() - before
    assert peak < 1.2 * run._bytes(given, is_step=True) < 2.4 * peak
