"""Checks chat messages, marks the one to continue, and lists parts that a template may not read.

A template looks into messages as it goes, so only a render shows whether it reads a key. A part
whose name stands in the template counts as read; every other part is in doubt until a render
without it gives another text.
"""

from __future__ import annotations

from cowmlx.errors import InvalidArgument, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Label = tuple[str, str]

# Behind the text to be continued; the space tells whether the template trims. Private use
# characters, so that no message holds it by chance.
_CONTINUE = "\U000f0002CONTINUE\U000f0003 "
# The names that a message's reasoning goes by; templates read the first, or gpt-oss the second.
_REASONING = ("reasoning_content", "thinking", "reasoning")

# Types of content parts, and keys of messages, that a network of text cannot see or hear.
_MEDIA = ("image", "audio", "video")


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


def check(messages: object) -> list[dict[str, Any]]:
    """Check messages and drop what is null in them.

    Raises:
        InvalidArgument: malformed; the message names index and key.
    """
    if not isinstance(messages, list):
        raise InvalidArgument(
            f"messages must be an array, not {json_type(messages)}",
            reason="wrong_type",
            argument="messages",
            accepted="an array",
        )
    if not messages:
        raise InvalidArgument(
            "messages is empty; give at least one", reason="missing", argument="messages"
        )
    checked = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidArgument(
                f"messages[{index}] must be an object, not {json_type(message)}",
                reason="wrong_type",
                argument=f"messages[{index}]",
                accepted="an object",
            )
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise InvalidArgument(
                f"messages[{index}].role must be a non-empty string",
                reason="wrong_type",
                argument=f"messages[{index}].role",
                accepted="a non-empty string",
            )
        content = message.get("content")
        if content is None and role in ("user", "system"):
            raise InvalidArgument(
                f"messages[{index}].content is missing",
                reason="missing",
                argument=f"messages[{index}].content",
            )
        if content is not None and not isinstance(content, (str, list, dict)):
            raise InvalidArgument(
                f"messages[{index}].content must be a string or an array of "
                f"parts, not {json_type(content)}",
                reason="wrong_type",
                argument=f"messages[{index}].content",
                accepted="a string or an array of parts",
            )
        if isinstance(content, list) and role != "tool":
            for number, part in enumerate(content):
                if not isinstance(part, (dict, str)):
                    raise InvalidArgument(
                        f"messages[{index}].content[{number}] must be an "
                        f"object, not {json_type(part)}",
                        reason="wrong_type",
                        argument=f"messages[{index}].content[{number}]",
                        accepted="an object",
                    )
                kind = part.get("type") if isinstance(part, dict) else None
                if isinstance(kind, str) and any(medium in kind for medium in _MEDIA):
                    raise Unsupported(
                        f"messages[{index}].content[{number}].type is {kind!r}, but this model "
                        "takes text only",
                        argument=f"messages[{index}].content[{number}].type",
                        value=kind,
                    )
        for key in message:
            if key.removesuffix("s") in _MEDIA and message[key]:
                raise Unsupported(
                    f"messages[{index}].{key}: this model takes text only",
                    argument=f"messages[{index}].{key}",
                )
        checked.append({key: value for key, value in message.items() if value is not None})
    return checked


def check_objects(name: str, value: object) -> list[Any] | None:
    """Check an option that is a list of objects."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise InvalidArgument(
            f"{name} must be an array, not {json_type(value)}",
            reason="wrong_type",
            argument=name,
            accepted="an array",
        )
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise InvalidArgument(
                f"{name}[{index}] must be an object, not {json_type(entry)}",
                reason="wrong_type",
                argument=f"{name}[{index}]",
                accepted="an object",
            )
    return value


def with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Give a message's reasoning the names that templates read."""
    reasoning = next((message[key] for key in _REASONING if message.get(key) is not None), None)
    if reasoning is None:
        return dict(message)
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


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


KEY, ROLE, PART, PART_KEY = "key", "role", "part", "part key"

# Keys and roles of the usual form of a conversation, which models of all kinds are given: templates
# may leave out names, ids, earlier reasoning and calls.
KEYS = (
    "role",
    "content",
    "name",
    "tool_call_id",
    "reasoning_content",
    "reasoning",
    "thinking",
    "tool_calls",
)
_ROLES = ("system", "user", "assistant", "tool")
_PART_KEYS = ("type", "text")
_EMPTY: tuple[object, ...] = (None, "", [], {}, False)


def doubts(messages: list[dict[str, Any]], names: frozenset[str]) -> dict[Label, str]:
    """Return the parts in doubt, and where the first of each kind is.

    Args:
        messages: checked ones.
        names: all names under which the template can find a key.
    """
    found: dict[Label, str] = {}
    for index, message in enumerate(messages):
        for label, where in _labels(message):
            if label[1] not in names:
                found.setdefault(label, f"messages[{index}]{where}")
    return found


def without(messages: list[dict[str, Any]], labels: frozenset[Label]) -> list[dict[str, Any]]:
    """Return messages without some of their parts."""
    return [
        _without(message, labels) for message in messages if (ROLE, message["role"]) not in labels
    ]


def _labels(message: dict[str, Any]) -> Iterator[tuple[Label, str]]:
    """The parts of a message that are not of the usual form."""
    if message["role"] not in _ROLES:
        yield (ROLE, message["role"]), ".role"
    for key, value in message.items():
        if key not in KEYS and value not in _EMPTY:
            yield (KEY, key), f".{key}"
    for number, part in _parts(message):
        if _kind(part) != "text":
            yield (PART, _kind(part)), f".content[{number}]"
        for key in part if isinstance(part, dict) else ():
            if key not in _PART_KEYS and part[key] not in _EMPTY:
                yield (PART_KEY, key), f".content[{number}].{key}"


def _without(message: dict[str, Any], labels: frozenset[Label]) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if (KEY, key) not in labels}
    if parts := _parts(message):
        kept["content"] = [
            {key: part[key] for key in part if (PART_KEY, key) not in labels}
            if isinstance(part, dict)
            else part
            for _, part in parts
            if (PART, _kind(part)) not in labels
        ]
    return kept


def _parts(message: dict[str, Any]) -> list[tuple[int, Any]]:
    """Return the parts of a message's content; a tool may give lists of its own."""
    content = message.get("content")
    if not isinstance(content, list) or message["role"] == "tool":
        return []
    return list(enumerate(content))


def _kind(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else "a string"
    return kind if isinstance(kind, str) else "no type"
