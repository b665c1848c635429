"""Images in the prompts of a model: the ids of their positions, and their embeddings.

A ledger knows a position by an id outside every vocabulary, made of a hash of the pixels, the
preprocessing and the position: common beginnings, forks and trims work on ids as they are. Hosts
get a negative int32 for it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from itertools import accumulate
from weakref import ref

import mlx.core as mx

from cowmlx.errors import BadState, OutOfMemory, Unsupported
from cowmlx.failures import forget_frames
from cowmlx.generated.defaults import MODEL
from cowmlx.models.embedded import EmbeddedRow
from cowmlx.vision.pixels import require_sides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.positions import Axes
    from cowmlx.models.embedded import TokenTable
    from cowmlx.text.tokenizer import Tokenizer
    from cowmlx.vision.encoder import ImageEncoder
    from cowmlx.vision.pixels import Pixels

    Reference = ref["Image"]

HOST_IDS = range(-(1 << 31), -1)
"""The ids of positions that hosts have."""
_HASH = "[0-9a-f]{32}"
_GRID = "[1-9][0-9]{0,5}x[1-9][0-9]{0,5}"


class ImageSteps:
    """The computation of an image's embeddings. Prompts share it, and it ends with the last one.

    Args:
        steps: of the encoder.
    """

    def __init__(self, steps: Generator[None, None, mx.array]) -> None:
        self.steps = steps


class Image:
    """An image of a prompt. Its embeddings are computed once, when a network needs them.

    Args:
        encoder: the image encoder of the model.
        key: that it is known by.
        first: the host's id of its first position; those of the others follow downwards.
        count: its positions.
        grid: their rows and columns; None: they are positions as those of a text.

    Attributes:
        rows: its embeddings (count, D), or None before they are computed. Those of positions that
            have a token are of no use. Features for the first layers of a network follow in each
            row, as many numbers for each.
        depth: how many layers these are for.
        axes: of the network's rotations, where its positions have three.
    """

    def __init__(
        self,
        encoder: ImageEncoder[Any],
        key: str,
        first: int,
        count: int,
        grid: tuple[int, int] | None = None,
    ) -> None:
        self._encoder = encoder
        self.key, self.first, self.count, self.grid = key, first, count, grid
        self.axes: Axes | None = encoder.axes if grid else None
        self.depth: int = encoder.depth if grid else 0
        self._pixels: Pixels | None = None
        self._layout: list[int] = []
        self.both_ways = encoder.both_ways
        self.rows: mx.array | None = None
        self._steps: ref[ImageSteps] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the embeddings, or of the pixels before these are computed."""
        parts = self._pixels, self.rows
        return sum(part.nbytes for part in parts if part is not None)

    def show(self, pixels: Pixels, layout: list[int]) -> None:
        """Take what the positions are, and the pixels if they are still needed."""
        self._pixels = pixels if self.rows is None else None
        self._layout = layout

    def token_at(self, index: int) -> int:
        """Return the token that is looked up at a position; -1: it has a row."""
        return self._layout[index]

    def advance(self, held: set[ImageSteps]) -> bool:
        """Compute the embeddings for a while; false if they are there.

        Args:
            held: takes the computation, which is given up when nothing holds it.

        Raises:
            BadState: there are no pixels.
        """
        if self.rows is not None:
            return False
        own = None if self._steps is None else self._steps()
        if own is None:
            if self._pixels is None:
                raise BadState(
                    "an image of the prompt is known by the hash in a saved context alone; give "
                    "the messages with the image once more"
                )
            own = ImageSteps(self._encoder.steps(self._pixels))
            self._steps = ref(own)
        held.add(own)
        try:
            self._encoder.turns.take(own.steps)
        except StopIteration as stop:
            self.rows, self._steps = _spread(stop.value, self._layout), None
            self._pixels = None
        except BaseException:
            self._steps = None  # from the beginning, if it is tried again
            raise
        return True


def _spread(rows: mx.array, layout: list[int]) -> mx.array:
    """Spread rows (N, D) of the positions without a token over all positions."""
    if len(layout) == rows.shape[0]:
        return rows
    places = list(accumulate((token < 0 for token in layout), initial=0))[:-1]
    spread = rows[mx.minimum(mx.array(places), rows.shape[0] - 1)]
    mx.eval(spread)
    return spread


class PlacedImage:
    """An image in the prompts of one network.

    Attributes:
        image: the image.
        table: of the network.
    """

    def __init__(self, image: Image, table: TokenTable) -> None:
        self.image, self.table = image, table

    @property
    def values(self) -> mx.array:
        """Its embeddings, which must have been computed."""
        assert self.image.rows is not None
        return self.image.rows[:, : self.table.width] if self.image.depth else self.image.rows

    @property
    def features(self) -> mx.array:
        """What is added behind each of the network's first layers, (depth, count, D)."""
        assert self.image.rows is not None
        rows = self.image.rows[:, self.table.width :]
        return rows.reshape(len(rows), self.image.depth, -1).transpose(1, 0, 2)


class ImagePosition(EmbeddedRow):
    """The id of a position of an image."""

    rows: PlacedImage  # type: ignore[assignment]

    @property
    def image(self) -> Image:
        """The image."""
        return self.rows.image

    @property
    def token(self) -> int:  # type: ignore[override]
        """The token that is looked up there; -1: it has a row."""
        return self.image.token_at(self.index)

    @property
    def host_id(self) -> int:
        """The id that hosts have."""
        return self.rows.image.first - self.index


