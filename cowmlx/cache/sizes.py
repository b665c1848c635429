"""What layer caches would hold, told without computing."""

from __future__ import annotations

from cowmlx import failures
from cowmlx.cache import layer_state
from cowmlx.cache.layers import KVQuantization

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.models.model import Model


def bytes_of_tokens(model: Model, count: int, kv_bits: int) -> int | None:
    """Return the bytes of the layer caches behind ``count`` tokens; nothing is evaluated.

    None for a network that cannot be led through so many tokens at once.

    Raises:
        InvalidArgument: ``kv_bits`` is neither 0, 4 nor 8.
        Unsupported: the model's caches cannot be quantised so.
    """
    import mlx.core as mx

    layers = KVQuantization(model, kv_bits, 0).maker(model)()
    try:
        model.network(mx.zeros((1, count), mx.int32), cache=layers)
        held = list(layer_state.leaves(layers).values())
    except Exception as exc:
        failures.reraise_shortage(exc)
        return None
    return sum(each.nbytes for each in held if isinstance(each, mx.array))
