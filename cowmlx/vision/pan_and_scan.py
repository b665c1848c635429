"""Crops of long images, seen beside the whole of them (pan and scan; Gemma 3, arXiv 2503.19786)."""

from __future__ import annotations

import math
from typing import NamedTuple

from cowmlx.errors import Unsupported
from cowmlx.vision.preprocessing import is_finite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.vision.preprocessing import Preprocessing

STEP = "do_pan_and_scan"
_SETTINGS = {  # the default and the largest of each
    "pan_and_scan_min_crop_size": (256, 1 << 16),
    "pan_and_scan_max_num_crops": (4, 64),
}
_RATIO = "pan_and_scan_min_ratio_to_activate"


class Crop(NamedTuple):
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


class PanAndScan(NamedTuple):
    """The settings.

    Attributes:
        least: pixels of the shorter side of a crop, at least.
        most: crops of an image, at most.
        ratio: an image has crops if its longer side is so many times the shorter one.
    """

    least: int
    most: int
    ratio: float

    @classmethod
    def read(cls, preprocessing: Preprocessing) -> PanAndScan | None:
        """Read a folder's settings; None if images have no crops.

        Raises:
            Unsupported: a number is out of range.
        """
        settings = preprocessing.settings
        if not settings.get(STEP, False):
            return None
        numbers: list[int] = []
        for name, (default, most) in _SETTINGS.items():
            value = settings.get(name, default)
            if type(value) is not int or not 1 <= value <= most:
                raise Unsupported(
                    f"{preprocessing.file}: {name} is {value!r}, not within 1 to {most}"
                )
            numbers.append(value)
        ratio = settings.get(_RATIO, 1.2)
        if not is_finite(ratio):
            raise Unsupported(f"{preprocessing.file}: {_RATIO} is {ratio!r}, no number")
        return cls(numbers[0], numbers[1], float(ratio))

    def crops(self, width: int, height: int) -> list[Crop]:
        """Return the crops of an image, from its begin to its end; none of one that is not long."""
        longer, shorter = max(width, height), min(width, height)
        if longer / shorter < self.ratio:
            return []
        count = min(math.floor(longer / shorter + 0.5), longer // self.least)
        size = math.ceil(longer / min(max(count, 2), self.most))
        if min(size, shorter) < self.least:
            return []
        parts = [(begin, min(size, longer - begin)) for begin in range(0, longer, size)]
        if width >= height:
            return [Crop(0, begin, height, own) for begin, own in parts]
        return [Crop(begin, 0, own, width) for begin, own in parts]
