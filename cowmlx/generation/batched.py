"""Passes of a network over the rows of a batch, and the proof that it takes them."""

from __future__ import annotations

import mlx.core as mx

from cowmlx import failures
from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.cache.batch import Batch
    from cowmlx.cache.layers import KVQuantization
    from cowmlx.models.model import Model


NO_KV_BITS = (0, 0)  # the key of caches in the model's own type


def feed(network: Any, batch: Batch, rows: list[Any], tokens: list[list[int]]) -> mx.array:
    """Feed rows of a batch so many tokens each; returns logits (B, S, V), lazily."""
    fed = [(row, ids) for row, ids in zip(rows, tokens, strict=True) if ids]
    batch.begin_step([row for row, _ in fed], [len(ids) for _, ids in fed])
    width = batch.rows.width
    ids = [[0] * width for _ in batch.rows.all]
    for row, own in fed:
        ids[row.index][: len(own)] = own
    logits: mx.array = network(mx.array(ids, mx.int32), cache=batch.layers)
    batch.end_step()
    return logits


def known_why_not(model: Model, kv: KVQuantization) -> str | None:
    """Return why contexts of a model are not batched, as far as that is known, or None."""
    why: str | None = model.remembered.get(("batched", kv.key, "steps"))
    return why


def why_not(model: Model, kv: KVQuantization) -> str | None:
    """Return why a model cannot be batched, or None: two rows must give what they give alone."""
    return _found_out(model, kv, "steps", _prove_steps)


def why_no_prompts(model: Model, kv: KVQuantization) -> str | None:
    """Return why prompts of several contexts cannot be processed as a batch, or None."""
    return _found_out(model, kv, "prompts", _prove_prompts)


def _found_out(
    model: Model,
    kv: KVQuantization,
    what: str,
    prove: Callable[[Any, Callable[[], list[Any]]], str | None],
) -> str | None:
    """Return why something cannot be batched, or None; found out once."""

    def find() -> str | None:
        return _tried(prove, model.network, kv.maker(model))

    why: str | None = model.remembered.once(("batched", kv.key, what), find)
    return why


def note_why_not(model: Model, steps: str | None, prompts: str | None) -> None:
    """Keep what was found out elsewhere, by whoever has the network."""
    model.remembered.keep(("batched", NO_KV_BITS, "steps"), steps)
    model.remembered.keep(("batched", NO_KV_BITS, "prompts"), prompts)


def why_not_steps(network: Any, make_layers: Callable[[], list[Any]]) -> str | None:
    """Return why a network cannot be batched, or None; nothing is kept."""
    return _tried(_prove_steps, network, make_layers)


def why_not_prompts(network: Any, make_layers: Callable[[], list[Any]]) -> str | None:
    """Return why a network does not take prompts as a batch, or None; nothing is kept."""
    return _tried(_prove_prompts, network, make_layers)


def _tried(
    prove: Callable[[Any, Callable[[], list[Any]]], str | None],
    network: Any,
    make_layers: Callable[[], list[Any]],
) -> str | None:
    try:
        return prove(network, make_layers)
    except Exception as error:  # what an architecture makes of a batch it does not expect
        failures.reraise_shortage(error)
        reason = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}"
        return f"its network does not take batches: {reason}"


def _prove_steps(network: Any, make_layers: Callable[[], list[Any]]) -> str | None:
    """Step two rows of different length together and alone, and compare their logits."""
    from cowmlx.cache.batch import Batch  # late: a context that is alone needs none

    prompts = [[0, 1, 2], [1, 0]]
    steps = [[3, 1], [2, 0]]
    batch = Batch(make_layers(), mx.default_stream(mx.default_device()))
    alone = []
    for prompt in prompts:
        layers = make_layers()
        network(mx.array([prompt]), cache=layers)
        batch.join(layers, len(prompt))
        alone.append(layers)
    for tokens in zip(*steps, strict=True):
        batch.begin_step(batch.rows.all)
        together = network(mx.array(tokens)[:, None], cache=batch.layers)[:, -1, :]
        batch.end_step()
        apart = mx.concatenate(
            [
                network(mx.array([[token]]), cache=layers)[:, -1, :]
                for token, layers in zip(tokens, alone, strict=True)
            ]
        )
        together, apart = together.astype(mx.float32), apart.astype(mx.float32)
        scale = mx.maximum(mx.max(mx.abs(apart)), 1e-6)
        worst = (mx.max(mx.abs(together - apart)) / scale).item()
        if not worst < 0.02:  # type: ignore[operator]
            return "its network gives other results in a batch"
    return None


def _prove_prompts(network: Any, make_layers: Callable[[], list[Any]]) -> str | None:
    """Process two prompts of different length together and alone, behind tokens and behind none.

    Returns:
        None, or why prompts are not processed together.
    """
    from cowmlx.cache.batch import Batch

    batch = Batch(make_layers(), mx.default_stream(mx.default_device()))
    held, prompts, steps = [[0, 1], []], [[2, 0], [1, 0, 2]], [[1], [3]]
    alone = []
    for before in held:
        layers = make_layers()
        if before:
            network(mx.array([before]), cache=layers)
        batch.join(layers, len(before))
        alone.append(layers)
    for tokens in (prompts, steps):
        together = feed(network, batch, batch.rows.all, tokens)
        for row, (layers, ids) in enumerate(zip(alone, tokens, strict=True)):
            apart = network(mx.array([ids]), cache=layers)[0, -1].astype(mx.float32)
            own = together[row, len(ids) - 1].astype(mx.float32)
            scale = mx.maximum(mx.max(mx.abs(apart)), 1e-6)
            if not (mx.max(mx.abs(own - apart)) / scale).item() < 0.02:  # type: ignore[operator]
                return "its network gives other results for prompts in a batch"
    return None
