"""Checks chat messages, marks the one to continue, and lists parts that a template may not read.

A template looks into messages as it goes, so only a render shows whether it reads a key. A part
whose name stands in the template counts as read; every other part is in doubt until a render
without it gives another text.
"""

from __future__ import annotations

from cowmlx import json_text
from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.text.templates.arguments import Arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Label = tuple[str, str]

# Behind the text to be continued; the space shows whether the template trims. Private use
# characters, so that no message holds it by chance.
_CONTINUE = "\U000f0002CONTINUE\U000f0003 "
# The names that a message's reasoning goes by; templates read the first, or gpt-oss the second.
_REASONING = ("reasoning_content", "thinking", "reasoning")

# Types of content parts, and keys of messages, that a network of text cannot see or hear.
_MEDIA = ("image", "audio", "video")

_CALL_FORM = 'a tool call is {"type": "function", "function": {"name": ..., "arguments": {...}}}'


def json_type(value: object) -> str:
    """Return what a value parsed from JSON is, in JSON's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kind, name in ((dict, "an object"), (list, "an array"), (str, "a string")):
        if isinstance(value, kind):
            return name
    return "a number"


def wrong_type(where: str, accepted: str, value: object = ...) -> InvalidArgument:
    """Return the error of a member that has another type; with a value, its type is named."""
    given = "" if value is ... else f", not {json_type(value)}"
    return InvalidArgument(
        f"{where} must be {accepted}{given}",
        reason="wrong_type",
        argument=where,
        accepted=accepted.partition(";")[0],
    )


def _not_taken(
    where: str, stated: str, takes_images: bool, value: str | None = None
) -> Unsupported:
    images = "text, and images as parts of the types image and image_url"
    accepted = images if takes_images else "text only"
    return Unsupported(f"{where}{stated} this model takes {accepted}", argument=where, value=value)


def check(messages: object, *, takes_images: bool = False) -> list[dict[str, Any]]:
    """Check messages and drop what is null in them, but their contents.

    Args:
        messages: to check.
        takes_images: whether parts may be images.

    Raises:
        InvalidArgument: malformed; the message names index and key.
        Unsupported: a message holds pictures, sound or video.
    """
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array", messages)
    if not messages:
        raise InvalidArgument(
            "messages is empty; give at least one", reason="missing", argument="messages"
        )
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise wrong_type(where, "an object", message)
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not role:
            raise wrong_type(f"{where}.role", "a non-empty string")
        if content is None and role in ("user", "system"):
            raise InvalidArgument(
                f"{where}.content is missing", reason="missing", argument=f"{where}.content"
            )
        # A tool's result, and messages of roles of the model's own, may be objects.
        forms = (str, list) if role in ("system", "user", "assistant") else (str, list, dict)
        if content is not None and not isinstance(content, forms):
            raise wrong_type(f"{where}.content", "a string or an array of parts", content)
        if isinstance(content, list) and role != "tool":
            _check_parts(f"{where}.content", content, takes_images)
        _check_calls(f"{where}.tool_calls", message.get("tool_calls"))
        for key in message:
            if key.removesuffix("s") in _MEDIA and message[key]:
                raise _not_taken(f"{where}.{key}", ":", takes_images)
    return [
        {key: value for key, value in m.items() if value is not None or key == "content"}
        for m in messages
    ]


def _check_parts(where: str, content: list[Any], takes_images: bool) -> None:
    for number, part in enumerate(content):
        if isinstance(part, str):
            continue
        if not isinstance(part, dict):
            raise wrong_type(f"{where}[{number}]", "an object", part)
        kind = part.get("type")
        if takes_images and kind == "image":
            continue
        if isinstance(kind, str) and any(medium in kind for medium in _MEDIA):
            stated = f" is {kind!r}, but"
            raise _not_taken(f"{where}[{number}].type", stated, takes_images, kind)
        if kind == "text" and not isinstance(part.get("text"), str):
            raise wrong_type(f"{where}[{number}].text", "a string")


def _check_calls(where: str, calls: object) -> None:
    """Check the tool calls of a message: functions, each with its name and arguments."""
    for number, call in enumerate(check_objects(where, calls) or ()):
        inside = f"{where}[{number}]"
        function: Any = call
        if "function" in call:
            inside, function = f"{inside}.function", call["function"]
            if not isinstance(function, dict):
                raise wrong_type(inside, "an object", function)
        if not isinstance(function.get("name"), str) or not function["name"]:
            raise wrong_type(f"{inside}.name", f"a non-empty string; {_CALL_FORM}")
        if not isinstance(function.get("arguments"), dict | str):
            raise wrong_type(f"{inside}.arguments", f"an object, or its JSON; {_CALL_FORM}")


def check_objects(name: str, value: object) -> list[Any] | None:
    """Check an option that is a list of objects."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type(name, "an array", value)
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise wrong_type(f"{name}[{index}]", "an object", entry)
    return value


