"""Images as handles: from pixels and from files, hostile ones included."""

from __future__ import annotations

import io
import json
import struct
from ctypes import byref, c_int32, c_size_t, create_string_buffer

import mlx.core as mx
import numpy as np
import pytest
from PIL import Image
from support.hostile_images import chunk, png, png_of
from support.library import StatusError
from support.signatures import EBUFFER, EFORMAT, EHANDLE, EINVAL, ENOMEM

MAX_PIXELS = 1 << 26
RNG = np.random.default_rng(0)


class Media:
    """Images through the C ABI."""

    def __init__(self, lib):
        self.lib = lib
        self.opened = []

    def _made(self, call, *arguments):
        out = c_int32(-7)
        try:
            self.lib.check(call(*arguments, byref(out)))
        except StatusError:
            assert out.value == -7
            raise
        self.opened.append(out.value)
        return out.value

    def pixels(self, array, *, stride=None, width=None, height=None, channels=None):
        rows, columns, own = array.shape
        width, height = width or columns, height or rows
        channels = own if channels is None else channels
        stride = columns * own if stride is None else stride
        data = np.ascontiguousarray(array).ctypes.data
        call = self.lib.c.cow_mlx_media_from_pixels
        return self._made(call, data, width, height, channels, stride)

    def file(self, data):
        return self._made(self.lib.c.cow_mlx_media_from_file, data, len(data))

    def info(self, media):
        text, length = create_string_buffer(512), c_size_t()
        self.lib.check(self.lib.c.cow_mlx_media_info(media, text, 512, byref(length)))
        return json.loads(text.raw[: length.value])


@pytest.fixture
def media(lib):
    media = Media(lib)
    yield media
    for handle in media.opened:
        lib.c.cow_mlx_media_free(handle)


def picture(width, height, channels=3):
    return RNG.integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def refused(status, call, *arguments, **options):
    with pytest.raises(StatusError) as error:
        call(*arguments, **options)
    assert error.value.status == status, error.value
    return error.value.message


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_are_known_by_a_hash_of_size_and_pixels(media, channels):
    array = picture(7, 5, channels)
    info = media.info(media.pixels(array))
    assert (info["width"], info["height"], info["channels"]) == (7, 5, channels)
    assert len(info["hash"]) == 32
    wide = np.zeros((5, 11, channels), np.uint8)
    wide[:, :7] = array
    assert media.info(media.pixels(wide, stride=11 * channels, width=7)) == info
    changed = array.copy()
    changed[4, 6, -1] ^= 1
    assert media.info(media.pixels(changed))["hash"] != info["hash"]
    assert media.info(media.pixels(array.reshape(7, 5, channels)))["hash"] != info["hash"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": -1}, "width is -1"),
        ({"height": -5}, "height is -5"),
        ({"channels": 2}, "channels is 2, must be 1, 3 or 4"),
        ({"channels": 0}, "channels is 0"),
        ({"stride": 11}, "stride is 11, must be at least width * channels"),
        ({"stride": 0}, "stride is 0"),
        ({"stride": 2**63}, "what memory can hold"),
        ({"stride": 2**64 - 1}, "what memory can hold"),
        ({"width": 2**31 - 1, "height": 2**31 - 1}, f"at most {MAX_PIXELS}"),
        ({"width": MAX_PIXELS + 1, "height": 1}, f"at most {MAX_PIXELS}"),
    ],
)
def test_bad_sizes_are_refused_by_name(media, options, said):
    message = refused(EINVAL, media.pixels, picture(4, 4), **options)
    assert message.startswith("media_from_pixels: ")
    assert said in message


def test_nothing_is_no_image(lib, media):
    out = c_int32()
    c = lib.c
    assert c.cow_mlx_media_from_pixels(None, 1, 1, 1, 1, byref(out)) == EINVAL
    assert c.cow_mlx_media_from_pixels(b"a", 1, 1, 1, 1, None) == EINVAL
    assert c.cow_mlx_media_from_pixels(b"a", 0, 1, 1, 1, byref(out)) == EINVAL
    assert c.cow_mlx_media_from_file(None, 1, byref(out)) == EINVAL
    assert c.cow_mlx_media_from_file(b"a", 0, byref(out)) == EINVAL
    assert c.cow_mlx_media_from_file(b"a", 2**64 - 1, byref(out)) == EINVAL


def test_a_freed_image_is_none(lib, media):
    handle = media.pixels(picture(1, 1))
    text, length = create_string_buffer(4), c_size_t()
    info = lib.c.cow_mlx_media_info
    assert info(handle, text, 4, byref(length)) == EBUFFER
    assert length.value > 4
    lib.check(lib.c.cow_mlx_media_free(handle))
    assert lib.c.cow_mlx_media_free(handle) == EHANDLE
    assert info(handle, text, 4, byref(length)) == EHANDLE
    assert "media" in lib.message()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP", "GIF", "JPEG"])
