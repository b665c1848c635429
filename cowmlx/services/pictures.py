"""The images in messages: handles, and files as data: URLs."""

from __future__ import annotations

import base64
import binascii

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generated.constants import KIND_MEDIA
from cowmlx.services.media import decode_steps
from cowmlx.text.chat_messages import wrong_type
from cowmlx.text.image_places import Pictures
from cowmlx.vision.pixels import Pixels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.handles import HandleTable
    from cowmlx.models.images import Image, ImageStore, NoImages
    from cowmlx.services.runtime import Runtime

_KINDS = ("image", "image_url")
_SHOWN = 60  # characters of a URL in a message


class _Url(str):
    """A data: URL.

    Attributes:
        where: its place in the messages.
    """

    where = ""


def taken_steps(
    store: ImageStore, messages: list[Any], runtime: Runtime
) -> Generator[None, None, tuple[list[Any], Pictures | None]]:
    """Return messages whose image parts say nothing but their type, and the images.

    Yields between files, which are decoded. Handles are looked up before.

    Args:
        store: of the model.
        messages: as hosts give them.
        runtime: with the open images, and the bounds of memory.

    Raises:
        InvalidArgument: a part is malformed.
        UnknownHandle: a handle is not open.
        NotFound, BadFormat: a file cannot be decoded.
        OutOfMemory: there is too little memory for its pixels.
    """
    made, sources = _sources(messages, runtime.handles)
    images: list[Image] = []
    texts: list[str] = []
    for source in sources:
        pixels = source if isinstance(source, Pixels) else (yield from _decoded(source, runtime))
        images += store.images_of(pixels)
        texts.append(store.encoder.text(pixels.width, pixels.height))
    if not images:
        return messages, None
    store.keep(images)
    ids = [list(range(image.first, image.first - image.count, -1)) for image in images]
    return made, Pictures(store.encoder.written, texts, ids, images)


def _sources(messages: list[Any], handles: HandleTable) -> tuple[list[Any], list[Pixels | _Url]]:
    """Return messages whose image parts say nothing but their type, and what these name."""
    sources: list[Pixels | _Url] = []
    made = []
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            parts = []
            for number, part in enumerate(content):
                source = _source(part, f"messages[{index}].content[{number}]", handles)
                if source is not None:
                    sources.append(source)
                parts.append(part if source is None else {"type": "image"})
            message = {**message, "content": parts}
        made.append(message)
    return made, sources


def refuse(messages: list[Any], why: NoImages) -> None:
    """Refuse images in messages to a model that has a tower and takes none.

    Raises:
        Unsupported: there is one; the message has the reason.
    """
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        for number, part in enumerate(content if isinstance(content, list) else []):
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in _KINDS:
                where = f"messages[{index}].content[{number}].type"
                raise Unsupported(
                    f"{where} is {kind!r}, but this model takes text only: {why.error}",
                    argument=where,
                    value=kind,
                )


def _source(part: Any, where: str, handles: HandleTable) -> Pixels | _Url | None:
    """Return the pixels of an image part, or the URL that has them; None of another part."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "image":
        _require_keys(part, ("type", "media"), where)
        handle = part.get("media")
        if handle is None:
            raise InvalidArgument(
                f"{where}.media is missing: the handle of an image",
                reason="missing",
                argument=f"{where}.media",
            )
        if isinstance(handle, bool) or not isinstance(handle, int):
            raise wrong_type(f"{where}.media", "the handle of an image", handle)
        return handles.get(KIND_MEDIA, handle)  # type: ignore[return-value]
    if kind != "image_url":
        return None
    _require_keys(part, ("type", "image_url"), where)
    value = part.get("image_url")
    url = value
    if isinstance(value, dict):
        _require_keys(value, ("url", "detail"), f"{where}.image_url")
        _require_auto(value.get("detail"), f"{where}.image_url.detail")
        url = value.get("url")
    if not isinstance(url, str):
        raise wrong_type(f"{where}.image_url.url", "a string", url)
    made = _Url(url)
    made.where = f"{where}.image_url.url"
    return made


def _require_keys(part: dict[str, Any], accepted: tuple[str, ...], where: str) -> None:
    """Refuse keys that would be ignored.

    Raises:
        InvalidArgument: one is not null, and not accepted.
    """
    for key, value in part.items():
        if key not in accepted and value is not None:
            raise InvalidArgument(
                f"{where}.{key[:_SHOWN]} is no key of an image; they are {', '.join(accepted)}",
                reason="unknown_option",
                argument=f"{where}.{key[:_SHOWN]}",
            )


def _require_auto(detail: object, where: str) -> None:
    """Refuse a detail that would not be followed.

    Raises:
        InvalidArgument: it is another than "auto".
    """
    if detail in (None, "auto"):
        return
    if not isinstance(detail, str):
        raise wrong_type(where, "a string", detail)
    raise InvalidArgument(
        f"{where} is {detail[:_SHOWN]!r}; it can only be 'auto': the model's folder says how "
        "large its images are",
        argument=where,
        value=detail[:_SHOWN],
        accepted="auto",
    )


def _decoded(url: _Url, runtime: Runtime) -> Generator[None, None, Pixels]:
    where = url.where
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise InvalidArgument(
            f"{where} is {url[:_SHOWN]!r}, must be data:image/...;base64,...: nothing is read from "
            "networks or files",
            argument=where,
            value=url[:_SHOWN],
            accepted="data:image/...;base64,...",
        )
    try:
        file = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"{where} is not base64: {error}", argument=where) from None
    return (yield from decode_steps(runtime, memoryview(file), where))
