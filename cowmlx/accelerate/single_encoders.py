"""Single operations of encoders by kernels: attention and activations."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import operations
from cowmlx.networks.encoders.layers import Activation, Attend


class KernelAttend(Attend):
    """Takes the place of ours."""

    def __call__(
        self, q: mx.array, k: mx.array, v: mx.array, mask: mx.array | None = None
    ) -> mx.array:
        """Attend without a cache."""
        return operations.scaled_dot_product_attention(q, k, v, scale=self.scale, mask=mask)


class KernelActivation(Activation):
    """Takes the place of ours."""

    def __call__(self, x: mx.array, up: mx.array | None = None) -> mx.array:
        """Return activation(x), times ``up`` where it is given."""
        made = operations.activated(x, up, self.kind)
        return super().__call__(x, up) if made is None else made


KINDS: dict[type, type] = {Attend: KernelAttend, Activation: KernelActivation}
