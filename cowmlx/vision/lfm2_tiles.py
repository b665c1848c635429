"""How LFM2-VL's preprocessing splits images into tiles."""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

from cowmlx.errors import Unsupported
from cowmlx.vision.preprocessing import is_finite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.vision.preprocessing import Preprocessing

SPLITTING = "do_image_splitting"
_NUMBERS = {
    "min_image_tokens": (64, 1 << 14),
    "max_image_tokens": (256, 1 << 14),
    "tile_size": (512, 1 << 12),
    "min_tiles": (2, 32),
    "max_tiles": (10, 32),
}


class Tiles(NamedTuple):
    """How one image is split.

    Attributes:
        rows: of tiles; 0: it is not split.
        columns: of tiles.
        whole: height and width of the whole image.
        has_whole: whether that is seen.
    """

    rows: int
    columns: int
    whole: tuple[int, int]
    has_whole: bool


class Tiling(NamedTuple):
    """The settings.

    Attributes:
        least: rows of a whole image, at least.
        most: rows of a whole image, about.
        tile: pixels of a side of a tile.
        tiles: how many there are, from and to.
        tolerance: an image with so many times the pixels of ``most`` rows is not split.
        has_thumbnail: whether the whole image follows the tiles.
        splits: whether images are split.
        patch: pixels of a side of a patch.
        factor: patches of a side of a row.
    """

    least: int
    most: int
    tile: int
    tiles: tuple[int, int]
    tolerance: float
    has_thumbnail: bool
    splits: bool
    patch: int
    factor: int

    @classmethod
    def read(cls, preprocessing: Preprocessing, patch: int, factor: int) -> Tiling:
        """Read settings.

        Args:
            preprocessing: of a folder.
            patch: of the tower.
            factor: of the model.

        Raises:
            Unsupported: they are of no use with this tower.
            BadFormat: ``use_thumbnail`` is neither true nor false.
        """
        settings, file = preprocessing.settings, preprocessing.file
        numbers: list[int] = []
        for name, (default, most) in _NUMBERS.items():
            value = settings.get(name, default)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
                raise Unsupported(f"{file}: {name} is {value!r}, not within 1 to {most}")
            numbers.append(value)
        least, most_rows, tile, first, last = numbers
        preprocessing.require(encoder_patch_size=patch, downsample_factor=factor)
        tolerance = settings.get("max_pixels_tolerance", 2.0)
        if not is_finite(tolerance) or tile % (patch * factor) or first > last:
            raise Unsupported(
                f"{file}: max_pixels_tolerance is {tolerance!r}, min_tiles {first} and max_tiles "
                f"{last}, and tile_size {tile}, which must be divisible by {patch * factor}"
            )
        splits = settings.get(SPLITTING, True) and last > 1
        whole = settings.get("use_thumbnail", True)
        if not isinstance(whole, bool):
            raise preprocessing.bad("use_thumbnail", "true or false")
        return cls(least, most_rows, tile, (first, last), tolerance, whole, splits, patch, factor)

    @property
    def most_patches(self) -> int:
        """The patches of a tile, or of a whole image, about."""
        own = max(self.most, self.least) * self.factor**2
        return max(own, (self.tile // self.patch) ** 2 if self.splits else 0)

    @property
    def most_pixels(self) -> dict[str, int]:
        """The pixels of a whole image and of all tiles, about, by the settings that decide them."""
        whole = max(self.most, self.least) * (self.patch * self.factor) ** 2
        return {"max_image_tokens": whole, "tile_size": self.most_tiles * self.tile**2}

    @property
    def most_tiles(self) -> int:
        """How many tiles there are at most."""
        return self.tiles[1] if self.splits else 0

    @property
    def rows_of_tile(self) -> int:
        """The rows of a tile."""
        return (self.tile // self.patch // self.factor) ** 2

    def of(self, width: int, height: int) -> Tiles:
        """Return how an image is split."""
        whole = self._whole(height, width)
        step = self.patch * self.factor
        rounded = [max(self.patch, round(side / step) * step) for side in (height, width)]
        limit = self.most * step**2 * self.tolerance
        if not self.splits or rounded[0] * rounded[1] <= limit:
            return Tiles(0, 0, whole, True)
        columns, rows = self._nearest(width, height)
        if rows * columns == 1:
            return Tiles(0, 0, whole, True)
        return Tiles(rows, columns, whole, self.has_thumbnail)

    def _whole(self, height: int, width: int) -> tuple[int, int]:
        """Return the size of the whole image: its proportions, and as many rows as allowed."""
        step = self.patch * self.factor
        high, wide = (max(step, round(side / step) * step) for side in (height, width))
        most, least = self.most * step**2, self.least * step**2
        if high * wide > most:
            scale = math.sqrt((height * width) / most)
            high = max(step, math.floor(height / scale / step) * step)
            wide = max(step, math.floor(width / scale / step) * step)
        elif high * wide < least:
            scale = math.sqrt(least / (height * width))
            high = math.ceil(height * scale / step) * step
            wide = math.ceil(width * scale / step) * step
        return high, wide

    def _nearest(self, width: int, height: int) -> tuple[int, int]:
        """Return columns and rows of tiles whose proportions are nearest to an image's.

        Of two that are as near, the one with more tiles is taken if the image is large enough.
        """
        first, last = self.tiles
        sides = [
            (wide, high)
            for count in range(first, last + 1)
            for wide, high in product(range(1, count + 1), repeat=2)
            if first <= wide * high <= last
        ]
        # In the order of a set, as transformers has them: it decides between some of one size.
        ordered = sorted(set(sides), key=lambda size: size[0] * size[1])
        best, off = (1, 1), math.inf
        for wide, high in ordered:
            own = abs(width / height - wide / high)
            pixels = self.tile * self.tile * wide * high
            if own < off:
                best, off = (wide, high), own
            elif own == off and width * height > 0.5 * pixels:
                best = wide, high
        return best