class ImageStore:
    """The images of a model's prompts.

    Keeps the embeddings of those that were used last; others live as long as a ledger has them.

    Args:
        encoder: the image encoder of the model.
        capacity: bytes of pixels and embeddings that are kept. Those of the last prompt always are.
    """

    def __init__(self, encoder: ImageEncoder[Any], capacity: int = MODEL["media_cache"]) -> None:
        self.encoder, self.capacity = encoder, capacity
        self._recent: OrderedDict[tuple[str, int], Image] = OrderedDict()
        self._begins: list[int] = []  # of the images' ids, without their signs, in order
        self._known: list[Reference] = []
        self._by_key: dict[tuple[str, int], Reference] = {}
        self._next = -HOST_IDS[-1]

    def images_of(self, pixels: Pixels) -> list[Image]:
        """Return the images of the parts that the model sees of pixels, which are not kept yet.

        Raises:
            InvalidArgument: the model takes none of that size.
            OutOfMemory: there are no more ids.
        """
        require_sides(pixels.width, pixels.height)
        return [self.image_of(part) for part in self.encoder.parts(pixels)]

    def image_of(self, pixels: Pixels) -> Image:
        """Return the image of pixels that are one part."""
        layout = self.encoder.layout(pixels.width, pixels.height)
        grid = self.encoder.grid(pixels.width, pixels.height)
        image = self._known_as(self._key(pixels.hash, grid), len(layout), grid)
        image.show(pixels, layout)
        return image

    def image_of_hash(self, key: str, count: int) -> Image | None:
        """Return the image of an earlier one's key; None if that was seen in another way.

        The count is what a file says: with another one it is another image.

        Raises:
            OutOfMemory: there are no more ids.
        """
        name, _, digits = key.rpartition(" ")
        grid = None
        if self.has_axes:
            name, _, sides = name.rpartition(" ")
            if not re.fullmatch(_GRID, sides):
                return None
            rows, _, columns = sides.partition("x")
            grid = int(rows), int(columns)
            if grid[0] * grid[1] != count:
                return None
        if name != self.encoder.key or not re.fullmatch(_HASH, digits) or not 0 < count < 1 << 20:
            return None
        return self._known_as(key, count, grid)

    @property
    def has_axes(self) -> bool:
        """Whether positions of images have three axes."""
        return self.encoder.axes is not None

    def _key(self, digits: str, grid: tuple[int, int] | None) -> str:
        sides = f" {grid[0]}x{grid[1]}" if grid else ""
        return f"{self.encoder.key}{sides} {digits}"

    def _known_as(self, key: str, count: int, grid: tuple[int, int] | None) -> Image:
        known = self._by_key.get((key, count))
        image = None if known is None else known()
        if image is None:
            self._forget_dead()
            first = self._free_ids(count)
            image = Image(self.encoder, key, -first, count, grid)
            at = bisect_left(self._begins, first)
            self._begins.insert(at, first)
            self._known.insert(at, ref(image))
            self._by_key[key, count] = self._known[at]
            self._next = first + count
        return image

    def _free_ids(self, count: int) -> int:
        """Return the first of ids in a row, without their signs, that no image has.

        They follow those given last; behind the last ids the first ones are given again.

        Raises:
            OutOfMemory: images have them all.
        """
        for first in (self._next, -HOST_IDS[-1]):
            while first + count <= -HOST_IDS[0]:
                at = bisect_left(self._begins, first)
                if at == len(self._begins) or first + count <= self._begins[at]:
                    return first
                image = self._known[at]()
                if image is None:
                    del self._begins[at], self._known[at]
                else:
                    first = self._begins[at] + image.count
        raise OutOfMemory("the images of this model's prompts have all ids; free contexts")

    def keep(self, images: list[Image]) -> None:
        """Note that a prompt has images, and give up others that were not used for longest."""
        last = {(image.key, image.count): image for image in images}
        for own, image in last.items():
            self._recent[own] = image
            self._recent.move_to_end(own)
        held = sum(each.nbytes for each in self._recent.values())
        while held > self.capacity and len(self._recent) > len(last):
            _, dropped = self._recent.popitem(last=False)
            held -= dropped.nbytes

    def find(self, host_id: int) -> tuple[Image, int] | None:
        """Return the image and the position of a host's id; None if the image is gone."""
        at = bisect_right(self._begins, -host_id) - 1
        image = self._known[at]() if at >= 0 else None
        if image is None or -host_id - self._begins[at] >= image.count:
            return None
        return image, -host_id - self._begins[at]

    def _forget_dead(self) -> None:
        alive = [at for at, each in enumerate(self._known) if each() is not None]
        if 2 * len(alive) >= len(self._known):
            return
        self._begins = [self._begins[at] for at in alive]
        self._known = [self._known[at] for at in alive]
        self._by_key = {key: each for key, each in self._by_key.items() if each() is not None}


class NoImages:
    """Why a model with a vision tower takes no images.

    Attributes:
        error: says so.
    """

    def __init__(self, error: Unsupported) -> None:
        self.error = error


def images_of(
    path: str, config: dict[str, Any], tokenizer: Tokenizer, network: Module
) -> ImageStore | NoImages:
    """Return what a model has for images, whose config has a part about them."""
    from cowmlx.accelerate.positions import require_axes
    from cowmlx.vision.image_encoders import open_encoder

    try:
        store = ImageStore(open_encoder(path, config, tokenizer))
        axes = store.encoder.axes if store.has_axes else None
        if axes is not None:
            require_axes(network, axes)
        return store
    except Unsupported as error:
        forget_frames(error)
        return NoImages(error)


def info_of(images: ImageStore | NoImages | None) -> dict[str, Any] | None:
    """Return what ``model_info`` reports of images."""
    if images is None:
        return None
    if isinstance(images, NoImages):
        return {"why_not": str(images.error)}
    from cowmlx.vision.pixels import MAX_PIXELS

    return {"why_not": None, "max_pixels": MAX_PIXELS, **images.encoder.info()}
