"""Encoded images to pixels, by Pillow, which is optional, within bounds."""

from __future__ import annotations

import io
import re
import sys
import warnings

from cowmlx import failures
from cowmlx.errors import BadFormat, InvalidArgument, NotFound
from cowmlx.vision.pixels import MAX_PIXELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.memory import RequireRoom

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
_ACCEPTED = "PNG, JPEG, WebP, BMP or GIF"
_ORIENTATION = 0x0112  # of EXIF
_CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
_MOST_SCANS, _MOST_SEGMENTS = 100, 4096  # of a JPEG; encoders write about 10 scans
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")  # those with a length, and the last one
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_STORED = 4  # bytes of a pixel of color in Pillow
_GREYS = {"L;2": (3, 85), "L;4": (15, 17)}  # bits of grey, and the factor to 8 bits
_RUN_LENGTHS = {1: "RLE8", 2: "RLE4"}  # of BMP; Pillow decodes them in Python, byte by byte


def available() -> bool:
    """Whether encoded images can be decoded."""
    from importlib.util import find_spec

    return "PIL" in sys.modules or find_spec("PIL") is not None


def decode(
    file: memoryview, name: str, require_room: RequireRoom
) -> tuple[bytes, tuple[int, int, int]]:
    """Decode a file.

    Args:
        file: its bytes.
        name: of these in messages.
        require_room: makes sure that there are so many bytes, before they are taken.

    Returns:
        the pixels, and height, width and channels.

    Raises:
        NotFound: there is no Pillow.
        BadFormat: it is no image of a known format, compressed BMP, a JPEG of too many scans, or
            damaged.
        InvalidArgument: it has too many pixels.
        OutOfMemory: there is too little memory for them.
    """
    image = _opened(file, name)
    key = _key(image)
    _set_key(image, key)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise InvalidArgument(
            f"{name} is an image of {width} x {height}: {width * height} pixels, which can be at "
            f"most {MAX_PIXELS}",
            reason="limit_exceeded",
            argument=name,
            needed=width * height,
            limit=MAX_PIXELS,
        )
    compression = _RUN_LENGTHS.get(image.info.get("compression", 0))
    if image.format == "BMP" and compression:
        raise BadFormat(
            f"{name} is a BMP compressed by {compression}; only uncompressed ones are decoded",
            file=name,
        )
    if bytes(file[:2]) == b"\xff\xd8":
        _require_few_scans(file, name)
    require_room(width * height * _bytes_of_pixel(image), name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.seek(0)
            image.load()
            _set_key(image, key)  # a text at the file's end may have replaced it
            image = _turned(image)
            image = _plain(image)
            return image.tobytes(), (image.height, image.width, _CHANNELS[image.mode])
    except Exception as error:  # Pillow raises OSError, SyntaxError, struct.error and others
        raise _damaged(error, name) from error


def _opened(file: memoryview, name: str) -> Any:
    """Read the header of an image."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as error:
        raise NotFound(
            f"the Python in {sys.prefix} has no package 'pillow', which decodes images; install "
            "cowmlx[images] there, or hand over pixels by media_from_pixels",
            reason="package_not_found",
            package="pillow",
        ) from error
    except ImportError as error:
        raise failures.of_import(error, "pillow") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large images: they are bounded here
            return Image.open(io.BytesIO(file), formats=FORMATS)
    except UnidentifiedImageError as error:
        raise BadFormat(
            f"{name} is no image, or damaged; it can be {_ACCEPTED}", file=name
        ) from error
    except Image.DecompressionBombError as error:
        raise InvalidArgument(
            f"{name} is an image of more than {MAX_PIXELS} pixels",
            reason="limit_exceeded",
            argument=name,
            limit=MAX_PIXELS,
        ) from error
    except Exception as error:
        raise _damaged(error, name) from error


def _require_few_scans(file: memoryview, name: str) -> None:
    """Refuse a JPEG of many scans: each is a pass over all pixels, and takes few bytes.

    Raises:
        BadFormat: it has too many, or too many segments to count them.
    """
    at = scans = segments = 0
    while (found := _MARKER.search(file, at)) is not None:
        marker, at = found[1][0], found.end()
        if marker == _END_OF_IMAGE:
            return
        at += int.from_bytes(file[at : at + 2])
        segments += 1
        scans += marker == _START_OF_SCAN
        if scans > _MOST_SCANS or segments > _MOST_SEGMENTS:
            what = f"{_MOST_SCANS} scans" if scans > _MOST_SCANS else f"{_MOST_SEGMENTS} segments"
            raise BadFormat(f"{name} is a JPEG of more than {what}", file=name)


def _damaged(error: Exception, name: str) -> BadFormat:
    """Return the error of a damaged file; raises where memory is short instead."""
    if not isinstance(error, OSError) or error.errno is not None:  # Pillow's own has none
        failures.reraise_shortage(error)
    text = str(error)[:200] or type(error).__name__
    return BadFormat(f"{name} is a damaged image: {text}", file=name)


def _bytes_of_pixel(image: Any) -> int:
    """Return the bytes of a pixel while it is decoded: as stored, converted, and as it is used."""
    if image.mode in ("1", "L") and not _is_keyed(image):
        return 3
    return 2 * _STORED + _CHANNELS["RGBA"]


def _is_keyed(image: Any) -> bool:
    """Whether one color of an image is transparent."""
    return image.info.get("transparency") is not None


def _key(image: Any) -> Any:
    """Return the transparent color of an image, as Pillow's pixels have it; None: there is none.

    Pillow keeps that of a PNG as stored, also where its pixels have more or fewer bits, and texts
    of a PNG by their names beside it. Of 16 bits of color its pixels have the high ones alone, so
    colors that differ in low bits from the transparent one are transparent, too.
    """
    key = image.info.get("transparency")
    if isinstance(key, str):
        return None
    stored = image.tile[0][3] if image.format == "PNG" and image.tile else None
    if stored == "RGB;16B" and isinstance(key, tuple):
        return tuple(value >> 8 for value in key)
    if stored in _GREYS and isinstance(key, int):
        bits, factor = _GREYS[stored]
        return (key & bits) * factor
    return key


def _set_key(image: Any, key: Any) -> None:
    image.info.pop("transparency", None)
    if key is not None:
        image.info["transparency"] = key


def _turned(image: Any) -> Any:
    """Turn an image as its EXIF orientation says; one that is damaged says nothing."""
    from PIL.Image import Transpose

    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception as error:
        _damaged(error, "")
        return image
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)


def _plain(image: Any) -> Any:
    """Return an image in grey, RGB or RGBA of 8 bits."""
    is_keyed = _is_keyed(image)
    if image.mode.startswith("I"):  # 16 bits: Pillow's own conversion clips them
        grey = image.point(lambda value: value / 256).convert("L")
        return _with_alpha(grey, image) if is_keyed else grey
    if image.mode in _CHANNELS and (image.mode == "RGBA" or not is_keyed):
        return image
    if image.mode == "1" and not is_keyed:
        return image.convert("L")
    alpha = image.mode in ("LA", "PA", "La", "RGBa") or is_keyed
    return image.convert("RGBA" if alpha else "RGB")


def _with_alpha(grey: Any, image: Any) -> Any:
    """Return a grey image as RGBA, transparent where one of 16 bits has its transparent color."""
    from PIL import Image

    alphas = [255] * (1 << 16)
    alphas[image.info["transparency"]] = 0
    return Image.merge("RGBA", (grey, grey, grey, image.convert("I").point(alphas, "L")))
