"""Causal self-attention: mlx-lm's, as its Llama has it."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import BadFormat
from cowmlx.networks import light_route
from cowmlx.networks.blocks import Block, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Attention(Block):
    """Grouped-query attention with rotary positions and a cache of keys and values.

    Args:
        dims: D.
        num_heads: of queries.
        num_kv_heads: of keys and values; default ``num_heads``. Divides it.
        head_dim: values per head; default ``dims / num_heads``.
        bias: whether the four projections have one.
        rope_theta: base of the rotary angles (arXiv 2104.09864).
        rope_traditional: rotate neighbouring values, not halves.
        rope_scaling: as in a Hugging Face config, or None.
        max_position_embeddings: tokens the model was made for, where ``rope_scaling`` needs it.
        window: tokens that are attended to; default all.
    """

    stateful = True

    def __init__(
        self,
        *,
        dims: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = False,
        rope_theta: float = 10000.0,
        rope_traditional: bool = False,
        rope_scaling: dict[str, Any] | None = None,
        max_position_embeddings: int | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(dims, dims)
        groups = num_kv_heads or num_heads
        if num_heads % groups:
            message = f"num_heads {num_heads} is no multiple of num_kv_heads {groups}"
            raise invalid(message, "num_heads", num_heads)
        if head_dim is None and dims % num_heads:
            raise invalid(f"dims {dims} is no multiple of num_heads {num_heads}", "dims", dims)
        if rope_scaling is not None and not rope_scaling.keys() & {"rope_type", "type"}:
            raise BadFormat(
                "rope_scaling lacks 'rope_type'", reason="invalid_config", key="rope_scaling"
            )
        llama = light_route.import_module("models.llama")
        self.self_attn = llama.Attention(
            llama.ModelArgs(
                model_type="llama",
                hidden_size=dims,
                num_hidden_layers=1,
                intermediate_size=1,
                num_attention_heads=num_heads,
                rms_norm_eps=1.0,
                vocab_size=1,
                head_dim=head_dim,
                max_position_embeddings=max_position_embeddings,
                num_key_value_heads=groups,
                attention_bias=bias,
                rope_theta=rope_theta,
                rope_traditional=rope_traditional,
                rope_scaling=rope_scaling,
            )
        )
        self._window = window
        # What mlx-lm makes of angles it cannot compute is heard now, not at the first token.
        self.self_attn.rope(mx.zeros((1, 1, 1, self.self_attn.head_dim)))

    def make_state(self) -> Any:
        """Return an empty cache of keys and values."""
        caches = light_route.import_module("models.cache")
        if self._window is not None:
            return caches.RotatingKVCache(max_size=self._window)
        return caches.KVCache()

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Attend from T positions to them and those in the cache; (B, T, D) to (B, T, D)."""
        base = light_route.import_module("models.base")
        mask = base.create_attention_mask(x, state, window_size=self._window)
        attended: mx.array = self.self_attn(x, mask, state)
        return attended
