"""What ``preprocessor_config.json`` says, and images as numbers that towers take."""

from __future__ import annotations

import json
import os
from hashlib import blake2b

import mlx.core as mx

from cowmlx import resources
from cowmlx.errors import BadFormat, InvalidArgument, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.vision.pixels import MAX_PIXELS
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
_LONGEST = (1 << 16) - 1  # pixels of a side
# Bytes of a pixel: resized twice, normalized and cut into patches.
_OF_PIXEL = 2 * 3 + 3 * 3 * 4
_PART = 1 << 20  # pixels that are put on white in a turn
_STEPS = ("do_resize", "do_rescale", "do_normalize")
# Images are RGB, and an image alone is padded by nothing.
_WITHOUT_EFFECT = ("do_convert_rgb", "do_pad", "do_sample_frames")


class Preprocessing:
    """The preprocessing of a folder.

    Args:
        settings: the file's, by their names.
        steps: names of those that the family has beside resizing, rescaling and normalizing.
        file: the settings' file.
        processor: what else ``processor_config.json`` says.

    Attributes:
        settings, file: the same.
        resample: Pillow's number of the filter.

    Raises:
        BadFormat: a value is of another type than it should be.
        Unsupported: a filter or a step that is not known here.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        steps: tuple[str, ...] = (),
        file: str = FILE,
        processor: dict[str, Any] | None = None,
    ) -> None:
        self.settings, self.file, self._processor = settings, file, processor or {}
        self.resample: int = settings.get("resample", BILINEAR)
        if type(self.resample) is not int or self.resample not in FILTERS:
            raise Unsupported(
                f"{file}: resample is {self.resample!r}; it can be {', '.join(map(str, FILTERS))}",
                value=str(self.resample),
            )
        self._check_steps(steps)
        self._mean = self._numbers("image_mean")
        self._std = self._numbers("image_std")
        if not all(self._std):
            raise self.bad("image_std", "numbers other than 0")
        self._factor = settings.get("rescale_factor", 1 / 255)
        if not is_finite(self._factor) or not self._factor:
            raise self.bad("rescale_factor", "a number other than 0")

    @classmethod
    def read(
        cls,
        path: str,
        defaults: dict[str, Any] | None = None,
        *,
        steps: tuple[str, ...] = (),
        resizes: bool = False,
    ) -> Preprocessing:
        """Read a folder's.

        Args:
            path: the folder.
            defaults: for what its file does not say, or has null for.
            steps: as for the class.
            resizes: whether images are resized, whatever it says of that.
        """
        whole = config_files.read_json(os.path.join(path, _WHOLE), optional=True)
        own, file = whole.pop("image_processor", None), _WHOLE
        if not isinstance(own, dict):
            own, file = config_files.read_json(os.path.join(path, FILE), optional=True), FILE
        if resizes:
            own.pop("do_resize", None)
        return cls({**(defaults or {}), **_given(own)}, steps, file, _given(whole))

    @property
    def key(self) -> str:
        """A text that is equal for equal preprocessing."""
        text = f"alpha on white {json.dumps(self.settings, sort_keys=True)}"
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def sides(self, name: str, *accepted: str) -> list[int]:
        """Return numbers of pixels, such as the ``height`` and ``width`` of ``size``.

        A number alone is that of both sides, and a list has height and width.

        Args:
            name: of the setting.
            accepted: the names that it can have numbers by, divided by commas.

        Returns:
            those of the first of these that it has.

        Raises:
            Unsupported: it has none of these, or others beside them.
        """
        own: Any = self.settings.get(name)
        sides = [own, own] if type(own) is int else own
        if isinstance(sides, list) and len(sides) == 2:
            is_square = self.settings.get("default_to_square", True) or isinstance(own, list)
            sides = dict(zip(("height", "width"), sides, strict=True)) if is_square else None
        sides = _given(sides) if isinstance(sides, dict) else {}
        for names in accepted:
            if sides.keys() == set(names.split(",")):
                values = [sides[each] for each in names.split(",")]
                if all(type(each) is int and 0 < each <= _LONGEST for each in values):
                    return values
        raise Unsupported(
            f"{self.file}: {name} is {own!r}; it must have {' or '.join(accepted)} of 1 to "
            f"{_LONGEST}"
        )

    def require(self, **expected: int) -> None:
        """Require of settings that ``config.json`` decides that they are as there, if given.

        Raises:
            Unsupported: they are not.
        """
        for name, value in expected.items():
            own, file = self.settings.get(name), self.file
            if own is None:
                own, file = self._processor.get(name, value), _WHOLE
            if type(own) is not int or own != value:
                raise Unsupported(f"{file}: {name} is {own!r}, but {value} by config.json")

    def require_pixels(self, name: str, count: int, file: str = "") -> None:
        """Require that a setting does not make images larger than any that is taken.

        Args:
            name: of the setting.
            count: pixels of a resized image, at most.
            file: of the setting, if it is another one.

        Raises:
            Unsupported: there are more than :data:`MAX_PIXELS`.
        """
        if count > MAX_PIXELS:
            raise Unsupported(
                f"{file or self.file}: {name} makes images of {count} pixels, which can be at "
                f"most {MAX_PIXELS}"
            )

    def token(self, name: str, default: str) -> str:
        """Return the text of a token that ``processor_config.json`` can name."""
        return str(self._processor.get(name, default))

    def _check_steps(self, steps: tuple[str, ...]) -> None:
        for name, value in self.settings.items():
            if not name.startswith("do_"):
                continue
            if not isinstance(value, bool):
                raise self.bad(name, "true or false")
            if value and name not in (*_STEPS, *_WITHOUT_EFFECT, *steps):
                raise Unsupported(
                    f"{self.file}: {name} is true; the steps of this family are "
                    f"{', '.join((*_STEPS, *steps))}",
                    value=name,
                )
        if not self.settings.get("do_resize", True):
            raise Unsupported(f"{self.file}: do_resize is false; images of any size need it")

    def _numbers(self, name: str) -> list[float]:
        value = self.settings.get(name, 0.5)
        values = [value] * 3 if is_finite(value) else value
        if not isinstance(values, list) or len(values) != 3 or not all(map(is_finite, values)):
            raise self.bad(name, "a number, or three")
        return [float(each) for each in values]

    def bad(self, name: str, accepted: str) -> BadFormat:
        """Return the error of a setting of the wrong type."""
        return BadFormat(
            f"{self.file}: {name} is {self.settings.get(name)!r}; it must be {accepted}",
            reason="invalid_config",
            file=self.file,
            key=name,
            accepted=accepted,
        )

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
        image = yield from self.resized_steps((yield from plain_steps(pixels)), height, width)
        return (
            yield from turns.joined(
                lambda part: self.normalized(image[part]), height, width * 3 * _NORMALIZING
            )
        )

    def resized_steps(
        self, image: mx.array, height: int, width: int
    ) -> Generator[None, None, mx.array]:
        """Resize an image (H, W, C) of bytes, yielding between bounded parts.

        Raises:
            InvalidArgument: it would have more than :data:`MAX_PIXELS` pixels.
            OutOfMemory: there is too little memory for it and its patches.
        """
        if height * width > MAX_PIXELS:
            raise InvalidArgument(
                f"an image of {image.shape[1]} x {image.shape[0]} would be resized to {width} x "
                f"{height}: {height * width} pixels, which can be at most {MAX_PIXELS}",
                reason="limit_exceeded",
                needed=height * width,
                limit=MAX_PIXELS,
            )
        resources.require_memory(height * width * _OF_PIXEL, f"an image of {width} x {height}")
        return (yield from resize_steps(image, height, width, self.resample))

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


def plain_steps(pixels: Pixels) -> Generator[None, None, mx.array]:
    """Return an image of bytes, (H, W, 1 or 3), on white where it is transparent.

    Yields between bounded parts.
    """
    size = (pixels.height, pixels.width, pixels.channels)
    buffer: Any = pixels.contiguous().cast("B", size)
    image = mx.array(buffer)
    if pixels.channels < 4:
        return image
    lines, parts = max(1, _PART // pixels.width), []
    for at in range(0, pixels.height, lines):
        if at:
            yield
        parts.append(_on_white(image[at : at + lines]))
        mx.eval(parts[-1])
    return mx.concatenate(parts) if len(parts) > 1 else parts[0]


def _on_white(image: mx.array) -> mx.array:
    """Return RGBA of bytes on white, as RGB: rounded as Pillow's ``alpha_composite`` does."""
    alpha = image[..., 3:].astype(mx.uint32)
    color = image[..., :3].astype(mx.uint32) * alpha + 255 * (255 - alpha) + 128
    return (((color >> 1) + 128 * color) >> 15).astype(mx.uint8)


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


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without those that are null."""
    return {key: value for key, value in settings.items() if value is not None}