def test_files_give_what_their_pixels_give(media, kind):
    array = np.zeros((9, 13, 3), np.uint8) + np.arange(13, dtype=np.uint8)[None, :, None] * 16
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(Image.fromarray(array), kind, **options)
    plain = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert media.info(media.file(data)) == media.info(media.pixels(plain))


def test_exif_turns_an_image(media):
    image = Image.fromarray(picture(8, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(image, "PNG", exif=exif)
    turned = np.asarray(image.transpose(Image.Transpose.ROTATE_270))
    assert media.info(media.file(data)) == media.info(media.pixels(turned))


def test_exif_turns_an_image_whose_other_tags_are_odd(media):
    image = Image.fromarray(picture(4, 2))
    entries = (0x0112, 3, 1, 6), (0x010F, 5, 5, 8), (0x0100, 8, 2, 0)
    table = b"".join(
        struct.pack("<HHI", *entry[:3])
        + (struct.pack("<HH", entry[3], 0) if entry[1] == 3 else struct.pack("<I", entry[3]))
        for entry in entries
    )
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + table + bytes(4)
    plain, odd = encoded(image, "JPEG"), encoded(image, "JPEG", exif=exif)
    decoded = Image.open(io.BytesIO(plain)).transpose(Image.Transpose.ROTATE_270)
    assert media.info(media.file(odd)) == media.info(media.pixels(np.asarray(decoded)))


def scans(count, behind=b""):
    """A progressive JPEG of grey in so many scans."""

    def segment(marker, data):
        return bytes((0xFF, marker)) + struct.pack(">H", 2 + len(data)) + data

    frame = segment(0xC2, struct.pack(">BHHBBBB", 8, 64, 64, 1, 1, 0x11, 0))
    tables = [segment(0xC4, bytes((kind, 1, *bytes(15), 0))) for kind in (0x00, 0x10)]
    first = segment(0xDA, bytes((1, 1, 0, 0, 0, 0))) + bytes(8)
    later = segment(0xDA, bytes((1, 1, 0, 1, 63, 0))) + b"\0"
    quantization = segment(0xDB, b"\0" + b"\1" * 64)
    comment = segment(0xFE, b"\xff\xd9")
    body = quantization + frame + b"".join(tables) + comment + first + comment
    return b"\xff\xd8" + body + later * (count - 1) + b"\xff\xd9" + behind


def test_a_jpeg_of_many_scans_is_refused(media):
    """Each is a pass over all pixels."""
    assert media.info(media.file(scans(100, behind=b"\xff\xda" * 5000)))["width"] == 64
    for count in (101, 5000):
        assert "more than 100 scans" in refused(EFORMAT, media.file, scans(count))
    usual = encoded(Image.fromarray(picture(40, 30)), "JPEG", progressive=True)
    plain = np.asarray(Image.open(io.BytesIO(usual)))
    assert media.info(media.file(usual)) == media.info(media.pixels(plain))
    long = scans(2).replace(b"\xff\xdb", b"\xff\xfe\0\2" * 5000 + b"\xff\xdb", 1)
    assert "more than 4096 segments" in refused(EFORMAT, media.file, long)


def test_odd_modes_become_plain_ones(media):
    cmyk = encoded(Image.fromarray(picture(6, 6)).convert("CMYK"), "JPEG")
    assert media.info(media.file(cmyk))["channels"] == 3
    for mode, channels in (("1", 1), ("L", 1), ("LA", 4), ("P", 3), ("I;16", 1), ("RGBA", 4)):
        data = encoded(Image.new(mode, (6, 4)), "PNG")
        info = media.info(media.file(data))
        assert (info["width"], info["height"], info["channels"]) == (6, 4, channels), mode
    frames = [Image.new("RGB", (3, 3), color) for color in ("red", "blue")]
    moving = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    first = np.asarray(frames[0])
    assert media.info(media.file(moving)) == media.info(media.pixels(first))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_transparent_colors_are_kept(media, mode):
    """So that models see what transformers' convert_to_rgb gives: the image on white."""
    image = Image.fromarray(picture(6, 4, 4), "RGBA").convert(mode)
    kept = {"1": 0, "L": image.getpixel((1, 1)), "P": 0, "RGB": image.getpixel((1, 1))}
    options = {"transparency": kept[mode]} if mode in kept else {}
    data = encoded(image, "PNG", **options)
    opened = Image.open(io.BytesIO(data))
    assert mode not in kept or opened.info["transparency"] is not None
    assert media.info(media.file(data)) == media.info(
        media.pixels(np.asarray(opened.convert("RGBA")))
    )


KEYED = {
    "16 bits of grey": (16, 0, "1234 1235 ffff", "1234", [(18, 0), (18, 255), (255, 255)]),
    "4 bits of grey": (4, 0, "5f", "0005", [(85, 0), (255, 255)]),
    "bits beyond 4 of grey": (4, 0, "5f", "ff25", [(85, 0), (255, 255)]),
    "2 bits of grey": (2, 0, "1b", "0002", [(0, 255), (85, 255), (170, 0), (255, 255)]),
    "16 bits": (16, 2, "1234 1234 1234 3412 3412 3412", "123412341234", [(18, 0), (52, 255)]),
}


@pytest.mark.parametrize("name", KEYED)
def test_transparent_colors_of_other_depths_are_kept(media, name):
    depth, color, row, key, pixels = KEYED[name]
    row, key = b"\0" + bytes.fromhex(row), chunk(b"tRNS", bytes.fromhex(key))
    data = png_of(len(pixels), 1, row, depth=depth, color=color, before=key)
    expected = np.array([[(grey, grey, grey, alpha) for grey, alpha in pixels]], np.uint8)
    assert media.info(media.file(data)) == media.info(media.pixels(expected))


@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_text_by_the_name_of_transparency_is_a_text(media, place):
    row, text = b"\0\5\6\7\5\6\x08", {place: chunk(b"tEXt", b"transparency\0no")}
    pixels = np.array([[(5, 6, 7), (5, 6, 8)]], np.uint8)
    data = png_of(2, 1, row, **text)
    assert media.info(media.file(data)) == media.info(media.pixels(pixels))


def test_bombs_and_damaged_files_are_refused(media):
    assert str(MAX_PIXELS) in refused(EINVAL, media.file, png(65535, 65535))
    assert str(MAX_PIXELS) in refused(EINVAL, media.file, png(2**31 - 1, 2**31 - 1))
    refused(EFORMAT, media.file, png(64, 64))  # fewer pixels than its header tells
    for data in (b"\0" * 64, b"GIF89a", b"%PDF-1.4", b"P6 1 1 255 abc"):
        assert "PNG, JPEG, WebP, BMP or GIF" in refused(EFORMAT, media.file, data)
    for kind in ("PNG", "JPEG", "WEBP"):
        data = encoded(Image.fromarray(picture(32, 32)), kind)
        refused(EFORMAT, media.file, data[: len(data) // 2])


def test_decoded_pixels_count_for_the_memory_limit(lib, media):
    """Those of an open image, and those that decoding takes."""
    data = encoded(Image.new("1", (8192, 8192)), "PNG")
    limit = mx.get_memory_limit()
    try:
        mx.set_memory_limit(lib.info()["memory"]["active"] + (100 << 20))
        assert "memory" in refused(ENOMEM, media.file, data)
        mx.set_memory_limit(lib.info()["memory"]["active"] + (230 << 20))
        first = media.file(data)
        refused(ENOMEM, media.file, data)
        lib.check(lib.c.cow_mlx_media_free(first))
        media.file(data)
    finally:
        mx.set_memory_limit(limit)


@pytest.mark.parametrize(("compression", "bits", "name"), [(1, 8, "RLE8"), (2, 4, "RLE4")])
def test_compressed_bmp_is_refused_before_it_is_decoded(media, compression, bits, name):
    """Pillow's decoder of it takes a line of 2^26 pixels byte by byte."""
    for width in (4, MAX_PIXELS):
        header = struct.pack("<IiiHHIIiiII", 40, width, 1, 1, bits, compression, 4, 0, 0, 2, 0)
        body = header + bytes((0, 0, 0, 0, 9, 8, 7, 0)) + b"\4\1\0\1"
        file = b"BM" + struct.pack("<IHHI", 14 + len(body), 0, 0, 62) + body
        assert f"BMP compressed by {name}" in refused(EFORMAT, media.file, file)


def test_fuzzed_files_are_images_or_errors(media):
    rng = np.random.default_rng(7)
    for kind in ("PNG", "JPEG", "WEBP", "BMP", "GIF"):
        data = encoded(Image.fromarray(picture(16, 16)), kind)
        for _ in range(20):
            bad = bytearray(data)
            for at in rng.integers(0, len(bad), 4):
                bad[at] = rng.integers(0, 256)
            try:
                media.file(bytes(bad))
            except StatusError as error:
                assert error.status in (EFORMAT, EINVAL), error
