"""What ``preprocessor_config.json`` says, and images as numbers that towers take."""

from __future__ import annotations

import json
import os
from hashlib import blake2b

import mlx.core as mx

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.vision.resampling import BILINEAR, FILTERS, resize_steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, TypeGuard

    from cowmlx.vision.pixels import Pixels
    from cowmlx.vision.turns import Turns

FILE = "preprocessor_config.json"
_MOST = mx.finfo(mx.float32).max
_NORMALIZING = 128  # multiplications of a product that take as long as a number that is normalized
_WHOLE = "processor_config.json"  # has the same for images, and more, in folders of later years


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
        self.resample: int = settings.get("resample", BILINEAR)
        if not isinstance(self.resample, int) or self.resample not in FILTERS:
            raise Unsupported(
                f"{FILE}: resample is {self.resample!r}; it can be {', '.join(map(str, FILTERS))}",
                value=str(self.resample),
            )
        if not settings.get("do_resize", True):
            raise Unsupported(f"{FILE}: do_resize is false; images of any size need it")
        self._mean = self._numbers("image_mean")
        self._std = self._numbers("image_std")
        self._factor = settings.get("rescale_factor", 1 / 255)
        if not is_finite(self._factor) or not all(self._std):
            raise _bad("rescale_factor or image_std")

    @classmethod
    def read(
        cls, path: str, defaults: dict[str, Any] | None = None, *, resizes: bool = False
    ) -> Preprocessing:
        """Read a folder's.

        Args:
            path: the folder.
            defaults: for what its file does not say, or has null for.
            resizes: whether images are resized, whatever it says of that.
        """
        whole = config_files.read_json(os.path.join(path, _WHOLE), optional=True)
        own = whole.get("image_processor")
        if isinstance(own, dict):
            settings = own
        else:
            settings = config_files.read_json(os.path.join(path, FILE), optional=True)
        given = {key: value for key, value in settings.items() if value is not None}
        if resizes:
            given.pop("do_resize", None)
        return cls({**(defaults or {}), **given})

    @property
    def key(self) -> str:
        """A text that is equal for equal preprocessing."""
        text = json.dumps(self.settings, sort_keys=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def size(self, name: str, key: str) -> int:
        """Return a number of pixels, such as the ``longest_edge`` of ``size``.

        Raises:
            Unsupported: it is none.
        """
        own = self.settings.get(name)
        value = own.get(key) if isinstance(own, dict) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Unsupported(f"{FILE}: {name} is {own!r}, without a {key} above 0")
        return value

    def _numbers(self, name: str) -> list[float]:
        value = self.settings.get(name, [0.5, 0.5, 0.5])
        if not isinstance(value, list) or len(value) != 3 or not all(map(is_finite, value)):
            raise _bad(name)
        return [float(each) for each in value]

    def steps(
        self, pixels: Pixels, height: int, width: int, turns: Turns
    ) -> Generator[None, None, mx.array]:
        """Resize, rescale and normalize an image, yielding between bounded parts.

        Args:
            pixels: the image.
            height: the new one.
            width: the new one.
            turns: of the work.

        Returns:
            (height, width, 3) of float32.
        """
        image = yield from resize_steps(plain(pixels), height, width, self.resample)
        return (
            yield from turns.joined(
                lambda part: self.normalized(image[part]), height, width * 3 * _NORMALIZING
            )
        )

    def normalized(self, image: mx.array) -> mx.array:
        """Return an image (H, W, C) of bytes, rescaled and normalized: (H, W, 3), lazily."""
        image = mx.broadcast_to(image, (*image.shape[:2], 3)).astype(mx.float32)
        image = image * self._factor if self.settings.get("do_rescale", True) else image
        if self.settings.get("do_normalize", True):
            image = (image - mx.array(self._mean)) / mx.array(self._std)
        return image


def is_finite(value: object) -> TypeGuard[float]:
    """Whether a value of a config is a number that float32 has."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST


def plain(pixels: Pixels) -> mx.array:
    """Return an image of bytes, (H, W, 1 or 3)."""
    size = (pixels.height, pixels.width, pixels.channels)
    buffer: Any = pixels.data.cast("B", size)
    return mx.array(buffer)[..., :3]


def patches_of(image: mx.array, size: int) -> mx.array:
    """Return the square patches of an image, or of a grid of rows, (H, W, C).

    Pixels beyond the last whole patch of a row or a column are dropped.

    Returns:
        (N, size * size * C), from left to right and from top to bottom.
    """
    height, width, channels = image.shape
    rows, columns = height // size, width // size
    split = image[: rows * size, : columns * size].reshape(rows, size, columns, size, channels)
    return split.transpose(0, 2, 1, 3, 4).reshape(-1, size * size * channels)


def _bad(name: str) -> BadFormat:
    return BadFormat(f"{FILE}: {name} is unusable", reason="invalid_config", file=FILE, key=name)
