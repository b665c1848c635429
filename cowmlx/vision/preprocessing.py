"""What ``preprocessor_config.json`` says, and images as numbers that towers take."""

from __future__ import annotations

import math
import os

import mlx.core as mx

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.vision.resampling import FILTERS, resize_steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.vision.pixels import Pixels

FILE = "preprocessor_config.json"
_BILINEAR = 2


class Preprocessing:
    """The preprocessing of a folder.

    Attributes:
        settings: the file's, by their names.
        resample: Pillow's number of the filter.

    Raises:
        BadFormat: a value is of another type than it should be.
        Unsupported: a filter that is not known here.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.resample: int = settings.get("resample", _BILINEAR)
        if self.resample not in FILTERS:
            raise Unsupported(
                f"{FILE}: resample is {self.resample!r}; it can be {', '.join(map(str, FILTERS))}",
                value=str(self.resample),
            )
        self._mean = self._numbers("image_mean")
        self._std = self._numbers("image_std")
        self._factor = float(settings.get("rescale_factor", 1 / 255))
        if not math.isfinite(self._factor) or not all(self._std):
            raise _bad("rescale_factor or image_std")

    @classmethod
    def read(cls, path: str) -> Preprocessing:
        """Read a folder's."""
        return cls(config_files.read_json(os.path.join(path, FILE), optional=True))

    @property
    def key(self) -> str:
        """A text that is equal for equal preprocessing."""
        names = ("resample", "size", "do_normalize", "image_mean", "image_std", "rescale_factor")
        return repr([self.settings.get(name) for name in names])

    def _numbers(self, name: str) -> list[float]:
        value = self.settings.get(name, [0.5, 0.5, 0.5])
        if (
            not isinstance(value, list)
            or len(value) != 3
            or not all(isinstance(each, int | float) and math.isfinite(each) for each in value)
        ):
            raise _bad(name)
        return [float(each) for each in value]

    def steps(self, pixels: Pixels, height: int, width: int) -> Generator[None, None, mx.array]:
        """Resize, rescale and normalize an image, yielding between bounded parts.

        Returns:
            (height, width, 3) of float32.
        """
        size = (pixels.height, pixels.width, pixels.channels)
        buffer: Any = pixels.data.cast("B", size)
        image = mx.array(buffer)[..., :3]
        if self.settings.get("do_resize", True):
            image = yield from resize_steps(image, height, width, self.resample)
        image = mx.broadcast_to(image, (*image.shape[:2], 3)).astype(mx.float32)
        image = image * self._factor if self.settings.get("do_rescale", True) else image
        if self.settings.get("do_normalize", True):
            image = (image - mx.array(self._mean)) / mx.array(self._std)
        mx.eval(image)
        yield
        return image


def patches_of(image: mx.array, size: int) -> mx.array:
    """Return the square patches of an image (H, W, C): (H W / size², size * size * C)."""
    height, width, channels = image.shape
    split = image.reshape(height // size, size, width // size, size, channels)
    return split.transpose(0, 2, 1, 3, 4).reshape(-1, size * size * channels)


def _bad(name: str) -> BadFormat:
    return BadFormat(f"{FILE}: {name} is unusable", reason="invalid_config", file=FILE, key=name)
