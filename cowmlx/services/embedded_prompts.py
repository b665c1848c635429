"""Prompts with rows of embeddings among their tokens."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.models.embedded import EMBEDDED, Rows, require_table
from cowmlx.models.image_tokens import with_positions
from cowmlx.models.images import ImageStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.generation.context import Context
    from cowmlx.generation.params import GenerationParams
    from cowmlx.models.embedded import TokenTable

_TYPES = (mx.float32, mx.float16, mx.bfloat16)


def embedded_prompt(
    context: Context, tokens: list[int], values: mx.array, fields: dict[str, Any]
) -> list[int]:
    """Return the prompt's ids: tokens, and an id for each row.

    Args:
        context: that is to process it; its model's weights are read.
        tokens: with ``EMBEDDED`` in the rows' places.
        values: the rows, (N, D), which may be lazy.
        fields: of the generation's params.

    Raises:
        InvalidArgument: the rows have another form, or are not as many as their places.
        Unsupported: the model takes no rows, or an option does not.
    """
    model = context.model
    model.require_one_machine("context_begin_embeddings")
    _refuse_drafts(fields, "embeddings", "rows of embeddings")
    try:
        with mx.stream(context.stream()):
            table = require_table(model)
            _check(values, tokens.count(EMBEDDED), table)
            rows = Rows(table, mx.contiguous(values))
            finite = mx.isfinite(rows.values).all()
            mx.eval(finite, rows.values)
            if not finite.item():
                raise InvalidArgument(
                    "embeddings has numbers that are not finite", argument="embeddings"
                )
            ids = iter(rows.ids())
    finally:
        context.settle()
    return [next(ids) if token == EMBEDDED else token for token in tokens]


def prompt_with_images(context: Context, tokens: list[int], params: GenerationParams) -> list[int]:
    """Return a prompt with the ids of images' positions in place of those that hosts have.

    Args:
        context: that is to process it; its model's weights are read.
        tokens: with the hosts' ids.
        params: of the generation.

    Raises:
        InvalidArgument: an image is gone, or not all of it is there.
        Unsupported: the model takes no rows, or an option does not.
    """
    model, images = context.model, context.model.images
    if not isinstance(images, ImageStore):
        return tokens  # they are refused as tokens outside of the vocabulary
    _refuse_drafts(vars(params), "images", "images")
    try:
        with mx.stream(context.stream()):
            return with_positions(tokens, images, require_table(model))
    finally:
        context.settle()


def _refuse_drafts(fields: dict[str, Any], other: str, what: str) -> None:
    for name in ("draft", "draft_tokens", "draft_heads"):
        if fields[name]:
            raise Unsupported(
                f"{name} is {fields[name]}, but drafts do not know {what}; leave it at 0",
                reason="conflict",
                argument=name,
                other=other,
            )


def _check(values: mx.array, places: int, table: TokenTable) -> None:
    kind = str(values.dtype).removeprefix("mlx.core.")
    if values.dtype not in _TYPES:
        raise InvalidArgument(
            f"embeddings is {kind}; it must be float32, float16 or bfloat16",
            reason="dtype_mismatch",
            argument="embeddings",
            value=kind,
            accepted="float32, float16 or bfloat16",
        )
    expected = [places, table.width]
    if list(values.shape) != expected:
        raise InvalidArgument(
            f"embeddings is {list(values.shape)}, but tokens has {places} places of -1, and a row "
            f"of this model has {table.width} numbers: it must be {expected}",
            reason="shape_mismatch",
            argument="embeddings",
            value=str(list(values.shape)),
            accepted=str(expected),
        )
