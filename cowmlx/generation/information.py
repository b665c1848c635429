"""What a host can find out about a context."""

from __future__ import annotations

from cowmlx.generation.params import OVERFLOWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.generation.context import Context


def describe(context: Context) -> dict[str, Any]:
    """Return what ``context_info`` tells."""
    params, generation, reuse = context.params, context.generation, context.reuse
    return {
        "max_tokens": params.max_tokens,
        "kv_bits": params.kv.bits,
        "kv_group_size": params.kv.group_size,
        "solo": params.solo,
        "priority": params.priority,
        "overflow": OVERFLOWS[params.overflow],
        "keep_tokens": params.keep_tokens,
        "share_prefix": params.share_prefix,
        "alone": context.why_alone,
        "adapter": context.adapter,
        "tokens": len(context.tokens()),
        "bytes": context.sequence.nbytes,
        "generating": generation is not None and not generation.over,
        "prompt": generation.stats.prompt_tokens if generation else 0,
        "reused": generation.stats.reused_tokens if generation else 0,
        "shared": reuse.shared if generation else 0,
        "recomputed": generation.recomputed if generation else 0,
        "dropped": reuse.dropped + generation.prompt.rolled if generation else 0,
        "first_difference": reuse.first_difference if generation else None,
        "rebuilt": reuse.rebuilt if generation else None,
        "batched": generation.batched if generation else 0,
        "error": context.failure,
    }
