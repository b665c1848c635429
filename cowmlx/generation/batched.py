"""Passes of a network over the rows of a batch, and the proofs that it supports them."""

from __future__ import annotations

from contextlib import nullcontext

import mlx.core as mx

from cowmlx import failures
from cowmlx.accelerate.positions import shifted
from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.cache.batch import Batch
    from cowmlx.cache.layers import KVQuantization
    from cowmlx.models.model import Model

    Proof = Callable[[Any, Callable[[], list[Any]]], str | None]

NO_KV_BITS = (0, 0)  # the key of caches in the model's own type
_TOLERANCE = 0.02  # of logits in a batch, as a part of the largest


def feed(network: Any, batch: Batch, rows: list[Any], tokens: list[list[int]]) -> mx.array:
    """Feed a list of tokens to each of some rows; returns logits (B, S, V), lazily."""
    fed = [(row, ids) for row, ids in zip(rows, tokens, strict=True) if ids]
    batch.begin_step([row for row, _ in fed], [len(ids) for _, ids in fed])
    width = batch.rows.width
    ids = [[0] * width for _ in batch.rows.all]
    for row, own in fed:
        ids[row.index][: len(own)] = own
    by = batch.rows.shifts
    with nullcontext() if by is None else shifted(network, by):
        logits: mx.array = network(mx.array(ids, mx.int32), cache=batch.layers)
    batch.end_step()
    return logits


def known_why_not(model: Model, kv: KVQuantization) -> str | None:
    """Return why contexts of a model are not batched, as far as that is known, or None."""
    why: str | None = model.remembered.get(("batched", kv.key, "steps"))
    return why


def why_not(model: Model, kv: KVQuantization) -> str | None:
    """Return why a model cannot be batched, or None: two rows must give their logits alone."""
    return _remembered(model, kv, "steps", why_not_steps)


def why_no_prompts(model: Model, kv: KVQuantization) -> str | None:
    """Return why prompts of several contexts cannot be processed as a batch, or None."""
    return _remembered(model, kv, "prompts", why_not_prompts)


def note_why_not(model: Model, steps: str | None, prompts: str | None) -> None:
    """Keep the outcome of the proofs on ranks, which have the network."""
    model.remembered.keep(("batched", NO_KV_BITS, "steps"), steps)
    model.remembered.keep(("batched", NO_KV_BITS, "prompts"), prompts)


def _remembered(model: Model, kv: KVQuantization, work: str, proof: Proof) -> str | None:
    """Return the outcome of a proof, which is made once."""
    why: str | None = model.remembered.once(
        ("batched", kv.key, work), lambda: proof(model.network, kv.maker(model))
    )
    return why


def _proof(prove: Proof) -> Proof:
    """Make errors of a proof its outcome."""

    def proof(network: Any, make_layers: Callable[[], list[Any]]) -> str | None:
        try:
            return prove(network, make_layers)
        except Exception as error:  # of an architecture that does not expect batches
            failures.reraise_shortage(error)
            reason = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}"
            return f"its network does not take batches: {reason}"

    return proof


@_proof
def why_not_steps(network: Any, make_layers: Callable[[], list[Any]]) -> str | None:
    """Step two rows of different length together and alone, and compare their logits.

    Returns:
        why the network cannot be batched, or None.
    """
    prompts = [[0, 1, 2], [1, 0]]
    batch, alone = _joined(network, make_layers, prompts)
    for tokens in ([3, 2], [1, 0]):
        batch.begin_step(batch.rows.all)
        together = network(mx.array(tokens)[:, None], cache=batch.layers)[:, -1, :]
        batch.end_step()
        apart = [
            network(mx.array([[token]]), cache=layers)[:, -1, :]
            for token, layers in zip(tokens, alone, strict=True)
        ]
        if _differ(together, mx.concatenate(apart)):
            return "its network gives other results in a batch"
    return None


@_proof
def why_not_prompts(network: Any, make_layers: Callable[[], list[Any]]) -> str | None:
    """Process two prompts together and alone, one of them behind other tokens.

    Returns:
        why the network does not take prompts as a batch, or None.
    """
    batch, alone = _joined(network, make_layers, [[0, 1], []])
    for tokens in ([[2, 0], [1, 0, 2]], [[1], [3]]):
        together = feed(network, batch, batch.rows.all, tokens)
        for row, (layers, ids) in enumerate(zip(alone, tokens, strict=True)):
            apart = network(mx.array([ids]), cache=layers)[0, -1]
            if _differ(together[row, len(ids) - 1], apart):
                return "its network gives other results for prompts in a batch"
    return None


def _joined(
    network: Any, make_layers: Callable[[], list[Any]], prompts: list[list[int]]
) -> tuple[Batch, list[list[Any]]]:
    """Process prompts; returns them as the rows of a batch, and as separate layers."""
    from cowmlx.cache.batch import Batch  # late: a context that is alone needs none

    batch = Batch(make_layers(), mx.default_stream(mx.default_device()))
    alone = []
    for prompt in prompts:
        layers = make_layers()
        if prompt:
            network(mx.array([prompt]), cache=layers)
        batch.join(layers, len(prompt))
        alone.append(layers)
    return batch, alone


def _differ(together: mx.array, apart: mx.array) -> bool:
    together, apart = together.astype(mx.float32), apart.astype(mx.float32)
    scale = mx.maximum(mx.max(mx.abs(apart)), 1e-6)
    worst = (mx.max(mx.abs(together - apart)) / scale).item()
    return not worst < _TOLERANCE  # type: ignore[operator]
