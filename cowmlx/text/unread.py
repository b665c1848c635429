"""Parts of messages that a chat template may leave out of the prompt.

A template looks into messages as it goes, so only a render can tell whether it reads a key. A part
whose name stands in the template is taken for read; every other part is in doubt until a render
without it gives another text.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    # A kind of part and its name: ("key", "images").
    Label = tuple[str, str]

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
