"""What tool calls in all notations are made of."""

from __future__ import annotations

import re

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generation.lark import LarkWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from cowmlx.models.chat_format import ChatFormat
    from cowmlx.models.model import Model

MAX_NAME = 256  # characters of a tool's name, or of an argument's
NAME = r"[\w.:/-]+"  # of a tool or an argument, where no notation says otherwise
TYPES = {"string", "integer", "number", "boolean", "object", "array"}
SHARED: tuple[str, ...] = ("$defs", "definitions")  # what references in a schema lead to
# What a schema may say that bounds nothing.
ANNOTATIONS = frozenset(
    ("$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated")
)
_OF_OBJECTS = {*ANNOTATIONS, *SHARED, "type", "properties", "required", "additionalProperties"}
_OF_TEXTS = {*ANNOTATIONS, *SHARED, "type", "enum", "const"}


class Tool:
    """A tool that is to be called.

    Attributes:
        name: what the model calls it by.
        parameters: the JSON schema of its arguments, an object's.
    """

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self.name = name
        self.parameters = parameters


class CallWriter(LarkWriter):
    """Writes what calls in all notations are made of."""

    def __init__(self, model: Model, format: ChatFormat) -> None:
        super().__init__(model)
        self.parser = format.parser
        self.begin = self.literal(format.tool_start)
        self.end = self.literal(format.tool_end) if format.tool_end else ""
        self.end_text = format.tool_end

    def arguments(self, tool: Tool) -> str:
        """Return a JSON object that matches a tool's schema."""
        return self.json(tool.parameters)

    def name(self, tool: Tool, pattern: str = NAME) -> str:
        """Return a tool's name, unless it would be misread."""
        if re.fullmatch(pattern, tool.name, re.ASCII) is None:
            self.refuse(f"the name {tool.name!r} cannot be written")
        return tool.name

    def properties(self, tool: Tool, pattern: str) -> list[tuple[str, dict[str, Any], bool]]:
        """Return name and schema of each argument, and whether it is required.

        Raises:
            Unsupported: the schema says more than that, or a name would be misread.
        """
        schema = tool.parameters
        for word in schema:
            if word not in _OF_OBJECTS:
                self.refuse(f"{word} in the parameters of {tool.name!r} cannot be enforced")
        found, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(found, dict) or not isinstance(required, list):
            raise InvalidArgument(
                f"properties or required of {tool.name!r} is malformed",
                reason="wrong_type",
                argument="tools",
            )
        shared = {key: schema[key] for key in SHARED if key in schema}
        result = []
        for key, value in found.items():
            if not isinstance(value, dict | bool):
                raise InvalidArgument(
                    f"the schema of {key!r} of {tool.name!r} is malformed",
                    reason="wrong_type",
                    argument="tools",
                )
            written = len(key) <= MAX_NAME and re.fullmatch(pattern, key, re.ASCII)
            if not written or value is False:
                self.refuse(f"the argument {key!r} of {tool.name!r} cannot be written")
            inner = {**shared, **value} if isinstance(value, dict) else {}
            result.append((key, inner, key in required))
        unknown = [key for key in required if not isinstance(key, str) or key not in found]
        if unknown:
            self.refuse(f"{tool.name!r} requires {unknown[0]!r}, which is none of its properties")
        return result

    def choices(self, tool: Tool, key: str, schema: dict[str, Any], pattern: str) -> list[str]:
        """Return the texts that an argument may be; none if it may be any.

        Raises:
            Unsupported: its schema says more, or a text would be misread.
        """
        for word in schema:
            if word not in _OF_TEXTS:
                self.refuse(f"{word} of the argument {key!r} of {tool.name!r} cannot be enforced")
        choices: Any = [schema["const"]] if "const" in schema else schema.get("enum", [])
        if not isinstance(choices, list) or (not choices and "enum" in schema):
            raise InvalidArgument(
                f"the enum of {key!r} of {tool.name!r} is malformed",
                reason="wrong_type",
                argument="tools",
            )
        for choice in choices:
            if not isinstance(choice, str) or re.fullmatch(pattern, choice) is None:
                self.refuse(f"the value {choice!r} of {key!r} of {tool.name!r} cannot be written")
        return list(choices)

    def is_any_text(self, schema: dict[str, Any]) -> bool:
        """Whether the schema of a text bounds nothing."""
        return set(schema) <= {*ANNOTATIONS, *SHARED, "type"}

    def refuse(self, what: str) -> NoReturn:
        """Raise Unsupported."""
        raise Unsupported(
            f"tool_choice: in this model's tool-call format {self.parser!r} {what}; leave "
            'tool_choice at "auto"',
            argument="tool_choice",
        )

    def kind(self, tool: Tool, key: str, schema: dict[str, Any]) -> str:
        """Return the JSON type of an argument; there must be one alone."""
        kind = schema.get("type")
        if not isinstance(kind, str) or kind not in TYPES:
            self.refuse(f"the argument {key!r} of {tool.name!r} must have one type, not {kind!r}")
        return kind


def repeated(call: str, once: bool) -> str:
    """Return a call, or several with a line break between."""
    return call if once else f'{call} ("\\n"? {call})* "\\n"?'