def without_null_content(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without a content that is null."""
    if "content" not in message or message["content"] is not None:
        return message
    return {key: value for key, value in message.items() if key != "content"}


def with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Give a message's reasoning the names that templates read."""
    reasoning = next((message[key] for key in _REASONING if message.get(key) is not None), None)
    if reasoning is None:
        return dict(message)
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def with_arguments(messages: list[dict[str, Any]], *, as_text: bool) -> list[dict[str, Any]]:
    """Return messages in which the arguments of tool calls are all objects, or all JSON texts.

    Args:
        messages: checked ones.
        as_text: whether they are texts. A text that holds no object stays one.
    """
    return [
        {
            **message,
            "tool_calls": [_with_arguments(call, as_text) for call in message["tool_calls"]],
        }
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _with_arguments(call: dict[str, Any], as_text: bool) -> dict[str, Any]:
    if "function" in call:
        return {**call, "function": _with_arguments(call["function"], as_text)}
    given = call["arguments"]
    text = given if isinstance(given, str) else json_text.dump(given)
    if as_text:
        return {**call, "arguments": text}
    members = given
    if isinstance(given, str):
        try:
            members = json_text.parse(given)
        except json_text.Malformed:
            return call
    return {**call, "arguments": Arguments(members, text)} if isinstance(members, dict) else call


def mark_continuation(messages: list[dict[str, Any]], field: str, source: str) -> str:
    """Put a mark behind the text to be continued, and return that text."""
    last = messages[-1]
    where = f"messages[{len(messages) - 1}].{field}"
    value = last.get(field)
    if value is None:
        raise InvalidArgument(
            f"{where} is missing, so there is nothing to continue", reason="missing", argument=where
        )
    fields = [field]
    if field in _REASONING:
        fields = [name for name in _REASONING if last.get(name) == value]
    if not any(name in source for name in fields):
        raise InvalidArgument(
            f"the chat template does not read {field!r}", reason="unknown_option", argument=field
        )
    if isinstance(value, str):
        for name in fields:
            last[name] = value + _CONTINUE
        return value
    if not isinstance(value, list):
        raise wrong_type(where, "a string or an array of parts", value)
    parts = [dict(part) if isinstance(part, dict) else part for part in value]
    for part in reversed(parts):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            text: str = part["text"]
            part["text"] = text + _CONTINUE
            last[field] = parts
            return text
    raise InvalidArgument(f"{where} holds no text to continue", reason="missing", argument=where)


def cut_continuation(text: str, final: str) -> str:
    """Cut a rendered chat where its last message ends."""
    at = text.rfind(_CONTINUE.strip())
    if at < 0 or final.strip() not in text:
        raise InvalidArgument(
            "the chat template leaves out or changes the message to continue",
            reason="template_refused",
        )
    kept = text[:at]
    # A template that trims the message has trimmed the mark's own space.
    return kept if text.startswith(_CONTINUE, at) else kept.rstrip()


KEY, ROLE, PART, PART_KEY, RESULT = "key", "role", "part", "part key", "result"

# Keys and roles of the usual form of a conversation, which models of all kinds are given: templates
# may leave out names, ids, earlier reasoning and calls.
KEYS = ("role", "content", "name", "tool_call_id", "tool_calls", *_REASONING)
_ROLES = ("system", "user", "assistant", "tool")
_PART_KEYS = ("type", "text")
_EMPTY: tuple[object, ...] = (None, "", [], {}, False)


def doubts(messages: list[dict[str, Any]], names: frozenset[str]) -> dict[Label, str]:
    """Return the parts in doubt, and where the first of each kind is.

    Args:
        messages: checked ones.
        names: all names under which the template can find a key.
    """
    reasons: dict[Label, str] = {}
    for index, message in enumerate(messages):
        for label, where in _labels(index, message):
            if label[1] not in names:
                reasons.setdefault(label, f"messages[{index}]{where}")
    return reasons


def without(messages: list[dict[str, Any]], labels: frozenset[Label]) -> list[dict[str, Any]]:
    """Return messages without some of their parts."""
    return [
        _without(index, message, labels)
        for index, message in enumerate(messages)
        if (ROLE, message["role"]) not in labels
    ]


def _labels(index: int, message: dict[str, Any]) -> Iterator[tuple[Label, str]]:
    """The parts of a message that are not of the usual form."""
    if message["role"] not in _ROLES:
        yield (ROLE, message["role"]), ".role"
    for key, value in message.items():
        if key not in KEYS and value not in _EMPTY:
            yield (KEY, key), f".{key}"
    if message.get("content") and _is_result(message):
        yield _result_label(index, message), ".content"
    for number, part in _parts(message):
        if _kind(part) != "text":
            yield (PART, _kind(part)), f".content[{number}]"
        for key in part if isinstance(part, dict) else ():
            if key not in _PART_KEYS and part[key] not in _EMPTY:
                yield (PART_KEY, key), f".content[{number}].{key}"


def _result_label(index: int, message: dict[str, Any]) -> Label:
    """The label of a result, with the place of its message: a template may read another alone."""
    return f"{RESULT} {index}", json_type(message["content"])


def _without(index: int, message: dict[str, Any], labels: frozenset[Label]) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if (KEY, key) not in labels}
    if _is_result(message) and _result_label(index, message) in labels:
        kept["content"] = ""
    if parts := _parts(message):
        kept["content"] = [
            {key: part[key] for key in part if (PART_KEY, key) not in labels}
            if isinstance(part, dict)
            else part
            for _, part in parts
            if (PART, _kind(part)) not in labels
        ]
    return kept


def _is_result(message: dict[str, Any]) -> bool:
    """Whether the content is an object, or a list of a tool's."""
    return isinstance(message.get("content"), dict | list) and not _parts(message)


def _parts(message: dict[str, Any]) -> list[tuple[int, Any]]:
    """Return the parts of a message's content; a tool may give other lists."""
    content = message.get("content")
    if not isinstance(content, list) or message["role"] == "tool":
        return []
    return list(enumerate(content))


def _kind(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else "a string"
    return kind if isinstance(kind, str) else "no type"
