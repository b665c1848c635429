"""Images among the tokens of a prompt: their positions, for hosts, for passes and for files."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument
from cowmlx.models.embedded import EMBEDDED, EmbeddedRow
from cowmlx.models.images import HOST_IDS, ImagePosition, PlacedImage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.models.embedded import TokenTable
    from cowmlx.models.images import Image, ImageSteps, ImageStore


def positions_of(image: Image, table: TokenTable, count: int | None = None) -> list[ImagePosition]:
    """Return the ids of an image's positions, or of the first ``count``."""
    placed = PlacedImage(image, table)
    key = f"{image.count} {image.key}".encode()
    return [
        ImagePosition.of(placed, at, key + at.to_bytes(8))  # type: ignore[arg-type,misc]
        for at in range(image.count if count is None else count)
    ]


def with_positions(tokens: list[int], store: ImageStore | None, table: TokenTable) -> list[int]:
    """Return tokens with the ids of positions in place of those that hosts have.

    Raises:
        InvalidArgument: an image is gone, or not all of it is there.
    """
    made: list[int] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if isinstance(token, EmbeddedRow) or token not in HOST_IDS:
            made.append(token)
            at += 1
            continue
        found = None if store is None else store.find(token)
        if found is None:
            raise InvalidArgument(
                f"tokens[{at}] is {token}, which is no position of an image that is there; make "
                "the prompt again with model_chat_prompt",
                argument=f"tokens[{at}]",
                value=token,
            )
        image = found[0]
        if tokens[at : at + image.count] != list(range(image.first, image.first - image.count, -1)):
            accepted = f"{image.first} to {image.first - image.count + 1}"
            raise InvalidArgument(
                f"tokens[{at}] is {token}: the positions of an image must follow each other, "
                f"{accepted}",
                argument=f"tokens[{at}]",
                value=token,
                accepted=accepted,
            )
        made += positions_of(image, table)
        at += image.count
    return made


def next_chunk(tokens: list[int], size: int) -> list[int]:
    """Return the tokens to process next: ``size`` at most, or an image that is longer.

    Positions that attend to each other both ways are a chunk by themselves.
    """
    chunk = tokens[:size]
    for at, token in enumerate(chunk):
        if isinstance(token, ImagePosition) and token.image.both_ways:
            return chunk[:at] or tokens[: token.image.count - token.index]
    return chunk


def advance(tokens: list[int], held: set[ImageSteps]) -> bool:
    """Compute embeddings of the images of tokens for a while; false if they are all there.

    Args:
        tokens: of a prompt.
        held: holds what is computed until all are there.

    Raises:
        BadState: an image has no pixels.
    """
    images = {token.image for token in tokens if isinstance(token, ImagePosition)}
    if any(image.advance(held) for image in images):
        return True
    held.clear()
    return False


def whole(tokens: list[int]) -> list[int]:
    """Return tokens without images of which a part is missing."""
    if min(tokens, default=0) >= 0:
        return tokens
    kept: list[int] = []
    at = 0
    while at < len(tokens):
        run = _run(tokens, at)
        token = tokens[at]
        if not isinstance(token, ImagePosition) or len(run) == token.image.count:
            kept += run
        at += len(run)
    return kept


def _run(tokens: list[int], at: int) -> list[int]:
    """Return the token at a place, and the following ones of the same image."""
    first, end = tokens[at], at + 1
    if isinstance(first, ImagePosition):
        most = min(len(tokens), at + first.image.count - first.index)
        while end < most:
            token = tokens[end]
            if not isinstance(token, ImagePosition) or token.host_id != first.host_id - end + at:
                break
            end += 1
    return tokens[at:end]


def host_ids(tokens: list[int]) -> list[int]:
    """Return tokens as hosts know them: images by their ids, rows of embeddings as -1."""
    if min(tokens, default=0) >= 0:
        return list(tokens)
    return [
        token.host_id if isinstance(token, ImagePosition) else max(token, EMBEDDED)
        for token in tokens
    ]


def saved_images(tokens: list[int]) -> list[tuple[int, int, str]]:
    """Return the images among tokens for a file: place, positions and key of each."""
    return [
        (at, token.image.count, token.image.key)
        for at, token in enumerate(tokens)
        if isinstance(token, ImagePosition) and token.index == 0
    ]


def with_saved_images(
    tokens: list[int], saved: list[Any], store: ImageStore, table: TokenTable
) -> list[int] | None:
    """Return tokens of a file with the images that it names; None if these do not fit.

    Of the last one the end may be missing: a prompt was cancelled there.
    """
    made = list(tokens)
    for entry in saved:
        if not isinstance(entry, list) or len(entry) != 3:
            return None
        at, count, key = entry
        if type(at) is not int or type(count) is not int or not isinstance(key, str):
            return None
        there = min(count, len(made) - at)
        if at < 0 or there < 1 or made[at : at + there] != [-1] * there:
            return None
        image = store.image_of_hash(key, count)
        if image is None:
            return None
        made[at : at + there] = positions_of(image, table, there)
    return (
        None if any(token < 0 and not isinstance(token, ImagePosition) for token in made) else made
    )
